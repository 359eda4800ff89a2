//! The figures of several rounds: median, spread, and formatting.

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Things of that name in a second; more is better.
    PerSecond(&'static str),
    /// Seconds; less is better.
    Seconds,
    /// Thousandths of a second; less is better.
    Milliseconds,
    /// Millionths of a second; less is better.
    Microseconds,
    /// MiB; less is better.
    Mebibytes,
    /// Hundredths of one core; less is better.
    Percent,
}

impl Unit {
    /// A figure with three digits that count.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::PerSecond(_) => show_count(value),
            Self::Seconds | Self::Milliseconds => format!("{value:.2}"),
            Self::Mebibytes | Self::Microseconds => format!("{value:.0}"),
            Self::Percent => format!("{value:.1}"),
        }
    }

    /// What stands behind a figure.
    pub fn name(self) -> String {
        match self {
            Self::PerSecond(what) => format!("{what}/s"),
            Self::Seconds => "s".to_owned(),
            Self::Milliseconds => "ms".to_owned(),
            Self::Microseconds => "µs".to_owned(),
            Self::Mebibytes => "MiB".to_owned(),
            Self::Percent => "% of a core".to_owned(),
        }
    }
}

fn show_count(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{:.2} M", v / 1e6),
        v if v >= 1e5 => format!("{:.0} k", v / 1e3),
        v if v >= 1e3 => format!("{:.1} k", v / 1e3),
        v => format!("{v:.0}"),
    }
}

/// Middle and spread of some figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The one in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Summary {
    /// Of figures in any order; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Some(Self { median, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_the_middle() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[3.0, 1.0, 9.0]), Some(Summary { median: 3.0, min: 1.0, max: 9.0 }));
        assert_eq!(Summary::of(&[4.0, 1.0]).map(|summary| summary.median), Some(2.5));
    }

    #[test]
    fn counts_are_short() {
        let shown: Vec<_> = [12.0, 7_412.0, 427_001.0, 1_512_000.0].map(show_count).into();
        assert_eq!(shown, ["12", "7.4 k", "427 k", "1.51 M"]);
    }
}
