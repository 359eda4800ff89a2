//! What the system knows of a process.

use std::fs;

/// Fields of `/proc/PID/stat` behind the name: time in user and in kernel mode, in ticks.
const TIMES: [usize; 2] = [11, 12];

/// How much memory a process had at most, in MiB.
pub fn peak_mebibytes(pid: u32) -> Result<f64, String> {
    memory(pid, "VmHWM:")
}

/// How much memory a process has, in MiB.
pub fn mebibytes(pid: u32) -> Result<f64, String> {
    memory(pid, "VmRSS:")
}

fn memory(pid: u32, field: &str) -> Result<f64, String> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    kibibytes.map(|kibibytes| kibibytes / 1024.0).ok_or_else(|| format!("{path} does not tell the memory"))
}

/// How long a process has computed so far, in seconds.
pub fn cpu_seconds(pid: u32) -> Result<f64, String> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let ticks = ticks(&text).ok_or_else(|| format!("{path} does not tell the time"))?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// The name may hold anything, so counting starts behind its closing bracket.
fn ticks(stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    TIMES.iter().map(|field| fields.get(*field)?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_time() {
        let pid = std::process::id();
        assert!(peak_mebibytes(pid).is_ok_and(|peak| peak > 0.1));
        assert!(mebibytes(pid).is_ok_and(|now| now > 0.1));
        assert!(cpu_seconds(pid).is_ok());
        assert_eq!(ticks("7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 21 4 0 0"), Some(25));
    }
}
