//! The timer of one HTTP connection, which asks little of the runtime's.
//!
//! HTTP wants a deadline for the head of each request, and drops it when the head has come. Timers of the runtime are behind a
//! lock that all connections share, and would be set and taken back with every request. Here a connection has one of them,
//! which stays: when it rings, whoever waits looks whether its own deadline has passed, and sets it again if not.

use hyper::rt::{Sleep, Timer};
use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// What rings; nothing before it is needed for the first time.
type Alarm = Arc<Mutex<Option<Pin<Box<tokio::time::Sleep>>>>>;

/// The timer. It is for one task, which waits for one of its deadlines at a time: the alarm wakes the last one who asked.
#[derive(Default)]
pub(crate) struct HeadTimer(Alarm);

impl Timer for HeadTimer {
    // The client may never send the rest of a head.
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Deadline { at: deadline.into(), alarm: self.0.clone() })
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into()
    }
}

struct Deadline {
    at: tokio::time::Instant,
    alarm: Alarm,
}

impl Future for Deadline {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut alarm = self.alarm.lock();
        // It is what waits for the time.
        let alarm = alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(self.at)));
        if alarm.deadline() > self.at {
            alarm.as_mut().reset(self.at);
        }
        // One that rings too early costs a look; one that rings for every head would cost more.
        while alarm.as_mut().poll(cx).is_ready() {
            if alarm.deadline() >= self.at {
                return Poll::Ready(());
            }
            alarm.as_mut().reset(self.at);
        }
        Poll::Pending
    }
}

impl Sleep for Deadline {}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    const TIMEOUT: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn each_deadline_has_all_of_its_time() {
        let (timer, begun) = (HeadTimer::default(), tokio::time::Instant::now());
        for seconds in [0, 1, 20, 45, 46] {
            // The clock is held, and goes on by exactly that.
            tokio::time::sleep_until(begun + Duration::from_secs(seconds)).await;
            // One that is dropped leaves the alarm as it is.
            assert!(timer.sleep(TIMEOUT).now_or_never().is_none());
        }
        timer.sleep(TIMEOUT).await;
        assert_eq!(begun.elapsed(), Duration::from_secs(46) + TIMEOUT);
        // An earlier one need not wait for the alarm of a later one.
        assert!(timer.sleep(TIMEOUT).now_or_never().is_none());
        timer.sleep(TIMEOUT / 2).await;
        assert_eq!(begun.elapsed(), Duration::from_secs(46) + TIMEOUT + TIMEOUT / 2);
        timer.sleep(Duration::ZERO).await;
    }
}
