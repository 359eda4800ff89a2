//! Places in payloads: `a.b`, and `items[].name` or `items.*.name` for every element of an array.

use std::fmt;

/// The most steps of a path: what is put at its end lies so deep, and payloads are only so deep.
const MAX_STEPS: usize = 32;
/// The longest path, in bytes.
const MAX_PATH_BYTES: usize = 1024;

/// A place in payloads. It has at least one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    text: String,
    steps: Vec<Step>,
}

/// A step on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// To a field of an object.
    Field(String),
    /// To every element of an array.
    Each,
}

impl Path {
    /// Reads a path. A backslash takes the next character as it is, so that names may have dots in them.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_PATH_BYTES {
            return Err(format!("a path of {} bytes is too long; {MAX_PATH_BYTES} are allowed", text.len()));
        }
        let mut reading = Reading::default();
        let mut rest = text.chars();
        while let Some(char) = rest.next() {
            match char {
                '\\' => {
                    let taken =
                        rest.next().ok_or_else(|| format!("{text:?} ends in the middle of an escape"))?;
                    reading.name.push(taken);
                    reading.is_plain = false;
                }
                '.' => reading.end_segment(text)?,
                '[' => match (rest.next(), rest.as_str().chars().next()) {
                    (Some(']'), None | Some('.' | '[')) => reading.each(),
                    _ => {
                        return Err(format!(
                            "{text:?}: only [] can follow a name, for every element of an array; write \\[ for the character"
                        ));
                    }
                },
                char => reading.name.push(char),
            }
        }
        reading.end_segment(text)?;
        let steps = reading.steps;
        if steps.len() > MAX_STEPS {
            return Err(format!("{text:?} has {} steps; {MAX_STEPS} are allowed", steps.len()));
        }
        Ok(Self { text: text.to_owned(), steps })
    }

    /// The way.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// How many steps lead to the last element of an array on the way.
    pub fn each_steps(&self) -> usize {
        self.steps.iter().rposition(|step| *step == Step::Each).map_or(0, |at| at + 1)
    }

    /// Whether one of the two lies within the other, or they are the same.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.steps.starts_with(&other.steps) || other.steps.starts_with(&self.steps)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A path that is being read.
struct Reading {
    steps: Vec<Step>,
    name: String,
    /// Whether the name is written without escapes.
    is_plain: bool,
    /// Whether the present segment has an array already, so that it may have no name.
    has_each: bool,
}

impl Default for Reading {
    fn default() -> Self {
        Self { steps: Vec::new(), name: String::new(), is_plain: true, has_each: false }
    }
}

impl Reading {
    fn end_segment(&mut self, text: &str) -> Result<(), String> {
        if self.name == "*" && self.is_plain {
            self.steps.push(Step::Each);
            self.name.clear();
        } else if self.name.is_empty() && !self.has_each {
            return Err(format!("{text:?} is not a path: a name is empty"));
        }
        self.end_name();
        self.has_each = false;
        Ok(())
    }

    fn end_name(&mut self) {
        if !self.name.is_empty() {
            self.steps.push(Step::Field(std::mem::take(&mut self.name)));
        }
        self.is_plain = true;
    }

    fn each(&mut self) {
        self.end_name();
        self.steps.push(Step::Each);
        self.has_each = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(text: &str) -> Result<String, String> {
        let step = |step: &Step| match step {
            Step::Field(name) => name.clone(),
            Step::Each => "<each>".to_owned(),
        };
        Ok(Path::parse(text)?.steps().iter().map(step).collect::<Vec<_>>().join("/"))
    }

    #[test]
    fn paths_are_read() {
        for (text, expected) in [
            ("a", "a"),
            ("a.b.c", "a/b/c"),
            ("items[].name", "items/<each>/name"),
            ("items.*.name", "items/<each>/name"),
            ("a[][].b", "a/<each>/<each>/b"),
            ("[].b", "<each>/b"),
            ("*", "<each>"),
            ("a[]", "a/<each>"),
            (r"a\.b", "a.b"),
            (r"a\[\]", "a[]"),
            (r"\*", "*"),
            ("a*b", "a*b"),
            ("__proto__.constructor", "__proto__/constructor"),
            ("ä ö", "ä ö"),
            ("a]", "a]"),
        ] {
            assert_eq!(steps(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        let deep = vec!["a"; MAX_STEPS + 1].join(".");
        let long = "a".repeat(MAX_PATH_BYTES + 1);
        for bad in ["", ".", "a.", ".a", "a..b", "a[0]", "a[", "a[]b", r"a\", &deep, &long] {
            assert!(steps(bad).is_err(), "{bad}");
        }
        assert!(steps(&deep[2..]).is_ok());
    }
}
