//! One frame of every kind.

use std::time::Duration;

use tollgate_proto::Durability;
use tollgate_proto::frame::{
    Call, ClaimCall, Gone, Happened, Hello, HolderSeen, Lane, LockSeen, Refusal, Reply, Stake, WaiterSeen,
    Welcome, Who,
};
use tollgate_types::{Age, Conflict, LockName, Mode, OnDeadlock, OwnerId, Party, PartyId, Token, Waits};

fn name() -> LockName {
    LockName::new("orders/ä").unwrap()
}

fn owner() -> OwnerId {
    OwnerId::from_bits(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef)
}

fn token() -> Token {
    Token::new(42).unwrap()
}

fn who() -> Who<'static> {
    let stake =
        Stake { party: PartyId::from_bits(7), age: Age(8), on_deadlock: OnDeadlock::WoundWait, claim: 9 };
    Who {
        host: "host",
        pid: 10,
        since_ms: 11,
        meta: vec![("key", "value"), ("", "")],
        revision: 12,
        stake: Some(stake),
    }
}

fn claim(waits: bool, party: Option<Party>, who: Who<'static>) -> Call<'static> {
    Call::Acquire(Box::new(ClaimCall {
        name: name(),
        owner: owner(),
        mode: Mode::permit(3).unwrap(),
        waits,
        ttl: Duration::from_secs(30),
        lock_delay: Duration::from_millis(1),
        party,
        on_deadlock: OnDeadlock::Detect,
        who,
    }))
}

pub(crate) fn calls() -> Vec<Call<'static>> {
    let party = Party { id: PartyId::from_bits(1), age: Some(Age(2)) };
    vec![
        Call::Hello(Hello { version: 1, client: 5, lane: Lane::Keeper }),
        Call::Hello(Hello { version: 1, client: 5, lane: Lane::Caller }),
        claim(true, Some(party), who()),
        claim(false, Some(Party { age: None, ..party }), Who::default()),
        claim(false, None, Who::default()),
        Call::Extend { name: name(), owner: owner(), ttl: Duration::from_secs(1), who: None },
        Call::Extend { name: name(), owner: owner(), ttl: Duration::from_secs(1), who: Some(who()) },
        Call::Release { name: name(), owner: owner() },
        Call::Withdraw { name: name(), owner: owner() },
        Call::Break { name: name(), token: token(), by_force: true },
        Call::Inspect { name: name() },
        Call::List { prefix: "orders/", from: 1024 },
        Call::Follow { prefix: "" },
        Call::Unfollow { call: 3 },
        Call::Admit { resource: "file", token: Token::MAX, raises: true, is_foreign: false },
        Call::Mark { resource: "file" },
        Call::Age,
        Call::RaiseFloor { token: token() },
        Call::Ping,
        Call::Pong,
    ]
}

pub(crate) fn replies() -> Vec<Reply<'static>> {
    let cycle = vec![
        Waits { party: Some(PartyId::from_bits(1)), name: name() },
        Waits { party: None, name: LockName::new("b").unwrap() },
    ];
    let conflicts = [
        Conflict::Cycle(cycle),
        Conflict::Elder(PartyId::from_bits(1)),
        Conflict::Wounded(PartyId::from_bits(2)),
        Conflict::Itself,
    ];
    let seen = LockSeen {
        name: name(),
        holders: vec![HolderSeen {
            mode: Mode::Shared,
            token: token(),
            expires_in: Duration::from_micros(5),
            who: who(),
        }],
        waiters: vec![WaiterSeen { mode: Mode::Exclusive, who: Who::default() }],
    };
    let second = Some(Duration::from_secs(1));
    let mut replies = vec![
        Reply::Welcome(Welcome {
            version: 1,
            run: 6,
            durability: Durability::Grace,
            longest: Duration::from_secs(300),
        }),
        Reply::Refused(Refusal::Version(1)),
        Reply::Refused(Refusal::Malformed),
        Reply::Refused(Refusal::TooSlow),
        Reply::Refused(Refusal::OnlyHttp),
        Reply::Refused(Refusal::Full),
        Reply::Granted {
            token: token(),
            call: 9,
            lasts: Duration::from_micros(29_999_999),
            again: true,
            age: Some(Age(1)),
        },
        Reply::Queued { ahead: 3, age: None },
        Reply::Busy { ahead: 1, retry_after: second, age: Some(Age(4)) },
        Reply::Moved,
        Reply::Mismatch,
        Reply::NotGranting { left: second },
        Reply::NotGranting { left: None },
        Reply::Exhausted,
        Reply::Lost,
        Reply::Revoked,
        Reply::Released { again: false },
        Reply::Done,
        Reply::Broken,
        Reply::Asked,
        Reply::Admitted { mark: token() },
        Reply::Stale { mark: token() },
        Reply::NeverGiven,
        Reply::Mark { mark: None },
        Reply::Mark { mark: Some(Token::MAX) },
        Reply::Age { age: Age(7) },
        Reply::Seen(seen),
        Reply::Listed { next: Some(1024) },
        Reply::Listed { next: None },
        Reply::Invalid { detail: "use less" },
        Reply::Pong,
        Reply::Ping,
        Reply::Gone { owner: owner(), cause: Gone::Revoked },
        Reply::Gone { owner: owner(), cause: Gone::Expired },
        Reply::Stopping,
        Reply::Happened(Happened { name: name(), token: token(), what: 2, who: Some(who()) }),
    ];
    replies.extend(conflicts.map(|conflict| Reply::Deadlock { conflict, age: None }));
    replies
}
