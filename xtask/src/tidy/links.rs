//! Links between documents must have a target.

use super::Finding;

/// Checks a Markdown text; `exists` says whether there is a file of that name, seen from the text's folder.
pub fn check(file: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_code = false;
    for (line, number) in text.lines().zip(1..) {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for target in targets(line) {
            let path = target.split('#').next().unwrap_or_default();
            if !path.is_empty() && !is_elsewhere(path) && !exists(path) {
                findings.push(Finding::new(file, number, format!("the link to {path} leads nowhere")));
            }
        }
    }
    findings
}

fn is_elsewhere(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// What the links of a line point at, but for those in code.
fn targets(line: &str) -> Vec<String> {
    // Every second piece is between backticks.
    let prose: String = line.split('`').step_by(2).collect();
    let after_brackets = prose.split("](").skip(1);
    after_brackets.filter_map(|rest| Some(rest.split_once(')')?.0.trim().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(text: &str) -> Vec<usize> {
        check("a.md", text, |target| target == "there.md").into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn links_must_lead_somewhere() {
        assert!(broken("[a](there.md) and [b](there.md#part), [c](#here), [d](https://x.y/z)").is_empty());
        assert_eq!(broken("fine\n[a](there.md) [b](gone.md)"), [2]);
        assert_eq!(broken("[a](gone.md#part)\n[`b`](gone.md)"), [1, 2]);
    }

    #[test]
    fn code_has_no_links() {
        assert!(broken("`x[i](j)`").is_empty());
        assert_eq!(broken("```\n[a](gone.md)\n```\n[a](gone.md)"), [4]);
    }
}
