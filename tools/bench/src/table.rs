//! The table: its rows, their measurements, and how they are rendered.

use super::Args;
use super::stats::{Summary, Unit};
use std::fmt::Write;

/// Some rows that are measured together.
pub trait Group {
    /// What it is called on the command line.
    fn name(&self) -> &'static str;

    /// Whether it measures a hub, which must be built first.
    fn needs_hub(&self) -> bool;

    /// Measures each of its rows once.
    fn round(&mut self, context: &super::Context, ledger: &mut Ledger) -> Result<(), String>;
}

/// What a row should reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// At least so much of what it is compared with.
    Ratio(f64),
    /// At most this share of what it is compared with.
    RatioAtMost(f64),
    /// At least this figure.
    AtLeast(f64),
    /// At most this figure.
    AtMost(f64),
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What is measured.
    pub name: String,
    /// What the figures count.
    pub unit: Unit,
    /// The row that it is compared with.
    pub versus: Option<String>,
    /// What it should reach: all of it.
    pub targets: Vec<Target>,
}

impl Row {
    /// A row of events in a second.
    pub fn events(name: impl Into<String>) -> Self {
        Self::of(name, Unit::PerSecond("events"))
    }

    /// A row.
    pub fn of(name: impl Into<String>, unit: Unit) -> Self {
        Self { name: name.into(), unit, versus: None, targets: Vec::new() }
    }

    /// The row, compared with another.
    #[must_use]
    pub fn versus(self, other: impl Into<String>) -> Self {
        Self { versus: Some(other.into()), ..self }
    }

    /// The row, with something that it should reach.
    #[must_use]
    pub fn target(mut self, target: impl Into<Option<Target>>) -> Self {
        self.targets.extend(target.into());
        self
    }
}

/// What was measured for a row.
struct Entry {
    /// The group that measured it first.
    group: &'static str,
    row: Row,
    values: Vec<f64>,
    /// Each figure divided by the last one of the row that it is compared with.
    ratios: Vec<f64>,
}

/// What was measured so far.
#[derive(Default)]
pub struct Ledger {
    group: &'static str,
    entries: Vec<Entry>,
    notes: Vec<(&'static str, String)>,
}

impl Ledger {
    /// What follows is measured by this group.
    pub fn begin(&mut self, group: &'static str) {
        self.group = group;
    }

    /// Adds a figure to a row.
    pub fn record(&mut self, row: Row, value: f64) {
        eprintln!("  {}: {} {}", row.name, row.unit.show(value), row.unit.name());
        let other = row.versus.as_ref().and_then(|other| self.entry(other)?.values.last());
        let ratio = other.map(|other| value / other);
        let known = self.entries.iter().position(|entry| entry.row.name == row.name);
        let index = known.unwrap_or_else(|| {
            self.entries.push(Entry { group: self.group, row, values: Vec::new(), ratios: Vec::new() });
            self.entries.len() - 1
        });
        self.entries[index].values.push(value);
        self.entries[index].ratios.extend(ratio);
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.row.name == name)
    }

    /// Says something below the table of the group, once.
    pub fn note(&mut self, note: String) {
        let note = (self.group, note);
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

/// Everything that was measured, to be written.
pub struct Table<'a> {
    /// The rows.
    pub rows: &'a Ledger,
    /// How it was asked for.
    pub args: &'a Args,
}

impl Table<'_> {
    /// The rows of a group as Markdown.
    pub fn of_group(&self, group: &str) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ =
            writeln!(out, "| what | unit | median | min .. max | ratio (min .. max) | target | reached |");
        let _ = writeln!(out, "|---|---|--:|--:|---|---|---|");
        for line in self.rows.entries.iter().filter(|entry| entry.group == group).filter_map(line) {
            let _ = writeln!(out, "{line}");
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let amount = if self.args.quick { ", a tenth of the events" } else { "" };
        let _ = writeln!(out, "\n{cores} cores; interleaved rounds: {}{amount}.", self.args.runs);
        for (_, note) in self.rows.notes.iter().filter(|(of, _)| *of == group) {
            let _ = writeln!(out, "{note}");
        }
        out
    }
}

fn line(entry: &Entry) -> Option<String> {
    let Entry { group: _, row, values, ratios } = entry;
    let Summary { median, min, max } = Summary::of(values)?;
    let show = |value| row.unit.show(value);
    let ratio = Summary::of(ratios);
    let ratio_text = match (&ratio, &row.versus) {
        (Some(ratio), Some(versus)) => {
            format!("{:.2} ({:.2} .. {:.2}) of {versus}", ratio.median, ratio.min, ratio.max)
        }
        _ => String::new(),
    };
    let judged = row.targets.iter().map(|target| match *target {
        Target::Ratio(least) => {
            (format!("ratio ≥ {least:.2}"), ratio.as_ref().map(|ratio| ratio.median >= least))
        }
        Target::RatioAtMost(most) => {
            (format!("ratio ≤ {most:.2}"), ratio.as_ref().map(|ratio| ratio.median <= most))
        }
        Target::AtLeast(least) => (format!("≥ {}", show(least)), Some(median >= least)),
        Target::AtMost(most) => (format!("≤ {}", show(most)), Some(median <= most)),
    });
    let (targets, reached): (Vec<String>, Vec<Option<bool>>) = judged.unzip();
    let target = targets.join(", ");
    let reached = match reached.into_iter().flatten().reduce(|all, one| all && one) {
        None => "",
        Some(true) => "yes",
        Some(false) => "**no**",
    };
    Some(format!(
        "| {} | {} | {} | {} .. {} | {ratio_text} | {target} | {reached} |",
        row.name,
        row.unit.name(),
        show(median),
        show(min),
        show(max)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_neighbours() {
        let mut ledger = Ledger::default();
        ledger.begin("first");
        for (raw, engine) in [(100.0, 60.0), (10.0, 4.0), (50.0, 25.0)] {
            ledger.record(Row::events("raw"), raw);
            let row =
                Row::events("engine").versus("raw").target(Target::Ratio(0.5)).target(Target::AtLeast(9.0));
            ledger.record(row, engine);
        }
        ledger.note("a note".to_owned());
        let args = Args {
            quick: true,
            only: Vec::new(),
            dir: None,
            runs: 3,
            bin: None,
            markdown: None,
            write_docs: false,
        };
        ledger.begin("second");
        ledger.record(Row::events("other").target(Target::AtMost(1.0)), 2.0);
        let table = Table { rows: &ledger, args: &args };
        let text = table.of_group("first");
        let line =
            "| engine | events/s | 25 | 4 .. 60 | 0.50 (0.40 .. 0.60) of raw | ratio ≥ 0.50, ≥ 9 | yes |";
        assert!(text.contains(line), "{text}");
        assert!(text.ends_with("interleaved rounds: 3, a tenth of the events.\na note\n"), "{text}");
        let text = table.of_group("second");
        assert!(text.contains("| other | events/s | 2 | 2 .. 2 |  | ≤ 1 | **no** |"), "{text}");
        assert!(!text.contains("raw") && !text.contains("a note"), "{text}");
    }
}
