//! Folders of schemas: each rule finds what is against it, in the right line, and nothing else.

use prombus_schema::{
    Demand, Policy,
    lint::{Fault, File, Finding, Listing, Named, Rule, lint},
};

const NUMBER: &str =
    "{\n  \"type\": \"object\",\n  \"properties\": {\n    \"n\": {\"type\": \"number\"}\n  }\n}";
const INTEGER: &str =
    "{\n  \"type\": \"object\",\n  \"properties\": {\n    \"n\": {\"type\": \"integer\"}\n  }\n}";
const OPS: &str = r#"{"ops": []}"#;
const REMOVES: &str = r#"{"ops": [{"remove": ["n"]}]}"#;

struct Folder {
    files: Vec<File>,
    wanted: Vec<Named>,
    barred: Vec<(String, &'static str)>,
    demand: &'static str,
    policy: Policy,
}

fn folder(files: &[(&str, &str)]) -> Folder {
    let file = |(path, text): &(&str, &str)| File { path: (*path).to_owned(), text: Ok((*text).to_owned()) };
    let files = files.iter().map(file).collect();
    Folder { files, wanted: Vec::new(), barred: Vec::new(), demand: "backward", policy: Policy::Lenient }
}

impl Folder {
    fn findings(&self) -> Vec<Finding> {
        let check_topic = |topic: &str| match topic.contains('!') {
            true => Err("that is no name".to_owned()),
            false => Ok(()),
        };
        let check_upcaster = |text: &str| match text.find('!') {
            Some(at) => {
                let line = 1 + text[..at].matches('\n').count();
                Err(Fault { line, message: "that is no upcaster".to_owned() })
            }
            None => Ok(text.matches("\"remove\"").count()),
        };
        lint(&Listing {
            folder: "schemas",
            files: &self.files,
            wanted: &self.wanted,
            why_barred: &|topic| self.barred.iter().find(|(barred, _)| barred == topic).map(|(_, why)| *why),
            demand: self.demand.parse::<Demand>().unwrap(),
            policy: self.policy,
            check_topic: &check_topic,
            check_upcaster: &check_upcaster,
        })
    }

    /// Where what is found, as `file:line rule`.
    fn places(&self) -> Vec<String> {
        let place =
            |finding: &Finding| format!("{}:{} {}", finding.file, finding.line, finding.rule.as_str());
        self.findings().iter().map(place).collect()
    }
}

fn places(files: &[(&str, &str)]) -> Vec<String> {
    folder(files).places()
}

#[test]
fn a_folder_in_order_has_no_findings() {
    let all = [
        ("orders.eu/v1.json", INTEGER),
        ("orders.eu/v2.json", NUMBER),
        ("orders.eu/upcasters/1.json", OPS),
        // To the version that is to come.
        ("orders.eu/upcasters/2.json", OPS),
        ("orders.us/v1.json", "true"),
        ("README.md", "words"),
        (".gitkeep", ""),
    ];
    assert_eq!(places(&all), Vec::<String>::new());
}

#[test]
fn names_and_gaps_are_found() {
    assert_eq!(places(&[]), ["schemas:1 empty"]);
    assert_eq!(places(&[("orders/v01.json", "{}")]), ["schemas/orders/v01.json:1 name"]);
    assert_eq!(places(&[("a!/v1.json", "{}")]), ["schemas/a!:1 name"]);
    let gaps = [("a/v2.json", "{}"), ("a/v3.json", "{}"), ("a/v7.json", "{}")];
    assert_eq!(places(&gaps), ["schemas/a/v2.json:1 gap", "schemas/a/v7.json:1 gap"]);
    let told: Vec<String> = folder(&gaps).findings().into_iter().map(|finding| finding.message).collect();
    assert!(told[0].starts_with("v1.json is missing"), "{told:?}");
    assert!(told[1].starts_with("v4.json to v6.json are missing"), "{told:?}");
    assert_eq!(
        places(&[("a/upcasters/1.json", OPS)]),
        ["schemas/a:1 gap", "schemas/a/upcasters/1.json:1 upcaster"]
    );
}

#[test]
fn a_schema_that_is_none_is_found_in_its_line() {
    for (text, line) in [
        ("{\n\n  \"type\": \"objekt\"\n}", 3),
        ("{\n  \"type\": \"object\",\n}", 3),
        ("{\n  \"a\": 1,\n  \"a\": 2\n}", 3),
        ("{\n  \"properties\": {\n    \"x\": {\n      \"$ref\": \"#/$defs/none\"\n    }\n  }\n}", 4),
        ("{\n  \"$schema\": \"http://example.com/mine\"\n}", 2),
        (
            "{\n  \"items\": {\n    \"$ref\": \"#/$defs/a\"\n  },\n  \"$defs\": {\n    \"a\": {\"$ref\": \"#/$defs/a\"}\n  }\n}",
            6,
        ),
        ("", 1),
        ("\n[]", 2),
    ] {
        assert_eq!(places(&[("a/v1.json", text)]), [format!("schemas/a/v1.json:{line} schema")], "{text}");
    }
    let mut unreadable = folder(&[("a/v1.json", "")]);
    unreadable.files[0].text = Err("it is not UTF-8".to_owned());
    assert_eq!(unreadable.places(), ["schemas/a/v1.json:1 unreadable"]);
}

#[test]
fn a_version_that_does_not_fit_the_one_before_is_found_with_a_counterexample() {
    let narrowed = folder(&[("a/v1.json", NUMBER), ("a/v2.json", INTEGER), ("a/v3.json", NUMBER)]);
    let found = narrowed.findings();
    let [finding] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((finding.file.as_str(), finding.line), ("schemas/a/v2.json", 4));
    assert!(finding.message.contains("not backward compatible with version 1: /n (type)"), "{finding:?}");
    let violation = finding.violation.as_ref().unwrap();
    assert!(violation.counterexample.as_ref().unwrap()["n"].is_f64(), "{violation:?}");

    let forward = Folder { demand: "forward", ..folder(&[("a/v1.json", INTEGER), ("a/v2.json", NUMBER)]) };
    assert_eq!(forward.places(), ["schemas/a/v2.json:4 incompatible"]);
    let none = Folder { demand: "none", ..folder(&[("a/v1.json", NUMBER), ("a/v2.json", INTEGER)]) };
    assert_eq!(none.places(), Vec::<String>::new());
    let undecided =
        folder(&[("a/v1.json", "{\"pattern\":\"^(?=a)b?\"}"), ("a/v2.json", "{\n\"pattern\":\"^(?=a)\"}")]);
    assert_eq!(undecided.findings()[0].violation.as_ref().unwrap().rule, "undecided");
}

#[test]
fn the_policy_decides_on_properties_that_are_not_named() {
    let grown = [
        ("a/v1.json", "{\"properties\":{\"a\":true}}"),
        ("a/v2.json", "{\"properties\":{\"a\":true,\n\"b\":{\"type\":\"string\"}}}"),
    ];
    assert_eq!(places(&grown), Vec::<String>::new());
    let strict = Folder { policy: Policy::Strict, ..folder(&grown) };
    assert_eq!(strict.places(), ["schemas/a/v2.json:2 incompatible"]);
}

#[test]
fn all_versions_are_compared_where_that_is_asked() {
    // Each fits the one before, read leniently, and the third does not fit the first.
    let files = [
        ("a/v1.json", "{\"properties\":{\"a\":{\"type\":\"integer\"}}}"),
        ("a/v2.json", "{\"properties\":{\"b\":true}}"),
        ("a/v3.json", "{\"properties\":{\"b\":true,\n\"a\":{\"type\":\"string\"}}}"),
    ];
    assert_eq!(places(&files), Vec::<String>::new());
    let transitive = Folder { demand: "backward_transitive", ..folder(&files) };
    assert_eq!(transitive.places(), ["schemas/a/v3.json:2 incompatible"]);
}

#[test]
fn upcasters_reach_the_latest() {
    let three = [("a/v1.json", "{}"), ("a/v2.json", "{}"), ("a/v3.json", "{}")];
    let with = |more: &[(&'static str, &'static str)]| places(&[&three[..], more].concat());
    assert_eq!(with(&[("a/upcasters/2.json", OPS)]), ["schemas/a/v1.json:1 upcaster"]);
    assert_eq!(with(&[("a/upcasters/1.json", OPS)]), ["schemas/a/v2.json:1 upcaster"]);
    let beyond = [("a/upcasters/1.json", OPS), ("a/upcasters/2.json", OPS), ("a/upcasters/4.json", OPS)];
    assert_eq!(with(&beyond), ["schemas/a/upcasters/4.json:1 upcaster"]);
    let bad = [("a/upcasters/1.json", "{\n\n!"), ("a/upcasters/2.json", "!")];
    let expected = ["schemas/a/upcasters/1.json:3 upcaster", "schemas/a/upcasters/2.json:1 upcaster"];
    assert_eq!(with(&bad), expected);
}

/// Where events are changed on their way to the next version, that one need not take them as they were.
#[test]
fn a_version_is_not_compared_across_an_upcaster_that_changes_events() {
    let broken = [("a/v1.json", NUMBER), ("a/v2.json", INTEGER)];
    let with = |ops: &'static str| folder(&[&broken[..], &[("a/upcasters/1.json", ops)]].concat());
    assert_eq!(with(REMOVES).places(), Vec::<String>::new());
    assert_eq!(
        with(OPS).places(),
        ["schemas/a/v2.json:4 incompatible"],
        "it says that events fit as they are"
    );
    // Only that one step is let off.
    let later = [
        ("a/v3.json", NUMBER),
        ("a/v4.json", INTEGER),
        ("a/upcasters/1.json", REMOVES),
        ("a/upcasters/2.json", OPS),
        ("a/upcasters/3.json", OPS),
    ];
    let mut later = folder(&[&broken[..], &later].concat());
    assert_eq!(later.places(), ["schemas/a/v4.json:4 incompatible"]);
    later.demand = "backward_transitive";
    let told: Vec<String> = later.findings().into_iter().map(|finding| finding.message).collect();
    let [told] = told.as_slice() else { panic!("{told:?}") };
    assert!(told.contains("compatible with version 3"), "version 1 is behind the upcaster: {told}");
}

#[test]
fn a_version_that_cannot_be_read_does_not_make_others_neighbours() {
    let files = [("a/v1.json", NUMBER), ("a/v2.json", "{"), ("a/v3.json", INTEGER)];
    assert_eq!(places(&files), ["schemas/a/v2.json:1 schema"]);
}

#[test]
fn topics_of_the_configuration_are_looked_for() {
    let named = |topic: &str, line| Named { topic: topic.to_owned(), file: "prombus.toml".to_owned(), line };
    let mut some = folder(&[("a/v1.json", "{}"), ("feed/v1.json", "{}")]);
    some.wanted = vec![named("a", 3), named("b", 7)];
    some.barred = vec![("feed".to_owned(), "it is a changefeed")];
    assert_eq!(some.places(), ["schemas/feed:1 barred", "prombus.toml:7 no-schema"]);
    let found = some.findings();
    assert_eq!((found[0].rule, found[1].rule), (Rule::Barred, Rule::NoSchema));
    assert!(found[1].message.contains("schemas/b/v1.json"), "{found:?}");
}
