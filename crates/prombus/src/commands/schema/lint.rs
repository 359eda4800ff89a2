//! `prombus schema lint`: whether a folder of schemas is in order, for continuous integration.

use super::configured::Configured;
use super::{ops, verdict};
use crate::failure::Failure;
use crate::output;
use crate::say;
use crate::schema_folder;
use crate::visible;
use clap::Args;
use prombus_core::TopicName;
use prombus_schema::lint::{Finding, Listing, lint};
use prombus_schema::{Demand, Policy};
use serde_json::json;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  prombus schema lint schemas
  prombus schema lint schemas --config prombus.toml --format github

The folder:
  schemas/<topic>/v1.json, v2.json ...   one JSON schema per version, without gaps
  schemas/<topic>/upcasters/1.json ...   from that version to the next; for all versions but the latest, or none";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct LintArgs {
    /// Folder with the schemas
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Configuration whose topics should have schemas, unless they say schema = "off"
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Output format: text (file:line: ...), json (one object per line) or github (annotations)
    #[arg(long, value_name = "text|json|github", value_parser = ["text", "json", "github"], hide_possible_values = true, default_value = "text")]
    format: String,
    /// Required compatibility: none, backward, forward or full; append _transitive to check against all earlier versions
    /// [default: as configured, or backward]
    #[arg(long, value_name = "COMPAT")]
    compat: Option<Demand>,
    /// How to treat properties that the schema does not name: lenient or strict [default: as configured, or lenient]
    #[arg(long, value_name = "POLICY")]
    policy: Option<Policy>,
}

pub fn run(args: &LintArgs) -> Result<(), Failure> {
    let files = schema_folder::read(&args.dir)
        .map_err(|error| Failure::Usage(format!("cannot read the folder {}: {error}", args.dir.display())))?;
    let configured = args.config.as_deref().map(Configured::read).transpose()?.unwrap_or_default();
    let folder = args.dir.to_string_lossy();
    let folder = if folder == "/" { "" } else { folder.trim_end_matches('/') };
    let mut findings = lint(&Listing {
        folder,
        files: &files,
        wanted: &configured.wanted,
        why_barred: &|topic| configured.barred.why(topic),
        demand: args.compat.or(configured.rule.map(|rule| rule.demand)).unwrap_or_default(),
        policy: args.policy.or(configured.rule.map(|rule| rule.policy)).unwrap_or_default(),
        check_topic: &check_topic,
        check_upcaster: &ops::check,
    });
    findings.extend(configured.bad);
    let format = match args.format.as_str() {
        "json" => as_json,
        "github" => as_github,
        _ => as_text,
    };
    let lines: Result<String, Failure> = findings.iter().map(format).collect();
    output::write_all(lines?.as_bytes())?;
    if findings.is_empty() {
        say!("{} is in order: {}", args.dir.display(), output::counted(files.len() as u64, "file"));
        return Ok(());
    }
    let count = output::counted(findings.len() as u64, "finding");
    Err(Failure::Failed(format!("{} has {count}", args.dir.display())))
}

fn check_topic(name: &str) -> Result<(), String> {
    match TopicName::parse(name) {
        Ok(topic) if topic.is_internal() => {
            Err("topics that start with dlq. or system. are the hub's own, and have no schemas".to_owned())
        }
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// A line that editors and people can follow.
fn as_text(finding: &Finding) -> Result<String, Failure> {
    let place = format!("{}:{}", finding.file, finding.line);
    let line = format!("{place}: {}: {}", finding.rule.as_str(), told(finding));
    Ok(visible::in_line(&line).into_owned() + "\n")
}

fn as_json(finding: &Finding) -> Result<String, Failure> {
    let Finding { file, line, rule, message, violation } = finding;
    let mut json = json!({"file": file, "line": line, "rule": rule.as_str(), "message": message});
    if let Some(violation) = violation {
        json["violation"] = verdict::as_json(violation);
    }
    Ok(format!("{json}\n"))
}

/// A command that a workflow of GitHub Actions shows beside the line.
fn as_github(finding: &Finding) -> Result<String, Failure> {
    let Finding { file, line, rule, .. } = finding;
    let (file, title) = (property(file), property(rule.as_str()));
    let message = data(&told(finding));
    Ok(format!("::error file={file},line={line},title={title}::{message}\n"))
}

/// What is wrong, with a document that shows it.
fn told(finding: &Finding) -> String {
    let shown = finding.violation.as_ref().and_then(|violation| violation.counterexample.as_ref());
    match shown {
        Some(document) => format!("{}; for example {}", finding.message, verdict::shown(document)),
        None => finding.message.clone(),
    }
}

/// The message of a workflow command, which ends with its line.
fn data(text: &str) -> String {
    visible::in_line(text).replace('%', "%25")
}

/// A property of a workflow command, which ends with a comma or a colon.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
