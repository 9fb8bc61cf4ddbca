//! The contract of a store, through its public face: what every backend keeps.
//!
//! Each test is a function over a [`Bench`](super::bench::Bench); `contract!` makes a test of each for one backend. Which
//! tests there are stands in the macros below and nowhere else: a function that is not named there is dead code, and the
//! build says so.

pub(super) mod accept;
pub(super) mod calls;
pub(super) mod forget;
pub(super) mod forward;
pub(super) mod history;
pub(super) mod manage;
pub(super) mod reconfigure;
pub(super) mod records;
pub(super) mod redis;
pub(super) mod reply;
pub(super) mod secrets;
pub(super) mod shared;

/// All tests of the contract for one [`Bench`](super::bench::Bench).
macro_rules! contract {
    ($bench:ty) => {
        $crate::store::tests::contract::instantiate! { $bench:
            accept::an_event_is_stored_handed_out_settled_and_shown_as_it_was,
            accept::concurrent_duplicates_make_one_event_and_all_are_acknowledged,
            accept::a_dropped_append_is_stored_all_the_same,
            accept::every_key_is_known_after_a_restart_and_after_a_crash,
            accept::digest_keys_last_for_their_window_by_the_received_at_times,
            accept::same_content_under_another_id_is_held_for_a_person,
            accept::a_closed_store_refuses_and_says_so,
            forward::a_crash_repeats_attempts_under_new_numbers_and_loses_none,
            forward::a_close_hands_unused_leases_back_with_their_numbers,
            forward::a_lease_that_is_dropped_comes_back,
            forward::a_lost_lease_cannot_settle,
            forward::a_retry_waits_for_its_time_and_keeps_its_attempts,
            forward::the_duplicate_of_a_dead_dispatch_revives_it,
            forward::a_backlog_is_handed_out_in_order_and_through_a_bounded_window,
            forget::what_is_delivered_goes_after_retention_and_what_is_not_stays,
            forget::keys_go_after_the_window_unless_their_event_is_undelivered,
            history::a_long_history_keeps_one_event_per_key_and_delivers_each,
            manage::an_upstream_that_left_holds_its_dispatches_until_it_returns,
            manage::a_replay_sends_again_also_to_another_upstream,
            manage::lists_are_filtered_and_paged_newest_first,
            manage::a_lane_is_remembered,
            manage::a_lane_s_stopped_time_is_saved_without_an_order_and_never_goes_back,
            calls::a_call_is_begun_once_and_its_answer_is_found_as_it_was,
            calls::answers_without_and_with_a_long_body_come_back,
            calls::of_many_calls_with_one_key_exactly_one_begins,
            calls::keys_of_two_routes_are_apart,
            calls::each_end_leaves_its_record,
            calls::an_ambiguous_call_is_made_again_only_where_that_is_allowed,
            calls::a_call_that_is_dropped_leaves_its_record_ambiguous,
            calls::a_call_that_ran_at_a_close_or_a_crash_is_ambiguous_and_never_free,
            calls::a_closed_store_begins_and_ends_no_call,
            calls::a_client_s_key_that_is_too_long_is_refused,
            records::a_record_ends_with_its_time_but_not_while_its_call_runs,
            records::expired_records_are_removed_and_the_counts_follow,
            records::the_counts_are_the_same_after_a_restart,
            records::a_person_resolves_what_is_ambiguous_and_nothing_else,
            records::records_are_filtered_and_paged_newest_first,
            calls::calls_and_events_share_a_store,
            reconfigure::an_upstream_that_is_removed_holds_its_dispatches_and_goes_on_when_it_is_back,
            reconfigure::an_upstream_that_is_added_gets_what_was_held_for_it,
            reconfigure::an_upstream_that_comes_back_is_as_paused_as_it_was,
            reconfigure::the_same_configuration_again_changes_nothing,
            reconfigure::which_senders_wait_follows_the_configuration,
            reconfigure::keys_last_as_long_as_the_window_that_holds_now,
            reconfigure::upstreams_that_come_and_go_lose_and_double_nothing,
            redis::a_death_is_kept_until_it_was_told,
            redis::a_second_death_is_told_again_also_when_it_comes_during_the_telling,
            redis::without_redis_no_death_is_kept,
            redis::keys_of_what_is_not_delivered_are_listed_once_they_are_old,
            reply::a_waited_for_dispatch_is_its_askers_and_its_answer_every_duplicates,
            reply::a_failed_attempt_leaves_the_next_to_a_duplicate_and_then_to_the_lane,
            reply::what_nobody_asked_for_in_time_is_handed_to_the_lane,
            reply::what_lies_ready_for_the_lane_is_taken_for_a_sender_that_comes_late,
            reply::a_lease_that_is_declined_was_no_attempt,
            reply::a_duplicate_of_a_dead_one_asks_for_it_and_the_lane_does_not_get_it,
            reply::a_crash_in_an_attempt_leaves_the_next_to_a_duplicate,
            reply::an_answer_goes_with_its_event,
            secrets::when_a_secret_was_last_used_is_known_after_a_restart,
            secrets::a_secret_twice_in_a_list_is_noted_once,
            secrets::a_secret_that_no_configuration_has_any_more_is_forgotten_in_the_end,
        }
    };
}

/// All tests of what replicas on one store may rely on, for one [`SharedBench`](super::bench::SharedBench).
macro_rules! shared_contract {
    ($bench:ty) => {
        $crate::store::tests::contract::instantiate! { $bench:
            shared::concurrent_duplicates_over_two_handles_make_one_event,
            shared::what_one_handle_leased_is_not_given_to_the_other,
            shared::what_a_vanished_handle_had_leased_is_taken_over,
            shared::a_lease_that_lapsed_and_was_taken_over_cannot_settle,
            shared::what_another_handle_discarded_cannot_settle,
            shared::a_pause_is_seen_by_the_other_handle,
            shared::a_duplicate_at_one_handle_revives_what_died_at_the_other,
            shared::a_replay_at_one_handle_is_sent_once,
            shared::a_handle_that_closes_leaves_its_work_to_the_other,
            reply::of_many_askers_at_two_handles_one_has_it,
            reply::what_a_vanished_handle_attempted_is_taken_over_by_who_asks,
            calls::of_many_calls_over_two_handles_exactly_one_begins,
            calls::a_call_of_a_stopped_handle_is_ambiguous_to_the_other_and_cannot_end,
            calls::a_handle_that_closes_leaves_its_calls_ambiguous_at_once,
        }
    };
}

macro_rules! instantiate {
    ($bench:ty: $($room:ident::$test:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $test() {
                $crate::store::tests::contract::$room::$test::<$bench>().await;
            }
        )*
    };
}

pub(super) use {contract, instantiate, shared_contract};
