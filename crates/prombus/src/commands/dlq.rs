//! `prombus dlq`: lists, shows and replays dead letters.

use crate::failure::Failure;
use crate::hub::{self, HubArgs};
use crate::output::{self, Record};
use crate::say;
use clap::{Args, Subcommand};
use prombus_client::{
    Client, DeadLetterQuery, DeadLettersPage, EventRecord, ReplayAnswer, ReplayRequest, SkippedLetter,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

/// Number of dead letters per page.
const PAGE: usize = 1_000;

const EXAMPLES: &str = "\
Examples:
  prombus dlq list process.state --group audit
  prombus dlq replay process.state --group audit --dry-run";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DlqArgs {
    #[command(subcommand)]
    command: DlqCommand,
}

#[derive(Debug, Subcommand)]
enum DlqCommand {
    /// List the dead letters of a topic, and which of them were replayed
    #[command(
        after_help = "Example:\n  prombus dlq list process.state --group audit --filter 'event.payload.attempts > 3'"
    )]
    List {
        /// Topic whose dead letters to list
        topic: String,
        #[command(flatten)]
        selection: Selection,
    },
    /// Show a dead letter with its original event, and whether it was replayed
    #[command(after_help = "Example:\n  prombus dlq show process.state 0198c0de-0000-7000-8000-000000000001")]
    Show {
        /// Topic that the event was published to
        topic: String,
        /// Id of the dead letter or of its original event
        id: Uuid,
    },
    /// Redeliver dead letters to the group or projection that failed on them, or republish them
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay {
        /// Topic whose dead letters to replay
        topic: String,
        #[command(flatten)]
        selection: Selection,
        /// Destination: the group or projection that failed on the event, or the topic, for everyone [default: group]
        #[arg(long, value_name = "group|topic", value_parser = ["group", "topic"], hide_possible_values = true)]
        to: Option<String>,
        /// Only the dead letter with this id, or whose original event has it; may be repeated
        #[arg(long = "id", value_name = "UUID")]
        ids: Vec<Uuid>,
        /// Change nothing; only report what would be replayed
        #[arg(long)]
        dry_run: bool,
        /// Include letters that were already replayed, and events that have come back too often
        #[arg(long)]
        force: bool,
    },
}

const REPLAY_EXAMPLES: &str = "\
Examples:
  prombus dlq replay process.state --group audit --dry-run
  prombus dlq replay process.state --to topic --id 0198c0de-0000-7000-8000-000000000001";

/// Which dead letters to select.
#[derive(Debug, Args)]
struct Selection {
    /// Only events on which this group failed
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Only events on which this projection failed
    #[arg(long, value_name = "PROJECTION", conflicts_with = "group")]
    projection: Option<String>,
    /// Only dead letters that match this CEL expression over `event`
    #[arg(long, value_name = "CEL")]
    filter: Option<String>,
    /// Maximum number of dead letters [default: all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

pub fn run(hub: &HubArgs, args: DlqArgs) -> Result<(), Failure> {
    let client = hub.client()?;
    hub::block_on(async {
        match args.command {
            DlqCommand::List { topic, selection } => list(&client, &topic, selection).await,
            DlqCommand::Show { topic, id } => show(&client, &topic, id).await,
            DlqCommand::Replay {
                topic,
                selection: Selection { group, projection, filter, limit },
                to,
                ids,
                dry_run,
                force,
            } => {
                let ids = ids.iter().map(Uuid::to_string).collect::<Vec<_>>();
                let ids = (!ids.is_empty()).then_some(ids);
                let (dry_run, force) = (dry_run.then_some(true), force.then_some(true));
                let request = ReplayRequest { to, ids, group, projection, filter, limit, dry_run, force };
                replay(&client, &topic, &request).await
            }
        }
    })
}

/// Which dead letters of a topic to find.
struct LetterSearch<'a> {
    client: &'a Client,
    topic: &'a str,
    query: DeadLetterQuery,
    /// The maximum number.
    most: usize,
}

/// The number found, and whether there may be more.
struct LettersWritten {
    letters: usize,
    more: bool,
}

impl LetterSearch<'_> {
    /// Writes page after page, so that memory does not grow with their number.
    async fn write(
        self,
        write: fn(&DeadLettersPage) -> Result<(), Failure>,
    ) -> Result<LettersWritten, Failure> {
        let Self { client, topic, query, most } = self;
        let mut letters = 0;
        let mut next: Option<String> = None;
        while letters < most {
            let limit = PAGE.min(most - letters);
            let page = match &next {
                None => client.dead_letters(topic, &query, limit).await?,
                Some(next) => client.dead_letters_next(topic, next, limit).await?,
            };
            if !page.events.is_empty() {
                write(&page)?;
            }
            letters += page.events.len();
            next = page.next;
            if next.is_none() {
                break;
            }
        }
        Ok(LettersWritten { letters, more: next.is_some() })
    }
}

async fn list(client: &Client, topic: &str, selection: Selection) -> Result<(), Failure> {
    let Selection { group, projection, filter, limit } = selection;
    let query = DeadLetterQuery { group, projection, filter };
    let wanted = LetterSearch { client, topic, query, most: limit.unwrap_or(usize::MAX) };
    let LettersWritten { letters, more } = wanted.write(write_letters).await?;
    let more = if more { ", and there may be more" } else { "" };
    say!("{} of {topic}{more}", output::counted(letters as u64, "dead letter"));
    Ok(())
}

/// The contents of a dead letter; fields that a hub of another version does not send are absent.
#[derive(Deserialize)]
struct Letter {
    #[serde(default)]
    group: Option<String>,
    #[serde(default)]
    projection: Option<String>,
    #[serde(default)]
    err: Option<Box<RawValue>>,
    #[serde(default)]
    attempts: Option<u64>,
    #[serde(default)]
    original: Option<EventRecord>,
}

impl Letter {
    fn of(event: &EventRecord) -> Option<Self> {
        serde_json::from_str(event.payload.get()).ok()
    }

    /// Why it was dead-lettered, without JSON quotes.
    fn reason(&self) -> String {
        let raw = self.err.as_ref().map_or("", |err| err.get());
        serde_json::from_str(raw).unwrap_or_else(|_| raw.to_owned())
    }
}

const COLUMNS: [&str; 9] =
    ["id", "ts", "group", "projection", "attempts", "replayed", "original", "key", "err"];

/// A dead letter as a line.
#[derive(Serialize)]
struct Listed<'a> {
    #[serde(flatten)]
    event: &'a EventRecord,
    /// Only where it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    replayed: Option<bool>,
}

impl<'a> Listed<'a> {
    fn of(page: &DeadLettersPage, event: &'a EventRecord) -> Self {
        Self { event, replayed: page.replayed.get(&event.id).copied().filter(|replayed| *replayed) }
    }
}

fn write_letters(page: &DeadLettersPage) -> Result<(), Failure> {
    let record = |event: &EventRecord| {
        let listed = Listed::of(page, event);
        let letter = Letter::of(event);
        let of = |what: fn(&Letter) -> Option<String>| letter.as_ref().and_then(what).unwrap_or_default();
        let cells = vec![
            event.id.clone(),
            event.ts.to_string(),
            of(|letter| letter.group.clone()),
            of(|letter| letter.projection.clone()),
            of(|letter| letter.attempts.map(|attempts| attempts.to_string())),
            listed.replayed.map(|_| "yes".to_owned()).unwrap_or_default(),
            of(|letter| letter.original.as_ref().map(|original| original.id.clone())),
            of(|letter| letter.original.as_ref().and_then(|original| original.key.clone())),
            of(|letter| Some(letter.reason())),
        ];
        Record::of(&listed, cells)
    };
    output::write_records(&COLUMNS, &page.events.iter().map(record).collect::<Result<Vec<_>, _>>()?)
}

/// Shows the letter with this id, or those whose original event has it: several groups and projections may have failed
/// on it.
async fn show(client: &Client, topic: &str, id: Uuid) -> Result<(), Failure> {
    let filter = Some(format!("event.id == \"{id}\" || event.payload.original.id == \"{id}\""));
    let query = DeadLetterQuery { filter, ..DeadLetterQuery::default() };
    let found = LetterSearch { client, topic, query, most: usize::MAX }.write(write_whole).await?;
    if found.letters == 0 {
        let message =
            format!("topic {topic} has no dead letter {id}, and none about an event {id} (not_found)");
        return Err(Failure::Failed(message));
    }
    Ok(())
}

/// In full, even on a terminal: whoever asks for one letter wants to see all of it.
fn write_whole(page: &DeadLettersPage) -> Result<(), Failure> {
    let line = |event| Ok(Record::of(&Listed::of(page, event), Vec::new())?.json + "\n");
    let lines = page.events.iter().map(line).collect::<Result<String, Failure>>()?;
    output::write_all(lines.as_bytes())
}

/// Replays letters. If the given group, projection or id does not exist or has no letters, that is most likely a typo.
async fn replay(client: &Client, topic: &str, request: &ReplayRequest) -> Result<(), Failure> {
    let answer = client.replay(topic, request).await?;
    write_replay(&answer, request.dry_run.is_some())?;
    if answer.matched > 0 {
        return Ok(());
    }
    let ReplayRequest { ids, group, projection, .. } = request;
    let failed = |why: String| Err(Failure::Failed(format!("{why} (not_found)")));
    let of = match (group, projection) {
        (Some(group), _) if matches!(client.group(topic, group).await, Ok(None)) => {
            return failed(format!("topic {topic} has no group {group}, and no dead letters of one"));
        }
        (_, Some(projection)) if matches!(client.projection(projection).await, Ok(None)) => {
            return failed(format!(
                "there is no projection {projection}, and topic {topic} has no dead letters of one"
            ));
        }
        (Some(group), _) => format!(" of group {group}"),
        (_, Some(projection)) => format!(" of projection {projection}"),
        (None, None) => String::new(),
    };
    match ids.as_deref() {
        Some(ids) => failed(format!(
            "topic {topic} has no dead letter{of} with the id {ids}, and none about an event with it",
            ids = ids.join(" or ")
        )),
        None => Ok(()),
    }
}

fn write_replay(answer: &ReplayAnswer, is_dry: bool) -> Result<(), Failure> {
    let letters = output::counted(answer.replayed, "dead letter");
    say!("{letters} of {} {}", answer.matched, if is_dry { "would be replayed" } else { "replayed" });
    let counts = [answer.matched, answer.replayed, answer.skipped.len() as u64];
    let cells = counts.map(|count| count.to_string()).to_vec();
    output::write_records(&["matched", "replayed", "skipped"], &[Record::of(answer, cells)?])?;
    // The line for programs has them already.
    if output::is_terminal() && !answer.skipped.is_empty() {
        let row = |letter: &SkippedLetter| Record::of(letter, vec![letter.id.clone(), letter.why.clone()]);
        let rows = answer.skipped.iter().map(row).collect::<Result<Vec<_>, _>>()?;
        output::write_all(b"\n")?;
        output::write_records(&["skipped", "why"], &rows)?;
    }
    Ok(())
}
