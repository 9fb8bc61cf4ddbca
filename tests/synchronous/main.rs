//! Sources whose sender waits for the app's own answer (`reply = "upstream"`), as providers and apps meet them: real
//! processes, on SQLite and on Postgres.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::string_slice,
    clippy::print_stdout,
    reason = "a test stops at the first surprise and says what it does"
)]

#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test binary uses its part of it"
)]
#[path = "../harness/harness.rs"]
mod harness;

mod answers;
mod checks;
mod failures;
mod scene;

/// Each test on both engines.
macro_rules! on_both {
    ($($room:ident::$test:ident),* $(,)?) => {
        mod sqlite {
            $(#[test] fn $test() { crate::$room::$test(crate::scene::Engine::Sqlite); })*
        }
        mod postgres {
            $(#[test] fn $test() { crate::$room::$test(crate::scene::Engine::Postgres); })*
        }
    };
}

on_both! {
    answers::an_answer_is_relayed_kept_and_given_to_duplicates_also_after_a_restart,
    answers::a_redirect_is_relayed_with_its_place,
    answers::a_refusal_is_relayed_and_not_kept,
    answers::of_twenty_copies_at_once_one_is_attempted_and_all_hear_the_same,
    answers::a_sender_that_hangs_up_cancels_nothing,
    answers::an_answer_that_is_too_long_is_nobody_s_and_no_second_attempt,
    answers::an_answer_is_relayed_whole_up_to_the_bound,
    answers::counters_balance,
    failures::after_a_500_the_provider_s_next_try_is_the_next_attempt,
    failures::a_copy_that_waits_makes_the_next_attempt_when_the_first_fails,
    failures::there_are_never_two_attempts_at_once,
    failures::an_app_that_hangs_is_answered_for_in_time_and_what_it_says_later_is_kept,
    failures::a_paused_upstream_is_said_at_once_and_nothing_is_lost,
    failures::an_open_breaker_is_said_at_once_and_a_sender_may_be_the_probe,
    failures::a_full_lane_is_waited_for_and_then_said,
    failures::a_sender_goes_ahead_of_the_queue,
    failures::a_late_one_that_waits_in_the_queue_is_attempted_for_the_provider_s_next_try,
    failures::what_is_late_dies_and_the_provider_s_next_try_revives_it,
    failures::what_is_late_may_go_to_the_queue_and_its_answer_is_kept,
    failures::a_kill_in_an_attempt_leaves_the_next_to_the_provider,
    failures::a_replay_of_what_died_is_attempted_by_the_lane,
}
