//! `cargo xtask tidy`: the house rules that no compiler knows.
//!
//! Each rule is a pure function from text to findings; this file reads the texts and prints the findings.

mod binaries;
mod features;
mod graph;
mod links;
mod manifest;
mod source;
mod unused;
mod words;

use std::path::Path;
use std::process::Command;

/// The folder that names what is forbidden, and may therefore hold it.
const OWN_FOLDER: &str = "xtask/src/tidy/";

/// One place that breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, from the root.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong and what to do.
    pub why: String,
}

impl Finding {
    fn new(file: &str, line: usize, why: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, why: why.into() }
    }
}

/// Checks the whole repository.
pub fn run() -> Result<(), String> {
    let root = repo::root();
    let files = list_files(&root)?;
    let mut findings =
        graph::check(&repo::output(repo::cargo(&["metadata", "--format-version", "1", "--no-deps"]))?)?;
    let tree = |package| repo::output(repo::cargo(&[features::TREE, &[package]].concat()));
    let hub = tree(features::HUB)?;
    for tool in features::TOOLS {
        findings.extend(features::check(tool, &tree(tool.0)?, &hub));
    }
    for file in &files {
        // Only text has rules.
        let Ok(text) = std::fs::read_to_string(root.join(file)) else { continue };
        findings.extend(check_file(&root, file, &text));
        if let Some(folder) = file.strip_suffix("Cargo.toml") {
            let sources = files.iter().filter(|other| other.starts_with(folder) && other.ends_with(".rs"));
            let sources: Vec<_> =
                sources.filter_map(|file| std::fs::read_to_string(root.join(file)).ok()).collect();
            findings.extend(unused::check(file, &text, &sources));
        }
    }
    findings.sort();
    for Finding { file, line, why } in &findings {
        eprintln!("{file}:{line}: {why}");
    }
    match findings.len() {
        0 => {
            eprintln!("{} files are tidy", files.len());
            Ok(())
        }
        count => Err(format!("tidy has {count} findings in {} files", files.len())),
    }
}

/// The files that are in the repository, or would be with the next commit.
fn list_files(root: &Path) -> Result<Vec<String>, String> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let listed = repo::output(git)?;
    Ok(listed.lines().filter(|file| root.join(file).is_file()).map(str::to_owned).collect())
}

fn check_file(root: &Path, file: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let own = file.starts_with(OWN_FOLDER);
    if !own {
        findings.extend(words::check(file, text));
    }
    if file.ends_with(".rs") {
        findings.extend(source::check_shape(file, text));
        findings.extend(binaries::check(file, text, |name| std::fs::read_to_string(root.join(name)).ok()));
        if !own {
            findings.extend(source::check_lines(file, text));
        }
    }
    if file.ends_with(".md") {
        let folder = root.join(file).parent().map(Path::to_owned).unwrap_or_default();
        findings.extend(links::check(file, text, |target| folder.join(target).exists()));
    }
    if file.ends_with("Cargo.toml") {
        findings.extend(manifest::check(file, text));
    }
    findings
}
