//! Bulk replays, one test a promise, on the memory store and on a disk.

mod copying;
mod interrupted;
mod stage;

behaviours! {
    copying:
        a_range_is_copied_in_order
        copies_are_what_expressions_make_of_events
        what_cannot_be_copied_is_counted_and_told
        a_replay_into_its_own_topic_ends
        a_dry_run_changes_nothing
        events_that_go_before_they_are_read_are_counted
        a_rate_is_kept_to
        what_makes_no_sense_is_refused;
    interrupted:
        crashes_neither_lose_nor_double
        a_paused_replay_waits
        a_cancelled_replay_copies_nothing_more
        a_replay_whose_topic_is_deleted_has_failed
        a_replay_whose_target_is_deleted_has_failed
        a_full_disk_is_waited_for
        what_was_forgotten_is_not_copied
        a_name_is_used_once;
}

#[test]
fn every_behaviour_is_listed() {
    crate::support::assert_all_listed("replays", LISTED);
}
