//! Which member of the set is the primary, as the driver hears of it, and what is asked of one that is no more.
//!
//! A primary that stands still, or that the network has cut off, answers nothing and closes no connection, and the driver has no
//! limit on how long a call may take. So whatever is under way is given up when the driver hears that another member is the primary, or
//! that this one does not answer its heartbeats.

use mongodb::ServerType;
use mongodb::event::EventHandler;
use mongodb::event::sdam::SdamEvent;
use mongodb::options::ServerAddress;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;

/// That the primary was lost while something was asked of it. What was asked may have happened all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrimaryLost;

/// What is known of it.
#[derive(Debug, Default)]
struct Known {
    /// Where it is. Behind several `mongos`, each of them stands for all primaries.
    at: HashSet<ServerAddress>,
    /// How often one was lost.
    lost: u64,
}

/// The primary.
#[derive(Clone, Default)]
pub struct Primary(Arc<watch::Sender<Known>>);

impl Primary {
    /// What hears of it from the driver.
    pub fn listener(&self) -> EventHandler<SdamEvent> {
        let primary = self.clone();
        EventHandler::callback(move |event| {
            if let SdamEvent::ServerDescriptionChanged(changed) = event {
                let server = &changed.new_description;
                primary.heed(server.address(), server.server_type());
            }
        })
    }

    fn heed(&self, server: &ServerAddress, is_now: ServerType) {
        let is_primary = matches!(is_now, ServerType::RsPrimary | ServerType::Mongos);
        self.0.send_if_modified(|known| {
            if is_primary == known.at.contains(server) {
                return false;
            }
            let is_lost = match is_now {
                ServerType::RsPrimary => known.at.drain().count() > 0,
                _ => known.at.remove(server),
            };
            known.lost += u64::from(is_lost);
            if is_primary {
                known.at.insert(server.clone());
            }
            true
        });
    }

    /// Does what asks the primary, until that is lost; and no longer than `until`, if there is none then.
    pub async fn unless_lost<T>(
        &self,
        until: Option<Instant>,
        asked: impl Future<Output = T>,
    ) -> Result<T, PrimaryLost> {
        let mut changes = self.0.subscribe();
        let before = changes.borrow_and_update().lost;
        let mut absence = self.0.subscribe();
        let is_absent = async {
            match until {
                // There is nothing to wait for but the time.
                Some(until) => tokio::time::sleep_until(until.into()).await,
                None => std::future::pending().await,
            }
            // The sender is there as long as this is.
            let _ = absence.wait_for(|known| known.at.is_empty()).await;
        };
        tokio::select! {
            biased;
            answer = asked => Ok(answer),
            _ = changes.wait_for(|known| known.lost != before) => Err(PrimaryLost),
            () = is_absent => Err(PrimaryLost),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::future::{pending, ready};
    use std::time::Duration;

    fn server(port: u16) -> ServerAddress {
        ServerAddress::Tcp { host: "h".into(), port: Some(port) }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_asked_of_a_primary_that_is_lost_is_given_up() {
        let primary = Primary::default();
        assert_eq!(primary.unless_lost(None, ready(1)).await, Ok(1));
        primary.heed(&server(1), ServerType::RsPrimary);
        for (other, is_now) in [(2, ServerType::RsPrimary), (2, ServerType::Unknown)] {
            let mut asked = Box::pin(primary.unless_lost(None, pending::<()>()));
            assert!((&mut asked).now_or_never().is_none());
            primary.heed(&server(1), ServerType::RsSecondary);
            primary.heed(&server(other), is_now);
            assert_eq!(asked.await, Err(PrimaryLost));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_longer_than_he_should_for_one_that_is_not_there() {
        let primary = Primary::default();
        let soon = Some(Instant::now());
        assert_eq!(primary.unless_lost(soon, pending::<()>()).await, Err(PrimaryLost));
        primary.heed(&server(1), ServerType::RsPrimary);
        // One that is there may take its time; the clock is held.
        let slow = tokio::time::sleep(Duration::from_secs(60));
        assert_eq!(primary.unless_lost(soon, slow).await, Ok(()));
        // What others are is nobody's business.
        let mut asked = Box::pin(primary.unless_lost(None, pending::<()>()));
        primary.heed(&server(2), ServerType::RsSecondary);
        assert!((&mut asked).now_or_never().is_none());
    }
}
