//! What the system knows of a process: how much memory it has, and how long it has computed.

use crate::Hub;
use std::io;
use std::time::Duration;

/// Fields of `/proc/PID/stat` behind the name: time in user and in kernel mode, in ticks.
const TIMES: [usize; 2] = [11, 12];
/// What makes the system forget how much memory a process had at most.
const FORGET_PEAK: &str = "5";

/// A process of which the system is asked.
pub struct Usage {
    /// Where its files are.
    dir: String,
}

impl Usage {
    /// Of the process that asks.
    pub fn of_this_process() -> Self {
        Self { dir: "/proc/self".to_owned() }
    }

    /// How much memory it has, in bytes.
    pub fn memory(&self) -> io::Result<u64> {
        bytes_in(&self.read("status")?, "VmRSS:").ok_or(io::ErrorKind::InvalidData.into())
    }

    /// How much memory it had at most, in bytes.
    pub fn peak_memory(&self) -> io::Result<u64> {
        bytes_in(&self.read("status")?, "VmHWM:").ok_or(io::ErrorKind::InvalidData.into())
    }

    /// From now on, what it has now counts as the most that it had.
    pub fn forget_peak(&self) -> io::Result<()> {
        std::fs::write(self.file("clear_refs"), FORGET_PEAK)
    }

    /// How long it has computed so far.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        let ticks = ticks_in(&self.read("stat")?).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }

    fn read(&self, name: &str) -> io::Result<String> {
        std::fs::read_to_string(self.file(name))
    }

    fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.dir)
    }
}

impl Hub {
    /// Of the hub's process.
    pub fn usage(&self) -> Usage {
        Usage { dir: format!("/proc/{}", self.pid().as_raw_nonzero()) }
    }
}

fn bytes_in(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// The name may hold anything, so counting starts behind its closing bracket.
fn ticks_in(stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    TIMES.iter().map(|field| fields.get(*field)?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_time() {
        let usage = Usage::of_this_process();
        assert!(usage.peak_memory().unwrap() >= 100_000 && usage.memory().unwrap() >= 100_000);
        assert!(usage.cpu_time().is_ok());
        assert_eq!(ticks_in("7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 21 4 0 0"), Some(25));
    }
}
