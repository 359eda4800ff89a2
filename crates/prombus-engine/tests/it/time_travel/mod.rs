//! States at a time: of a key, of all keys, and of documents.

mod documents;
mod keys;
mod large;
mod meddling;
mod model;
mod stage;
mod topics;

behaviours! {
    keys:
        the_last_event_up_to_a_time_is_the_state
        merged_payloads_are_the_state
        any_function_makes_a_state
        a_trim_leaves_what_it_did_not_take
        holes_leave_what_is_known_from_the_horizon_on
        what_is_newest_is_known_before_the_horizon_too
        a_merge_is_exact_since_the_last_event_that_decides_alone
        a_forgotten_key_was_never_there
        a_key_that_moved_is_known_by_its_later_partition
        a_long_history_is_read_to_its_end
        a_topic_that_is_not_there_has_no_states;
    topics:
        every_key_has_its_state
        keys_are_found_in_as_many_rounds_as_it_takes
        a_key_in_two_partitions_is_there_once
        what_comes_later_is_not_seen
        what_goes_meanwhile_is_missed
        a_topic_is_not_cleaned_in_the_background_while_all_its_keys_are_read
        a_time_before_the_horizon_is_gone;
    documents:
        a_document_is_what_its_events_left
        versions_and_marks_are_heeded
        an_event_that_fails_writes_nothing
        what_has_no_history_is_told_why
        documents_are_exact_or_gone
        documents_that_other_keys_write_have_no_past
        another_definition_of_the_key_knows_no_past_until_it_is_rebuilt
        an_event_that_failed_counts_by_its_key
        documents_with_a_unique_index_have_no_past;
}

#[test]
fn every_behaviour_is_listed() {
    crate::support::assert_all_listed("time_travel", LISTED);
}
