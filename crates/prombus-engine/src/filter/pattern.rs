//! Regular expressions: compiled once, not larger than they need be, and paid for by what they cost at worst.
//!
//! Compiled patterns take far more memory than their text, and thousands of groups and streams may have one each. So all
//! of them share so much: the pattern that was not used for longest is let go, and compiled again when it is.

use parking_lot::Mutex;
use regex::{Error, Regex, RegexBuilder};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, mpsc};

/// The most that the patterns of one expression may take when they are compiled, in bytes.
pub const MAX_PATTERN_BYTES: usize = 1 << 20;
/// The most that all compiled patterns together may take, in bytes.
const MAX_COMPILED_BYTES: usize = 64 << 20;
/// How much a pattern may remember of texts like those it has seen, in bytes, for each thread that uses it.
const DFA_BYTES: usize = 256 << 10;
/// The sizes that are tried: a pattern is as large as the first that it fits.
const SIZES: [usize; 6] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, MAX_PATTERN_BYTES];
/// Each byte of a text is looked at by at most all of the pattern: so many bytes of it for one unit of work.
const BYTES_PER_WORK: usize = 256;

/// Patterns that were used last.
static COMPILED: LazyLock<Mutex<Compiled>> = LazyLock::new(|| Mutex::new(Compiled::new(MAX_COMPILED_BYTES)));

/// A pattern that can be compiled.
#[derive(Debug)]
pub(super) struct Pattern {
    source: String,
    size: usize,
}

impl Pattern {
    /// Compiles a pattern, or says what is wrong with it.
    pub fn compile(source: &str) -> Result<Self, String> {
        let known = COMPILED.lock().get(source).map(|(_, size)| size);
        let size = match known {
            Some(size) => size,
            None => {
                let (regex, size) = compiled(source)?;
                COMPILED.lock().insert(source, &regex, size);
                size
            }
        };
        Ok(Self { source: source.to_owned(), size })
    }

    /// Whether a text has it.
    pub fn is_match(&self, text: &str) -> bool {
        let known = COMPILED.lock().get(&self.source).map(|(regex, _)| regex);
        // It was compiled before, so it is good.
        let Some(regex) = known.or_else(|| self.again()) else { return false };
        regex.is_match(text)
    }

    fn again(&self) -> Option<Arc<Regex>> {
        let (regex, size) = compiled(&self.source).ok()?;
        COMPILED.lock().insert(&self.source, &regex, size);
        Some(regex)
    }

    /// What it costs at worst to look at a text.
    pub fn work(&self, text: &str) -> u64 {
        (text.len() as u64).saturating_mul((self.size / BYTES_PER_WORK) as u64)
    }
}

/// Compiles patterns, one after another: to compile a large one takes long, and whoever sends many of them keeps one
/// processor busy, and not all of them. What was compiled by one thread is also easier to let go of than what was by many.
static COMPILER: LazyLock<Option<mpsc::Sender<Order>>> = LazyLock::new(|| {
    let (sender, orders) = mpsc::channel::<Order>();
    let work = move || {
        for Order { source, answer } in orders {
            // Whoever wants it may be gone.
            let _ = answer.send(compile_now(&source));
        }
    };
    std::thread::Builder::new().name("patterns".to_owned()).spawn(work).ok().map(|_| sender)
});

/// A pattern that is to be compiled.
struct Order {
    source: String,
    answer: mpsc::Sender<Result<(Arc<Regex>, usize), String>>,
}

/// Compiles a pattern, and says how large it is.
fn compiled(source: &str) -> Result<(Arc<Regex>, usize), String> {
    let (answer, compiled) = mpsc::channel();
    let order = Order { source: source.to_owned(), answer };
    let sent = COMPILER.as_ref().is_some_and(|compiler| compiler.send(order).is_ok());
    let compiled = if sent { compiled.recv().ok() } else { None };
    compiled.unwrap_or_else(|| Err("there is no room to compile the pattern now; try again".to_owned()))
}

fn compile_now(source: &str) -> Result<(Arc<Regex>, usize), String> {
    for size in SIZES {
        match RegexBuilder::new(source).size_limit(size).dfa_size_limit(DFA_BYTES).build() {
            Ok(regex) => return Ok((Arc::new(regex), size)),
            Err(Error::CompiledTooBig(_)) => {}
            Err(_) => return Err("the pattern is not a valid regular expression".to_owned()),
        }
    }
    Err(too_large())
}

/// Compiled patterns, by their text.
#[derive(Debug)]
struct Compiled {
    all: HashMap<Box<str>, Used>,
    /// What they take.
    bytes: usize,
    max_bytes: usize,
    /// Counts their uses.
    uses: u64,
}

#[derive(Debug)]
struct Used {
    regex: Arc<Regex>,
    size: usize,
    last: u64,
}

impl Compiled {
    fn new(max_bytes: usize) -> Self {
        Self { all: HashMap::new(), bytes: 0, max_bytes, uses: 0 }
    }

    fn get(&mut self, source: &str) -> Option<(Arc<Regex>, usize)> {
        let used = self.all.get_mut(source)?;
        self.uses += 1;
        used.last = self.uses;
        Some((used.regex.clone(), used.size))
    }

    fn insert(&mut self, source: &str, regex: &Arc<Regex>, size: usize) {
        self.uses += 1;
        let used = Used { regex: regex.clone(), size, last: self.uses };
        let before = self.all.insert(source.into(), used);
        self.bytes += size - before.map_or(0, |before| before.size);
        while self.bytes > self.max_bytes {
            // To compile another one costs more than to look for the oldest.
            let oldest = self.all.iter().min_by_key(|(_, used)| used.last).map(|(source, _)| source.clone());
            let Some(gone) = oldest.and_then(|source| self.all.remove(&source)) else { break };
            self.bytes -= gone.size;
        }
    }
}

fn too_large() -> String {
    format!(
        "the patterns of an expression may take {MAX_PATTERN_BYTES} bytes when they are compiled, and this is more"
    )
}

/// The patterns of one expression.
#[derive(Debug, Default)]
pub(super) struct Patterns(Vec<Pattern>);

impl Patterns {
    pub fn get(&self, index: usize) -> Option<&Pattern> {
        self.0.get(index)
    }

    /// What they take when they are compiled, in bytes.
    pub fn size(&self) -> usize {
        self.0.iter().map(|pattern| pattern.size).sum()
    }

    /// Compiles a pattern, and says at which index it is.
    pub fn add(&mut self, source: &str) -> Result<usize, String> {
        if let Some(index) = self.0.iter().position(|known| known.source == source) {
            return Ok(index);
        }
        let pattern = Pattern::compile(source)?;
        if self.size() + pattern.size > MAX_PATTERN_BYTES {
            return Err(too_large());
        }
        self.0.push(pattern);
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
    fn those_that_were_not_used_for_longest_are_let_go() {
        let mut all = Compiled::new(10 << 10);
        let add = |all: &mut Compiled, source: &str| {
            let (regex, size) = compiled(source).unwrap();
            all.insert(source, &regex, size);
        };
        let sizes = ["a", "b", r"\d{3}"].map(|source| compiled(source).unwrap().1);
        assert_eq!(sizes, [1 << 10, 1 << 10, 16 << 10], "the last one is larger than all may be");
        for source in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "a", "k"] {
            assert!(all.get(source).is_some() == (source == "a" && all.all.len() == 10));
            add(&mut all, source);
        }
        assert!(all.get("a").is_some() && all.get("b").is_none());
        assert_eq!((all.all.len(), all.bytes), (10, 10 << 10));
        add(&mut all, r"\d{3}");
        assert_eq!((all.all.len(), all.bytes), (0, 0));
    }

    #[test]
    fn a_pattern_that_was_let_go_says_the_same() {
        let pattern = Pattern::compile("^let go [0-9]$").unwrap();
        for _ in 0..2 {
            assert!(pattern.is_match("let go 1") && !pattern.is_match("let go"));
            COMPILED.lock().all.remove("^let go [0-9]$");
        }
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
