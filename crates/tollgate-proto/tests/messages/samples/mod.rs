//! A value of every message: requests with all members and with as few as possible, and answers.

mod views;

use std::collections::BTreeMap;
use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tollgate_proto::*;
use tollgate_types::{Age, LockName, OnDeadlock, OwnerId, PartyId, Token};

/// A message with its JSON.
pub(crate) struct Sample {
    /// The golden file, without folder and extension.
    pub(crate) file: String,
    pub(crate) of_type: String,
    pub(crate) is_request: bool,
    pub(crate) json: String,
    /// Reads JSON as the receiver of the message does, and writes what was read.
    pub(crate) reread: fn(&[u8]) -> Result<String, String>,
}

fn pretty<T: Serialize>(value: &T) -> String {
    serde_json::to_string_pretty(value).unwrap() + "\n"
}

fn short_name<T>() -> String {
    let name = std::any::type_name::<T>();
    name.rsplit("::").next().unwrap_or(name).trim_end_matches('>').to_owned()
}

fn request<T: Request + Serialize + PartialEq + Debug>(file: &str, value: T) -> Sample {
    let json = pretty(&value);
    assert_eq!(parse::<T>(json.as_bytes()).as_ref(), Ok(&value), "{file}");
    let reread =
        |json: &[u8]| parse::<T>(json).map(|value| pretty(&value)).map_err(|problem| problem.to_string());
    Sample { file: file.to_owned(), of_type: short_name::<T>(), is_request: true, json, reread }
}

fn answer<T: Serialize + DeserializeOwned + PartialEq + Debug>(file: &str, value: T) -> Sample {
    let json = pretty(&value);
    assert_eq!(serde_json::from_str::<T>(&json).unwrap(), value, "{file}");
    let reread = |json: &[u8]| {
        serde_json::from_slice::<T>(json).map(|value| pretty(&value)).map_err(|error| error.to_string())
    };
    Sample { file: file.to_owned(), of_type: short_name::<T>(), is_request: false, json, reread }
}

fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

fn plain_owner() -> Owner {
    OwnerId::from_bits(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef).into()
}

fn owner() -> Owner {
    Owner::with_rest(plain_owner().id(), "lease-7587").unwrap()
}

fn party() -> PartyId {
    PartyId::from_bits(0xfedc_ba98 << 96)
}

fn meta() -> BTreeMap<String, String> {
    BTreeMap::from([
        ("job".to_owned(), "nightly import".to_owned()),
        ("step".to_owned(), "3 of 7".to_owned()),
    ])
}

pub(crate) fn grant() -> Grant {
    Grant {
        name: name("orders/42"),
        mode: ModeKind::Exclusive.into(),
        limit: None,
        owner: owner(),
        token: token(1042),
        ttl_ms: 30_000,
        valid_ms: 29_395,
        again: false,
        party_age: None,
    }
}

fn acquires() -> Vec<Sample> {
    let full = Acquire {
        ttl_ms: 60_000,
        wait_ms: 120_000,
        round_ms: 25_000,
        mode: ModeKind::Permit,
        limit: Some(3),
        owner: Some(plain_owner()),
        meta: meta(),
        host: Some("worker-3".to_owned()),
        pid: Some(4711),
        lock_delay_ms: 5000,
        party: Some(party()),
        party_age: Some(Age(987_654_321)),
        on_deadlock: OnDeadlock::WaitDie,
        ..Acquire::new(name("orders/42"))
    };
    let full_set = AcquireAll {
        names: vec![name("payment/7"), name("inventory/9")],
        ttl_ms: full.ttl_ms,
        wait_ms: full.wait_ms,
        round_ms: full.round_ms,
        mode: full.mode,
        limit: full.limit,
        owner: full.owner.clone(),
        meta: full.meta.clone(),
        host: full.host.clone(),
        pid: full.pid,
        lock_delay_ms: full.lock_delay_ms,
        party: full.party,
        party_age: full.party_age,
        on_deadlock: full.on_deadlock,
    };
    let full_grant = Grant {
        mode: ModeKind::Permit.into(),
        limit: Some(3),
        again: true,
        party_age: Some(Age(987_654_321)),
        ..grant()
    };
    vec![
        request("acquire", full),
        request("acquire_minimal", Acquire::new(name("orders/42"))),
        request("acquire_all", full_set),
        request("acquire_all_minimal", AcquireAll::new(vec![name("payment/7"), name("inventory/9")])),
        answer("grant", full_grant),
        answer("grant_minimal", grant()),
        answer("grants", Grants { grants: vec![Grant { name: name("inventory/9"), ..grant() }, grant()] }),
    ]
}

fn claims() -> Vec<Sample> {
    let item = |ttl_ms| KeepItem { name: name("orders/42"), owner: owner(), ttl_ms };
    let kept = |state: KeepState| KeptItem {
        name: name("orders/42"),
        state: state.into(),
        owner: None,
        token: None,
        valid_ms: None,
        ahead: None,
        cause: None,
    };
    let held = KeptItem { token: Some(token(1042)), valid_ms: Some(29_395), ..kept(KeepState::Held) };
    let waiting = KeptItem { ahead: Some(2), ..kept(KeepState::Waiting) };
    let lost = KeptItem { cause: Some(LossCause::Revoked.into()), ..kept(KeepState::Lost) };
    let one = Some(name("orders/42"));
    let set = Some(vec![name("payment/7"), name("inventory/9")]);
    vec![
        request("keep", Keep { items: vec![item(Some(60_000)), item(None)], wait_ms: 25_000 }),
        request("keep_minimal", Keep { items: vec![item(None)], wait_ms: 0 }),
        answer("kept", Kept { items: vec![held.clone(), waiting, lost] }),
        answer("kept_item", held),
        answer("keep_state", vec![KeepState::Held, KeepState::Waiting, KeepState::Lost]).named("KeepState"),
        answer("keep_item", item(Some(60_000))),
        request(
            "extend",
            Extend { name: name("orders/42"), owner: owner(), ttl_ms: Some(60_000), meta: Some(meta()) },
        ),
        request(
            "extend_minimal",
            Extend { name: name("orders/42"), owner: owner(), ttl_ms: None, meta: None },
        ),
        request("release", Release { name: one.clone(), names: None, owner: owner() }),
        request("release_set", Release { name: None, names: set.clone(), owner: owner() }),
        request("withdraw", Withdraw { name: one, names: None, owner: plain_owner() }),
        request("withdraw_set", Withdraw { name: None, names: set, owner: owner() }),
        answer("released", Released { released: true, repeated: true }),
        answer("released_minimal", Released { released: true, repeated: false }),
    ]
}

fn resources() -> Vec<Sample> {
    let resource = || name("files/report");
    vec![
        request("admit", Admit { resource: resource(), token: token(1042), mode: ModeKind::Shared }),
        request(
            "admit_minimal",
            Admit { resource: resource(), token: token(1042), mode: ModeKind::Exclusive },
        ),
        answer("admitted", Admitted { mark: Some(token(1042)) }),
        answer("admitted_without_mark", Admitted { mark: None }),
        request("break", Break { name: name("orders/42"), token: token(1042), force: true }),
        request("break_minimal", Break { name: name("orders/42"), token: token(1042), force: false }),
        answer("broken_revoked", Broken::REVOKED),
        answer("broken_pending", Broken::PENDING),
    ]
}

impl Sample {
    /// Says of which type it is, where that is not the type that is written.
    fn named(mut self, of_type: &str) -> Self {
        self.of_type = of_type.to_owned();
        self
    }
}

pub(crate) fn samples() -> Vec<Sample> {
    let groups = [
        acquires(),
        claims(),
        resources(),
        views::looks(),
        views::events(),
        views::overviews(),
        views::info(),
        views::problems(),
    ];
    groups.into_iter().flatten().collect()
}
