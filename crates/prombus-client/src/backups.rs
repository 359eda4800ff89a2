//! Backups: beginning one, and fetching its files piece by piece.

use crate::{Client, ClientError};
use bytes::Bytes;
use prombus_wire::{BackupAnswer, BackupRequest, PIECE_DIGEST};
use reqwest::{Method, Response};
use std::fmt;
use xxhash_rust::xxh3::Xxh3;

/// A piece of a file of a backup.
#[derive(Debug, Clone, Copy)]
pub struct BackupPiece<'a> {
    /// The backup.
    pub id: &'a str,
    /// The file.
    pub name: &'a str,
    /// Where the piece begins.
    pub from: u64,
    /// The mark of what is here already of the file, up to there. The error is `expectation_failed` if the hub has something
    /// else there.
    pub mark: Option<&'a str>,
}

/// A piece of a file that is coming in.
pub struct IncomingPiece {
    response: Response,
    name: String,
    from: u64,
    bytes: u64,
    digest: u128,
    came: Xxh3,
}

impl fmt::Debug for IncomingPiece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, from, bytes, .. } = self;
        f.debug_struct("IncomingPiece").field("name", name).field("from", from).field("bytes", bytes).finish()
    }
}

impl IncomingPiece {
    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes that come next; `None` at the end. Whether all of them are what the hub has sent shows only there, so what
    /// came before an error is worth nothing.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        if let Some(bytes) = self.response.chunk().await.map_err(ClientError::Transport)? {
            self.came.update(&bytes);
            return Ok(Some(bytes));
        }
        if self.came.digest128() == self.digest {
            return Ok(None);
        }
        let Self { name, from, .. } = self;
        Err(ClientError::BadAnswer(format!("{name} did not arrive as it was sent, from byte {from}")))
    }
}

impl Client {
    /// Has the hub hold a copy of its store as it is now, to be fetched file by file. It ends by itself when nothing was
    /// fetched for a while.
    pub async fn begin_backup(&self) -> Result<BackupAnswer, ClientError> {
        let request = self.request(Method::POST, &["v1", "backups"])?;
        let response = self.call(Self::with_json(request, &BackupRequest::default())?).await?;
        self.answer(response).await
    }

    /// Fetches a piece of a file: as much as the hub sends at once, and nothing only at its end.
    pub async fn backup_piece(&self, piece: BackupPiece<'_>) -> Result<IncomingPiece, ClientError> {
        let BackupPiece { id, name, from, mark } = piece;
        let path: Vec<&str> = ["v1", "backups", id, "files"].into_iter().chain(name.split('/')).collect();
        let request = self.request(Method::GET, &path)?.query(&[("from", from)]);
        let request = request.query(&mark.map(|mark| ("mark", mark)).into_iter().collect::<Vec<_>>());
        let response = self.call(request).await?;
        let digest = response.headers().get(PIECE_DIGEST).and_then(|digest| digest.to_str().ok());
        let is_it = digest.and_then(|digest| u128::from_str_radix(digest, 16).ok());
        let (Some(bytes), Some(digest)) = (response.content_length(), is_it) else {
            return Err(ClientError::BadAnswer(format!(
                "a piece of {name} without its length or its digest"
            )));
        };
        Ok(IncomingPiece { response, name: name.to_owned(), from, bytes, digest, came: Xxh3::new() })
    }

    /// Lets the hub give up a copy.
    pub async fn end_backup(&self, id: &str) -> Result<(), ClientError> {
        self.call(self.request(Method::DELETE, &["v1", "backups", id])?).await?;
        Ok(())
    }
}
