//! What strace wrote, as steps in the order in which they happened.
//!
//! strace sees the entry and the exit of each call of each thread, and writes them in that order: a call on
//! one line had nothing beside it, one with others beside it is on two lines, `unfinished` and `resumed`.

use std::collections::HashMap;

/// An event that can be recognised in the trace.
#[derive(Debug, Clone)]
pub struct Marked {
    /// Its id, which is in its answer.
    pub id: String,
    /// Its payload, which is in the journal.
    pub payload: String,
}

/// A call, from its entry to its exit; both count lines of the trace.
#[derive(Debug)]
struct Call {
    name: String,
    text: String,
    entry: usize,
    exit: Option<usize>,
    succeeded: bool,
}

/// All calls.
pub struct Trace(Vec<Call>);

impl Trace {
    /// Reads what `strace -f -y` wrote.
    pub fn parse(text: &str) -> Self {
        let mut calls: Vec<Call> = Vec::new();
        let mut open: HashMap<&str, usize> = HashMap::new();
        for (number, line) in text.lines().enumerate() {
            let Some((thread, rest)) = line.split_once(' ') else { continue };
            let rest = rest.trim_start();
            if rest.starts_with("<... ") {
                let Some(call) = open.remove(thread).map(|index| &mut calls[index]) else { continue };
                call.exit = Some(number);
                call.succeeded = succeeded(rest);
            } else if let Some((name, _)) = rest.split_once('(') {
                let unfinished = rest.ends_with("<unfinished ...>");
                if unfinished {
                    open.insert(thread, calls.len());
                }
                calls.push(Call {
                    name: name.to_owned(),
                    text: rest.to_owned(),
                    entry: number,
                    exit: (!unfinished).then_some(number),
                    succeeded: !unfinished && succeeded(rest),
                });
            }
        }
        Self(calls)
    }

    /// The event was written to the journal, then the same file was flushed, and then the answer began to leave.
    pub fn assert_flushed_before_answer(&self, marked: &Marked) -> Result<(), String> {
        let written = self.find(|call| call.is_journal_write() && call.text.contains(&marked.payload));
        let written = written.ok_or_else(|| format!("{marked:?} was never written"))?;
        let answered = self.find(|call| call.is_answer() && call.text.contains(&marked.id));
        let answered =
            answered.ok_or_else(|| format!("{marked:?} was never answered with 201 in one piece"))?;
        let written_at = written.exit.ok_or_else(|| format!("{written:?} never ended"))?;
        let flushed = self.find(|call| {
            let after_the_write = call.is_flush() && call.file() == written.file() && call.entry > written_at;
            after_the_write && call.succeeded && call.exit.is_some_and(|exit| exit < answered.entry)
        });
        flushed.map(|_| ()).ok_or_else(|| {
            let (from, to) = (written_at + 1, answered.entry + 1);
            format!("{marked:?} was written at line {from} and answered at line {to} without a flush between")
        })
    }

    fn find(&self, wanted: impl Fn(&Call) -> bool) -> Option<&Call> {
        self.0.iter().find(|call| wanted(call))
    }
}

impl Call {
    fn is_journal_write(&self) -> bool {
        self.name.contains("write") && self.file().is_some_and(|file| file.ends_with(".part"))
    }

    fn is_flush(&self) -> bool {
        matches!(self.name.as_str(), "fsync" | "fdatasync")
    }

    fn is_answer(&self) -> bool {
        self.file().is_some_and(|file| file.starts_with("socket:") || file.starts_with("TCP:"))
            && self.text.contains("HTTP/1.1 201")
    }

    /// What the first argument stands for, as `-y` shows it.
    fn file(&self) -> Option<&str> {
        let first = self.text.split([',', ')']).next()?;
        Some(first.split_once('<')?.1.trim_end_matches("<unfinished ...>").trim_end().trim_end_matches('>'))
    }
}

fn succeeded(line: &str) -> bool {
    line.rsplit_once(" = ").is_some_and(|(_, result)| !result.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(trace: &str) -> Result<(), String> {
        Trace::parse(trace).assert_flushed_before_answer(&Marked { id: "i-1".into(), payload: "p-1".into() })
    }

    const WRITE: &str = r#"1 pwrite64(7</d/1.part>, "..p-1..", 7, 0) = 7"#;
    const FLUSH: &str = "1 fdatasync(7</d/1.part>)    = 0";
    const ANSWER: &str =
        r#"2 sendto(9<socket:[5]>, "HTTP/1.1 201 Created\r\n{\"id\":\"i-1\"}", 9, 0, NULL, 0) = 9"#;

    #[test]
    fn the_order_is_judged() {
        judged(&[WRITE, FLUSH, ANSWER].join("\n")).unwrap();
        judged(&[WRITE, ANSWER, FLUSH].join("\n")).unwrap_err();
        judged(&[FLUSH, WRITE, ANSWER].join("\n")).unwrap_err();
        judged(&[WRITE, ANSWER].join("\n")).unwrap_err();
        judged(&[FLUSH, ANSWER].join("\n")).unwrap_err();
        judged(&[WRITE, FLUSH].join("\n")).unwrap_err();
    }

    #[test]
    fn a_flush_counts_from_its_entry_to_its_exit() {
        let entry = "1 fdatasync(7</d/1.part> <unfinished ...>";
        let exit = "1 <... fdatasync resumed>)    = 0";
        judged(&[WRITE, entry, exit, ANSWER].join("\n")).unwrap();
        judged(&[WRITE, entry, ANSWER, exit].join("\n")).unwrap_err();
        judged(&[entry, WRITE.replace("1 pwrite64", "3 pwrite64").as_str(), exit, ANSWER].join("\n"))
            .unwrap_err();
    }

    #[test]
    fn other_files_and_failures_do_not_count() {
        judged(&[WRITE, "1 fdatasync(8</d/2.part>) = 0", ANSWER].join("\n")).unwrap_err();
        judged(&[WRITE, "1 fdatasync(7</d/1.part>) = -1 EIO (Input/output error)", ANSWER].join("\n"))
            .unwrap_err();
    }
}
