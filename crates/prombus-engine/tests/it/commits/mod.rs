//! What commits of consumers promise, one test a promise, on the memory store and on a disk.

pub mod consumer;
mod ids;
mod large;
mod leases;
mod moves;

behaviours! {
    leases:
        a_commit_settles_leases_of_several_groups_and_topics
        a_commit_that_fails_does_nothing_and_leases_hold
        a_spent_lease_spoils_the_whole_commit
        a_lease_does_not_expire_while_it_is_committed
        a_lease_that_ended_during_a_refused_commit_is_over
        of_commits_of_the_same_lease_one_happens
        others_are_acked_while_a_commit_is_under_way
        many_commits_and_acks_at_once_lose_nothing
        a_caller_that_goes_away_does_not_end_its_commit;
    moves:
        a_cursor_that_is_set_decides
        an_event_is_committed_or_skipped_and_settled_either_way
        a_group_that_is_deleted_takes_its_leases_with_it
        a_topic_that_is_deleted_takes_its_leases_with_it
        a_group_that_was_taken_away_does_not_spoil_others
        a_partition_that_moves_takes_its_leases_along;
    ids:
        a_commit_with_an_id_happens_once
        the_same_commit_at_once_happens_once
        a_commit_that_failed_can_be_made_again
        a_lost_answer_is_found_again
        an_id_is_forgotten_after_a_day
        an_id_stands_for_one_request
        of_different_requests_with_one_id_at_once_one_happens
        callers_do_not_share_ids
        a_clock_that_is_set_forgets_no_id
        an_id_with_which_something_else_is_kept_is_a_conflict
        an_id_that_reads_like_the_name_of_another_commit_is_its_own
        a_commit_of_very_many_events_has_an_id_too
        a_commit_without_acks_needs_no_group;
    large:
        one_commit_over_large_documents_is_in_the_log_at_a_time
        who_goes_away_leaves_no_room_before_its_commit_is_decided
        what_waits_for_room_is_refused_when_the_hub_ends
        what_a_commit_under_way_makes_large_is_large_for_those_behind_it
        what_commits_under_way_make_large_together_is_large_for_those_behind_them;
}

#[test]
fn every_behaviour_is_listed() {
    crate::support::assert_all_listed("commits", LISTED);
}
