//! Retrying calls to a hub that may be down for a while.

use crate::failure::Failure;
use crate::say;
use prombus_client::ClientError;
use std::time::Duration;

/// How long to wait before the first retry.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest time between two repetitions.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Pauses that double.
#[derive(Debug, PartialEq, Eq)]
pub struct Pauses {
    next: Duration,
}

impl Pauses {
    /// The first one is short.
    pub fn new() -> Self {
        Self { next: FIRST_PAUSE }
    }

    /// Whether there was no pause since the last success.
    pub fn is_fresh(&self) -> bool {
        self.next == FIRST_PAUSE
    }

    /// Resets the pause after a success.
    pub fn reset(&mut self) {
        *self = Self::new();
    }

    /// Waits; the next time twice as long.
    pub async fn pause(&mut self) {
        // Many consumers lose their hub at the same moment, and must not all return at once.
        tokio::time::sleep(self.next.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        self.next = LONGEST_PAUSE.min(self.next * 2);
    }
}

/// Retries calls until the hub answers. It reports once that the hub is down, and once that it is back.
#[derive(Debug)]
pub struct Retry {
    pauses: Pauses,
}

impl Retry {
    /// The hub is taken to be there.
    pub fn new() -> Self {
        Self { pauses: Pauses::new() }
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
        self.pauses.reset();
    }
}
