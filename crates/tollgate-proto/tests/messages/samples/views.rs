//! A value of every message that shows something: locks, events, overviews, the server, problems.

use std::collections::BTreeMap;

use tollgate_proto::*;
use tollgate_types::Age;

use super::{Sample, answer, meta, name, owner, party, request, token};

fn holder() -> Holder {
    Holder {
        token: Some(token(1042)),
        mode: ModeKind::Permit.into(),
        limit: Some(3),
        by: Some("importers".to_owned()),
        host: Some("worker-3".to_owned()),
        pid: Some(4711),
        held_ms: Some(12_345),
        expires_in_ms: Some(17_655),
        meta: meta(),
        traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned()),
    }
}

fn foreign_holder() -> Holder {
    Holder {
        token: None,
        mode: ModeKind::Exclusive.into(),
        limit: None,
        by: None,
        host: None,
        pid: None,
        held_ms: None,
        expires_in_ms: None,
        meta: BTreeMap::new(),
        traceparent: None,
    }
}

fn waiter() -> Waiter {
    Waiter {
        mode: ModeKind::Shared.into(),
        limit: None,
        by: Some("importers".to_owned()),
        host: Some("worker-4".to_owned()),
        pid: Some(4712),
        waited_ms: Some(2500),
        meta: meta(),
        traceparent: None,
    }
}

fn event_id() -> EventId {
    EventId { boot: 0x0123_4567_89ab_cdef, sequence: 41 }
}

fn time() -> Timestamp {
    Timestamp::from_unix_ms(1_795_124_828_250)
}

pub(super) fn looks() -> Vec<Sample> {
    let lock = || Lock { name: name("orders/42"), holders: vec![holder()], waiters: vec![waiter()] };
    let free = Lock { name: name("orders/43"), holders: vec![], waiters: vec![] };
    vec![
        answer("holder", holder()),
        answer("holder_foreign", foreign_holder()),
        answer("waiter", waiter()),
        answer("lock", lock()),
        answer("lock_free", free),
        answer("locks", Locks { locks: vec![lock()], next: Some("AAAAAAAAEAA".to_owned()) }),
        answer("locks_last", Locks { locks: vec![], next: None }),
        request("lock_query", LockQuery { name: name("orders/42"), wait_ms: 25_000, watch: Watch::Holders }),
        request("lock_query_minimal", LockQuery { name: name("orders/42"), wait_ms: 0, watch: Watch::All }),
        request(
            "locks_query",
            LocksQuery { prefix: "orders/".to_owned(), limit: 10, after: Some("AAAAAAAAEAA".to_owned()) },
        ),
        request("locks_query_minimal", LocksQuery::default()),
        answer("watch", vec![Watch::All, Watch::Holders]).named("Watch"),
        answer("mode_kind", vec![ModeKind::Exclusive, ModeKind::Shared, ModeKind::Permit]).named("ModeKind"),
        answer("owner", owner()),
    ]
}

pub(super) fn events() -> Vec<Sample> {
    let granted = Event {
        id: event_id(),
        event: EventKind::Granted.into(),
        happened_at: time(),
        name: Some(name("orders/42")),
        token: Some(token(1042)),
        holder: Some(holder()),
    };
    let reset =
        Event { event: EventKind::Reset.into(), name: None, token: None, holder: None, ..granted.clone() };
    let kinds = [
        EventKind::Granted,
        EventKind::Released,
        EventKind::Expired,
        EventKind::Revoked,
        EventKind::Ended,
        EventKind::Reset,
    ];
    vec![
        answer("event", granted),
        answer("event_reset", reset),
        answer("event_id", event_id()),
        answer("event_kind", kinds.to_vec()).named("EventKind"),
        answer("timestamp", time()),
        request("events_query", EventsQuery { prefix: "orders/".to_owned() }),
        request("events_query_minimal", EventsQuery::default()),
    ]
}

pub(super) fn overviews() -> Vec<Sample> {
    let contended =
        Contended { name: name("orders/42"), holding: 1, waiting: 17, oldest_wait_ms: Some(2500) };
    let held = LongestHeld { name: name("orders/42"), holder: holder() };
    let waited = LongestWaited { name: name("orders/42"), waiter: waiter() };
    let node = WaitForNode {
        id: 0,
        party: Some(party()),
        by: Some("importers".to_owned()),
        host: Some("worker-3".to_owned()),
        pid: Some(4711),
    };
    let lone = WaitForNode { id: 1, party: None, by: None, host: None, pid: None };
    let edge = |from, to| WaitForEdge { from, to, name: name("orders/42") };
    vec![
        answer("contended", contended.clone()),
        answer("longest_held", held.clone()),
        answer("longest_waited", waited.clone()),
        answer(
            "top",
            Top { contended: vec![contended], longest_held: vec![held], longest_waited: vec![waited] },
        ),
        answer("wait_for_node", node.clone()),
        answer("wait_for_edge", edge(0, 1)),
        answer("circle", Circle { nodes: vec![0, 1] }),
        answer(
            "deadlocks",
            Deadlocks {
                nodes: vec![node, lone],
                edges: vec![edge(0, 1), edge(1, 0)],
                circles: vec![Circle { nodes: vec![0, 1] }],
            },
        ),
        answer("waits", waits()),
    ]
}

fn waits() -> Waits {
    Waits { party: Some(party()), name: name("orders/42") }
}

pub(super) fn info() -> Vec<Sample> {
    let capabilities = Capabilities {
        modes: [ModeKind::Exclusive, ModeKind::Shared, ModeKind::Permit].map(Open::Known).to_vec(),
        queue: Queue::Fifo.into(),
        queue_survives_restart: false,
        queue_moves: true,
        ttl_min_ms: 1,
        ttl_max_ms: 86_400_000,
        ttl_step_ms: 1,
        lock_delay: true,
        detect: true,
        force: true,
        name_bytes: 512,
    };
    let guarantee = Guarantee {
        fault: "holder_paused".to_owned(),
        exclusion: Basis::Broken.into(),
        tokens: Basis::Kept.into(),
    };
    let limits = Limits {
        max_ttl_ms: Some(300_000),
        max_held: Some(1000),
        max_waiting: Some(5000),
        ..Limits::of_protocol()
    };
    vec![
        answer("capabilities", capabilities.clone()),
        answer("guarantee", guarantee.clone()),
        answer("limits", limits),
        answer("limits_minimal", Limits::of_protocol()),
        answer(
            "info",
            Info {
                version: "0.1.0".to_owned(),
                boot: "0123456789abcdef".to_owned(),
                started_at: time(),
                store: "table".to_owned(),
                durability: Durability::Sync.into(),
                read_only: false,
                capabilities,
                guarantees: vec![guarantee],
                limits: Limits::of_protocol(),
            },
        ),
        answer("durability", vec![Durability::Sync, Durability::Grace, Durability::Engine])
            .named("Durability"),
        answer("queue", vec![Queue::Fifo, Queue::Polling]).named("Queue"),
        answer("basis", vec![Basis::Kept, Basis::Time, Basis::Broken, Basis::Absent]).named("Basis"),
        answer("health", Health { status: HealthStatus::Ok.into() }),
        answer("health_status", vec![HealthStatus::Ok, HealthStatus::Starting, HealthStatus::Stopping])
            .named("HealthStatus"),
    ]
}

pub(super) fn problems() -> Vec<Sample> {
    let of_request = |mut problem: Problem| {
        problem.request_id = Some("0123456789abcdef-42".to_owned());
        problem
    };
    let contended = |mut problem: Problem| {
        problem.name = Some(name("orders/42"));
        problem.holders = Some(vec![holder()]);
        problem.waiting = Some(3);
        problem.retry_after_ms = Some(1500);
        problem.party_age = Some(Age(987_654_321));
        of_request(problem)
    };
    let waiting = Problem::waiting(Waiting { owner: owner(), ahead: Some(2) });
    let busy = Problem::new(ProblemKind::Busy, "the lock is held by others; try again later");
    let mut deadlock = Problem::new(ProblemKind::Deadlock, "release what the party holds and start over");
    deadlock.cycle = Some(vec![waits(), Waits { party: None, name: name("orders/43") }]);
    let lost = Problem::lost(LossCause::Expired, "the grant was not renewed in time; take the lock again");
    let mut limited =
        Problem::new(ProblemKind::TooManyRequests, "the rule importers holds 1000 locks; release some");
    (limited.limit, limited.retry_after_ms) = (Some("max_held".to_owned()), Some(1000));
    let causes = [
        LossCause::Expired,
        LossCause::Gone,
        LossCause::Revoked,
        LossCause::SessionEnded,
        LossCause::Released,
    ];
    vec![
        problem("problem_minimal", Problem::new(ProblemKind::NotFound, "there is no such path")),
        problem("problem_waiting", contended(waiting)),
        problem("problem_busy", contended(busy)),
        problem("problem_deadlock", of_request(deadlock)),
        problem("problem_lost", of_request(lost)),
        problem("problem_stale", of_request(Problem::stale(token(7), Some(token(9))))),
        problem("problem_invalid", of_request(Problem::invalid("items[3].ttl_ms", "must be at least 1"))),
        problem("problem_limited", of_request(limited)),
        answer("problem_kind", ProblemKind::ALL.to_vec()).named("ProblemKind"),
        answer("loss_cause", causes.to_vec()).named("LossCause"),
    ]
}

fn problem(file: &str, value: Problem) -> Sample {
    answer(file, value).named("ProblemMembers")
}
