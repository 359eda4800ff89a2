//! Makes a module of each block of Rust in the documents, for the tests to compile and run.
//!
//! A block with a `main` is a program, which a test starts as a process of its own; one with tests is run as it is; and any
//! other one is compiled inside an async function, after the lines that its document has in `prelude`.

#[path = "src/blocks.rs"]
#[allow(dead_code, unreachable_pub, reason = "the library is for the tests too")]
mod blocks;

use blocks::Block;
use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Where the documents have the hub, and what takes its place.
const ADDRESSES: &[(&str, &str)] =
    &[("\"127.0.0.1:7070\"", "crate::hub::address()"), ("\"http://127.0.0.1:7070\"", "crate::hub::url()")];

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
        let prelude = prelude(&here, &document);
        // Blocks of a page whose `use` lines are left out cannot be compiled.
        let is_compiled = text.lines().any(|line| line.trim_start().starts_with("use prombus_"));
        let of_rust =
            |block: &Block| is_compiled && block.language == "rust" && block.noted("not run").is_none();
        for block in blocks::blocks(&document, &text).into_iter().filter(of_rust) {
            let name = name_of(&block);
            writeln!(modules, "{}", module(&block, &name, &prelude))?;
            if is_program(&block) {
                let serves = block.noted("serves").is_some();
                writeln!(
                    programs,
                    "Program {{ place: {:?}, name: {name:?}, serves: {serves} }},",
                    block.place()
                )?;
            }
        }
    }
    let all = format!(
        "{modules}\n/// The programs of the documents.\npub const PROGRAMS: &[Program] = &[\n{programs}];\n"
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

fn is_program(block: &Block) -> bool {
    block.text.contains("fn main(")
}

fn module(block: &Block, name: &str, prelude: &str) -> String {
    let text = ADDRESSES.iter().fold(block.text.clone(), |text, (from, to)| text.replace(from, to));
    let body = if is_program(block) {
        let program = "#[test]\n#[ignore = \"a test starts it as a process\"]\nfn program() -> impl std::process::Termination { main() }";
        format!("{text}\n{program}")
    } else if text.contains("test]") {
        text
    } else {
        format!(
            "async fn fragment() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {{\n{prelude}\n{{\n{text}\n;}}\nOk(())\n}}"
        )
    };
    let place = block.place();
    format!(
        "// {place}\n#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction)]\nmod {name} {{\n{body}\n}}"
    )
}
