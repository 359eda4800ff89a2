//! `prombus move`: takes everything that a hub keeps from one store to another.

use crate::failure::Failure;
use crate::hub;
use crate::output::{self, Record};
use crate::progress;
use crate::say;
use clap::Args;
use indicatif::ProgressBar;
use prombus_core::transfer::{self, Moved};
use prombus_core::{Clock, SystemClock, Transfer, TransferProgress};
use prombus_store_disk::{DiskOptions, DiskStore};
use prombus_store_mongo::{MongoOptions, MongoStore, Purpose};
use std::path::Path;
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  prombus move --from ./data --to 'mongodb://host1,host2,host3/prom?replicaSet=rs0'
  prombus move --from 'mongodb://host1,host2,host3/prom?replicaSet=rs0' --to ./data

Stop all hubs of both stores first. The source is not changed. A move that was interrupted
continues when the same command is run again; until it is finished, no hub starts on the target.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct MoveArgs {
    /// Where everything is: a data folder, or mongodb://HOSTS/DATABASE
    #[arg(long, value_name = "STORE")]
    from: String,
    /// Where it is to go: a folder that is empty or does not exist, or mongodb://HOSTS/DATABASE
    #[arg(long, value_name = "STORE")]
    to: String,
    /// Prefix of collection names in the source database
    #[arg(long, value_name = "PREFIX", default_value = "")]
    from_prefix: String,
    /// Prefix of collection names in the target database
    #[arg(long, value_name = "PREFIX", default_value = "")]
    to_prefix: String,
}

/// A store as it was named.
enum Place<'a> {
    Folder(&'a Path),
    Database { url: &'a str, prefix: &'a str },
}

impl<'a> Place<'a> {
    fn of(store: &'a str, prefix: &'a str) -> Self {
        match store.starts_with("mongodb://") || store.starts_with("mongodb+srv://") {
            true => Self::Database { url: store, prefix },
            false => Self::Folder(Path::new(store)),
        }
    }

    /// Its name, without what is secret: the same for as long as a move takes.
    fn name(&self) -> String {
        match self {
            Self::Folder(dir) => match dir.canonicalize() {
                Ok(dir) => dir.display().to_string(),
                Err(_) => dir.display().to_string(),
            },
            Self::Database { url, prefix } => {
                let place = url.split_once("://").map_or(*url, |(_, place)| place);
                let place = place.split('?').next().unwrap_or_default();
                let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
                match prefix.is_empty() {
                    true => format!("mongodb://{place}"),
                    false => format!("mongodb://{place} with prefix {prefix}"),
                }
            }
        }
    }
}

pub fn run(args: &MoveArgs) -> Result<(), Failure> {
    let from = Place::of(&args.from, &args.from_prefix);
    let to = Place::of(&args.to, &args.to_prefix);
    if from.name() == to.name() {
        return Err(Failure::Usage(format!("--from and --to are the same store: {}", from.name())));
    }
    hub::block_on(move_all(&from, &to))
}

async fn move_all(from: &Place<'_>, to: &Place<'_>) -> Result<(), Failure> {
    let source = open(from, None).await?;
    let target = match open(to, Some(from.name())).await {
        Ok(target) => target,
        Err(error) => {
            source.close().await;
            return Err(error);
        }
    };
    let progress = progress::bar(0, "events and documents");
    let moved = transfer_all((&*source, &*target), &progress).await;
    progress.finish_and_clear();
    target.close().await;
    source.close().await;
    let moved = moved.map_err(|error| Failure::Failed(format!("cannot move: {error}")))?;
    let rows = [
        ("topics", moved.topics),
        ("events", moved.events),
        ("ids of removed events", moved.ids),
        ("positions of readers", moved.cursors),
        ("collections", moved.collections),
        ("documents", moved.documents),
    ];
    let record = |(what, tally): (&str, transfer::Tally)| {
        let (count, digest) = (tally.count, format!("{:032x}", tally.digest));
        let json = serde_json::json!({"what": what, "count": count, "digest": digest});
        Record::of(&json, vec![what.to_owned(), count.to_string(), digest])
    };
    output::write_records(
        &["what", "count", "digest"],
        &rows.into_iter().map(record).collect::<Result<Vec<_>, _>>()?,
    )?;
    say!(
        "moved from {} to {}, read back and compared; do not start hubs on the source again",
        from.name(),
        to.name()
    );
    Ok(())
}

async fn transfer_all(
    (source, target): (&dyn Transfer, &dyn Transfer),
    bar: &ProgressBar,
) -> Result<Moved, transfer::TransferError> {
    let mut tell = |progress: TransferProgress| {
        // Everything is gone over twice.
        bar.set_length(2 * progress.of);
        bar.set_position(progress.done + if progress.is_comparing { progress.of } else { 0 });
    };
    let now_ms = SystemClock.now_ms();
    transfer::fill((source, target), now_ms, &mut tell).await?;
    let moved = transfer::compare((source, target), now_ms, &mut tell).await?;
    target.complete().await?;
    Ok(moved)
}

/// Opens a store: the one to be filled from what is called so, or the source.
async fn open(place: &Place<'_>, filled_from: Option<String>) -> Result<Arc<dyn Transfer>, Failure> {
    let side = if filled_from.is_some() { "--to" } else { "--from" };
    let failed = |why: String| Failure::Failed(format!("{side} {}: {why}", place.name()));
    match place {
        Place::Folder(dir) => {
            if filled_from.is_none() && !dir.join("FORMAT").exists() {
                return Err(failed("this is no data folder: it has no file FORMAT".into()));
            }
            // What is read must not be rewritten meanwhile.
            let options = DiskOptions { reclaims: false, filled_from, ..DiskOptions::new(*dir) };
            let opened = tokio::task::spawn_blocking(move || DiskStore::open(options)).await;
            let opened = opened.map_err(|error| failed(error.to_string()))?;
            Ok(opened.map_err(|error| failed(error.to_string()))?)
        }
        Place::Database { url, prefix } => {
            let purpose = filled_from.map_or(Purpose::MoveFrom, Purpose::FillFrom);
            let options = MongoOptions { prefix: (*prefix).to_owned(), purpose, ..MongoOptions::new(*url) };
            Ok(MongoStore::open(options).await.map_err(|error| failed(error.to_string()))?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_no_secrets() {
        let name = |store, prefix| Place::of(store, prefix).name();
        assert_eq!(name("mongodb://u:p@h1,h2/db?replicaSet=rs", ""), "mongodb://h1,h2/db");
        assert_eq!(name("mongodb://h/db", "p_"), "mongodb://h/db with prefix p_");
        assert_eq!(name("no/such/folder", ""), "no/such/folder");
    }
}
