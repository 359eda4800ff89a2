//! Keeps the tables in `docs/benchmarks.md` up to date: one of each group.

/// Puts the tables of groups, each with its name, between their marks. Those of other groups stay.
pub fn replace_tables(tables: &[(&str, String)]) -> Result<(), String> {
    let path = repo::root().join("docs").join("benchmarks.md");
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut text = std::fs::read_to_string(&path).map_err(failed)?;
    for (group, table) in tables {
        let lost = || format!("{} has lost the marks of {group}", path.display());
        text = replaced(&text, group, table).ok_or_else(lost)?;
    }
    std::fs::write(&path, text).map_err(failed)
}

fn replaced(text: &str, group: &str, table: &str) -> Option<String> {
    let (start, end) = (format!("<!-- {group}: start -->\n"), format!("<!-- {group}: end -->"));
    let (before, rest) = text.split_once(&start)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{start}\n{table}\n{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let text = "head\n<!-- a: start -->\nold\n<!-- a: end -->\n<!-- b: start -->\nb\n<!-- b: end -->\n";
        let once = replaced(text, "a", "new\n").unwrap_or_default();
        let marked =
            "head\n<!-- a: start -->\n\nnew\n\n<!-- a: end -->\n<!-- b: start -->\nb\n<!-- b: end -->\n";
        assert_eq!(once, marked);
        assert_eq!(replaced(&once, "a", "new\n"), Some(once));
        assert_eq!(replaced(text, "c", "new"), None);
    }
}
