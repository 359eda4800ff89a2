//! What projections promise, one test a promise, on the memory store and on a disk.

mod circles;
mod code;
mod definitions;
mod exactly_once;
mod order;
mod plans;
mod rebuilds;
mod replays;
mod retention;
pub mod stage;
mod topics;

behaviours! {
    replays:
        a_letter_goes_back_to_its_projection_and_to_no_group
        a_letter_that_fails_again_has_a_successor
        an_answer_that_is_lost_replays_nothing_twice
        a_rebuild_neither_doubles_nor_loses_what_was_replayed
        what_a_rebuild_has_made_up_for_is_not_replayed
        letters_of_a_projection_that_is_gone_are_skipped
        letters_of_a_topic_that_was_made_anew_are_skipped
        letters_that_older_builds_wrote_are_explained;
    exactly_once:
        a_counter_is_exact_over_partitions
        a_counter_is_exact_after_crashes
        large_batches_go_a_few_at_a_time
        batches_that_make_much_go_one_at_a_time
        batches_that_tell_much_go_one_at_a_time
        pieces_of_a_batch_find_room
        a_commit_that_is_refused_for_now_is_made_later
        an_answer_that_is_lost_counts_nothing_twice
        a_full_disk_does_not_keep_the_hub_from_ending
        removed_events_hold_nothing_up
        only_the_event_that_fails_is_left_out
        the_first_and_last_of_a_page_may_fail
        many_events_of_a_page_may_fail
        a_page_that_is_taken_apart_waits_for_better_times
        a_page_that_is_too_large_is_made_in_pieces
        small_changes_of_a_large_document_are_few_bytes
        a_batch_ends_by_what_it_makes
        a_counter_never_leaves_64_bits
        what_must_be_unique_is
        what_is_too_long_for_an_index_is_left_out
        two_projections_of_a_topic_do_not_disturb_each_other;
    topics:
        a_projection_waits_for_its_topic
        order_per_key_survives_growth
        a_topic_that_is_made_again_is_another_one
        a_topic_that_is_made_again_at_once_is_noticed
        a_new_projection_starts_at_what_is_kept
        one_that_is_behind_what_is_kept_stops_and_says_so
        a_stopped_projection_is_rebuilt_from_a_topic_that_was_made_again
        whoever_waits_for_an_offset_hears_of_it;
    order:
        partitions_are_one_sequence_by_recorded_time
        a_refused_commit_leaves_the_order_as_it_is
        growth_leaves_the_order_as_it_is
        growth_is_noticed_at_any_moment
        a_clock_that_stands_holds_nothing_up
        many_partitions_give_the_same_to_the_byte
        events_that_fail_leave_the_order_as_it_is;
    definitions:
        the_same_definition_again_changes_nothing
        a_changed_definition_is_for_new_events
        a_definition_that_changed_while_the_hub_was_down_is_noticed
        what_has_done_nothing_is_never_stale
        going_back_is_not_stale_where_nothing_came_between
        indexes_changefeeds_and_retries_change_at_once
        another_unique_index_makes_stale
        another_topic_is_read_from_its_start
        a_collection_has_one_owner
        a_deleted_projection_leaves_nothing
        a_rebuild_removes_what_is_no_longer_written
        a_change_that_cannot_be_stored_leaves_all_as_it_was
        a_change_ends_even_if_nobody_waits_for_it
        changes_at_once_come_one_after_another
        a_closed_hub_takes_no_projections
        a_definition_that_compiles_no_more_stands_still
        a_definition_that_cannot_be_read_stands_still_alone
        a_projection_of_very_many_costly_expressions_holds_nobody_up
        a_definition_that_compiles_no_more_can_be_deleted
        a_circle_of_changefeeds_is_refused
        a_circle_that_is_stored_stands_still
        a_change_that_is_too_large_to_be_told_is_a_dead_letter;
    circles:
        snapshots_are_part_of_a_circle
        of_two_that_close_a_circle_at_once_one_is_refused
        a_circle_through_snapshots_that_is_stored_stands_still;
    rebuilds:
        a_rebuild_gives_the_same_to_the_byte
        events_keep_coming_during_a_rebuild
        a_rebuild_ends_though_events_do_not
        a_stopped_projection_can_be_rebuilt_though_events_do_not_end
        a_rebuild_is_given_up_when_its_topic_goes
        a_rebuild_after_one_that_was_given_up_is_a_new_one
        a_rebuild_ends_after_growth_though_the_clock_stands
        the_old_collection_is_whole_until_the_switch
        a_rebuild_goes_on_after_a_restart
        a_put_ends_a_rebuild
        a_changefeed_is_silent_during_a_rebuild
        an_empty_topic_can_be_rebuilt_from;
    retention:
        a_rebuild_that_is_overtaken_is_given_up
        a_partial_rebuild_goes_on_at_what_is_kept
        a_partial_rebuild_stays_one_across_a_restart
        holes_are_passed_over_in_all_partitions;
    code:
        reads_see_what_earlier_events_wrote
        a_rebuild_of_code_gives_the_same
        a_failure_takes_back_that_event_only
        what_came_after_a_refused_event_is_done_again
        an_event_that_is_too_long_for_an_index_is_left_out
        what_is_published_is_there_with_the_documents
        what_is_published_is_checked_as_every_publish_is
        code_closes_no_circle_either
        code_and_definitions_keep_apart
        a_store_that_cannot_be_read_is_waited_for;
}

/// On a clock that goes ahead when there is nothing else to do.
#[tokio::test(start_paused = true)]
async fn nobody_waits_for_an_offset_for_ever() {
    let s = stage::Stage::memory().await;
    let topic = s.topic("t", 1).await;
    s.put("p", stage::changelog("t", "c")).await;
    s.publish(&topic, [("a", serde_json::json!({}))]).await;
    s.caught_up("p").await;
    let start = tokio::time::Instant::now();
    let at = |offset| prombus_engine::projections::MinOffset {
        partition: None,
        offset: prombus_core::Offset(offset),
    };
    assert!(!s.hub.projections().until_seen("c", at(1)).await.expect("an answer"));
    assert_eq!(start.elapsed().as_secs(), prombus_engine::projections::MAX_WAIT.as_secs());
    assert!(s.hub.projections().until_seen("c", at(0)).await.expect("an answer"));
}

#[test]
fn every_behaviour_is_listed() {
    crate::support::assert_all_listed("projections", LISTED);
}
