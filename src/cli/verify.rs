//! `hooksluice verify`: checks captured requests and says why one fails.

mod jsonl;

pub use jsonl::{Judgement, Response, judge_line};
