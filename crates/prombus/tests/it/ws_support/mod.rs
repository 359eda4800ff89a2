//! The WebSocket client of the fixtures, and a reader of server-sent events.

pub mod stream;

pub use prombus_fixtures::ws::{Heard, MOMENT, Socket, bare_frame, frame_head, looks_right};
