//! Whether the hub is ready.

use crate::{Client, ClientError};
use reqwest::Method;

impl Client {
    /// Succeeds if the hub is ready: it answers, and its store is open and accepts commits. Needs no token.
    pub async fn check_ready(&self) -> Result<(), ClientError> {
        self.call(self.request(Method::GET, &["readyz"])?).await?;
        Ok(())
    }
}
