//! What events and documents look like: states of processes, about 250 bytes each.

use std::fmt::Write;

/// How many hosts there are.
pub const HOSTS: u64 = 100;
/// How many names processes of a host have.
pub const NAMES: u64 = 50;
/// How many states a process may be in.
pub const STATES: u64 = 10;

/// The name of a host.
pub fn host(number: u64) -> String {
    format!("host{:03}.example", number % HOSTS)
}

/// The name of a process.
pub fn name(number: u64) -> String {
    format!("worker{:02}-main", number % NAMES)
}

/// What a process may be.
pub fn status(number: u64) -> String {
    format!("state{}", number % STATES)
}

/// The state of the process with this number, as it was told for the `beat`th time.
pub fn process(number: u64, beat: u64) -> String {
    let (host, name, status) = (host(number), name(number / HOSTS), status(number + beat));
    let (pid, seen) = (1_000_000 + number, 1_754_683_200_000 + beat);
    let (cpu, mem) = (1_000 + (number + beat) % 9_000, 100 + number % 900);
    format!(
        r#"{{"processId":"{host}:{name}:{pid}","name":"{name}","host":"{host}","pid":{pid},"sid":"0198c0de-7b1c-7000-8000-{number:012}","cpu_pct":{}.{:02}1,"mem_mb":{mem}.25,"status":"{status}","last_seen_ts":{seen}}}"#,
        cpu / 100,
        cpu % 100,
    )
}

/// An array of events, one for each of these.
pub fn array(processes: impl Iterator<Item = (u64, u64)>) -> String {
    let mut text = String::from("[");
    for (number, beat) in processes {
        let comma = if text.len() > 1 { "," } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(text, r#"{comma}{{"key":"p{number}","payload":{}}}"#, process(number, beat));
    }
    text.push(']');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_as_large_as_is_said() {
        for (number, beat) in [(0, 0), (99_999, 9), (999_999, 123_456)] {
            let text = process(number, beat);
            assert!((240..=260).contains(&text.len()), "{} {text}", text.len());
            serde_json::from_str::<serde_json::Value>(&text).unwrap();
        }
        let events: serde_json::Value = serde_json::from_str(&array([(1, 2), (3, 4)].into_iter())).unwrap();
        assert_eq!(events[1]["payload"]["pid"], 1_000_003);
        assert_eq!(array(std::iter::empty()), "[]");
    }
}
