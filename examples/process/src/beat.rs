//! What processes say of themselves, and what is known of them.

use serde::{Deserialize, Serialize};

/// A beat of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The machine.
    pub host: String,
    /// The program.
    pub name: String,
    /// The number of the process on its machine.
    pub pid: u32,
    /// One run of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sid: Option<String>,
    /// How much of a processor it uses.
    #[serde(default)]
    pub cpu_pct: f64,
    /// How much memory it uses.
    #[serde(default)]
    pub mem_mb: f64,
}

impl Heartbeat {
    /// What the process is known by.
    pub fn process_id(&self) -> String {
        format!("{}:{}:{}", self.host, self.name, self.pid)
    }
}

/// Whether a process is heard of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It is.
    Alive,
    /// Not for a while.
    Stale,
}

/// The state of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessState {
    /// `host:name:pid`.
    #[serde(rename = "processId")]
    pub process_id: String,
    /// Its last beat.
    #[serde(flatten)]
    pub beat: Heartbeat,
    /// Whether it is heard of.
    pub status: Status,
    /// When it was last heard of, in epoch milliseconds.
    pub last_seen_ts: u64,
}

impl ProcessState {
    /// A process that was just heard of.
    pub fn alive(beat: Heartbeat, ts: u64) -> Self {
        Self { process_id: beat.process_id(), beat, status: Status::Alive, last_seen_ts: ts }
    }

    /// The state after a beat. One that comes late says nothing new.
    pub fn after(self, beat: Heartbeat, ts: u64) -> Self {
        if ts < self.last_seen_ts { self } else { Self::alive(beat, ts) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(cpu_pct: f64) -> Heartbeat {
        Heartbeat { host: "web1".into(), name: "stt".into(), pid: 4242, sid: None, cpu_pct, mem_mb: 64.0 }
    }

    #[test]
    fn a_late_beat_changes_nothing() {
        let state = ProcessState::alive(beat(1.0), 100);
        assert_eq!(state.process_id, "web1:stt:4242");
        assert_eq!(state.clone().after(beat(9.0), 99), state);
        assert_eq!(state.clone().after(beat(9.0), 100).beat.cpu_pct, 9.0);
    }

    #[test]
    fn a_beat_revives() {
        let stale = ProcessState { status: Status::Stale, ..ProcessState::alive(beat(1.0), 100) };
        assert_eq!(stale.after(beat(1.0), 200).status, Status::Alive);
    }

    #[test]
    fn the_state_is_flat() {
        let text = serde_json::to_value(ProcessState::alive(beat(1.5), 7)).unwrap_or_default();
        assert_eq!(text["host"], "web1");
        assert_eq!(text["status"], "alive");
        assert!(text.get("sid").is_none());
    }
}
