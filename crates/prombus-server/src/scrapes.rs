//! The text of `/metrics`, rendered once for all concurrent requests.
//!
//! Rendering it takes some work for every group. So one request renders it while the others wait, and all that had asked
//! before rendering began get the same text, which is as fresh as they could want. However many ask at once, it is
//! rendered twice at most.

use crate::error::ApiError;
use bytes::Bytes;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

/// How long a request waits for the text that another one renders.
const WAIT: Duration = Duration::from_secs(5);

/// Those who ask for the text, and the text that was made last, while somebody may want it.
#[derive(Default)]
pub(crate) struct Scrapes {
    last: Mutex<Option<Made>>,
    /// Counts the texts that were begun.
    begun: AtomicUsize,
    /// How many are here.
    asking: AtomicUsize,
}

struct Made {
    number: usize,
    text: Bytes,
}

/// One who asks, and is counted.
struct Asking<'a>(&'a AtomicUsize);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Scrapes {
    /// A text that was begun after this was called: by `make`, or by whoever else asked at the same time.
    pub async fn text<F: Future<Output = String>>(
        &self,
        make: impl FnOnce() -> F,
    ) -> Result<Bytes, ApiError> {
        let before = self.begun.load(Ordering::SeqCst);
        self.asking.fetch_add(1, Ordering::SeqCst);
        let asking = Asking(&self.asking);
        let Ok(mut last) = timeout_at(Instant::now() + WAIT, self.last.lock()).await else {
            return Err(ApiError::unavailable(
                "too many requests for the metrics at the same time; try again shortly",
            ));
        };
        let text = match last.take() {
            Some(made) if made.number > before => made.text,
            _ => {
                self.begun.fetch_add(1, Ordering::SeqCst);
                Bytes::from(make().await)
            }
        };
        drop(asking);
        if self.asking.load(Ordering::SeqCst) > 0 {
            *last = Some(Made { number: self.begun.load(Ordering::SeqCst), text: text.clone() });
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use futures::future::{join_all, pending};
    use prombus_wire::ErrorCode;
    use std::pin::pin;
    use tokio::sync::Semaphore;

    #[tokio::test]
    async fn those_who_ask_at_once_share_what_is_made() {
        let (scrapes, go, made) = (Scrapes::default(), Semaphore::new(0), AtomicUsize::new(0));
        let make = async || {
            let number = made.fetch_add(1, Ordering::SeqCst) + 1;
            go.acquire().await.unwrap().forget();
            number.to_string()
        };
        let mut first = pin!(scrapes.text(make));
        assert!(first.as_mut().now_or_never().is_none());
        // What is in flight may have looked already at what they want to see.
        let mut others = pin!(join_all((0..1_000).map(|_| scrapes.text(make))));
        assert!(others.as_mut().now_or_never().is_none());
        assert_eq!(made.load(Ordering::SeqCst), 1, "one at a time");
        go.add_permits(2);
        assert_eq!(first.await.unwrap(), "1");
        assert!(others.await.into_iter().all(|text| text.unwrap() == "2"));
        assert!(scrapes.last.lock().await.is_none(), "nothing is kept that nobody waits for");
        go.add_permits(1);
        assert_eq!(scrapes.text(make).await.unwrap(), "3", "whoever asks later sees what is new");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever() {
        let scrapes = Scrapes::default();
        let mut stuck = pin!(scrapes.text(pending));
        assert!(stuck.as_mut().now_or_never().is_none());
        let refused = scrapes.text(async || String::new()).await.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::Unavailable);
    }
}
