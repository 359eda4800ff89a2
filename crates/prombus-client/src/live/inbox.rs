//! The commands of a connection, as its task receives them: publishes wait if too many are in flight, and nothing else
//! waits behind them.

use super::command::Command;
use std::future::poll_fn;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// Maximum number of commands of a kind taken at once.
const MAX_AT_ONCE: usize = 1_024;

/// Both queues of commands.
pub(crate) struct Inbox {
    pub publishes: mpsc::Receiver<Command>,
    /// Acks, subscriptions and all that is no publish.
    pub control: mpsc::Receiver<Command>,
}

impl Inbox {
    /// Takes what has come, publishes only if there is room for them, and says how much that is; 0 when nothing will
    /// come any more. It may be given up at any point.
    pub async fn take(&mut self, taken: &mut Vec<Command>, room: bool) -> usize {
        poll_fn(|cx| self.poll_take(taken, room, cx)).await
    }

    fn poll_take(&mut self, taken: &mut Vec<Command>, room: bool, cx: &mut Context<'_>) -> Poll<usize> {
        let control = self.control.poll_recv_many(cx, taken, MAX_AT_ONCE);
        let publishes =
            if room { self.publishes.poll_recv_many(cx, taken, MAX_AT_ONCE) } else { Poll::Pending };
        match (control, publishes) {
            (Poll::Ready(0), Poll::Ready(0)) => Poll::Ready(0),
            _ if !taken.is_empty() => Poll::Ready(taken.len()),
            _ => Poll::Pending,
        }
    }

    /// Takes all that is there of what is no publish.
    pub fn take_control(&mut self, taken: &mut Vec<Command>) {
        while let Ok(command) = self.control.try_recv() {
            taken.push(command);
        }
    }

    /// Takes all that is there.
    pub fn take_all(&mut self, taken: &mut Vec<Command>) {
        self.take_control(taken);
        while let Ok(command) = self.publishes.try_recv() {
            taken.push(command);
        }
    }

    /// Lets nothing more come.
    pub fn close(&mut self) {
        self.control.close();
        self.publishes.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use tokio::sync::oneshot;

    fn drain() -> Command {
        Command::Drain { feed: 1, done: oneshot::channel().0 }
    }

    #[test]
    fn what_is_no_publish_is_taken_without_room_and_the_end_is_told_once_both_have_ended() {
        let (publishing, publishes) = mpsc::channel(4);
        let (asking, control) = mpsc::channel(4);
        let (mut inbox, mut taken) = (Inbox { publishes, control }, Vec::new());
        publishing.try_send(drain()).unwrap();
        assert_eq!(inbox.take(&mut taken, false).now_or_never(), None);
        asking.try_send(drain()).unwrap();
        assert_eq!(inbox.take(&mut taken, false).now_or_never(), Some(1));
        taken.clear();
        drop(asking);
        assert_eq!(inbox.take(&mut taken, false).now_or_never(), None);
        assert_eq!(inbox.take(&mut taken, true).now_or_never(), Some(1));
        taken.clear();
        // One who has a place already may still send when it is closed.
        let place = publishing.try_reserve().unwrap();
        inbox.close();
        assert_eq!(inbox.take(&mut taken, true).now_or_never(), None);
        place.send(drain());
        assert_eq!(inbox.take(&mut taken, true).now_or_never(), Some(1));
        taken.clear();
        assert_eq!(inbox.take(&mut taken, true).now_or_never(), Some(0));
    }
}
