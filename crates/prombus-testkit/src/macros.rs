//! One test for each behaviour, so that a failure is named.

/// Makes a test of each behaviour of a module, on a subject that `$factory` (an async function) makes for it.
#[macro_export]
macro_rules! conformance {
    ($factory:expr, $suite:ident: $($behaviour:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $behaviour() {
                let run = async { $crate::$suite::$behaviour($factory().await).await };
                $crate::guarded(stringify!($behaviour), run).await;
            }
        )*
    };
}

/// Tests a log with all that can also be said over HTTP: see [`log`](crate::log).
#[macro_export]
macro_rules! log_conformance {
    ($factory:expr) => {
        $crate::conformance! { $factory, log:
            offsets_continue_without_gaps
            a_refused_commit_takes_no_offsets
            made_ids_are_v7_and_grow
            a_producers_id_is_kept
            a_receipt_says_where_each_event_is
            ts_is_the_producers_or_the_recorded_time
            recorded_ts_never_decreases
            a_receipt_says_how_durable_it_is
            a_batch_happens_as_a_whole_or_not_at_all
            an_answered_commit_is_seen_by_everyone
            topics_are_apart
            concurrent_commits_lose_nothing
            concurrent_publishes_of_one_id_append_one_event
            concurrent_publishes_of_one_id_conflict
            of_equal_expectations_one_wins
            a_reader_never_sees_a_gap_or_half_a_batch
            payloads_come_back_byte_for_byte
            optional_fields_are_carried_or_absent
            keys_are_any_text
            an_empty_key_is_a_key
            large_events_are_carried
            a_repeated_id_answers_the_first_position
            a_repeated_id_within_a_batch_is_a_duplicate
            a_repeated_batch_appends_only_what_is_new
            an_id_with_another_payload_or_key_is_a_conflict
            an_id_conflict_within_a_batch_is_seen
            a_duplicate_is_recognised_in_every_partition
            a_duplicate_is_recognised_after_growth
            an_id_that_the_store_made_is_remembered
            a_duplicate_is_recognised_before_the_expectation
            expecting_none_holds_for_a_key_without_events
            expecting_an_id_holds_if_it_is_the_latest
            an_expectation_sees_the_earlier_events_of_its_commit
            unconditional_events_count_for_expectations
            a_tombstone_counts_for_expectations
            an_expectation_holds_across_growth
            odd_expected_ids_are_just_wrong
            the_history_of_a_key_is_its_events_in_order
            a_page_of_history_is_full_unless_it_ends
            a_page_of_history_is_about_max_bytes
            a_history_goes_on_after_growth
            a_history_sees_what_is_committed_meanwhile
            an_event_is_found_by_its_id
            the_latest_of_a_key_was_committed_last
            a_tombstone_is_the_latest_event
            the_latest_of_a_key_is_the_topics
            the_latest_of_each_key_agrees_with_a_plain_search
            pages_follow_each_other
            a_page_starts_where_it_is_asked_to
            a_page_is_about_max_bytes_and_at_least_one_event
            a_page_at_the_end_is_empty
            a_place_by_time_is_the_first_at_or_after
            places_by_time_agree_with_a_plain_search
            partitions_are_read_apart
            a_new_topic_is_there_with_its_settings
            topics_are_listed_by_name
            a_topic_that_does_not_exist_is_not_found
            a_partition_that_does_not_exist_is_refused
            settings_change_and_events_stay
            a_topic_grows_by_empty_partitions
            partitions_cannot_shrink
            a_topic_that_is_made_again_starts_anew
            a_read_that_names_an_incarnation_is_of_no_other
        }
    };
}

/// Tests a log with what HTTP has no words for: see [`log_exact`](crate::log_exact).
#[macro_export]
macro_rules! log_exact_conformance {
    ($factory:expr) => {
        $crate::conformance! { $factory, log_exact:
            a_topic_that_exists_cannot_be_made
            a_missing_topic_cannot_be_changed
            a_change_from_an_old_revision_is_refused
            events_for_a_topic_as_it_was_are_refused
            events_that_may_only_be_duplicates_are_refused_if_they_are_new
            of_equal_revisions_one_wins
            of_many_makers_one_wins
            no_topic_number_is_used_twice
            changes_of_a_commit_happen_in_order
            changes_happen_as_a_whole_or_not_at_all
            the_clock_says_when_an_event_was_recorded
            ids_and_recorded_ts_survive_a_clock_that_steps_back
            ts_follows_a_clock_that_was_ahead
            made_ids_grow_however_many_commit
            what_comes_after_a_horizon_is_not_before_it
            a_horizon_outlives_the_store
            a_horizon_needs_no_commit
            a_horizon_is_of_a_topic_that_is_there
            everything_before_a_horizon_can_be_read
            an_id_is_remembered_for_its_window
            after_its_window_an_id_means_nothing
            the_window_goes_by_recorded_time
            each_topic_has_its_own_window
            an_id_is_remembered_when_the_clock_steps_back
            an_id_is_remembered_after_a_clock_that_was_ahead
            a_closed_store_takes_no_commits
            commits_that_meet_the_closing_are_answered
            a_commit_that_was_given_up_is_still_whole
            an_event_goes_by_its_key
            an_event_without_a_key_goes_by_its_id
            events_with_neither_take_turns
            a_named_partition_is_taken
            order_within_a_commit_counts_across_partitions
            a_named_partition_must_be_there
            growth_is_followed_at_once
            a_topic_knows_where_it_ended_when_it_grew
            a_remade_topic_has_its_own_partitions
            an_event_for_a_missing_topic_is_refused
            events_make_the_topics_that_they_need
            a_new_topic_is_always_flushed
            a_refused_commit_makes_no_topic
            topics_of_the_hub_make_themselves
            there_are_only_so_many_topics
            events_go_to_a_topic_that_their_commit_makes
            many_first_events_make_one_topic
            a_commit_takes_events_of_several_topics
            several_topics_change_as_a_whole_or_not_at_all
            a_commit_is_as_durable_as_its_strictest_topic
            several_topics_become_visible_at_once
            a_copy_is_an_event_of_its_own
            a_copy_makes_its_topic
            a_duplicate_is_not_copied
            copies_keep_the_order_of_the_first_ones
            copies_happen_with_their_commit_or_not_at_all
            copies_count_as_what_a_commit_makes
            what_is_forgotten_is_erased_and_nothing_else
            what_is_kept_of_a_forgotten_key_stays
            an_id_outlives_what_is_erased
            documents_outlive_what_is_erased
            only_the_topic_that_was_read_is_forgotten
            forgetting_is_part_of_its_commit
            discarded_events_are_passed_over
            what_is_not_there_is_not_discarded
            a_place_by_time_has_an_event
            keys_are_looked_up_among_what_is_left
            a_history_goes_on_after_a_discarded_event
            an_id_is_remembered_though_its_event_is_discarded
            an_expectation_is_about_what_is_left
            only_the_topic_that_was_read_loses_events
            what_is_kept_is_counted
            trimmed_events_are_gone
            a_trim_is_clamped
            a_partition_trimmed_to_its_end_goes_on
            a_place_by_time_is_a_kept_one
            keys_are_looked_up_among_what_is_kept
            a_history_goes_on_after_a_trimmed_event
            a_history_goes_on_after_a_trimmed_event_and_growth
            an_id_that_came_twice_is_found_while_one_is_kept
            an_id_is_remembered_though_its_event_is_trimmed
            a_trim_comes_before_the_events_of_its_commit
            a_trim_is_of_the_topic_that_is_there
            a_trim_of_a_topic_that_was_replaced_trims_nothing
            an_expectation_is_about_what_is_kept
            what_was_committed_is_not_waited_for
            a_waiter_wakes_for_the_next_commit
            a_waiter_for_a_topic_wakes_for_all_that_happens_to_it
            a_waiter_for_a_collection_wakes_for_its_documents
            many_waiters_all_wake
            a_waiter_that_gave_up_bothers_nobody
            a_follower_misses_nothing
            what_the_sequence_covers_can_be_read
            commits_happen_in_the_order_in_which_they_were_enqueued
            checks_see_what_was_enqueued_before
            a_ticket_can_be_awaited_anywhere
            a_commit_needs_nobody_to_wait_for_it
            a_refusal_is_the_answer_of_its_ticket
        }
    };
}

/// Tests documents, collections and cursors: see [`state`](crate::state).
#[macro_export]
macro_rules! state_conformance {
    ($factory:expr) => {
        $crate::conformance! { $factory, state:
            a_cursor_is_where_it_was_moved_to
            readers_have_only_so_many_partitions
            a_cursor_moves_only_from_its_version
            a_cursor_is_fenced_by_epoch
            a_removed_cursor_is_gone
            cursors_are_apart
            moves_of_a_commit_see_each_other
            cursors_go_with_their_topic
            the_readers_of_a_topic_are_known
            a_replaced_topic_has_no_old_cursors
            cursors_stay_when_the_topic_changes
            a_cursor_needs_a_topic
            a_late_mover_is_refused_in_a_remade_topic
            of_equal_moves_one_wins
            a_move_is_as_durable_as_its_topic
            set_replaces_the_document
            merge_patches_the_document
            inc_adds_to_numbers
            integers_stay_exact_or_are_refused
            many_writes_to_a_large_document_are_one_change
            what_a_commit_makes_is_bounded
            a_document_holds_only_so_many_values
            many_small_values_are_counted_as_what_they_cost
            a_deleted_document_starts_over
            a_version_can_be_demanded
            writes_of_a_commit_see_each_other
            a_write_that_makes_no_sense_is_refused
            collections_are_apart
            concurrent_increments_all_count
            of_equal_versions_one_wins
            documents_are_always_flushed
            all_parts_of_a_commit_happen
            a_refused_part_takes_all_with_it
            a_cursor_decides_before_documents_are_read
            a_duplicate_stops_no_other_part
            documents_make_a_commit_durable
            all_parts_become_visible_at_once
            a_refused_commit_leaves_the_next_alone
            a_scan_is_in_the_order_of_keys
            a_scan_starts_after_any_key
            a_scan_gives_documents_as_they_are
            a_text_means_the_type_of_what_is_stored
            what_is_not_equal_may_be_absent
            all_conditions_must_hold
            all_values_have_one_order
            a_search_goes_in_pages
            a_page_has_an_end_in_bytes
            a_search_sees_what_is_there
            an_index_changes_no_answer
            a_unique_index_refuses_the_same_values
            a_unique_index_sees_the_earlier_writes_of_a_commit
            a_unique_index_frees_what_is_gone
            what_lacks_a_field_is_not_compared
            a_unique_index_over_equal_values_is_refused_or_fails
            an_index_can_become_unique
            queries_are_right_while_an_index_is_made
            writes_while_an_index_is_made_are_in_it
            an_index_can_be_removed_while_it_is_made
            a_unique_index_is_never_ready_over_equal_values
            values_too_long_for_an_index_are_refused
            each_write_of_a_commit_is_short_enough_for_indexes
            an_index_over_values_that_are_too_long_fails
            values_too_long_for_an_index_are_refused_while_it_is_made
            a_search_for_a_value_too_long_for_an_index_is_answered
            what_a_commit_makes_of_indexes_is_bounded
            a_collection_belongs_to_its_first_writer
            a_collection_changes_only_from_its_revision
            a_dropped_collection_is_gone
            a_collection_knows_its_size
            collections_are_listed_by_name
            there_are_only_so_many_collections
            keys_and_fields_are_any_text
            a_refused_collection_takes_all_with_it
            a_swapped_collection_has_the_other_name
            only_what_is_there_can_be_swapped
            a_collection_swapped_with_itself_stays
            writes_of_a_commit_follow_its_swap
            counted_versions_are_shown
            only_a_newer_version_is_written
            what_decides_without_reading_is_looked_at_first
            update_sets_and_adds
            a_receipt_can_be_kept
            a_receipt_may_be_larger_than_a_document
            an_etag_tells_documents_apart
            a_changefeed_tells_of_puts_and_deletes
            a_changefeed_tells_only_of_changes
            a_changefeed_goes_to_the_topic_that_is_there
            a_changefeed_needs_its_topic
            a_changefeed_makes_its_topic
            a_change_must_fit_into_an_event
            a_change_and_its_telling_are_one
        }
    };
}

/// Tests which hub has a topic: see [`homes`](crate::homes).
#[macro_export]
macro_rules! homes_conformance {
    ($factory:expr) => {
        $crate::conformance! { $factory, homes:
            a_claim_is_exclusive
            many_topics_are_claimed_at_once
            of_concurrent_claims_one_wins
            a_repeated_claim_is_the_same
            epochs_only_grow
            an_epoch_is_above_what_was_seen
            a_release_hands_over_at_once
            a_claim_that_is_renewed_is_kept
            a_claim_ends_before_it_can_be_taken_over
            a_claim_that_was_taken_over_is_refused
            what_is_handed_over_has_a_new_home
            moves_are_told
            hubs_are_listed_while_they_live
            joining_again_changes_what_a_hub_says
            a_hub_that_leaves_is_gone_at_once
            whoever_waits_hears_of_hubs
            whoever_waits_is_woken
            a_renewal_wakes_nobody
        }
    };
}

/// Tests the copies of a store that has files: see [`copies`](crate::copies).
#[macro_export]
macro_rules! copies_conformance {
    ($factory:expr) => {
        $crate::conformance! { $factory, copies:
            a_copy_opens_as_what_the_store_was
            what_was_answered_is_in_a_copy
            a_copy_has_commits_as_a_whole
            a_copy_that_is_held_stays_as_it_is
            files_are_listed_in_order
            a_read_is_as_long_as_was_asked_for
            marks_tell_what_is_the_same
            what_the_store_needs_is_not_held_back
        }
    };
}

/// Tests a store that has no files to copy: see [`no_copies`](crate::no_copies).
#[macro_export]
macro_rules! no_copies_conformance {
    ($factory:expr) => {
        $crate::conformance! { $factory, no_copies:
            a_store_without_files_says_what_to_do
        }
    };
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// A behaviour that is written and not listed would never run.
    #[test]
    fn every_behaviour_is_listed() {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let lists = fs::read_to_string(src.join("macros.rs")).unwrap();
        for suite in ["copies", "homes", "log", "log_exact", "state"] {
            let start = lists.find(&format!("macro_rules! {suite}_conformance")).unwrap();
            let list: Vec<&str> = lists[start..].split('}').next().unwrap().split_whitespace().collect();
            for file in fs::read_dir(src.join(suite)).unwrap() {
                let text = fs::read_to_string(file.unwrap().path()).unwrap();
                for line in text.lines().filter_map(|line| line.strip_prefix("pub async fn ")) {
                    let name = line.split('(').next().unwrap();
                    assert!(list.contains(&name), "{name} is not listed in {suite}_conformance!");
                }
            }
        }
    }
}
