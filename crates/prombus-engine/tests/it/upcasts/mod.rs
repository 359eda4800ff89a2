//! Events of earlier versions as those of the latest, and copies by version: one test a promise, on the memory store and on
//! a disk.

mod copies;
mod groups;
mod projections;
mod reads;
pub mod stage;
mod storing;

behaviours! {
    storing:
        upcasters_are_stored_with_the_schemas
        an_upcaster_needs_the_version_that_it_starts_from
        what_does_not_compile_is_not_stored
        an_upcaster_can_be_changed_and_removed
        upcasters_go_with_their_topic;
    reads:
        every_read_gives_the_latest_version
        a_cursor_goes_on_as_it_began
        a_filter_sees_what_is_read
        an_event_without_a_version_is_of_the_first
        a_missing_step_is_refused_when_it_is_asked_for
        an_event_that_cannot_be_raised_is_named
        a_topic_without_schemas_is_read_as_it_is
        a_function_raises_events
        a_follower_raises_what_comes
        a_read_knows_the_version_of_what_it_read
        a_key_is_read_from_a_place_behind_what_cannot_be_raised
        a_tombstone_stays_one;
    groups:
        a_group_gets_the_latest_version
        what_cannot_be_raised_becomes_a_dead_letter
        a_missing_step_is_refused_at_every_call
        a_filter_sees_what_is_delivered
        a_group_begins_to_normalize
        a_group_goes_on_when_a_step_is_added
        a_version_that_comes_during_a_pull_is_delivered
        a_filter_sees_a_version_that_comes_during_a_pull
        a_version_that_is_not_there_becomes_a_dead_letter;
    projections:
        a_projection_applies_the_latest_version
        a_projection_puts_aside_what_cannot_be_raised
        a_projection_waits_for_a_missing_step;
    copies:
        what_is_published_goes_to_its_version_too
        a_batch_is_copied_as_a_whole_or_not_at_all
        a_duplicate_is_copied_once
        only_what_has_a_version_is_copied
        copies_are_of_the_version_that_an_event_names
        what_commits_publish_is_copied
        a_name_that_is_too_long_is_refused
        a_topic_of_copies_has_no_schemas_of_its_own
        copies_survive_a_crash
        a_key_is_forgotten_in_copies_too;
}

#[test]
fn all_behaviours_are_listed() {
    crate::support::assert_all_listed("upcasts", LISTED);
}
