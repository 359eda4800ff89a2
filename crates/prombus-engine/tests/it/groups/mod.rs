//! What consumer groups promise, one test a promise, on the memory store and on a disk.

mod ahead;
mod altering;
mod consumers;
mod cursors;
mod deaths;
mod filters;
mod full_disk;
mod growth;
mod holes;
mod leases;
mod listing;
mod making;
mod ordering;
mod partitioned;
mod pulls;
mod replays;
mod restarts;
mod retention;
pub mod stage;
mod wrappers;

behaviours! {
    making:
        a_group_is_made_by_its_first_call
        its_first_call_makes_the_topic
        of_many_first_calls_one_makes_the_group
        options_are_fixed_when_a_group_is_made
        what_makes_no_sense_is_refused
        a_group_starts_where_it_is_told
        a_new_group_starts_at_the_end
        after_an_id_is_after_that_event;
    listing:
        groups_are_listed_by_name
        a_deleted_group_is_forgotten
        a_topic_that_is_made_again_has_no_groups
        groups_are_apart
        a_status_says_how_far_the_group_is;
    pulls:
        a_pull_gives_what_is_there
        names_of_members_do_not_pile_up
        a_pull_waits_for_the_first_event
        a_pull_that_does_not_wait_comes_back_empty
        a_pull_that_is_given_up_loses_nothing
        many_pulls_share_the_events
        a_member_gets_no_more_than_it_may_hold
        pulls_without_a_name_are_one_member
        a_member_that_left_is_counted_for_what_it_holds
        connections_of_a_member_share_what_it_may_hold
        closing_ends_the_waiting;
    leases:
        an_acked_event_is_never_delivered_again
        a_nack_gives_an_event_back_at_once_the_first_time
        later_nacks_wait_longer_each_time
        a_delay_is_kept
        an_expired_lease_gives_the_event_to_anyone
        an_extended_lease_holds_longer
        a_lease_can_be_made_shorter
        a_late_ack_never_settles_the_next_attempt
        a_verb_can_be_repeated_and_counts_once
        answers_are_in_the_order_of_what_was_said
        a_lost_connection_counts_for_the_oldest_only
        what_is_given_back_counts_for_nothing;
    restarts:
        acks_out_of_order_survive_a_restart
        a_restart_voids_leases_and_counts_nothing
        counted_attempts_survive_a_restart
        a_pause_survives_a_restart
        a_pause_is_no_longer_when_the_clock_was_set_back
        what_an_ack_writes_goes_by_what_changed
        the_position_survives_a_restart
        a_store_that_refuses_makes_acks_fail_and_nothing_is_lost
        a_closed_store_makes_acks_fail_and_nothing_is_lost
        a_clock_that_steps_changes_nothing;
    ordering:
        later_events_of_a_key_wait
        a_key_waits_for_a_retry
        events_without_a_key_wait_for_nothing
        without_order_nothing_waits
        a_partition_in_order_is_one_after_another
        a_group_stays_within_its_window
        a_hot_key_holds_up_no_other
        a_stuck_event_can_be_skipped
        an_event_in_flight_can_be_skipped;
    filters:
        what_a_filter_drops_is_settled
        a_filter_that_fails_does_not_match
        a_filter_survives_a_restart
        a_filter_that_fails_is_counted
        a_filter_that_costs_too_much_does_not_match
        a_filter_that_compiles_no_more_delivers_nothing_and_loses_nothing
        a_group_that_cannot_be_read_can_be_deleted;
    altering:
        changed_options_hold_and_survive_a_restart
        a_change_that_makes_no_sense_changes_nothing
        what_was_read_ahead_is_judged_by_the_new_filter
        what_waits_for_its_key_is_judged_by_the_new_filter
        a_retry_is_judged_by_the_new_filter
        a_wider_filter_does_not_bring_back_what_was_passed_over
        those_who_wait_go_on_by_the_new_options
        fewer_attempts_count_from_the_next_failure_on
        a_filter_that_compiles_no_more_can_be_replaced
        a_preview_tells_what_a_reset_would_deliver;
    deaths:
        after_its_last_attempt_an_event_is_a_dead_letter
        a_group_goes_on_after_a_dead_letter
        a_dead_letter_is_there_once_whatever_happens
        expired_leases_lead_to_dead_letters
        lost_connections_lead_to_dead_letters
        many_events_die_at_once
        a_last_nack_has_lapsed_where_a_hand_was_faster
        a_last_nack_is_answered_by_what_came_of_it_although_its_group_goes;
    full_disk:
        an_ack_without_room_fails_alone
        a_refused_lease_is_as_it_was
        a_lease_that_ends_without_room_is_counted_later
        a_last_nack_without_room_for_its_letter_fails_alone
        what_dies_without_room_waits_for_its_letter
        a_repeated_ack_is_refused_with_the_first
        what_finds_no_room_is_told_apart;
    replays:
        a_replayed_letter_reaches_only_its_group
        a_letter_is_replayed_once_unless_forced
        an_event_that_keeps_coming_back_is_left_alone
        a_dry_run_changes_nothing
        a_replay_is_about_what_it_names
        a_limit_counts_what_goes_back
        a_letter_can_go_to_the_topic
        what_has_no_room_for_its_causes_stays_a_letter
        letters_of_a_group_that_is_gone_are_skipped
        letters_of_a_topic_that_was_made_anew_are_skipped;
    partitioned:
        each_partition_has_one_member
        a_join_moves_only_what_it_must
        a_group_has_no_more_members_than_could_own_something
        a_silent_member_is_dropped
        a_member_that_waits_is_not_silent
        a_member_that_is_there_is_not_silent
        a_member_is_there_as_long_as_one_of_its_connections_is
        a_connection_that_ends_leaves_a_member_that_pulls
        a_move_fences_the_old_owner_and_counts_nothing
        epochs_grow_and_survive_a_restart
        in_a_shared_group_everyone_may_get_everything;
    growth:
        order_per_key_survives_growth
        growth_waits_for_what_is_durable_across_a_restart
        growth_is_not_held_up_by_what_a_filter_drops
        growth_is_not_held_up_by_what_was_dropped_before
        a_group_at_the_end_reads_new_partitions_from_their_start
        new_partitions_get_owners;
    cursors:
        a_cursor_can_be_set_anywhere
        setting_a_cursor_voids_leases
        one_partition_can_be_set
        a_cursor_that_makes_no_sense_is_refused
        a_set_cursor_forgets_attempts;
    retention:
        a_group_is_moved_up_and_says_what_it_lost
        a_loss_is_told_though_nobody_reads
        what_is_in_flight_can_still_be_settled
        a_group_has_a_status_though_all_that_it_holds_is_gone
        an_event_that_is_gone_before_its_retry_is_lost
        an_event_that_waits_for_its_retry_is_lost_at_once
        an_event_that_is_gone_before_its_death_has_no_letter
        a_group_behind_a_trim_starts_at_what_is_kept
        what_waits_for_its_key_is_lost_with_the_rest
        a_trim_opens_the_way_to_new_partitions
        a_replayed_letter_whose_original_is_gone_is_told;
    holes:
        holes_are_passed_over
        what_was_read_ahead_is_not_delivered_once_it_is_given_up
        what_is_in_flight_can_still_be_settled_in_a_hole
        a_retry_that_is_given_up_holds_up_nobody
        growth_is_not_held_up_by_holes
        a_cursor_can_be_set_into_a_hole;
    consumers:
        what_a_handler_did_is_acked
        what_a_handler_could_not_do_is_tried_again
        with_manual_acks_the_handler_decides
        a_failure_is_nacked_even_with_manual_acks
        unsubscribing_waits_for_what_is_in_flight
        no_more_than_allowed_is_handled_at_once
        a_handler_that_panics_gets_the_event_again
        a_handler_can_ask_for_more_time
        a_subscription_outlives_a_store_that_refuses
        members_hear_of_their_partitions;
    wrappers:
        a_retry_keeps_failures_from_the_group
        a_retry_ends
        hopeless_failures_are_not_retried
        every_failure_can_be_the_last
        a_deduped_handler_does_nothing_twice
        a_deduped_handler_does_again_what_failed;
}

#[test]
fn every_behaviour_is_listed() {
    crate::support::assert_all_listed("groups", LISTED);
}
