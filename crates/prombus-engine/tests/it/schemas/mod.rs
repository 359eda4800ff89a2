//! What schemas promise, one test a promise, on the memory store and on a disk.

mod checks;
mod fence;
mod registry;
pub mod stage;

behaviours! {
    registry:
        versions_are_registered_once_and_never_change
        the_same_schema_in_other_words_is_the_same_version
        a_version_has_to_follow_the_earlier_ones
        a_check_reads_only_so_much_of_earlier_versions
        what_is_rehearsed_is_not_registered
        registering_makes_the_topic
        a_topic_that_is_deleted_takes_its_schemas_along
        what_the_hub_publishes_to_has_no_schemas
        schemas_outlive_the_hub
        of_many_who_register_at_once_each_has_a_version;
    checks:
        events_are_held_against_the_latest_version_and_stamped
        an_event_may_name_an_earlier_version
        what_takes_too_long_to_check_is_refused_and_said_to_be_that
        every_failing_place_is_told_and_the_event
        what_is_warned_of_is_taken_and_counted
        nothing_is_looked_at_where_it_is_off
        a_tombstone_is_no_document
        commits_of_consumers_are_checked
        letters_that_go_back_are_checked
        large_events_are_checked_too
        a_topic_of_the_hub_is_not_checked
        a_repeated_publish_is_a_duplicate_whatever_was_registered;
    fence:
        no_event_is_behind_a_schema_that_refuses_it
        a_registration_waits_for_events_on_their_way
        a_topic_that_changes_refuses_no_events
        first_events_do_not_refuse_each_other
        whether_copies_may_be_made_is_asked_of_what_is_there_then
        what_begins_to_be_fed_gets_no_schemas_meanwhile
        what_begins_to_be_copied_to_gets_no_schemas_meanwhile;
}

#[test]
fn every_behaviour_is_listed() {
    crate::support::assert_all_listed("schemas", LISTED);
}
