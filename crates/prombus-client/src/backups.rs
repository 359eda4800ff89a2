//! Backups: beginning one, and fetching its files piece by piece.

use crate::{Client, ClientError};
use bytes::Bytes;
use prombus_wire::{BackupAnswer, BackupRequest, PIECE_DIGEST};
use reqwest::Method;
use xxhash_rust::xxh3::xxh3_128;

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

impl Client {
    /// Has the hub hold a copy of its store as it is now, to be fetched file by file. It ends by itself when nothing was
    /// fetched for a while.
    pub async fn begin_backup(&self) -> Result<BackupAnswer, ClientError> {
        let request = self.request(Method::POST, &["v1", "backups"])?;
        let response = self.call(Self::with_json(request, &BackupRequest::default())?).await?;
        self.answer(response).await
    }

    /// Fetches a piece of a file: as much as the hub sends at once, and nothing only at its end.
    pub async fn backup_piece(&self, piece: BackupPiece<'_>) -> Result<Bytes, ClientError> {
        let BackupPiece { id, name, from, mark } = piece;
        let path: Vec<&str> = ["v1", "backups", id, "files"].into_iter().chain(name.split('/')).collect();
        let request = self.request(Method::GET, &path)?.query(&[("from", from)]);
        let request = request.query(&mark.map(|mark| ("mark", mark)).into_iter().collect::<Vec<_>>());
        let response = self.call(request).await?;
        let digest = response.headers().get(PIECE_DIGEST).and_then(|digest| digest.to_str().ok());
        let digest = digest.map(str::to_owned);
        let bytes = response.bytes().await.map_err(ClientError::Transport)?;
        if digest != Some(format!("{:032x}", xxh3_128(&bytes))) {
            let what = format!("{name} did not arrive as it was sent, from byte {from}");
            return Err(ClientError::BadAnswer(what));
        }
        Ok(bytes)
    }

    /// Lets the hub give up a copy.
    pub async fn end_backup(&self, id: &str) -> Result<(), ClientError> {
        self.call(self.request(Method::DELETE, &["v1", "backups", id])?).await?;
        Ok(())
    }
}
