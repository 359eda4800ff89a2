//! The fenced blocks of the documents, and what is said of each.
//!
//! A comment of HTML on the line before a block is a note to the tests, which readers do not see:
//!
//! | note | |
//! |---|---|
//! | `not run: why` | Nothing runs it, for this reason. |
//! | `answers: 401 412` | These are the errors that its calls are answered with. |
//! | `hub: text` | The hub of its chapter has the configuration in which this text is. |
//! | `serves: text` | What it starts runs until it is stopped, and prints this text when it is up. |
//! | `prints: text` | It is a program in Rust that talks to a hub, and prints these lines; `|` separates several. |
//! | `test: name` | It is run by the test that has this name for it. |
//!
//! A semicolon separates several.

use std::path::Path;

/// The documents, apart from those in [`FOLDERS`].
const FILES: &[&str] = &["README.md", "examples/README.md"];

/// Every document in these folders counts; folders inside them do not.
const FOLDERS: &[&str] = &["docs", "dist"];

/// A fenced block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The document, from the root of the repository.
    pub document: String,
    /// The line of its first fence, from 1.
    pub line: usize,
    /// The heading of the second level that it is below; empty above the first.
    pub chapter: String,
    /// What comes after the fence.
    pub language: String,
    /// The comment right before it.
    pub note: Option<String>,
    /// What is between the fences.
    pub text: String,
}

impl Block {
    /// Where it is, as editors and people understand it.
    pub fn place(&self) -> String {
        format!("{}:{}", self.document, self.line)
    }

    /// What the note says after `kind`, if it has something of that kind.
    pub fn noted(&self, kind: &str) -> Option<&str> {
        self.note.as_deref()?.split(';').find_map(|part| {
            let rest = part.trim().strip_prefix(kind)?;
            if rest.is_empty() { Some("") } else { rest.strip_prefix(':').map(str::trim) }
        })
    }
}

/// The paths of all documents below `root`, from there.
pub fn documents(root: &Path) -> Vec<String> {
    let mut found: Vec<String> = FILES.iter().map(|file| (*file).to_owned()).collect();
    for folder in FOLDERS {
        let Ok(entries) = std::fs::read_dir(root.join(folder)) else { continue };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        found.extend(names.filter(|name| name.ends_with(".md")).map(|name| format!("{folder}/{name}")));
    }
    found.sort();
    found
}

/// The blocks of a document.
pub fn blocks(document: &str, text: &str) -> Vec<Block> {
    let (mut found, mut chapter, mut before) = (Vec::new(), String::new(), "");
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let inside: Vec<&str> =
                lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
            found.push(Block {
                document: document.to_owned(),
                line: at + 1,
                chapter: chapter.clone(),
                language: language.trim().to_owned(),
                note: comment(before).map(str::to_owned),
                text: inside.join("\n") + "\n",
            });
        } else if let Some(heading) = line.strip_prefix("## ") {
            chapter = heading.to_owned();
        }
        before = line;
    }
    found
}

fn comment(line: &str) -> Option<&str> {
    Some(line.strip_prefix("<!--")?.strip_suffix("-->")?.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_know_their_place_and_their_notes() {
        let text = "# T\n```sh\na\n```\n## One\n<!-- not run: it waits -->\n```python\nb\n\n```\n<!-- serves: x; answers: 401 -->\n```\n```\n<!-- serves -->\n\n```\n```\n";
        let found = blocks("d.md", text);
        let [first, second, third, fourth] = &found[..] else { panic!("{found:?}") };
        assert_eq!((first.line, first.language.as_str(), first.text.as_str()), (2, "sh", "a\n"));
        assert_eq!((first.chapter.as_str(), &first.note), ("", &None));
        assert_eq!((second.place().as_str(), second.chapter.as_str()), ("d.md:7", "One"));
        assert_eq!((second.text.as_str(), second.noted("not run")), ("b\n\n", Some("it waits")));
        assert_eq!((second.noted("not"), second.noted("serves")), (None, None));
        assert_eq!((third.noted("serves"), third.noted("answers")), (Some("x"), Some("401")));
        assert_eq!(
            (fourth.language.as_str(), &fourth.note),
            ("", &None),
            "a note stands right before its block"
        );
    }
}
