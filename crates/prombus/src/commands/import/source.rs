//! The input of an import, read and converted on its own thread.

use super::line::rewrite;
use crate::lines::{Lines, without_line};
use bytes::Bytes;
use std::io::Read;
use tokio::sync::mpsc;

/// How large a piece gets.
const PIECE_BYTES: usize = 1 << 18;
/// How many pieces are read ahead of the hub.
const PIECES_AHEAD: usize = 4;

/// A part of the input.
pub enum Input {
    /// Lines to send.
    Lines(Piece),
    /// A line that cannot be sent; nothing comes after it.
    Bad {
        /// Which one.
        line: u64,
        /// Why.
        why: String,
    },
}

/// Whole lines to send, one for each line of the input, the blank ones too, so that the numbers agree.
pub struct Piece {
    /// The number of the first line.
    pub first_line: u64,
    /// The lines.
    pub text: Bytes,
}

/// Reads `input` to its end, or to a line that cannot be sent.
pub fn read(input: impl Read + Send + 'static) -> mpsc::Receiver<Input> {
    let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
    std::thread::spawn(move || {
        let mut gathered = Gathered { sender, text: Vec::new(), first_line: 1, next_line: 1 };
        let mut lines = Lines::new(input);
        // It fails when nobody takes the pieces any more.
        while let Some(()) = gathered.advance(&mut lines) {}
    });
    receiver
}

/// Lines that were read and not handed out yet.
struct Gathered {
    sender: mpsc::Sender<Input>,
    text: Vec<u8>,
    first_line: u64,
    next_line: u64,
}

impl Gathered {
    /// Takes one line; `None` when it was the last.
    fn advance<R: Read>(&mut self, lines: &mut Lines<R>) -> Option<()> {
        let why = match lines.next() {
            Ok(None) => {
                self.hand_out();
                return None;
            }
            Ok(Some(line)) => match self.add(line.text) {
                Ok(()) => {
                    let enough = self.text.len() >= PIECE_BYTES || lines.must_wait();
                    return if enough { self.hand_out() } else { Some(()) };
                }
                Err(error) => format!("not an event: {}", without_line(&error)),
            },
            Err(error) => error.to_string(),
        };
        self.hand_out()?;
        self.sender.blocking_send(Input::Bad { line: lines.number(), why }).ok()?;
        None
    }

    fn add(&mut self, line: &[u8]) -> Result<(), serde_json::Error> {
        if line.is_empty() {
            self.text.push(b'\n');
        } else {
            rewrite(line, &mut self.text)?;
        }
        self.next_line += 1;
        Ok(())
    }

    fn hand_out(&mut self) -> Option<()> {
        if self.text.is_empty() {
            return Some(());
        }
        let text = Bytes::from(std::mem::take(&mut self.text));
        let first_line = std::mem::replace(&mut self.first_line, self.next_line);
        self.sender.blocking_send(Input::Lines(Piece { first_line, text })).ok()
    }
}
