//! Which crate may depend on which.

use super::Finding;
use serde::Deserialize;

/// Every crate, and which crates of the workspace it may be built on.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("prombus-core", &["prombus-wire"]),
    ("prombus-wire", &[]),
    ("prombus-schema", &["prombus-core"]),
    ("prombus-rows", &["prombus-core"]),
    ("prombus-store-memory", &["prombus-core", "prombus-rows"]),
    ("prombus-store-disk", &["prombus-core", "prombus-rows"]),
    ("prombus-store-mongo", &["prombus-core", "prombus-rows"]),
    ("prombus-engine", &["prombus-core", "prombus-schema"]),
    ("prombus-server", &["prombus-core", "prombus-schema", "prombus-engine", "prombus-wire"]),
    ("prombus-client", &["prombus-wire"]),
    ("prombus-process", &["prombus-client"]),
    ("prombus-testkit", TESTKIT_PARTS),
    ("prombus-fixtures", &[]),
    ("prombus-docs", &[]),
    ("prombus", ALL_PARTS),
    ("prombus-bench", TOOL_PARTS),
    ("prombus-chaos", TOOL_PARTS),
    ("mongo-set", &["repo"]),
    ("prombus-cluster", &["prombus-fixtures", "repo"]),
    ("repo", &[]),
    ("xtask", &["repo"]),
];

/// What the crates at the top put together.
const ALL_PARTS: &[&str] = &[
    "prombus-core",
    "prombus-wire",
    "prombus-schema",
    "prombus-store-memory",
    "prombus-store-disk",
    "prombus-store-mongo",
    "prombus-engine",
    "prombus-server",
    "prombus-client",
    "prombus-process",
];

/// What the suites for stores and the harness for users' own tests are made of.
const TESTKIT_PARTS: &[&str] = &[
    "prombus-core",
    "prombus-store-memory",
    "prombus-store-disk",
    "prombus-wire",
    "prombus-engine",
    "prombus-server",
    "prombus-client",
    "prombus-process",
];

/// What measures and kills the hub is built on.
const TOOL_PARTS: &[&str] = &[
    "prombus-core",
    "prombus-schema",
    "prombus-store-disk",
    "prombus-store-mongo",
    "prombus-engine",
    "prombus-server",
    "prombus-client",
    "prombus-fixtures",
    "repo",
];

/// The crate that the tests of every other one may use; the only one that the core's tests may.
const TESTKIT: &str = "prombus-testkit";

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_root: String,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    path: Option<String>,
}

/// Checks what `cargo metadata` says about the workspace.
pub fn check(metadata: &str) -> Result<Vec<Finding>, String> {
    let metadata: Metadata = serde_json::from_str(metadata)
        .map_err(|error| format!("cargo metadata cannot be understood: {error}"))?;
    let mut findings = Vec::new();
    for package in &metadata.packages {
        let file =
            package.manifest_path.strip_prefix(&metadata.workspace_root).unwrap_or(&package.manifest_path);
        let text = std::fs::read_to_string(&package.manifest_path).unwrap_or_default();
        for (dependency, why) in wrong_dependencies(package) {
            let line =
                text.lines().position(|line| line.trim_start().starts_with(&dependency)).unwrap_or(0) + 1;
            findings.push(Finding::new(file.trim_start_matches('/'), line, why));
        }
    }
    Ok(findings)
}

/// The names of the dependencies that must not be, and why.
fn wrong_dependencies(package: &Package) -> Vec<(String, String)> {
    let name = package.name.as_str();
    let Some((_, allowed)) = MAY_DEPEND_ON.iter().find(|(known, _)| *known == name) else {
        let why = format!("{name} has no place in the crate graph; give it one in xtask/src/tidy/graph.rs");
        return vec![("name".to_owned(), why)];
    };
    let ours = package.dependencies.iter().filter(|dependency| dependency.path.is_some());
    let wrong = ours.filter(|dependency| match dependency.kind.as_deref() {
        Some("dev") => name == "prombus-core" && dependency.name != TESTKIT,
        _ => !allowed.contains(&dependency.name.as_str()),
    });
    let say = |dependency: &Dependency| {
        let other = &dependency.name;
        let why =
            format!("{name} must not depend on {other}: the arrow in the crate graph points the other way");
        (other.clone(), why)
    };
    wrong.map(say).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(name: &str, dependencies: &[(&str, Option<&str>)]) -> Vec<String> {
        let dependency = |(name, kind): &(&str, Option<&str>)| Dependency {
            name: (*name).to_owned(),
            kind: kind.map(str::to_owned),
            path: name.starts_with("prombus").then(String::new),
        };
        let package = Package {
            name: name.to_owned(),
            manifest_path: String::new(),
            dependencies: dependencies.iter().map(dependency).collect(),
        };
        wrong_dependencies(&package).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn the_core_stands_on_the_wire_types_and_nothing_else_of_ours() {
        assert!(wrong("prombus-core", &[("bytes", None), ("prombus-wire", None)]).is_empty());
        assert_eq!(wrong("prombus-wire", &[("prombus-core", None)]), ["prombus-core"]);
        assert_eq!(wrong("prombus-core", &[("prombus-testkit", None)]), ["prombus-testkit"]);
        assert!(wrong("prombus-core", &[("prombus-testkit", Some("dev"))]).is_empty());
        assert_eq!(wrong("prombus-core", &[("prombus-engine", Some("dev"))]), ["prombus-engine"]);
    }

    #[test]
    fn only_the_top_knows_the_stores() {
        for store in ["prombus-store-disk", "prombus-store-memory", "prombus-store-mongo"] {
            for name in ["prombus-engine", "prombus-server", "prombus-client", "prombus-wire"] {
                assert_eq!(wrong(name, &[(store, None)]), [store], "{name}");
                assert!(wrong(name, &[(store, Some("dev"))]).is_empty(), "{name}");
            }
            assert!(wrong("prombus", &[(store, None)]).is_empty(), "{store}");
        }
    }

    #[test]
    fn arrows_do_not_turn_around() {
        assert_eq!(wrong("prombus-engine", &[("prombus-server", None)]), ["prombus-server"]);
        assert_eq!(wrong("prombus-client", &[("prombus-core", None)]), ["prombus-core"]);
        assert_eq!(wrong("prombus-server", &[("prombus-engine", None), ("prombus", None)]), ["prombus"]);
        assert_eq!(wrong("prombus-engine", &[("prombus-testkit", Some("build"))]), ["prombus-testkit"]);
    }

    #[test]
    fn the_chores_wait_for_nothing_of_the_hub() {
        assert_eq!(wrong("xtask", &[("repo", None), ("prombus-core", None)]), ["prombus-core"]);
    }

    #[test]
    fn a_crate_that_nobody_knows_is_told() {
        assert_eq!(wrong("prombus-new", &[]).len(), 1);
    }

    #[test]
    fn metadata_is_understood() {
        let text = r#"{"packages":[{"name":"prombus-wire","manifest_path":"/r/crates/w/Cargo.toml","dependencies":
            [{"name":"prombus-core","kind":null,"path":"/r/crates/c"}]}],"workspace_root":"/r"}"#;
        let findings = check(text).unwrap();
        assert_eq!(findings.len(), 1);
        assert_eq!((findings[0].file.as_str(), findings[0].line), ("crates/w/Cargo.toml", 1));
    }
}
