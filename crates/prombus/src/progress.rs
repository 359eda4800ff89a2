//! Progress of long operations, on a terminal only.

use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::io::{self, IsTerminal};

/// Work of known size, counted in `unit`.
pub fn bar(total: u64, unit: &str) -> ProgressBar {
    let bar = ProgressBar::new(total);
    let template = match unit {
        "bytes" => "{bar:30} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} to go".to_owned(),
        unit => format!("{{bar:30}} {{human_pos}}/{{human_len}} {unit}, {{rate}}/s, {{eta}} to go"),
    };
    styled(bar, &template)
}

/// Work of unknown size, counted in `unit`. It stays out of the way where stdout is the terminal too.
pub fn counter(unit: &str) -> ProgressBar {
    if io::stdout().is_terminal() {
        return ProgressBar::hidden();
    }
    styled(ProgressBar::no_length(), &format!("{{human_pos}} {unit}, {{rate}}/s"))
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    // A template that does not parse leaves the default one; indicatif shows nothing without a terminal.
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style.with_key("rate", write_rate)),
        Err(_) => bar,
    }
}

/// Digits after the point would only flicker.
fn write_rate(state: &ProgressState, out: &mut dyn Write) {
    // Writing to a text cannot fail.
    let _ = write!(out, "{}", HumanCount(state.per_sec() as u64));
}
