//! A crate uses what it depends on.

use super::Finding;
use toml::Table;

/// Checks a `Cargo.toml`; `sources` are the texts of the crate's Rust files.
///
/// What only macros or features need does not occur in any of them: a comment that begins its paragraph, or ends its line,
/// says so.
pub fn check(file: &str, text: &str, sources: &[String]) -> Vec<Finding> {
    // One that cannot be read is told by another rule.
    let Ok(table) = text.parse::<Table>() else { return Vec::new() };
    let sections = ["dependencies", "dev-dependencies", "build-dependencies"];
    let named = sections.iter().filter_map(|section| table.get(*section)?.as_table()).flat_map(Table::keys);
    let unused = named.filter(|name| !sources.iter().any(|source| names(source, &name.replace('-', "_"))));
    let say = |name: &String| {
        let why = format!(
            "nothing names {name}; remove it, or begin its paragraph with a comment that says what it is for"
        );
        let line = unexplained(text, name)?;
        Some(Finding::new(file, line, why))
    };
    unused.filter_map(say).collect()
}

/// Whether a word occurs in a text.
fn names(text: &str, word: &str) -> bool {
    let is_end =
        |letter: Option<char>| letter.is_none_or(|letter| !letter.is_alphanumeric() && letter != '_');
    text.match_indices(word).any(|(at, _)| {
        is_end(text[..at].chars().next_back()) && is_end(text[at + word.len()..].chars().next())
    })
}

/// The line of a dependency, unless a comment explains it.
fn unexplained(text: &str, name: &str) -> Option<usize> {
    let mut is_explained = false;
    let mut begins = true;
    for (line, number) in text.lines().zip(1..) {
        if begins {
            is_explained = line.starts_with('#');
        }
        begins = line.is_empty() || line.starts_with('[');
        let is_it = line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', ' ', '=']));
        if is_it && !is_explained && !line.contains('#') {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let sources = ["use a_b::c;".to_owned(), "fn main() { d::e(); under_f(); }".to_owned()];
        check("x/Cargo.toml", text, &sources).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn what_is_named_is_used() {
        assert!(lines("[dependencies]\na-b.workspace = true\nd = \"1\"\n").is_empty());
        assert_eq!(
            lines("[dependencies]\na-b = \"1\"\nf = \"1\"\n[dev-dependencies]\ng.workspace = true\n"),
            [3, 5]
        );
    }

    #[test]
    fn a_comment_explains_its_paragraph_or_its_line() {
        let text = "[dependencies]\n# For its features.\nf = \"1\"\nh = \"1\"\n\ng = \"1\"\ni = \"1\" # of a macro\n";
        assert_eq!(lines(text), [6]);
        assert_eq!(lines("[dependencies]\nf = \"1\"\n# For its features.\ng = \"1\"\n"), [2, 4]);
    }
}
