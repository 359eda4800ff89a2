//! Reads Prometheus text as strictly as its specification has it, and finds the names in PromQL.

use std::collections::{BTreeMap, BTreeSet};

/// One line with a value.
#[derive(Debug)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

/// The samples of one name, with what is said of it.
#[derive(Debug)]
pub struct Family {
    pub name: String,
    pub kind: String,
    pub help: String,
    pub samples: Vec<Sample>,
}

/// Takes the whole text apart: every family begins with HELP and TYPE, and its samples follow.
#[track_caller]
pub fn parse(text: &str) -> Vec<Family> {
    assert!(text.ends_with('\n'), "the last line ends");
    let mut families: Vec<Family> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            let kind = lines.next().and_then(|line| line.strip_prefix(&format!("# TYPE {name} "))).unwrap();
            let (name, kind, help) = (name.to_owned(), kind.to_owned(), help.to_owned());
            families.push(Family { name, kind, help, samples: Vec::new() });
        } else {
            let sample = sample(line);
            let family = families.last_mut().unwrap();
            assert!(belongs(family, &sample.name), "{line} stands below {}", family.name);
            family.samples.push(sample);
        }
    }
    families
}

fn belongs(family: &Family, name: &str) -> bool {
    match name.strip_prefix(family.name.as_str()) {
        Some("") => family.kind != "histogram",
        Some("_bucket" | "_sum" | "_count") => family.kind == "histogram",
        _ => false,
    }
}

#[track_caller]
fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap();
            let (value, after) = quoted(after);
            assert!(labels.insert(label.to_owned(), value).is_none(), "{label} twice in {line}");
            rest = &after[1..];
            match after.as_bytes()[0] {
                b',' => (),
                b'}' => break,
                _ => panic!("no label ends like this: {line}"),
            }
        }
    }
    let value = rest.strip_prefix(' ').unwrap();
    Sample { name: name.to_owned(), labels, value: value.parse().unwrap() }
}

/// A label's value up to its closing quote, and what comes after it.
#[track_caller]
fn quoted(text: &str) -> (String, &str) {
    let (mut value, mut chars) = (String::new(), text.char_indices());
    loop {
        match chars.next().unwrap() {
            (at, '"') => return (value, &text[at + 1..]),
            (_, '\\') => value.push(match chars.next().unwrap().1 {
                'n' => '\n',
                plain @ ('\\' | '"') => plain,
                other => panic!("\\{other} in {text}"),
            }),
            (_, plain) => value.push(plain),
        }
    }
}

/// The metrics of a PromQL expression, and the labels that it goes by.
#[derive(Debug, Default)]
pub struct Names {
    pub metrics: BTreeSet<String>,
    pub labels: BTreeSet<String>,
}

/// Words that are neither a metric nor a label.
const KEYWORDS: &[&str] = &["by", "without", "and", "or", "unless"];

/// What comes after the name of a function or an aggregation, and never after that of a metric.
const AFTER_FUNCTIONS: [&str; 3] = ["(", " by (", " without ("];

/// Finds the names in an expression.
pub fn names(expr: &str) -> Names {
    let (mut names, mut rest, mut in_list) = (Names::default(), expr, false);
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if word > 0 {
            let (text, after) = rest.split_at(word);
            let is_function = AFTER_FUNCTIONS.iter().any(|next| after.starts_with(next));
            let is_name = !first.is_ascii_digit() && !KEYWORDS.contains(&text) && !is_function;
            match (is_name, in_list) {
                (true, true) => drop(names.labels.insert(text.to_owned())),
                (true, false) => drop(names.metrics.insert(text.to_owned())),
                // A list of labels follows.
                (false, _) => in_list = matches!(text, "by" | "without"),
            }
            rest = after;
        } else if first == '{' {
            let (matchers, after) = rest[1..].split_once('}').unwrap();
            let labels = matchers.split(',').map(|one| one.split(['=', '!']).next().unwrap().to_owned());
            names.labels.extend(labels);
            rest = after;
        } else if first == '[' {
            rest = rest.split_once(']').unwrap().1;
        } else {
            in_list &= first != ')';
            rest = &rest[first.len_utf8()..];
        }
    }
    names
}
