//! Keeps the table in `docs/benchmarks.md` up to date.

const START: &str = "<!-- table: start -->\n";
const END: &str = "<!-- table: end -->";

/// Puts `table` between the marks.
pub fn replace_table(table: &str) -> Result<(), String> {
    let path = repo::root().join("docs").join("benchmarks.md");
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(&path).map_err(failed)?;
    let text = replaced(&text, table).ok_or_else(|| format!("{} has lost its marks", path.display()))?;
    std::fs::write(&path, text).map_err(failed)
}

fn replaced(text: &str, table: &str) -> Option<String> {
    let (before, rest) = text.split_once(START)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{START}\n{table}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let text = format!("head\n{START}old\n{END}\ntail\n");
        let once = replaced(&text, "new\n");
        assert_eq!(once, Some(format!("head\n{START}\nnew\n\n{END}\ntail\n")));
        assert_eq!(once.as_deref().and_then(|once| replaced(once, "new\n")), once);
        assert_eq!(replaced("no marks", "new"), None);
    }
}
