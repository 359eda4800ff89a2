//! What reading a topic by a query promises, one test a promise, on the memory store and on a disk.

mod keys;

behaviours! {
    keys:
        small_pages_of_a_key_look_at_what_large_ones_do
        a_page_of_a_key_looks_at_so_much_at_most;
}

#[test]
fn every_behaviour_is_run() {
    crate::support::assert_all_listed("queries", LISTED);
}
