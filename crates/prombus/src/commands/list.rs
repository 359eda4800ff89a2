//! `prombus list`: prints the documents of a collection that meet conditions.

use crate::failure::Failure;
use crate::hub::{self, HubArgs};
use crate::output::{self, Record};
use crate::say;
use clap::Args;
use prombus_client::List;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Maximum number of documents per page.
const PAGE: u64 = 1_000;
/// How many documents are listed by default.
const DEFAULT_LIMIT: u64 = 100;
/// Maximum number of columns of a table; other fields are only in the JSON.
const MAX_COLUMNS: usize = 12;
/// The most characters of a cell.
const MAX_CELL_CHARS: usize = 40;
/// What the hub adds to documents.
const OWN_FIELDS: [&str; 3] = ["_key", "_ts", "_v"];

const EXAMPLES: &str = "\
Examples:
  prombus list processes status=alive 'cpu_pct[gte]=80' --sort -_ts
  prombus list processes 'host[in]=web1,web2' name=stt --limit 10
  prombus list processes --all > processes.ndjson

Conditions: field=value, or field[op]=value with eq, ne, gt, gte, lt, lte or in; dots reach into
nested fields.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ListArgs {
    /// Collection to list
    collection: String,
    /// Conditions that documents must meet: field=value or field[op]=value
    #[arg(value_name = "CONDITION", value_parser = parse_condition)]
    conditions: Vec<(String, String)>,
    /// Comma-separated fields to sort by; a leading - means descending [default: -_ts]
    #[arg(long, value_name = "FIELD", allow_hyphen_values = true)]
    sort: Option<String>,
    /// Maximum number of documents [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "all")]
    limit: Option<u64>,
    /// Number of documents to skip
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    offset: u64,
    /// All documents, page after page
    #[arg(long)]
    all: bool,
}

/// A condition in the form of the API. One without an operator gets one, so that `limit` and `sort` are ordinary fields
/// here.
fn parse_condition(text: &str) -> Result<(String, String), String> {
    let (field, value) = text
        .split_once('=')
        .filter(|(field, _)| !field.is_empty())
        .ok_or("write it as field=value or field[op]=value")?;
    let parameter = if field.ends_with(']') { field.to_owned() } else { format!("{field}[eq]") };
    Ok((parameter, value.to_owned()))
}

pub fn run(hub: &HubArgs, args: ListArgs) -> Result<(), Failure> {
    let client = hub.client()?;
    hub::block_on(async {
        let mut list = client.list(&args.collection).offset(args.offset);
        for (parameter, value) in args.conditions {
            list = list.condition(parameter, value);
        }
        if let Some(sort) = args.sort {
            list = list.sort(sort);
        }
        let wanted = if args.all { u64::MAX } else { args.limit.unwrap_or(DEFAULT_LIMIT) };
        write_pages(list, wanted, &args.collection).await
    })
}

/// Writes page after page, so that memory does not grow with the number of documents.
async fn write_pages(mut list: List<'_>, wanted: u64, collection: &str) -> Result<(), Failure> {
    let mut listed = 0;
    let next = loop {
        let page = list.clone().limit((wanted - listed).min(PAGE)).page().await?;
        // An empty table still has its header; later pages do not repeat it.
        if listed == 0 || !page.items.is_empty() {
            write(&page.items)?;
        }
        listed += page.count;
        match page.next {
            Some(next) if listed < wanted && page.count > 0 => list = list.offset(next),
            next => break next,
        }
    };
    let more = next.map(|next| format!(", and there are more: --offset {next}, or --all"));
    say!("{} of {collection}{}", output::counted(listed, "document"), more.unwrap_or_default());
    Ok(())
}

fn write(items: &[Box<RawValue>]) -> Result<(), Failure> {
    if !output::is_terminal() {
        let lines: String = items.iter().flat_map(|item| [item.get(), "\n"]).collect();
        return output::write_all(lines.as_bytes());
    }
    let documents: Vec<Map<String, Value>> =
        items.iter().map(|item| serde_json::from_str(item.get()).unwrap_or_default()).collect();
    let columns = columns(&documents);
    let rows = documents.iter().map(|document| {
        let cells = columns.iter().map(|column| document.get(column).map(cell).unwrap_or_default());
        Record { json: String::new(), cells: cells.collect() }
    });
    let names: Vec<&str> = columns.iter().map(String::as_str).collect();
    output::write_records(&names, &rows.collect::<Vec<_>>())
}

/// The fields that documents have, in the order in which they come; the key first, and what else the hub adds last.
fn columns(documents: &[Map<String, Value>]) -> Vec<String> {
    let mut columns = vec![OWN_FIELDS[0].to_owned()];
    for field in documents.iter().flat_map(|document| document.keys()) {
        if columns.len() == MAX_COLUMNS {
            break;
        }
        if !OWN_FIELDS.contains(&field.as_str()) && !columns.contains(field) {
            columns.push(field.clone());
        }
    }
    let also =
        OWN_FIELDS[1..].iter().filter(|own| documents.iter().any(|document| document.contains_key(**own)));
    columns.extend(also.map(|own| (*own).to_owned()));
    columns
}

/// A value in short; tables make it one line.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match text.char_indices().nth(MAX_CELL_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn conditions_are_a_field_an_operation_and_a_value() {
        for (text, parameter, value) in [
            ("status=alive", "status[eq]", "alive"),
            ("cpu_pct[gte]=80", "cpu_pct[gte]", "80"),
            ("limit=5", "limit[eq]", "5"),
            ("a.b=x=y", "a.b[eq]", "x=y"),
            ("a=", "a[eq]", ""),
        ] {
            assert_eq!(parse_condition(text).unwrap(), (parameter.to_owned(), value.to_owned()), "{text}");
        }
        for bad in ["", "status", "=alive"] {
            assert!(parse_condition(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn tables_have_the_key_first_and_the_fields_of_all_documents() {
        let object = |value: Value| value.as_object().unwrap().clone();
        let documents = [
            object(json!({"_key": "k", "_ts": 1, "b": 1})),
            object(json!({"_key": "l", "_ts": 2, "_v": 3, "c": [1]})),
        ];
        assert_eq!(columns(&documents), ["_key", "b", "c", "_ts", "_v"]);
        assert_eq!(columns(&[]), ["_key"]);
        let wide: Map<String, Value> = (0..50).map(|n| (format!("f{n:02}"), json!(n))).collect();
        assert_eq!(columns(&[wide]).len(), MAX_COLUMNS);
    }

    #[test]
    fn cells_are_short() {
        assert_eq!(cell(&json!({"a": [1, null]})), r#"{"a":[1,null]}"#);
        assert_eq!(cell(&json!("ö".repeat(41))), "ö".repeat(40) + "…");
        assert_eq!(cell(&json!("ö".repeat(40))), "ö".repeat(40));
    }
}
