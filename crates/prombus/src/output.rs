//! stdout: a table for people, NDJSON for programs.

use crate::failure::Failure;
use crate::visible::{self, Shown};
use serde::Serialize;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

/// What sits between two columns of a table.
const GAP: &str = "  ";

/// One record of a command's data: as a line of JSON and as a row of a table.
pub struct Record {
    /// The line of JSON.
    pub json: String,
    /// The cells of the row.
    pub cells: Vec<String>,
}

impl Record {
    /// A record of something that can be written as JSON.
    pub fn of(value: &impl Serialize, cells: Vec<String>) -> Result<Self, Failure> {
        let json = serde_json::to_string(value).map_err(|error| Failure::Failed(error.to_string()))?;
        Ok(Self { json, cells })
    }
}

/// Whether a person reads stdout.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Writes `records` to stdout, as a table with these `columns` where a person reads it.
pub fn write_records(columns: &[&str], records: &[Record]) -> Result<(), Failure> {
    let text = if is_terminal() { table(columns, records) } else { lines(records) };
    write_all(text.as_bytes())
}

/// Writes `bytes` to stdout: as they are for a program, made visible for a person.
pub fn write_all(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = visible::stdout();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(Failure::of_output)
}

/// stdout for a command that writes a lot; to be flushed at the end.
pub fn buffered() -> BufWriter<Shown<StdoutLock<'static>>> {
    BufWriter::with_capacity(1 << 16, visible::stdout())
}

/// A number of things, in words.
pub fn counted(number: u64, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

fn lines(records: &[Record]) -> String {
    records.iter().flat_map(|record| [record.json.as_str(), "\n"]).collect()
}

fn table(columns: &[&str], records: &[Record]) -> String {
    let head = columns.iter().map(|name| visible::in_line(&name.to_ascii_uppercase()).into_owned()).collect();
    let body =
        records.iter().map(|record| record.cells.iter().map(|cell| visible::in_line(cell).into_owned()));
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(body.map(Iterator::collect)).collect();
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns.len()).map(|column| width(column).unwrap_or(0)).collect();
    let line = |cells: &Vec<String>| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join(GAP).trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(json: &str, cells: &[&str]) -> Record {
        Record { json: json.into(), cells: cells.iter().map(|cell| (*cell).to_owned()).collect() }
    }

    #[test]
    fn tables_line_up() {
        let records = [record("{}", &["process.state", "8"]), record("{}", &["ö", ""])];
        assert_eq!(
            table(&["topic", "partitions"], &records),
            "TOPIC          PARTITIONS\nprocess.state  8\nö\n"
        );
    }

    #[test]
    fn cells_are_made_visible_and_still_line_up() {
        let records = [record("{}", &["\u{1b}[2J\n", "1"]), record("{}", &["k", "2"])];
        assert_eq!(
            table(&["key\u{9b}", "n"], &records),
            "KEY\\u009b        N\n\\u001b[2J\\u000a  1\nk                2\n"
        );
    }

    #[test]
    fn programs_get_one_line_a_record() {
        assert_eq!(lines(&[record("{\"a\":1}", &[]), record("{}", &[])]), "{\"a\":1}\n{}\n");
    }
}
