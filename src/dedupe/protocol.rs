//! The dedupe protocol: look, append, answer, claim, admit, tell, as one pure step function.
//!
//! **Motivation.** The usual order ("`SET NX`, then store, then 200") loses events: a crash or a failed store after the
//! mark makes the provider's retry look like a duplicate. Here **Redis never holds a key whose event is not durable**, so
//! there is no claim to expire, to release or to confuse, and any step may be repeated after a crash: what is written is
//! the event's own id, and whoever lost a reply reads its own id back.
//!
//! **Theory of operation.** A request is in one [`Stage`], which says what is to be done for it next; what that found is
//! an [`Input`], and [`Protocol::step`] gives the next stage. The data path and the model check in `tests/model` call the
//! same function; nothing here waits, reads a clock or knows a socket.
//!
//! ```text
//! shared store    Look ── Append (and admit, one transaction) ── Tell ── Done
//! separate store  Look ── Append ── Claim ── Admit ── Tell ── Done
//! ```
//!
//! A request whose sender waits for the upstream's answer begins at `Append` ([`Stage::first`]).
//!
//! **Promises.** P1: [`Stage::Known`] comes only from a value that was written after its event was durable. P2: the
//! store's unique key decides ([`decide`]); over separate stores the claim decides first, and only a claim that was not
//! heard in time under `on_down = "store"` lets two stores decide by themselves.

use std::time::Duration;

use data_encoding::HEXLOWER;

use crate::id::EventId;
use crate::key::KeyKind;
use crate::store::model::{Admission, BodyMark, Claim};
use crate::time::Timestamp;

pub use crate::store::model::decide;

/// What Redis holds under a dedupe key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mark {
    /// The key's event is durable: `<event>:<first 16 hex of the body's SHA-256>`.
    Durable {
        /// That event.
        event: EventId,
        /// Tells a duplicate with other bytes.
        body_mark: BodyMark,
    },
    /// A dispatch of the key's event died: `dead:<event>`. It means "go to the store", which may revive it, and it stays
    /// for its whole time.
    Dead {
        /// That event.
        event: EventId,
    },
}

impl Mark {
    /// As Redis holds it.
    pub fn encode(&self) -> String {
        match self {
            Self::Durable { event, body_mark } => format!("{event}:{}", HEXLOWER.encode(body_mark)),
            Self::Dead { event } => format!("dead:{event}"),
        }
    }

    /// Reads back what [`Mark::encode`] wrote; `None` for anything else, which then knows nothing.
    pub fn decode(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?;
        if let Some(event) = text.strip_prefix("dead:") {
            return Some(Self::Dead {
                event: event.parse().ok()?,
            });
        }
        let (event, body_mark) = text.split_once(':')?;
        Some(Self::Durable {
            event: event.parse().ok()?,
            body_mark: HEXLOWER.decode(body_mark.as_bytes()).ok()?.try_into().ok()?,
        })
    }

    /// The event it names.
    pub fn event(&self) -> EventId {
        match self {
            Self::Durable { event, .. } | Self::Dead { event } => *event,
        }
    }
}

/// How long after it was sent a command whose connection was given up may still have its effect: the system gives
/// unacknowledged bytes up after ten seconds, and a server that answers again has read what lay there before.
pub const LATE: Duration = Duration::from_secs(11);

/// What was heard from Redis: an error is not an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// It held nothing. After a claim: it now holds ours.
    Absent,
    /// It holds this, whoever wrote it.
    Holds(Mark),
    /// Nothing, in time: no answer, an error, or, to a look, a value that nobody of us wrote (a claim takes its place). The
    /// command may have had its effect.
    Silent,
}

/// Whether several processes share the store, and what a separate one does without Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arrangement {
    /// One store for all: its unique key decides alone; Redis only saves it work.
    Shared,
    /// A store for each: Redis decides between them.
    Separate(OnDown),
}

/// `[dedupe.redis] on_down`: what admission on a separate store does when Redis has not answered for `admit_timeout`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnDown {
    /// The own store decides, and Redis is told later: never late, but two stores may both admit.
    #[default]
    Store,
    /// Wait for Redis: never twice, but nothing is forwarded meanwhile.
    Refuse,
}

/// What the protocol needs to know of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct About {
    /// What its key was made of.
    pub kind: KeyKind,
    /// When it was received.
    pub received_at: Timestamp,
    /// Mark of its body.
    pub body_mark: BodyMark,
}

/// Where a request stands: what is to be done for it next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Ask Redis (`GET`). Input: [`Input::Heard`].
    Look,
    /// End: a duplicate of a durable event. Answer 200.
    Known {
        /// That event.
        event: EventId,
        /// The bytes differ.
        conflict: bool,
    },
    /// Make it durable; on a shared store in the transaction that also admits it. Input: [`Input::Appended`] or
    /// [`Input::Admitted`]; a failure is answered 503 and ends it.
    Append,
    /// It is durable and answered. Ask Redis to take it (`SET … NX GET PX`). Input: [`Input::Heard`],
    /// [`Input::PatienceOver`] or [`Input::NothingLate`].
    Claim {
        /// Our event.
        event: EventId,
        /// An earlier try got no answer and may still have its effect.
        late: bool,
    },
    /// The own store decides ([`decide`]), knowing what Redis said. Input: [`Input::Admitted`].
    Admit {
        /// Our event.
        event: EventId,
        /// What Redis said.
        claim: Claim,
    },
    /// Tell Redis. Input: [`Input::Told`]; repeated until then, or dropped by [`Input::TooLate`].
    Tell(Tell),
    /// End.
    Done,
}

impl Stage {
    /// Where a request begins. A sender that waits for the upstream's answer (`reply = "upstream"`) needs more than to hear
    /// that its request is a duplicate, so its request goes to the store, as one does whose look was not answered.
    pub const fn first(sender_waits: bool) -> Self {
        if sender_waits { Self::Append } else { Self::Look }
    }
}

/// What Redis is told, best effort and repeated. Each may be repeated or come late without harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tell {
    /// The key's event is durable: `SET … NX PX`, which never covers a `dead:`.
    Durable {
        /// That event.
        event: EventId,
        /// Mark of its body.
        body_mark: BodyMark,
    },
    /// The key belongs to this event and not to the one that Redis holds: set only while it still holds that one.
    Instead {
        /// What Redis holds.
        of: EventId,
        /// The surviving event.
        event: EventId,
        /// Mark of its body.
        body_mark: BodyMark,
    },
    /// A dispatch of the event died: plain `SET … PX`.
    Dead {
        /// That event.
        event: EventId,
    },
}

/// What doing as the stage said has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// Redis's answer.
    Heard(Reply),
    /// Redis has not answered a claim for `admit_timeout`.
    PatienceOver,
    /// Earlier tries of a claim can have no effect any more ([`LATE`] has passed), also those of a process before.
    NothingLate,
    /// A separate store has committed and synced the event under this id.
    Appended(EventId),
    /// The store has decided.
    Admitted {
        /// Our event.
        event: EventId,
        /// What was decided.
        admission: Admission,
        /// The event that now stands for the key.
        survivor: EventId,
        /// Mark of its body.
        body_mark: BodyMark,
    },
    /// Redis has it.
    Told,
    /// On a shared store a telling has waited so long that the event may have died at another replica meanwhile.
    TooLate,
}

/// The protocol of one deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// How its processes store.
    pub arrangement: Arrangement,
    /// `dedupe.digest_window`.
    pub digest_window: Duration,
}

impl Protocol {
    /// What is next, after doing as `stage` says has found `input`.
    ///
    /// A pair that no caller produces (an input that does not belong to the stage) leaves the stage as it is.
    #[must_use]
    pub fn step(&self, about: &About, stage: Stage, input: Input) -> Stage {
        match (stage, input) {
            (Stage::Look, Input::Heard(Reply::Holds(Mark::Durable { event, body_mark })))
                if self.is_same(about, event) =>
            {
                Stage::Known {
                    event,
                    conflict: body_mark != about.body_mark,
                }
            }
            // Dead means "go to the store"; silence, also an error, means "go on".
            (Stage::Look, Input::Heard(_)) => Stage::Append,

            (Stage::Append, Input::Appended(event)) => Stage::Claim { event, late: false },
            (
                Stage::Append,
                Input::Admitted {
                    admission,
                    survivor,
                    body_mark,
                    ..
                },
            ) => after_shared(admission, survivor, body_mark),

            (Stage::Claim { event, .. }, Input::Heard(Reply::Absent)) => Stage::Admit {
                event,
                claim: Claim::Ours,
            },
            (Stage::Claim { event, late }, Input::Heard(Reply::Holds(mark))) => {
                match self.heard(about, event, mark) {
                    // If Redis forgot that one now and then took ours from an earlier try, its store would be told to wait for
                    // us while we wait for it (P1). So not before nothing of ours can come any more.
                    Claim::Held { .. } if late => Stage::Claim { event, late },
                    claim => Stage::Admit { event, claim },
                }
            }
            (Stage::Claim { event, .. }, Input::NothingLate) => Stage::Claim { event, late: false },
            (Stage::Claim { event, .. }, Input::PatienceOver)
                if self.arrangement == Arrangement::Separate(OnDown::Store) =>
            {
                Stage::Admit {
                    event,
                    claim: Claim::Unheard,
                }
            }
            // Asked again, for as long as it takes.
            (Stage::Claim { event, .. }, Input::Heard(Reply::Silent)) => Stage::Claim { event, late: true },
            (Stage::Claim { event, late }, Input::PatienceOver) => Stage::Claim { event, late },

            (
                Stage::Admit { event, claim },
                Input::Admitted {
                    admission,
                    survivor,
                    body_mark,
                    ..
                },
            ) => after_separate(event, claim, admission, survivor, body_mark),

            (Stage::Tell(_), Input::Told | Input::TooLate) => Stage::Done,

            (stage, _) => stage,
        }
    }

    /// What a claim's answer means for the event that asked.
    fn heard(&self, about: &About, own: EventId, mark: Mark) -> Claim {
        let event = mark.event();
        if event == own {
            // An earlier try had its effect and its reply was lost.
            Claim::Ours
        } else if self.is_same(about, event) {
            Claim::Held {
                by: event,
                dead: matches!(mark, Mark::Dead { .. }),
            }
        } else {
            Claim::Expired { of: event }
        }
    }

    /// Whether a key of this kind still speaks for a request: digest keys are judged by the distance of the two
    /// received-at times, never by when anything ran.
    fn is_same(&self, about: &About, event: EventId) -> bool {
        match about.kind {
            KeyKind::Rule => true,
            KeyKind::Digest => {
                let other = event.received_at();
                let apart = other.since(about.received_at).max(about.received_at.since(other));
                apart <= self.digest_window
            }
        }
    }
}

/// A shared store has decided: the next duplicate shall cost no store.
fn after_shared(admission: Admission, survivor: EventId, body_mark: BodyMark) -> Stage {
    match admission {
        Admission::New | Admission::Held | Admission::Duplicate { .. } => Stage::Tell(Tell::Durable {
            event: survivor,
            body_mark,
        }),
        // Once `dead:`, always `dead:`: the next duplicate goes to the store too.
        Admission::Revived { .. } | Admission::Elsewhere { .. } => Stage::Done,
    }
}

/// A separate store has decided: Redis must hold the event that survived.
fn after_separate(own: EventId, claim: Claim, admission: Admission, survivor: EventId, body_mark: BodyMark) -> Stage {
    let instead = |of| {
        Stage::Tell(Tell::Instead {
            of,
            event: survivor,
            body_mark,
        })
    };
    match (claim, admission) {
        (_, Admission::Elsewhere { .. }) => Stage::Done,
        (Claim::Ours, _) if survivor == own => Stage::Done,
        // Redis had lost the key and took ours, whose copy is gone.
        (Claim::Ours, _) => instead(own),
        (Claim::Expired { of }, _) => instead(of),
        (Claim::Held { by, dead }, _) if by == survivor || dead => Stage::Done,
        // Both stores have an event for the key; Redis keeps the one it has.
        (Claim::Held { .. }, _) => Stage::Done,
        (Claim::Unheard, _) => Stage::Tell(Tell::Durable {
            event: survivor,
            body_mark,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Position;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn event(n: i64) -> EventId {
        EventId::embedded(NOW, Position::new(n).unwrap(), 0)
    }

    fn about(kind: KeyKind) -> About {
        About {
            kind,
            received_at: NOW,
            body_mark: [1; 8],
        }
    }

    fn protocol(arrangement: Arrangement) -> Protocol {
        Protocol {
            arrangement,
            digest_window: Duration::from_secs(300),
        }
    }

    fn durable(n: i64) -> Mark {
        Mark::Durable {
            event: event(n),
            body_mark: [1; 8],
        }
    }

    #[test]
    fn a_request_whose_sender_waits_goes_where_one_goes_whose_look_was_not_answered() {
        let unheard =
            protocol(Arrangement::Shared).step(&about(KeyKind::Rule), Stage::first(false), Input::Heard(Reply::Silent));
        assert_eq!((Stage::first(false), Stage::first(true)), (Stage::Look, unheard));
    }

    #[test]
    fn a_mark_reads_back_and_anything_else_is_no_mark() {
        for mark in [durable(7), Mark::Dead { event: event(7) }] {
            assert_eq!(Mark::decode(mark.encode().as_bytes()), Some(mark));
        }
        assert_eq!(
            durable(0x0102).encode().split_once(':').unwrap().1,
            "0101010101010101",
            "the first 16 hex digits"
        );
        for other in [
            "",
            "1",
            "dead:",
            "dead:x",
            ":",
            "\u{e9}:0101010101010101",
            "01234567-89ab-7def-8123-456789abcdef",
            "01234567-89ab-7def-8123-456789abcdef:01",
        ] {
            assert_eq!(Mark::decode(other.as_bytes()), None, "{other}");
        }
        assert_eq!(Mark::decode(b"\xff"), None);
    }

    #[test]
    fn only_a_durable_mark_answers_a_look() {
        let shared = protocol(Arrangement::Shared);
        let rule = about(KeyKind::Rule);
        let look = |reply| shared.step(&rule, Stage::Look, Input::Heard(reply));
        assert_eq!(
            look(Reply::Holds(durable(1))),
            Stage::Known {
                event: event(1),
                conflict: false
            }
        );
        assert_eq!(look(Reply::Holds(Mark::Dead { event: event(1) })), Stage::Append);
        assert_eq!(look(Reply::Absent), Stage::Append);
        assert_eq!(look(Reply::Silent), Stage::Append);
        let other = About {
            body_mark: [2; 8],
            ..rule
        };
        let Stage::Known { conflict, .. } = shared.step(&other, Stage::Look, Input::Heard(Reply::Holds(durable(1))))
        else {
            panic!("known");
        };
        assert!(conflict, "other bytes under the same key");
    }

    #[test]
    fn a_digest_key_is_judged_by_the_distance_of_the_received_at_times() {
        let separate = protocol(Arrangement::Separate(OnDown::Store));
        let at = |secs| About {
            received_at: NOW.after(Duration::from_secs(secs)),
            ..about(KeyKind::Digest)
        };
        let heard = Input::Heard(Reply::Holds(durable(1)));
        assert!(matches!(
            separate.step(&at(300), Stage::Look, heard),
            Stage::Known { .. }
        ));
        assert_eq!(separate.step(&at(301), Stage::Look, heard), Stage::Append);
        let claim = Stage::Claim {
            event: event(2),
            late: false,
        };
        assert_eq!(
            separate.step(&at(301), claim, heard),
            Stage::Admit {
                event: event(2),
                claim: Claim::Expired { of: event(1) }
            }
        );
    }

    #[test]
    fn an_unheard_claim_waits_or_lets_the_store_decide_as_on_down_says() {
        let claim = Stage::Claim {
            event: event(1),
            late: false,
        };
        let rule = about(KeyKind::Rule);
        for on_down in [OnDown::Store, OnDown::Refuse] {
            let separate = protocol(Arrangement::Separate(on_down));
            let again = Stage::Claim {
                event: event(1),
                late: true,
            };
            assert_eq!(separate.step(&rule, claim, Input::Heard(Reply::Silent)), again);
            let over = separate.step(&rule, claim, Input::PatienceOver);
            match on_down {
                OnDown::Store => assert_eq!(
                    over,
                    Stage::Admit {
                        event: event(1),
                        claim: Claim::Unheard
                    }
                ),
                OnDown::Refuse => assert_eq!(over, claim),
            }
        }
    }

    #[test]
    fn a_lost_reply_reads_its_own_id_back() {
        let separate = protocol(Arrangement::Separate(OnDown::Refuse));
        let next = separate.step(
            &about(KeyKind::Rule),
            Stage::Claim {
                event: event(1),
                late: false,
            },
            Input::Heard(Reply::Holds(durable(1))),
        );
        assert_eq!(
            next,
            Stage::Admit {
                event: event(1),
                claim: Claim::Ours
            }
        );
    }

    #[test]
    fn another_store_is_not_waited_for_while_a_claim_of_ours_may_come_late() {
        let separate = protocol(Arrangement::Separate(OnDown::Refuse));
        let rule = about(KeyKind::Rule);
        let late = Stage::Claim {
            event: event(1),
            late: true,
        };
        let other = Input::Heard(Reply::Holds(durable(2)));
        assert_eq!(separate.step(&rule, late, other), late);
        // Ours is ours, whenever it came.
        let ours = Stage::Admit {
            event: event(1),
            claim: Claim::Ours,
        };
        assert_eq!(separate.step(&rule, late, Input::Heard(Reply::Holds(durable(1)))), ours);
        let on_time = separate.step(&rule, late, Input::NothingLate);
        let next = separate.step(&rule, on_time, other);
        assert!(matches!(
            next,
            Stage::Admit {
                claim: Claim::Held { .. },
                ..
            }
        ));
    }

    #[test]
    fn revival_writes_nothing_to_redis() {
        let revived = Input::Admitted {
            event: event(2),
            admission: Admission::Revived { of: event(1) },
            survivor: event(1),
            body_mark: [1; 8],
        };
        let shared = protocol(Arrangement::Shared);
        assert_eq!(shared.step(&about(KeyKind::Rule), Stage::Append, revived), Stage::Done);
        let separate = protocol(Arrangement::Separate(OnDown::Store));
        let admit = Stage::Admit {
            event: event(2),
            claim: Claim::Held {
                by: event(1),
                dead: true,
            },
        };
        assert_eq!(separate.step(&about(KeyKind::Rule), admit, revived), Stage::Done);
    }

    #[test]
    fn a_claim_that_redis_took_for_a_copy_that_goes_is_set_to_the_survivor() {
        let separate = protocol(Arrangement::Separate(OnDown::Store));
        let admit = Stage::Admit {
            event: event(2),
            claim: Claim::Ours,
        };
        let duplicate = Input::Admitted {
            event: event(2),
            admission: Admission::Duplicate {
                of: event(1),
                conflict: false,
            },
            survivor: event(1),
            body_mark: [1; 8],
        };
        assert_eq!(
            separate.step(&about(KeyKind::Rule), admit, duplicate),
            Stage::Tell(Tell::Instead {
                of: event(2),
                event: event(1),
                body_mark: [1; 8]
            })
        );
    }
}
