//! What Rust files must look like: length, head, and what they must not contain.

use super::Finding;

/// No file is longer.
const MAX_LINES: usize = 700;

/// What must not be there, and what to do instead.
const FORBIDDEN: &[(&str, &str)] = &[
    ("todo!", "is work that is not done"),
    ("unimplemented!", "is work that is not done"),
    ("FIXME", "is work that is not done"),
    ("#[ignore", "is a test that does not run"),
    ("dbg!", "was left over from looking for a bug"),
];

/// Ways to wait for the clock.
const SLEEPS: &[&str] = &["thread::sleep", "time::sleep"];

/// Checks the file as a whole.
pub fn check_shape(file: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = text.lines().count();
    if lines > MAX_LINES {
        let why = format!("has {lines} lines, and no file may have more than {MAX_LINES}; split it");
        findings.push(Finding::new(file, lines, why));
    }
    let head = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    if file.contains("src/") && !head.starts_with("//!") {
        findings.push(Finding::new(file, 1, "has no head (//!) that says what question it answers"));
    }
    findings
}

/// Checks the lines of a file.
pub fn check_lines(file: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut before = "";
    for (line, number) in text.lines().zip(1..) {
        for (word, why) in FORBIDDEN {
            if line.contains(word) {
                findings.push(Finding::new(file, number, format!("{word} {why}")));
            }
        }
        if sleeps(line) && !before.trim_start().starts_with("//") {
            let why = "sleeps without a comment on the line before that says why; better wait for the thing";
            findings.push(Finding::new(file, number, why));
        }
        before = line;
    }
    findings
}

/// Whether a line waits for the clock. One that only names the function makes it hard to find, and counts too.
fn sleeps(line: &str) -> bool {
    let code = line.trim_start();
    let bare = |(at, _): (usize, &str)| {
        !code[..at].ends_with(|before: char| before.is_alphanumeric() || "_.:\"".contains(before))
    };
    !code.starts_with("//")
        && (SLEEPS.iter().any(|sleep| code.contains(sleep)) || code.match_indices("sleep(").any(bare))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check_lines("a.rs", text).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn long_files_are_found() {
        let text = |lines: usize| format!("//! Head.\n{}", "\n".repeat(lines - 1));
        assert!(check_shape("crates/a/src/b.rs", &text(MAX_LINES)).is_empty());
        assert_eq!(check_shape("crates/a/src/b.rs", &text(MAX_LINES + 1)).len(), 1);
    }

    #[test]
    fn sources_have_a_head() {
        assert!(check_shape("crates/a/src/b.rs", "\n//! Head.\nuse a;").is_empty());
        assert_eq!(check_shape("crates/a/src/b.rs", "// No head.\nuse a;").len(), 1);
        assert_eq!(check_shape("crates/a/src/b.rs", "").len(), 1);
        assert!(check_shape("crates/a/tests/b.rs", "use a;").is_empty());
    }

    #[test]
    fn unfinished_work_is_found() {
        for bad in [
            "todo!()",
            "unimplemented!(\"x\")",
            "// FIXME: later",
            "#[ignore]",
            "#[ignore = \"x\"]",
            "dbg!(x);",
        ] {
            assert_eq!(lines(&format!("fn a() {{}}\n{bad}\n")), [2], "{bad}");
        }
    }

    #[test]
    fn sleeping_needs_a_reason() {
        for bad in
            ["std::thread::sleep(x);", "tokio::time::sleep(x).await;", "use tokio::time::sleep;", "sleep(x);"]
        {
            assert_eq!(lines(&format!("let a = 1;\n    {bad}")), [2], "{bad}");
            assert!(lines(&format!("    // The kernel has no way to tell.\n    {bad}")).is_empty(), "{bad}");
        }
        assert!(lines("// thread::sleep would not do\nclock.sleep(x);\nfn oversleep() {}").is_empty());
    }
}
