//! Regular expressions: compiled once, not larger than they need be, and paid for by what they cost at worst.

use regex::{Error, Regex, RegexBuilder};

/// The most that the patterns of one expression may take when they are compiled, in bytes.
pub const MAX_PATTERN_BYTES: usize = 1 << 20;
/// How much a pattern may remember of texts like those it has seen, in bytes, for each thread that uses it.
const DFA_BYTES: usize = 256 << 10;
/// The sizes that are tried: a pattern is as large as the first that it fits.
const SIZES: [usize; 6] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, MAX_PATTERN_BYTES];
/// Each byte of a text is looked at by at most all of the pattern: so many bytes of it for one unit of work.
const BYTES_PER_WORK: usize = 256;

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    regex: Regex,
    size: usize,
}

impl Pattern {
    /// Compiles a pattern, or says what is wrong with it.
    pub fn compile(source: &str) -> Result<Self, String> {
        for size in SIZES {
            match RegexBuilder::new(source).size_limit(size).dfa_size_limit(DFA_BYTES).build() {
                Ok(regex) => return Ok(Self { regex, size }),
                Err(Error::CompiledTooBig(_)) => {}
                Err(_) => return Err("the pattern is not a valid regular expression".to_owned()),
            }
        }
        Err(too_large())
    }

    /// Whether a text has it.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// What it costs at worst to look at a text.
    pub fn work(&self, text: &str) -> u64 {
        (text.len() as u64).saturating_mul((self.size / BYTES_PER_WORK) as u64)
    }
}

fn too_large() -> String {
    format!(
        "the patterns of an expression may take {MAX_PATTERN_BYTES} bytes when they are compiled, and this is more"
    )
}

/// The patterns of one expression.
#[derive(Debug, Default)]
pub(super) struct Patterns(Vec<(String, Pattern)>);

impl Patterns {
    pub fn get(&self, index: usize) -> Option<&Pattern> {
        self.0.get(index).map(|(_, pattern)| pattern)
    }

    /// Compiles a pattern, and says at which index it is.
    pub fn add(&mut self, source: &str) -> Result<usize, String> {
        if let Some(index) = self.0.iter().position(|(known, _)| known == source) {
            return Ok(index);
        }
        let pattern = Pattern::compile(source)?;
        let size: usize = self.0.iter().map(|(_, pattern)| pattern.size).sum();
        if size + pattern.size > MAX_PATTERN_BYTES {
            return Err(too_large());
        }
        self.0.push((source.to_owned(), pattern));
        Ok(self.0.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_a_size() {
        assert!(Pattern::compile("^a+(b|c)$").unwrap().is_match("aac"));
        assert!(Pattern::compile("a").unwrap().work("12") < Pattern::compile(r"\w{20}").unwrap().work("12"));
        assert!(Pattern::compile("(a{1000}){1000}").unwrap_err().contains("this is more"));
        assert!(Pattern::compile("(").unwrap_err().contains("not a valid"));
    }

    #[test]
    fn all_patterns_together_have_a_size() {
        let mut patterns = Patterns::default();
        assert_eq!(patterns.add("a"), Ok(0));
        assert_eq!(patterns.add("b"), Ok(1));
        assert_eq!(patterns.add("a"), Ok(0));
        let last = (0..100).find_map(|n| patterns.add(&format!(r"[a-z]{{2000}}{n}")).err());
        assert!(last.unwrap().contains("this is more"));
    }
}
