//! How events go, one test a promise, on the memory store and on a disk.

mod compaction;
mod forgetting;
mod model;
mod retention;
mod rounds;
mod snapshot_model;
mod snapshots;
mod stage;
mod trims;

behaviours! {
    retention:
        events_go_by_their_age_one_by_one
        the_clock_of_the_hub_decides_and_not_the_ts
        the_oldest_events_go_until_the_rest_fits
        what_is_recorded_at_once_goes_in_the_order_of_partitions
        a_topic_that_keeps_everything_is_left_alone
        a_pass_that_finds_nothing_reads_next_to_nothing
        what_is_left_tells_what_keys_were_from_the_horizon_on
        a_pass_goes_on_where_another_one_failed
        a_full_disk_does_not_keep_events
        the_position_of_the_cleaner_is_nobodys_group;
    compaction:
        the_latest_of_each_key_stays
        events_without_a_key_stay
        superseded_events_stay_for_their_lag
        a_longer_lag_holds_for_what_was_judged_before
        tombstones_go_when_their_time_is_over
        a_tombstone_outlives_what_it_ended
        a_key_is_followed_through_growth
        a_second_pass_reads_what_is_new
        a_restart_does_not_start_over
        few_keys_are_remembered_and_nothing_is_missed
        the_horizon_is_the_time_of_what_superseded
        compaction_can_be_turned_on_and_off;
    trims:
        a_partition_is_trimmed_by_hand
        what_makes_no_sense_is_refused
        what_a_trimmed_event_has_superseded_goes_with_it
        trims_and_passes_take_turns;
    forgetting:
        a_key_is_forgotten_and_nothing_else
        a_key_with_many_events_goes_in_several_commits
        an_id_of_a_forgotten_event_is_recognised
        a_group_in_the_middle_gets_nothing_of_it
        dead_letters_are_forgotten_too
        a_dead_letter_under_way_does_not_bring_it_back
        a_replay_meanwhile_does_not_bring_it_back
        its_documents_are_deleted_and_that_is_told
        a_projection_in_the_middle_does_not_bring_it_back
        a_rebuild_in_the_middle_does_not_bring_it_back
        it_goes_from_its_snapshots_too
        it_goes_from_former_snapshots_too
        a_snapshot_pass_in_the_middle_does_not_bring_it_back
        a_snapshot_pass_that_has_seen_it_does_not_bring_it_back
        a_full_disk_does_not_keep_a_key
        no_read_shows_an_event_after_it_was_forgotten
        forgets_and_passes_take_turns;
    rounds:
        topics_are_cleaned_by_themselves
        rounds_survive_a_store_that_refuses
        closing_ends_a_pass;
    snapshots:
        keys_that_have_changed_are_published
        the_snapshot_topic_is_made_and_compacted
        a_tombstone_stays_until_it_has_a_record
        a_superseded_event_stays_until_its_time_is_recorded
        the_greatest_time_of_a_key_is_kept_through_passes
        the_greatest_time_survives_a_pass_that_was_cut_off
        few_keys_are_remembered_and_none_is_missed
        a_key_is_followed_as_its_topic_grows
        what_is_made_again_begins_anew
        the_setting_can_be_taken_back_and_given_again
        circles_and_topics_of_others_are_refused
        events_of_others_are_never_taken_for_snapshots
        what_retention_has_taken_is_not_invented
        what_is_given_up_while_it_is_published_is_not_published
        trims_wait_for_records_that_are_under_way
        snapshots_are_published_by_themselves;
    snapshot_model:
        random_passes_leave_the_records_of_all_keys
        random_passes_with_little_memory_leave_the_records_of_all_keys;
    model:
        random_passes_leave_what_the_rules_say
        random_passes_with_little_memory_leave_what_the_rules_say;
}

#[test]
fn every_behaviour_is_listed() {
    crate::support::assert_all_listed("cleaning", LISTED);
}
