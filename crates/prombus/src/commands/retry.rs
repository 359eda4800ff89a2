//! Calling a hub that may be away for a while.

use crate::failure::Failure;
use crate::say;
use prombus_client::ClientError;
use std::time::Duration;

/// How long to wait before the first repetition.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest time between two repetitions.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Repeats calls until the hub answers them. It says once that the hub is away, and once that it is back.
#[derive(Debug)]
pub struct Retry {
    pause: Duration,
}

impl Retry {
    /// The hub is taken to be there.
    pub fn new() -> Self {
        Self { pause: FIRST_PAUSE }
    }

    /// What the hub answers in the end, or an error that waiting does not mend.
    pub async fn until_answered<T>(
        &mut self,
        call: impl AsyncFn() -> Result<T, ClientError>,
    ) -> Result<T, Failure> {
        loop {
            match call().await {
                Err(error) if error.is_temporary() => self.wait(&error).await,
                outcome => {
                    self.answered(outcome.is_ok());
                    return Ok(outcome?);
                }
            }
        }
    }

    async fn wait(&mut self, error: &ClientError) {
        if self.pause == FIRST_PAUSE {
            say!("{error}; trying again until it works");
        }
        // Many consumers lose their hub at the same moment, and must not come back in step.
        tokio::time::sleep(self.pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        self.pause = LONGEST_PAUSE.min(self.pause * 2);
    }

    fn answered(&mut self, went_well: bool) {
        if went_well && self.pause > FIRST_PAUSE {
            say!("the hub answers again");
        }
        self.pause = FIRST_PAUSE;
    }
}
