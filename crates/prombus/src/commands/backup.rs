//! `prombus backup`: copies a running hub into a folder, or brings such a copy up to date.

use crate::failure::Failure;
use crate::hub::{self, HubArgs};
use crate::output::counted;
use crate::progress;
use crate::say;
use bytes::Bytes;
use clap::Args;
use futures::{StreamExt, TryStreamExt, future};
use indicatif::ProgressBar;
use prombus_client::{BackupAnswer, BackupFile, BackupPiece, Client, ClientError, ErrorCode};
use prombus_core::CopyFile;
use prombus_store_disk::{BackupError, Incoming, Target, Update, WantedFile};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::slice;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

const EXAMPLES: &str = "\
Examples:
  prombus backup /backup/hub
  prombus backup /backup/hub --url https://hub.example:7070 --token \"$TOKEN\"
  prombus check --data /backup/hub
  prombus serve --data /backup/hub";

/// How many files are fetched at a time: while one becomes durable, another one comes in.
const FILES_AT_ONCE: usize = 2;
/// How many pieces of a file are fetched ahead.
const PIECES_AHEAD: usize = 2;
/// How often bytes may have come in that are not written yet; it is some 100 KiB each time, at most.
const UNWRITTEN: usize = 64;
/// How often a backup is begun again that the hub has ended, as it does when its disk is full, or that it has no place for.
const MAX_TRIES: usize = 8;
/// How long to wait for a place.
const WAIT: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct BackupArgs {
    /// Backup folder: new, or an earlier backup to update
    dir: PathBuf,
}

pub fn run(hub: &HubArgs, args: &BackupArgs) -> Result<(), Failure> {
    let client = hub.client()?;
    hub::block_on(async {
        let mut fetched = 0;
        for tried in 1.. {
            match back_up(&client, &args.dir, &mut fetched).await {
                Err(Failure::Client(error)) if error.is_code(ErrorCode::Gone) && tried < MAX_TRIES => {
                    say!("the hub has ended this backup, and another one is begun: {error}");
                }
                Err(Failure::Client(error)) if error.is_code(ErrorCode::Unavailable) && tried < MAX_TRIES => {
                    say!("waiting for the hub: {error}");
                    // It has as many copies as it can hold, and does not tell when one ends.
                    tokio::time::sleep(WAIT).await;
                }
                done => return done,
            }
        }
        Ok(())
    })
}

/// Makes one attempt, and adds what it has fetched.
async fn back_up(client: &Client, dir: &Path, fetched: &mut u64) -> Result<(), Failure> {
    let target = Target::open(dir).map_err(failed)?;
    let backup = client.begin_backup().await?;
    let made = fetch(client, &backup, target, fetched).await;
    // It ends by itself otherwise.
    let _ = client.end_backup(&backup.id).await;
    made?;
    let [files, bytes, new] =
        [(backup.files.len() as u64, "file"), (backup.bytes, "byte"), (*fetched, "new byte")]
            .map(|(number, thing)| counted(number, thing));
    say!("{} has {files} with {bytes}; fetched {new}", dir.display());
    Ok(())
}

async fn fetch(
    client: &Client,
    backup: &BackupAnswer,
    target: Target,
    fetched: &mut u64,
) -> Result<(), Failure> {
    let files = backup.files.iter().map(listed).collect::<Result<Vec<_>, _>>()?;
    let update = target.begin(&files).map_err(failed)?;
    let missing = update.wanted().iter().map(WantedFile::missing_bytes).sum();
    let progress = progress::bar(missing, "bytes");
    let left = RefCell::new(update.wanted().iter());
    let transfer = Transfer { client, id: &backup.id, update: &update, progress: &progress, left: &left };
    // Nobody writes into the folder any more when another attempt begins.
    let lanes = future::join_all((0..FILES_AT_ONCE).map(|_| transfer.files())).await;
    for (bytes, done) in lanes {
        *fetched += bytes;
        done?;
    }
    progress.finish_and_clear();
    update.finish().map_err(failed)
}

fn listed(file: &BackupFile) -> Result<CopyFile, Failure> {
    let bad = |_| Failure::Client(ClientError::BadAnswer(format!("{:?} is not a mark", file.mark)));
    Ok(CopyFile { name: file.name.clone(), bytes: file.bytes, fingerprint: file.mark.parse().map_err(bad)? })
}

fn failed(error: BackupError) -> Failure {
    Failure::Failed(format!("cannot write the backup: {error}"))
}

/// Fetching files of one backup.
struct Transfer<'a> {
    client: &'a Client,
    id: &'a str,
    update: &'a Update,
    progress: &'a ProgressBar,
    /// The files that nobody has begun.
    left: &'a RefCell<slice::Iter<'a, WantedFile>>,
}

impl Transfer<'_> {
    /// Fetches one file after the other until there is none left; how much that was, and whether it went well. Where it did
    /// not, no other file is begun.
    async fn files(&self) -> (u64, Result<(), Failure>) {
        let mut fetched = 0;
        loop {
            let Some(wanted) = self.left.borrow_mut().next() else { return (fetched, Ok(())) };
            match self.same_file(wanted).await {
                Ok(bytes) => fetched += bytes,
                Err(error) => {
                    *self.left.borrow_mut() = [].iter();
                    return (fetched, Err(error));
                }
            }
        }
    }

    /// Fetches what is missing of a file, or all of it if what is here is something else; how much that was.
    async fn same_file(&self, wanted: &WantedFile) -> Result<u64, Failure> {
        match self.file(wanted.clone()).await {
            Err(Failure::Client(error)) if error.is_code(ErrorCode::ExpectationFailed) => {
                self.progress.inc_length(wanted.bytes - wanted.missing_bytes());
                self.file(wanted.clone().from_the_start()).await
            }
            bytes => bytes,
        }
    }

    /// Fetches what is missing of a file.
    async fn file(&self, wanted: WantedFile) -> Result<u64, Failure> {
        let WantedFile { name, bytes, have } = wanted.clone();
        let (from, mark) = match have {
            Some((bytes, fingerprint)) => (bytes, Some(fingerprint.to_string())),
            None => (0, None),
        };
        let first = BackupPiece { id: self.id, name: &name, from, mark: mark.as_deref() };
        // How much comes at once is up to the hub, and what is here is known to be the same when it has.
        let first_piece = self.client.backup_piece(first).await?;
        let step = first_piece.bytes();
        let incoming = self.update.receive(wanted).map_err(failed)?;
        let (bytes_in, bytes_out) = mpsc::channel(UNWRITTEN);
        let writing = tokio::task::spawn_blocking(|| write(incoming, bytes_out));
        let rest = async {
            let starts = (1..).map(|n| from + n * step).take_while(|at| step > 0 && *at < bytes);
            let pieces =
                starts.map(|from| self.client.backup_piece(BackupPiece { from, mark: None, ..first }));
            let mut pieces = futures::stream::iter(pieces).buffered(PIECES_AHEAD);
            let mut next = Some(first_piece);
            while let Some(mut piece) = next {
                while let Some(some) = piece.next().await? {
                    let len = some.len() as u64;
                    // Whoever wrote says why he has stopped.
                    let Ok(()) = bytes_in.send(some).await else { return Ok(()) };
                    self.progress.inc(len);
                }
                next = pieces.try_next().await?;
            }
            Ok::<_, ClientError>(())
        };
        let came = rest.await;
        // Whoever writes goes on until then.
        drop(bytes_in);
        let written = ended(writing).await;
        // Where the last piece is not what was sent, the file is complete, and not kept all the same.
        came?;
        let incoming = written?;
        ended(tokio::task::spawn_blocking(|| incoming.finish())).await?;
        Ok(bytes - from)
    }
}

async fn ended<T>(work: JoinHandle<Result<T, BackupError>>) -> Result<T, Failure> {
    work.await.map_err(|error| Failure::Failed(error.to_string()))?.map_err(failed)
}

/// Writes a file as it comes in.
fn write(mut incoming: Incoming, mut came: mpsc::Receiver<Bytes>) -> Result<Incoming, BackupError> {
    while let Some(bytes) = came.blocking_recv() {
        incoming.write(&bytes)?;
    }
    Ok(incoming)
}
