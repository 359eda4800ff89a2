//! Retrying calls to a hub that may be down for a while.

use crate::failure::Failure;
use crate::say;
use prombus_client::{Backoff, ClientError, LiveOptions};
use std::time::Duration;

/// The longest time between two repetitions.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The pauses between repetitions: the first one is short.
pub fn pauses() -> Backoff {
    Backoff::new(&LiveOptions { longest_pause: LONGEST_PAUSE, ..LiveOptions::default() })
}

/// Retries calls until the hub answers. It reports once that the hub is down, and once that it is back.
#[derive(Debug)]
pub struct Retry {
    pauses: Backoff,
}

impl Retry {
    /// The hub is taken to be there.
    pub fn new() -> Self {
        Self { pauses: pauses() }
    }

    /// The eventual answer of the hub, or an error that waiting does not fix.
    pub async fn until_answered<T>(
        &mut self,
        call: impl AsyncFn() -> Result<T, ClientError>,
    ) -> Result<T, Failure> {
        self.while_passing(call, ClientError::is_temporary).await
    }

    /// The same, where `passes` says which errors are temporary.
    pub async fn while_passing<T>(
        &mut self,
        call: impl AsyncFn() -> Result<T, ClientError>,
        passes: impl Fn(&ClientError) -> bool,
    ) -> Result<T, Failure> {
        loop {
            match call().await {
                Err(error) if passes(&error) => self.wait(&error).await,
                outcome => {
                    self.answered(outcome.is_ok());
                    return Ok(outcome?);
                }
            }
        }
    }

    async fn wait(&mut self, error: &ClientError) {
        if self.pauses.is_fresh() {
            say!("{error}; retrying");
        }
        self.pauses.pause().await;
    }

    fn answered(&mut self, went_well: bool) {
        if went_well && !self.pauses.is_fresh() {
            say!("the hub is back");
        }
        self.pauses = pauses();
    }
}
