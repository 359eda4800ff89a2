//! Makes a module of each block of Rust in the documents, for the tests to compile and run.
//!
//! A block with a `main` is a program, which a test starts as a process of its own; one with tests is run as it is; and any
//! other one is compiled inside an async function, after the lines that its document has in `prelude`. What a block defines
//! that consists of definitions only is known to those after it.

#[path = "src/blocks.rs"]
#[allow(dead_code, unreachable_pub, reason = "the library is for the tests too")]
mod blocks;

use blocks::Block;
use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Where programs of the documents listen, and what takes its place.
const ADDRESS: (&str, &str) = ("\"127.0.0.1:7070\"", "crate::address()");

/// Where they find a hub, and what takes its place.
const HUB: (&str, &str) = ("\"http://127.0.0.1:7070\"", "&crate::hub()");

fn main() -> Result<(), Box<dyn Error>> {
    let here = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?);
    let root = here.join("../..");
    for watched in ["build.rs", "src/blocks.rs", "prelude", "../../docs", "../../dist", "../../README.md"] {
        if here.join(watched).exists() {
            println!("cargo::rerun-if-changed={watched}");
        }
    }
    let (mut modules, mut programs) = (String::new(), String::new());
    for document in blocks::documents(&root) {
        let text = std::fs::read_to_string(root.join(&document))?;
        let mut before = vec![prelude(&here, &document)];
        let of_rust = |block: &Block| block.language == "rust" && block.noted("not run").is_none();
        for block in blocks::blocks(&document, &text).into_iter().filter(of_rust) {
            let name = name_of(&block);
            writeln!(modules, "{}", module(&block, &name, &before))?;
            if is_all_definitions(&block) {
                before.push(block.text.clone());
            }
            if is_program(&block) {
                writeln!(programs, "{},", listed(&block, &name))?;
            }
        }
    }
    let all = format!(
        "{modules}\n/// The programs of the documents.\nconst PROGRAMS: &[Program] = &[\n{programs}];\n"
    );
    std::fs::write(PathBuf::from(std::env::var("OUT_DIR")?).join("blocks.rs"), all)?;
    Ok(())
}

/// What stands before each fragment of a document.
fn prelude(here: &Path, document: &str) -> String {
    let file = here.join("prelude").join(document.replace('/', "_")).with_extension("rs");
    std::fs::read_to_string(file).unwrap_or_default()
}

/// Such as `docs_library_12`.
fn name_of(block: &Block) -> String {
    let document = block.document.trim_end_matches(".md").to_lowercase();
    format!("{}_{}", document.replace(|c: char| !c.is_ascii_alphanumeric(), "_"), block.line)
}

/// A program, as the tests know it.
fn listed(block: &Block, name: &str) -> String {
    let (place, serves) = (block.place(), block.noted("serves").is_some());
    let prints: Vec<&str> = block.noted("prints").into_iter().flat_map(|text| text.split(" | ")).collect();
    format!("Program {{ place: {place:?}, name: {name:?}, serves: {serves}, prints: &{prints:?} }}")
}

fn is_program(block: &Block) -> bool {
    block.text.contains("fn main(")
}

/// Whether a block has nothing but items, so that it can stand anywhere.
fn is_all_definitions(block: &Block) -> bool {
    const STARTS: &[&str] =
        &["use ", "#[", "//", "pub ", "struct ", "enum ", "impl ", "const ", "fn ", "async fn ", "}"];
    let mut outer = block.text.lines().filter(|line| !line.is_empty() && !line.starts_with(' '));
    !is_program(block)
        && !has_tests(block)
        && outer.all(|line| STARTS.iter().any(|start| line.starts_with(start)))
}

fn has_tests(block: &Block) -> bool {
    block.text.contains("test]")
}

fn module(block: &Block, name: &str, before: &[String]) -> String {
    let text = block.text.replace(ADDRESS.0, ADDRESS.1);
    let body = if is_program(block) {
        let text = text.replace(HUB.0, HUB.1);
        let program = "#[test]\nfn program() { crate::programs::in_a_process_of_its_own(main) }";
        format!("{text}\n{program}")
    } else if has_tests(block) {
        text
    } else {
        // Each in a block of its own, where it may name again what an earlier one has named.
        let (open, close) = (before.join("{\n"), "}".repeat(before.len()));
        format!(
            "async fn fragment() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {{\n{open}{{\n{text}\n;{close}\nOk(())\n}}"
        )
    };
    let place = block.place();
    format!(
        "// {place}\n#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction)]\nmod {name} {{\n{body}\n}}"
    )
}
