//! The tests of a crate are one binary, and every file of it is compiled.
//!
//! Each binary is linked separately, which takes longer than most tests; and a file that no `mod` names is a test that never
//! runs.

use super::Finding;

/// What the head of a file says that has reasons to be linked alone.
const ALONE: &str = "//! A binary of its own";

/// Checks a file by its place; `read` gives the text of another one, if it is there.
pub fn check(file: &str, text: &str, read: impl Fn(&str) -> Option<String>) -> Option<Finding> {
    let (krate, path) = file.strip_suffix(".rs")?.split_once("/tests/")?;
    // Tests of a part are in folders of that name too.
    if krate.contains("/src/") || krate.ends_with("/src") {
        return None;
    }
    let whole = format!("{krate}/tests/it/main.rs");
    let Some(path) = path.strip_prefix("it/") else {
        let alone = path.contains('/') || text.lines().any(|line| line.starts_with(ALONE));
        let why = format!(
            "is linked alone; make it a module of {whole}, or let a line of its head start with \"{ALONE}\" and say why"
        );
        return (!alone && read(&whole).is_some()).then(|| Finding::new(file, 1, why));
    };
    if path == "main" {
        return None;
    }
    let path = path.strip_suffix("/mod").unwrap_or(path);
    let (parent, name) = match path.rsplit_once('/') {
        Some((folder, name)) => (format!("{krate}/tests/it/{folder}/mod.rs"), name),
        None => (whole, path),
    };
    let named = [format!("mod {name};"), format!("pub mod {name};")];
    let known =
        read(&parent).is_some_and(|text| text.lines().any(|line| named.iter().any(|mine| line == mine)));
    (!known).then(|| Finding::new(file, 1, format!("is not compiled: {parent} has no `mod {name};`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "crates/a/tests/it/main.rs";
    const FOLDER: &str = "crates/a/tests/it/c/mod.rs";

    fn found(file: &str, text: &str) -> Option<String> {
        let read = |name: &str| match name {
            WHOLE => Some("mod b;\nmod c;\n".to_owned()),
            FOLDER => Some("mod d;\npub mod e;\n".to_owned()),
            _ => None,
        };
        check(file, text, read).map(|finding| finding.why)
    }

    #[test]
    fn what_is_named_is_compiled() {
        for file in
            [WHOLE, FOLDER, "crates/a/tests/it/b.rs", "crates/a/tests/it/c/d.rs", "crates/a/tests/it/c/e.rs"]
        {
            assert_eq!(found(file, ""), None, "{file}");
        }
        for file in ["crates/a/tests/it/x.rs", "crates/a/tests/it/x/mod.rs", "crates/a/tests/it/c/b.rs"] {
            assert!(found(file, "").is_some_and(|why| why.contains("not compiled")), "{file}");
        }
    }

    #[test]
    fn another_binary_needs_a_reason() {
        assert!(found("crates/a/tests/b.rs", "//! Tests.\n").is_some_and(|why| why.contains("linked alone")));
        assert_eq!(
            found("crates/a/tests/b.rs", "//! Tests.\n//!\n//! A binary of its own, because.\n"),
            None
        );
        assert_eq!(found("crates/b/tests/b.rs", "//! The only one.\n"), None);
        assert_eq!(found("crates/a/src/b/tests/c.rs", "//! No binary at all.\n"), None);
    }
}
