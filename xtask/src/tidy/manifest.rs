//! Every crate follows the lints of the workspace.

use super::Finding;

/// Checks a `Cargo.toml`.
pub fn check(file: &str, text: &str) -> Option<Finding> {
    let table: toml::Table = match text.parse() {
        Ok(table) => table,
        Err(error) => return Some(Finding::new(file, 1, format!("cannot be read: {error}"))),
    };
    let follows = table.get("lints").and_then(|lints| lints.get("workspace")?.as_bool()) == Some(true);
    let why = "the crate does not follow the lints of the workspace; add [lints] with workspace = true";
    (table.contains_key("package") && !follows).then(|| Finding::new(file, 1, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_follow_the_lints() {
        assert!(check("Cargo.toml", "[workspace]\nmembers = []").is_none());
        assert!(check("a/Cargo.toml", "[package]\nname = \"a\"\n[lints]\nworkspace = true").is_none());
        assert!(check("a/Cargo.toml", "[package]\nname = \"a\"").is_some());
        assert!(check("a/Cargo.toml", "[package]\nname = \"a\"\n[lints]\nworkspace = false").is_some());
        assert!(check("a/Cargo.toml", "[package").is_some());
    }
}
