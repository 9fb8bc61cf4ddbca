//! The world that is checked: one dedupe key, two nodes, their store or stores, one Redis, and senders that send the
//! same delivery again and again. Every step that a node takes is `Protocol::step`, the production function.

use std::time::Duration;

use hooksluice::dedupe::protocol::{About, Arrangement, Input, Mark, Protocol, Reply, Stage, Tell, decide};
use hooksluice::id::{EventId, Position};
use hooksluice::key::KeyKind;
use hooksluice::store::model::{Admission, Claim, Decision};
use hooksluice::time::Timestamp;

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
/// Requests that are ever sent, at most.
pub(crate) const REQUESTS_MAX: usize = 8;

/// The event that a request becomes if it is stored.
fn event(request: u8) -> EventId {
    EventId::embedded(NOW, Position::new(i64::from(request)).unwrap(), 0)
}

fn number(event: EventId) -> u8 {
    u8::try_from(event.position().get()).unwrap()
}

const ABOUT: About = About {
    kind: KeyKind::Rule,
    received_at: NOW,
    body_mark: [0; 8],
};

/// In which order a node does things: ours, or one of the usual ones that are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The production step function.
    Ours,
    /// `SET NX`, then store, then 200.
    MarkThenStore,
    /// Redis is told before the commit.
    TellThenStore,
}

/// What is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) arrangement: Arrangement,
    pub(crate) order: Order,
    /// Requests that are sent.
    pub(crate) requests: u8,
    /// Faults that may happen, of all kinds together.
    pub(crate) faults: u8,
    /// Dispatches that may die.
    pub(crate) deaths: u8,
    /// Redis may lose everything.
    pub(crate) flush: bool,
    /// Redis may be away for longer than `admit_timeout`.
    pub(crate) patience: bool,
    /// Broken promises that are not looked for.
    pub(crate) granted: &'static [Violation],
}

impl Rules {
    fn first(self, request: u8) -> Stage {
        match self.order {
            Order::Ours | Order::TellThenStore => Stage::first(false),
            Order::MarkThenStore => Stage::Claim {
                event: event(request),
                late: false,
            },
        }
    }

    fn step(self, request: u8, stage: Stage, input: Input) -> Stage {
        let known = |mark: Mark| Stage::Known {
            event: mark.event(),
            conflict: false,
        };
        match (self.order, stage, input) {
            (Order::Ours, ..) => {
                let protocol = Protocol {
                    arrangement: self.arrangement,
                    digest_window: Duration::from_secs(300),
                };
                protocol.step(&ABOUT, stage, input)
            }
            (Order::MarkThenStore, Stage::Claim { .. }, Input::Heard(Reply::Holds(mark)))
                if mark.event() != event(request) =>
            {
                known(mark)
            }
            (Order::TellThenStore, Stage::Look, Input::Heard(Reply::Holds(mark))) => known(mark),
            (Order::TellThenStore, Stage::Look, _) => Stage::Tell(Tell::Durable {
                event: event(request),
                body_mark: [0; 8],
            }),
            (Order::MarkThenStore, Stage::Claim { .. }, _) | (Order::TellThenStore, Stage::Tell(_), _) => Stage::Append,
            _ => Stage::Done,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Dispatch {
    #[default]
    None,
    Pending,
    Delivered,
    Dead,
}

/// One durable store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Store {
    /// Appended and not admitted, in order (a shared store admits as it appends).
    tail: Vec<u8>,
    /// The unique key.
    key: Option<u8>,
    /// Copies of events that are elsewhere, one bit each.
    elsewhere: u8,
    dispatches: [Dispatch; REQUESTS_MAX],
    /// A death that Redis has not been told.
    untold: Option<u8>,
}

impl Store {
    /// What admission does, in one transaction.
    fn admit(&mut self, request: u8, claim: Claim) -> Input {
        let own = self.key.filter(|own| *own != request).map(event);
        let by_is_here = matches!(claim, Claim::Held { by, .. } if self.has(number(by)));
        let (admission, survivor) = match decide(own, event(request), claim, by_is_here) {
            Decision::New => {
                if self.key.is_none() {
                    self.dispatches[usize::from(request)] = Dispatch::Pending;
                }
                self.key = Some(request);
                (Admission::New, request)
            }
            Decision::DuplicateHere { of } => {
                let dispatch = &mut self.dispatches[usize::from(number(of))];
                if *dispatch == Dispatch::Dead {
                    *dispatch = Dispatch::Pending;
                    (Admission::Revived { of }, number(of))
                } else {
                    (Admission::Duplicate { of, conflict: false }, number(of))
                }
            }
            Decision::Elsewhere { of, dead } => {
                self.elsewhere |= 1 << request;
                (Admission::Elsewhere { of, dead }, number(of))
            }
        };
        Input::Admitted {
            event: event(request),
            admission,
            survivor: event(survivor),
            body_mark: [0; 8],
        }
    }

    /// Whether the event's row is here.
    fn has(&self, event: u8) -> bool {
        self.tail.contains(&event)
            || self.elsewhere & (1 << event) != 0
            || self.dispatches[usize::from(event)] != Dispatch::None
    }

    fn holds_something(&self) -> bool {
        self.key.is_some() || !self.tail.is_empty()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Node {
    down: bool,
    /// Requests under way, and appended events on their way through admission; by request.
    items: Vec<(u8, Stage)>,
    /// The in-process memory of recent keys.
    memory: Option<u8>,
}

/// A Redis command that was sent, whose sender has given up on it, and that has not arrived yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Command {
    Claim(u8),
    Tell(Tell),
}

/// A state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    redis: Option<Mark>,
    late: Option<Command>,
    stores: Vec<Store>,
    nodes: [Node; 2],
    sent: u8,
    /// Requests answered 200, one bit each.
    acknowledged: u8,
    /// A duplicate was answered 200 while nothing was durable.
    false_duplicate: bool,
    /// Redis has lost what it was told since the last death.
    forgot_death: bool,
    faults: u8,
    deaths: u8,
}

/// A promise that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// P1: acknowledged, and nowhere durable.
    Lost,
    /// P1: "already durable" was said of what was not.
    FalseDuplicate,
    /// P2: dispatches of two events for one key.
    Doubled,
    /// A redelivery after death would not revive.
    NotRevived,
    /// Everything is at rest and something acknowledged is not dispatched.
    Forgotten,
}

/// What an operation on Redis met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Met {
    Reply,
    /// Timed out without effect.
    Nothing,
    /// It had its effect, and the reply was lost.
    LostReply,
    /// Timed out; it will have its effect later.
    Late,
}

/// One step of somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Send {
        node: usize,
    },
    Look {
        node: usize,
        request: u8,
        met: Met,
    },
    Append {
        node: usize,
        request: u8,
    },
    AppendFails {
        node: usize,
        request: u8,
    },
    /// The commit took place, and nobody heard of it.
    AppendUnknown {
        node: usize,
        request: u8,
    },
    Claim {
        node: usize,
        request: u8,
        met: Met,
    },
    PatienceOver {
        node: usize,
        request: u8,
    },
    NothingLate {
        node: usize,
        request: u8,
    },
    Admit {
        node: usize,
        request: u8,
    },
    Tell {
        node: usize,
        request: u8,
        met: Met,
    },
    TooLate {
        node: usize,
        request: u8,
    },
    Deliver {
        node: usize,
        event: u8,
    },
    Die {
        node: usize,
        event: u8,
    },
    TellDeath {
        node: usize,
        met: Met,
    },
    Late,
    MemoryLapses {
        node: usize,
    },
    Crash {
        node: usize,
    },
    Restart {
        node: usize,
    },
    Flush,
}

impl World {
    pub(crate) fn new(rules: &Rules) -> Self {
        let stores = match rules.arrangement {
            Arrangement::Shared => 1,
            Arrangement::Separate(_) => 2,
        };
        Self {
            redis: None,
            late: None,
            stores: vec![Store::default(); stores],
            nodes: [Node::default(), Node::default()],
            sent: 0,
            acknowledged: 0,
            false_duplicate: false,
            forgot_death: false,
            faults: rules.faults,
            deaths: rules.deaths,
        }
    }

    fn store_of(&self, node: usize) -> usize {
        node.min(self.stores.len() - 1)
    }

    fn stage(&self, node: usize, request: u8) -> Option<Stage> {
        let items = &self.nodes[node].items;
        items.iter().find(|(of, _)| *of == request).map(|(_, stage)| *stage)
    }

    /// Every step that somebody could take now.
    pub(crate) fn actions(&self, rules: &Rules) -> Vec<Action> {
        let mut actions = Vec::new();
        let fault = self.faults > 0;
        for (node, state) in self.nodes.iter().enumerate() {
            if state.down {
                actions.push(Action::Restart { node });
                continue;
            }
            if self.sent < rules.requests {
                actions.push(Action::Send { node });
            }
            for (request, stage) in &state.items {
                self.item_actions(rules, node, *request, *stage, &mut actions);
            }
            let store = &self.stores[self.store_of(node)];
            for (event, dispatch) in (0..).zip(&store.dispatches) {
                if *dispatch == Dispatch::Pending {
                    actions.push(Action::Deliver { node, event });
                    if self.deaths > 0 {
                        actions.push(Action::Die { node, event });
                    }
                }
            }
            if store.untold.is_some() {
                let each = self.met(fault).into_iter();
                actions.extend(each.map(|met| Action::TellDeath { node, met }));
            }
            if state.memory.is_some() {
                actions.push(Action::MemoryLapses { node });
            }
            if fault {
                actions.push(Action::Crash { node });
            }
        }
        if self.late.is_some() {
            actions.push(Action::Late);
        }
        if fault && rules.flush && self.redis.is_some() {
            actions.push(Action::Flush);
        }
        actions
    }

    fn met(&self, fault: bool) -> Vec<Met> {
        let mut met = vec![Met::Reply];
        if fault {
            met.extend([Met::Nothing, Met::LostReply]);
            if self.late.is_none() {
                met.push(Met::Late);
            }
        }
        met
    }

    fn item_actions(&self, rules: &Rules, node: usize, request: u8, stage: Stage, actions: &mut Vec<Action>) {
        let fault = self.faults > 0;
        match stage {
            Stage::Look => {
                actions.push(Action::Look {
                    node,
                    request,
                    met: Met::Reply,
                });
                if fault {
                    actions.push(Action::Look {
                        node,
                        request,
                        met: Met::Nothing,
                    });
                }
            }
            Stage::Append => {
                actions.push(Action::Append { node, request });
                if fault {
                    actions.push(Action::AppendFails { node, request });
                    actions.push(Action::AppendUnknown { node, request });
                }
            }
            Stage::Claim { late, .. } => {
                // Time passes: what was on its way has come, or never will.
                if late && self.late != Some(Command::Claim(request)) {
                    actions.push(Action::NothingLate { node, request });
                }
                let each = self.met(fault).into_iter();
                actions.extend(each.map(|met| Action::Claim { node, request, met }));
                if fault && rules.patience {
                    actions.push(Action::PatienceOver { node, request });
                }
            }
            Stage::Admit { .. } => {
                // In append order.
                if self.stores[self.store_of(node)].tail.first() == Some(&request) {
                    actions.push(Action::Admit { node, request });
                }
            }
            Stage::Tell(_) => {
                let each = self.met(fault).into_iter();
                actions.extend(each.map(|met| Action::Tell { node, request, met }));
                if rules.arrangement == Arrangement::Shared && rules.order == Order::Ours {
                    actions.push(Action::TooLate { node, request });
                }
            }
            Stage::Known { .. } | Stage::Done => {}
        }
    }

    /// The world after a step.
    pub(crate) fn after(&self, rules: &Rules, action: Action) -> Self {
        let mut world = self.clone();
        world.act(rules, action);
        world
    }

    fn act(&mut self, rules: &Rules, action: Action) {
        match action {
            Action::Send { node } => {
                let request = self.sent;
                self.sent += 1;
                let node = &mut self.nodes[node];
                if node.memory.is_some() {
                    self.acknowledge_duplicate(request);
                } else {
                    node.items.push((request, rules.first(request)));
                }
            }
            Action::Look { node, request, met } => {
                let reply = match met {
                    Met::Reply => self.redis.map_or(Reply::Absent, Reply::Holds),
                    Met::Nothing | Met::LostReply | Met::Late => self.silence(),
                };
                self.go_on(rules, node, request, Input::Heard(reply));
            }
            Action::Append { node, request } => {
                let input = self.append(rules, node, request);
                self.acknowledged |= 1 << request;
                self.go_on(rules, node, request, input);
            }
            Action::AppendFails { node, request } => {
                self.faults -= 1;
                self.remove(node, request);
            }
            Action::AppendUnknown { node, request } => {
                self.faults -= 1;
                let input = self.append(rules, node, request);
                if rules.arrangement == Arrangement::Shared {
                    self.remove(node, request);
                } else {
                    // An embedded store finds the row again.
                    self.go_on(rules, node, request, input);
                }
            }
            Action::Claim { node, request, met } => {
                let reply = self.command(Command::Claim(request), met);
                self.go_on(rules, node, request, Input::Heard(reply));
            }
            Action::PatienceOver { node, request } => {
                self.faults -= 1;
                self.go_on(rules, node, request, Input::PatienceOver);
            }
            Action::NothingLate { node, request } => self.go_on(rules, node, request, Input::NothingLate),
            Action::Admit { node, request } => {
                let Some(Stage::Admit { claim, .. }) = self.stage(node, request) else {
                    return;
                };
                let store = self.store_of(node);
                self.stores[store].tail.remove(0);
                let input = self.stores[store].admit(request, claim);
                self.remember(node, input);
                self.go_on(rules, node, request, input);
            }
            Action::Tell { node, request, met } => {
                let Some(Stage::Tell(tell)) = self.stage(node, request) else {
                    return;
                };
                if self.command(Command::Tell(tell), met) != Reply::Silent {
                    self.go_on(rules, node, request, Input::Told);
                }
            }
            Action::TooLate { node, request } => self.go_on(rules, node, request, Input::TooLate),
            Action::Deliver { node, event } => {
                let store = self.store_of(node);
                self.stores[store].dispatches[usize::from(event)] = Dispatch::Delivered;
            }
            Action::Die { node, event } => {
                self.deaths -= 1;
                let store = self.store_of(node);
                self.stores[store].dispatches[usize::from(event)] = Dispatch::Dead;
                self.stores[store].untold = Some(event);
                self.nodes[node].memory = None;
                self.forgot_death = false;
            }
            Action::TellDeath { node, met } => {
                let store = self.store_of(node);
                let Some(dead) = self.stores[store].untold else { return };
                let tell = Tell::Dead { event: event(dead) };
                if self.command(Command::Tell(tell), met) != Reply::Silent {
                    self.stores[store].untold = None;
                }
            }
            Action::Late => {
                if let Some(command) = self.late.take() {
                    self.take_effect(command);
                }
            }
            Action::MemoryLapses { node } => self.nodes[node].memory = None,
            Action::Crash { node } => {
                self.faults -= 1;
                self.nodes[node] = Node {
                    down: true,
                    ..Node::default()
                };
            }
            Action::Restart { node } => {
                let store = self.store_of(node);
                // A try of the process before may be on its way.
                let claim = |request: &u8| {
                    let event = event(*request);
                    (*request, Stage::Claim { event, late: true })
                };
                self.nodes[node].down = false;
                self.nodes[node].items = self.stores[store].tail.iter().map(claim).collect();
            }
            Action::Flush => {
                self.faults -= 1;
                self.redis = None;
                self.forgot_death = true;
            }
        }
        for node in &mut self.nodes {
            node.items.sort_unstable_by_key(|(request, _)| *request);
        }
    }

    fn append(&mut self, rules: &Rules, node: usize, request: u8) -> Input {
        let store = self.store_of(node);
        match rules.arrangement {
            Arrangement::Shared => {
                let input = self.stores[store].admit(request, Claim::Ours);
                self.remember(node, input);
                input
            }
            Arrangement::Separate(_) => {
                self.stores[store].tail.push(request);
                Input::Appended(event(request))
            }
        }
    }

    /// The store tells the memory of what it has committed.
    fn remember(&mut self, node: usize, input: Input) {
        if let Input::Admitted {
            admission: Admission::New | Admission::Revived { .. },
            survivor,
            ..
        } = input
        {
            self.nodes[node].memory = Some(number(survivor));
        }
    }

    fn go_on(&mut self, rules: &Rules, node: usize, request: u8, input: Input) {
        let Some(stage) = self.stage(node, request) else { return };
        let next = rules.step(request, stage, input);
        self.remove(node, request);
        match next {
            Stage::Known { .. } => self.acknowledge_duplicate(request),
            Stage::Done => {}
            next => self.nodes[node].items.push((request, next)),
        }
    }

    fn remove(&mut self, node: usize, request: u8) {
        self.nodes[node].items.retain(|(of, _)| *of != request);
    }

    fn acknowledge_duplicate(&mut self, request: u8) {
        self.acknowledged |= 1 << request;
        self.false_duplicate |= !self.stores.iter().any(Store::holds_something);
    }

    fn silence(&mut self) -> Reply {
        self.faults -= 1;
        Reply::Silent
    }

    fn command(&mut self, command: Command, met: Met) -> Reply {
        match met {
            Met::Reply => self.take_effect(command),
            Met::Nothing => self.silence(),
            Met::LostReply => {
                self.take_effect(command);
                self.silence()
            }
            Met::Late => {
                self.late = Some(command);
                self.silence()
            }
        }
    }

    /// What Redis does with a command.
    fn take_effect(&mut self, command: Command) -> Reply {
        let found = self.redis.map_or(Reply::Absent, Reply::Holds);
        let durable = |event| Mark::Durable {
            event,
            body_mark: [0; 8],
        };
        match command {
            Command::Claim(request) => self.redis = self.redis.or(Some(durable(event(request)))),
            Command::Tell(Tell::Durable { event, .. }) => self.redis = self.redis.or(Some(durable(event))),
            Command::Tell(Tell::Instead { of, event, .. }) => {
                if self.redis == Some(durable(of)) {
                    self.redis = Some(durable(event));
                }
            }
            Command::Tell(Tell::Dead { event }) => self.redis = Some(Mark::Dead { event }),
        }
        found
    }

    /// Whether nobody has anything left to do.
    fn is_at_rest(&self) -> bool {
        self.late.is_none()
            && self.nodes.iter().all(|node| !node.down && node.items.is_empty())
            && self
                .stores
                .iter()
                .all(|store| store.untold.is_none() && store.tail.is_empty())
    }

    /// The promise that this state breaks, if any.
    pub(crate) fn violation(&self, rules: &Rules) -> Option<Violation> {
        self.broken(rules)
            .filter(|violation| !rules.granted.contains(violation))
    }

    fn broken(&self, rules: &Rules) -> Option<Violation> {
        let mut dispatched = self.stores.iter().flat_map(|store| &store.dispatches);
        let dispatched = dispatched
            .by_ref()
            .filter(|dispatch| **dispatch != Dispatch::None)
            .count();
        if dispatched > 1 && !rules.granted.contains(&Violation::Doubled) {
            return Some(Violation::Doubled);
        }
        if self.false_duplicate && rules.order != Order::MarkThenStore {
            return Some(Violation::FalseDuplicate);
        }
        let on_its_way = |node: &Node| node.items.iter().any(|(_, stage)| *stage == Stage::Append);
        if self.acknowledged != 0
            && !self.stores.iter().any(Store::holds_something)
            && !self.nodes.iter().any(on_its_way)
        {
            return Some(Violation::Lost);
        }
        if !self.is_at_rest() {
            return None;
        }
        if self.acknowledged != 0 && dispatched == 0 {
            return Some(Violation::Forgotten);
        }
        (0..2)
            .any(|node| self.stays_dead(rules, node))
            .then_some(Violation::NotRevived)
    }

    /// Whether a redelivery at this node, once its memory has lapsed, would leave a dead dispatch of its store dead.
    fn stays_dead(&self, rules: &Rules, node: usize) -> bool {
        let store = self.store_of(node);
        let dead = |world: &Self| world.stores[store].dispatches.contains(&Dispatch::Dead);
        if !dead(self) || usize::from(self.sent) >= REQUESTS_MAX || rules.order != Order::Ours {
            return false;
        }
        // Redis was told of the death and forgot it; a claim or a telling that was under way then makes the key look
        // alive. Not promised: P1 and P2 stand, and the dispatch is dead, counted and replayable.
        if self.forgot_death {
            return false;
        }
        let mut world = self.clone();
        let without_faults = Rules {
            requests: world.sent + 1,
            faults: 0,
            deaths: 0,
            ..*rules
        };
        world.faults = 0;
        world.nodes[node].memory = None;
        world.act(&without_faults, Action::Send { node });
        let request = self.sent;
        while let Some(stage) = world.stage(node, request) {
            let met = Met::Reply;
            let action = match stage {
                Stage::Look => Action::Look { node, request, met },
                Stage::Append => Action::Append { node, request },
                Stage::Claim { late: true, .. } => Action::NothingLate { node, request },
                Stage::Claim { .. } => Action::Claim { node, request, met },
                Stage::Admit { .. } => Action::Admit { node, request },
                Stage::Tell(_) => Action::Tell { node, request, met },
                Stage::Known { .. } | Stage::Done => break,
            };
            world.act(&without_faults, action);
        }
        dead(&world)
    }
}
