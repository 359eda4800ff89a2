//! Chaos and benchmarks are built on the same crates as the hub, with the same features.
//!
//! Cargo chooses features by what it is asked to build. If they differ for a crate at the bottom, everything above it is
//! compiled once for `cargo xtask bench` and once more for the hub.

use super::Finding;
use std::collections::{BTreeMap, BTreeSet};

/// The hub's package.
pub const HUB: &str = "prombus";
/// The packages that are built for release beside it, each on its own, and the folders that they are in.
pub const TOOLS: [(&str, &str); 2] = [("prombus-bench", "tools/bench"), ("prombus-chaos", "tools/chaos")];
/// How `cargo tree` is asked for each of them.
pub const TREE: &[&str] =
    &["tree", "--edges", "normal,build", "--prefix", "none", "--format", "{p}|{f}", "--package"];

/// Crates, and the sets of features that each is compiled with: those for build scripts may be others.
type Crates<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

fn crates(tree: &str) -> Crates<'_> {
    let mut crates = Crates::new();
    for (name, features) in tree.lines().filter_map(|line| line.split_once('|')) {
        // A star is for what was shown above.
        crates.entry(name).or_default().insert(features.trim_end_matches(" (*)"));
    }
    crates
}

/// Compares what `cargo tree` says of a tool with what it says of the hub.
pub fn check((package, folder): (&str, &str), tool: &str, hub: &str) -> Vec<Finding> {
    let [tool, hub] = [tool, hub].map(crates);
    let differing = tool.iter().filter_map(|(name, mine)| Some((name, mine, hub.get(name)?)));
    let say = |(name, mine, other): (&&str, &BTreeSet<&str>, &BTreeSet<&str>)| {
        let [mine, other] =
            [mine, other].map(|sets| sets.iter().map(|set| format!("[{set}]")).collect::<String>());
        let why = format!(
            "{name} is compiled with {mine} for {package} and with {other} for {HUB}, and so all above it twice; \
             let both have the same features"
        );
        Finding::new(&format!("{folder}/Cargo.toml"), 1, why)
    };
    differing.filter(|(_, mine, other)| mine != other).map(say).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_has_the_same_features() {
        let tool = "a v1|x,y\nb v1|\nb v1| (*)\nonly v1|x\n";
        assert_eq!(check(TOOLS[0], tool, "a v1|x,y\nb v1|\nother v1|\n"), []);
        let found = check(TOOLS[0], tool, "a v1|x\nb v1|\n");
        assert!(found.len() == 1 && found[0].why.contains("a v1 is compiled with [x,y]"), "{found:?}");
    }
}
