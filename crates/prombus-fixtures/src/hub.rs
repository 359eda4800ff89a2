//! A hub as a process: started, killed, ended, and started again.

use crate::log::{Log, NoLine};
use crate::{HubError, PATIENCE};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A hub that is not ready by then has failed.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// What the line says that tells that the hub is ready.
const READY: &str = "ready";
/// The variable that tells a hub where to listen.
const LISTEN: &str = "PROMBUS_LISTEN";

/// The variable, and what it says to a hub that may listen on any port.
pub const ANY_PORT: (&str, &str) = (LISTEN, "127.0.0.1:0");

/// A hub that runs. It is killed when it is dropped.
#[derive(Debug)]
pub struct Hub {
    command: Command,
    child: Child,
    log: Log,
    /// How many lines of the log nobody needs to wait for any more.
    heard: AtomicUsize,
    /// The line that told that it is ready.
    pub ready: String,
    /// How long that took.
    pub ready_after: Duration,
    /// Where it is, with the scheme.
    pub url: String,
}

impl Hub {
    /// Runs a command that serves, and waits until it is ready.
    pub fn start(mut command: Command) -> Result<Self, HubError> {
        let started = Instant::now();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            let program = command.get_program().display().to_string();
            HubError::Missing(program, error)
        })?;
        let log = child.stderr.take().map(Log::follow).unwrap_or_default();
        let mut hub = Self {
            command,
            child,
            log,
            heard: AtomicUsize::new(0),
            ready: String::new(),
            ready_after: Duration::ZERO,
            url: String::new(),
        };
        let log = || hub.log.text();
        let (at, line) = hub.log.wait_for(READY, 0, READY_WITHIN).map_err(|why| match why {
            NoLine::Ended => HubError::NeverReady(log()),
            NoLine::Late => HubError::NotReady(READY_WITHIN, log()),
        })?;
        hub.ready_after = started.elapsed();
        hub.url = url_in(&line).unwrap_or_default().to_owned();
        hub.ready = line;
        hub.heard = AtomicUsize::new(at + 1);
        Ok(hub)
    }

    /// Starts it once more; whatever was left of it is killed.
    pub fn start_again(&mut self) -> Result<(), HubError> {
        self.end();
        let command = std::mem::replace(&mut self.command, Command::new(""));
        *self = Self::start(command)?;
        Ok(())
    }

    /// From now on, it comes back to where it is; unless its arguments say otherwise.
    pub fn stay(&mut self) {
        self.command.env(LISTEN, self.address());
    }

    /// Where it is, without the scheme. One that listens everywhere is here as well.
    pub fn address(&self) -> String {
        let address = self.url.split_once("://").map_or("", |(_, address)| address);
        address.trim_end_matches('/').replace("0.0.0.0", "127.0.0.1")
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Everything that it logs.
    pub fn log(&self) -> Log {
        self.log.clone()
    }

    /// The next line of the log that contains `text`.
    #[track_caller]
    pub fn wait_for(&self, text: &str) -> String {
        match self.log.wait_for(text, self.heard.load(Ordering::Relaxed), PATIENCE) {
            Ok((at, line)) => {
                self.heard.store(at + 1, Ordering::Relaxed);
                line
            }
            Err(why) => panic!("no line with {text:?} ({why:?}) in\n{}", self.log.text()),
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<(), HubError> {
        kill_process(self.pid(), signal).map_err(|error| HubError::System(error.into()))
    }

    /// SIGKILL, and waits until the process is gone. One that had ended by itself is an error.
    pub fn kill(&mut self) -> Result<(), HubError> {
        self.child.kill()?;
        let status = self.child.wait()?;
        self.log.wait_for_the_end(PATIENCE);
        match status.signal() {
            Some(signal) if signal == Signal::KILL.as_raw() => Ok(()),
            _ => Err(HubError::Gone(status, self.log.text())),
        }
    }

    /// SIGTERM, and waits until the process has ended as it should.
    pub fn stop(&mut self) -> Result<(), HubError> {
        self.stop_within(PATIENCE)
    }

    /// The same, where it matters how long that takes.
    pub fn stop_within(&mut self, limit: Duration) -> Result<(), HubError> {
        if let Some(status) = self.child.try_wait()? {
            return Err(HubError::Gone(status, self.log.text()));
        }
        self.signal(Signal::TERM)?;
        let status = self.wait_within(limit)?;
        if status.success() { Ok(()) } else { Err(HubError::EndedBadly(status, self.log.text())) }
    }

    /// Waits until one that was told to end, or that somebody has killed, is gone.
    pub fn wait(&mut self) -> Result<ExitStatus, HubError> {
        self.wait_within(PATIENCE)
    }

    fn wait_within(&mut self, limit: Duration) -> Result<ExitStatus, HubError> {
        // It closes its log when it ends, and only then.
        if !self.log.wait_for_the_end(limit) {
            return Err(HubError::Running(limit, self.log.text()));
        }
        Ok(self.child.wait()?)
    }

    fn end(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.end();
    }
}

fn url_in(line: &str) -> Option<&str> {
    let start = line.find("http://").or_else(|| line.find("https://"))?;
    line[start..].split([' ', '"']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Something that looks like a hub to whoever reads its log.
    fn script(text: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        command
    }

    #[test]
    fn the_address_is_found_in_the_log() {
        let line = "2025-01-01T00:00:00Z  INFO prombus: ready url=http://127.0.0.1:4321 store=x";
        assert_eq!(url_in(line), Some("http://127.0.0.1:4321"));
        assert_eq!(url_in(r#"{"message":"ready","url":"https://[::1]:1"}"#), Some("https://[::1]:1"));
        assert_eq!(url_in("ready"), None);
    }

    #[test]
    fn one_that_ends_or_is_not_there_is_an_error() {
        let ended = Hub::start(script("echo no port >&2")).unwrap_err();
        assert!(matches!(&ended, HubError::NeverReady(log) if log == "no port\n"), "{ended}");
        let missing = Hub::start(Command::new("./no-such-program")).unwrap_err();
        assert!(missing.to_string().contains("./no-such-program cannot be run"), "{missing}");
    }

    #[test]
    fn it_is_stopped_killed_and_started_again_where_it_was() {
        let waits = "while :; do sleep 0.01 2>/dev/null; done";
        let mut hub = script(&format!("trap 'exit 0' TERM; echo ready http://$PROMBUS_LISTEN >&2; {waits}"));
        hub.envs([(LISTEN, "0.0.0.0:7")]);
        let mut hub = Hub::start(hub).unwrap();
        assert_eq!((hub.url.as_str(), hub.address().as_str()), ("http://0.0.0.0:7", "127.0.0.1:7"));
        hub.stay();
        hub.stop().unwrap();
        assert!(matches!(hub.stop(), Err(HubError::Gone(..))));
        hub.start_again().unwrap();
        assert_eq!(hub.url, "http://127.0.0.1:7");
        hub.kill().unwrap();
        assert!(matches!(hub.kill(), Ok(())), "it is still gone, and still by that signal");
    }

    #[test]
    fn one_that_does_not_end_well_is_an_error() {
        let mut hub = Hub::start(script(
            "trap 'exit 3' TERM; echo ready >&2; while :; do sleep 0.01 2>/dev/null; done",
        ));
        let ended = hub.as_mut().unwrap().stop().unwrap_err();
        assert!(ended.to_string().contains("exit status: 3"), "{ended}");
    }
}
