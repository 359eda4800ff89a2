//! Words that no file may contain: paths that exist only on the author's machine.

use super::Finding;

/// What must not be there, and what to do instead.
const FORBIDDEN: &[(&str, &str)] = &[
    ("../shared", "points outside of the repository"),
    ("SPEC.md", "names a document that is not part of the repository"),
    ("/work/", "is a folder of one machine"),
    ("/root/", "is a folder of one machine"),
    ("/tmp/", "is a folder of some machines; make a temporary folder, or use a relative path"),
];

/// Marks a line that needs such a word; the reason stands beside it.
const ALLOWED: &str = "tidy: allow";

/// Checks any text.
pub fn check(file: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        for (word, why) in FORBIDDEN {
            if line.contains(word) && !line.contains(ALLOWED) {
                findings.push(Finding::new(file, number, format!("{word} {why}")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_one_machine_are_found() {
        for bad in ["see ../shared/x", "as SPEC.md says", "cd /work/main", "/root/.cargo", "--data /tmp/x"] {
            let findings = check("a.md", &format!("fine\n{bad}\n"));
            assert_eq!(findings.len(), 1, "{bad}");
            assert_eq!((findings[0].file.as_str(), findings[0].line), ("a.md", 2));
        }
        assert!(check("a.md", "a folder like ./data, at work, for the root").is_empty());
    }

    #[test]
    fn a_line_may_say_that_it_needs_one() {
        assert!(check("a.rs", "mount(\"/tmp/x\") // tidy: allow, the kernel wants it there").is_empty());
    }
}
