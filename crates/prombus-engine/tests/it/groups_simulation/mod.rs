//! Consumer groups under chaos, by seed: members crash, stall past their lease, ack late and nack at random, the
//! hub is killed and starts again, the store is slow and refuses, partitions grow, the clock is stepped, events are given
//! up. In some runs two hubs share the store: one stalls, the other takes over, and the first comes back. What everyone saw is written down, and a checker that knows nothing of the hub reads it afterwards.
//!
//! `PROMBUS_SIM_SEED=7 cargo test -p prombus-engine --test it groups_simulation` runs one seed and prints its history
//! when it fails; `PROMBUS_SIM_ROUNDS=5000` runs so many.

mod actors;
mod archive;
mod checker;
mod history;
#[cfg(test)]
mod lies;
mod plan;
mod run;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// How many seeds are run unless `PROMBUS_SIM_ROUNDS` says otherwise.
const ROUNDS: u64 = 300;
/// The same for those that are run with two hubs.
const TWO_HUBS_ROUNDS: u64 = 300;
/// How much of a history is shown when its seed fails.
const SHOWN: usize = 60;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}

/// Runs a seed, and says what was wrong with it.
fn failure(seed: u64, run: fn(u64) -> run::Outcome) -> Option<String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| run(seed)));
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(_) => return Some("something panicked (see above)".into()),
    };
    let broken = checker::check(&outcome).err()?;
    let mut report = format!("{}\n{:#?}\n", broken.what, outcome.plan);
    let history = &outcome.histories[broken.group];
    let shown = &history[broken.at.saturating_sub(SHOWN)..(broken.at + 1).min(history.len())];
    let about = |entry: &&history::Stamped| broken.event.is_none_or(|event| entry.is_about(event, history));
    report.push_str("what came before, of this event:\n");
    for entry in history[..=broken.at.min(history.len() - 1)].iter().filter(about) {
        report.push_str(&format!("  {entry:?}\n"));
    }
    report.push_str(&format!("what was given up: {:?}\n", outcome.given_up));
    report.push_str("and the last of everything:\n");
    shown.iter().for_each(|entry| report.push_str(&format!("  {entry:?}\n")));
    Some(report)
}

fn keeps_promises(run: fn(u64) -> run::Outcome, rounds: u64) {
    let only = number("PROMBUS_SIM_SEED");
    let seeds = match only {
        Some(seed) => seed..seed + number("PROMBUS_SIM_ROUNDS").unwrap_or(1),
        None => 0..number("PROMBUS_SIM_ROUNDS").unwrap_or(rounds),
    };
    for seed in seeds {
        if let Some(report) = failure(seed, run) {
            panic!("PROMBUS_SIM_SEED={seed} shows it: {report}");
        }
    }
}

#[test]
fn groups_keep_their_promises_whatever_happens() {
    keeps_promises(run::run, ROUNDS);
}

#[test]
fn two_hubs_keep_them_too() {
    keeps_promises(run::run_two_hubs, TWO_HUBS_ROUNDS);
}

#[test]
fn a_seed_tells_the_same_story_again() {
    // Filters are evaluated in turn with those of other tests in this process, which are not part of the story.
    let filters = |seed: &u64| {
        plan::Plan::new(&mut fastrand::Rng::with_seed(*seed)).groups.iter().any(|group| group.filters)
    };
    for seed in (3..).filter(|seed| !filters(seed)).take(2) {
        let [first, second] = [run::run(seed), run::run(seed)];
        for (one, other) in first.histories.iter().zip(&second.histories) {
            for (one, other) in one.iter().zip(other) {
                assert_eq!(format!("{one:?}"), format!("{other:?}"), "seed {seed}");
            }
            assert_eq!(one.len(), other.len(), "seed {seed}");
        }
    }
}

#[test]
fn the_simulation_does_what_it_is_for() {
    let (mut deliveries, mut again, mut refused, mut dead, mut killed) = (0, 0, 0, 0, 0);
    let (mut given_up, mut lost) = (0, 0);
    for seed in 0..20 {
        let outcome = run::run(seed);
        dead += outcome.letters.len();
        given_up += outcome.given_up.len();
        lost += outcome.lost.iter().flatten().sum::<u64>() as usize;
        for entry in outcome.histories.iter().flatten() {
            match &entry.entry {
                history::Entry::Delivered(delivered) => {
                    deliveries += 1;
                    again += usize::from(delivered.attempt > 1);
                }
                history::Entry::Answered { results: Some(results), .. } => {
                    refused += results.iter().filter(|taken| !**taken).count();
                }
                history::Entry::Killed => killed += 1,
                _ => {}
            }
        }
    }
    let seen = [deliveries, again, refused, dead, killed, given_up, lost];
    assert!(seen.iter().all(|count| *count > 10), "too little happens for the checker to see: {seen:?}");
}
