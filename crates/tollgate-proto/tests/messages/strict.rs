//! Requests are strict: what is wrong is named, and what is allowed is said.

use serde_json::{Value, json};
use tollgate_proto::*;

use crate::samples::{grant, samples};

const OWNER: &str = "0123456789abcdef0123456789abcdef";

fn refused<T: Request>(body: &Value) -> Problem {
    match parse::<T>(body.to_string().as_bytes()) {
        Ok(_) => panic!("{body} was taken"),
        Err(problem) => problem,
    }
}

/// Status, member and detail of a refusal.
fn told<T: Request>(body: Value) -> (u16, String, String) {
    let problem = refused::<T>(&body);
    (problem.status, problem.member.clone().unwrap_or_default(), problem.detail.clone())
}

/// The object at every place of a value, with the way there; `meta` may have any member.
fn objects(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            found.push(at.clone());
            for (name, value) in members.iter().filter(|(name, _)| *name != "meta") {
                objects(value, format!("{at}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                objects(item, format!("{at}/{number}"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn an_unknown_member_is_refused_wherever_it_is() {
    let mut tried = 0;
    for sample in samples().into_iter().filter(|sample| sample.is_request) {
        let body: Value = serde_json::from_str(&sample.json).unwrap();
        let mut places = Vec::new();
        objects(&body, String::new(), &mut places);
        for place in places {
            let mut body = body.clone();
            body.pointer_mut(&place).unwrap()["surprise"] = json!(1);
            let told = (sample.reread)(body.to_string().as_bytes()).unwrap_err();
            assert!(told.contains("surprise` is not known here; there are "), "{}: {told}", sample.file);
            tried += 1;
        }
    }
    assert!(tried > 20);
}

#[test]
fn a_missing_member_is_named() {
    let (status, member, detail) = told::<Acquire>(json!({"ttl_ms": 5}));
    assert_eq!((status, member.as_str(), detail.as_str()), (422, "name", "`name` is missing"));
    let (_, member, _) = told::<Keep>(json!({"items": [{"name": "a", "owner": OWNER}, {"name": "b"}]}));
    assert_eq!(member, "items[1].owner");
}

#[test]
fn a_value_of_the_wrong_sort_is_named_with_what_is_allowed() {
    let with = |member: &str, value: Value| told::<Acquire>(json!({"name": "a", member: value}));
    for (member, value, rule) in [
        ("ttl_ms", json!("30000"), "must be a whole number, at least 0, not a string"),
        ("ttl_ms", json!(1.5), "must be a whole number, at least 0, not a number with decimals"),
        ("ttl_ms", json!(-1), "must be a whole number, at least 0"),
        ("ttl_ms", json!(null), "must be a whole number, at least 0, not null"),
        ("pid", json!(1_u64 << 32), "must be a whole number from 0 to 4294967295"),
        ("mode", json!("exclusiv"), "must be one of exclusive, shared, permit"),
        ("mode", json!(1), "must be one of exclusive, shared, permit"),
        ("on_deadlock", json!("wait-die"), "must be one of timeout, detect, wait_die, wound_wait"),
        ("meta", json!([["a", "b"]]), "must be a JSON object, not an array"),
    ] {
        let expected = (422, member.to_owned(), format!("`{member}` {rule}"));
        assert_eq!(with(member, value), expected);
    }
    assert_eq!(with("meta", json!({"a": 1})).1, "meta.a");
    let (_, member, detail) = told::<AcquireAll>(json!({"names": ["a", ""]}));
    assert_eq!((member.as_str(), detail.ends_with("a lock name cannot be empty")), ("names[1]", true));
}

#[test]
fn what_is_not_json_is_malformed_and_not_invalid() {
    for body in ["", "{", "{\"name\":\"a\"} x", "name=a", "{\"name\":\"a\",}", "{'name':'a'}", "\u{feff}{}"] {
        let problem = parse::<Acquire>(body.as_bytes()).unwrap_err();
        assert_eq!((problem.status, problem.kind.known()), (400, Some(ProblemKind::Malformed)), "{body}");
    }
    assert_eq!(parse::<Acquire>(b"{\"name\":\"\xff\"}").unwrap_err().status, 400);
    assert_eq!(parse::<Acquire>("[".repeat(100_000).as_bytes()).unwrap_err().status, 400);
}

#[test]
fn json_that_is_no_object_is_invalid() {
    for body in ["null", "1", "\"a\"", "[\"orders/42\"]", "[]"] {
        let problem = parse::<Acquire>(body.as_bytes()).unwrap_err();
        assert_eq!(problem.status, 422, "{body}");
        assert!(problem.detail.starts_with("the request must be a JSON object, not "), "{problem}");
    }
    let (_, member, _) = told::<Keep>(json!({"items": [["a", OWNER]]}));
    assert_eq!(member, "items[0]", "an array is not read as the members in their order");
}

#[test]
fn a_member_that_is_there_twice_is_refused() {
    for body in [r#"{"name":"a","name":"b"}"#, r#"{"name":"a","meta":{"x":"1","x":"2"}}"#] {
        let problem = parse::<Acquire>(body.as_bytes()).unwrap_err();
        assert_eq!(problem.status, 422);
        assert!(problem.detail.contains("` is there twice"), "{problem}");
    }
}

#[test]
fn a_problem_never_repeats_an_owner() {
    for body in [
        json!({"name": "a", "owner": format!("{OWNER} ")}),
        json!({"name": "a", "ttl_ms": OWNER}),
        json!({"name": "a", "mode": OWNER}),
        json!({"name": "a", "on_deadlock": OWNER}),
        json!({"name": "a", "party": format!("{OWNER}0")}),
        json!(OWNER),
    ] {
        let problem = refused::<Acquire>(&body);
        assert!(!format!("{problem:?}").contains(OWNER), "{problem:?}");
    }
    let acquire: Acquire = parse(json!({"name": "a", "owner": OWNER}).to_string().as_bytes()).unwrap();
    assert!(!format!("{acquire:?}").contains(OWNER));
}

#[test]
fn an_answer_does_not_grow_with_what_was_sent() {
    let problem = refused::<Acquire>(&json!({"name": "a", "x".repeat(10_000): 1}));
    assert!(problem.detail.len() < 500 && problem.member.clone().unwrap().len() < 100);
}

#[test]
fn a_grant_can_be_sent_as_it_was_answered() {
    let grant = Grant { limit: Some(3), again: true, party_age: Some(tollgate_types::Age(1)), ..grant() };
    let body = serde_json::to_value(&grant).unwrap();
    let text = body.to_string();
    let extend: Extend = parse(text.as_bytes()).unwrap();
    assert_eq!(
        (extend.name, extend.owner, extend.ttl_ms),
        (grant.name.clone(), grant.owner.clone(), Some(30_000))
    );
    let release: Release = parse(text.as_bytes()).unwrap();
    assert_eq!((release.names().unwrap(), &release.owner), (&[grant.name.clone()][..], &grant.owner));
    parse::<Withdraw>(text.as_bytes()).unwrap();
    let keep: Keep = parse(json!({"items": [body]}).to_string().as_bytes()).unwrap();
    assert_eq!(keep.items[0].ttl_ms, Some(30_000));

    let (_, member, _) = told::<Release>(json!({"name": "a", "owner": OWNER, "meta": {}}));
    assert_eq!(member, "meta", "what is not a grant's is refused");
    let (status, _, detail) = told::<Acquire>(body);
    assert!(status == 422 && detail.contains("is not known here"), "an acquire takes no grant: {detail}");
}

#[test]
fn the_defaults_are_those_of_the_protocol() {
    let acquire: Acquire = parse(br#"{"name":"a"}"#).unwrap();
    assert_eq!((acquire.ttl_ms, acquire.wait_ms, acquire.round_ms), (30_000, 0, 10_000));
    assert_eq!((acquire.mode, acquire.lock_delay_ms), (ModeKind::Exclusive, 0));
    assert_eq!(acquire, Acquire::new(acquire.name.clone()));
    let all: AcquireAll = parse(br#"{"names":["b","a"]}"#).unwrap();
    let names: Vec<_> = all.each().into_iter().map(|one| one.name.to_string()).collect();
    assert_eq!(names, ["a", "b"], "the server's order, whatever the request's");
}

#[test]
fn rules_beyond_the_shape_are_checked() {
    let acquire = |extra: Value| {
        let mut body = json!({"name": "a"});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        told::<Acquire>(body).1
    };
    assert_eq!(acquire(json!({"ttl_ms": 0})), "ttl_ms");
    assert_eq!(acquire(json!({"round_ms": 55_001})), "round_ms");
    assert_eq!(acquire(json!({"limit": 3})), "limit");
    assert_eq!(acquire(json!({"mode": "shared", "limit": 3})), "limit");
    assert_eq!(acquire(json!({"mode": "permit"})), "limit");
    assert_eq!(acquire(json!({"mode": "permit", "limit": 0})), "limit");
    assert_eq!(acquire(json!({"meta": {"a": "x".repeat(4096)}})), "meta");
    assert_eq!(acquire(json!({"host": "x".repeat(256)})), "host");
    assert_eq!(acquire(json!({"on_deadlock": "detect"})), "party");
    assert_eq!(acquire(json!({"party_age": 7})), "party");
    assert_eq!(acquire(json!({"name": "x".repeat(513)})), "name");

    let names = |count: usize| (0..count).map(|number| format!("n{number}")).collect::<Vec<_>>();
    let all = |names: Vec<String>| told::<AcquireAll>(json!({"names": names})).1;
    assert_eq!(all(names(0)), "names");
    assert_eq!(all(names(65)), "names");
    assert_eq!(all(vec!["a".to_owned(), "b".to_owned(), "a".to_owned()]), "names[2]");
    parse::<AcquireAll>(json!({"names": names(64)}).to_string().as_bytes()).unwrap();
    assert_eq!(told::<AcquireAll>(json!({"names": ["a"], "ttl_ms": 0})).1, "ttl_ms");

    let items = |count: usize| vec![json!({"name": "a", "owner": OWNER}); count];
    assert_eq!(told::<Keep>(json!({"items": items(257)})).1, "items");
    assert_eq!(told::<Keep>(json!({"items": items(0)})).1, "items");
    assert_eq!(told::<Keep>(json!({"items": items(1), "wait_ms": 55_001})).1, "wait_ms");
    parse::<Keep>(json!({"items": items(256)}).to_string().as_bytes()).unwrap();
    let zero = json!({"items": [{"name": "a", "owner": OWNER, "ttl_ms": 0}]});
    assert_eq!(told::<Keep>(zero).1, "items[0].ttl_ms");

    assert_eq!(told::<Extend>(json!({"name": "a", "owner": OWNER, "ttl_ms": 0})).1, "ttl_ms");
    assert_eq!(told::<Release>(json!({"owner": OWNER})).1, "name");
    assert_eq!(told::<Release>(json!({"owner": OWNER, "name": "a", "names": ["b"]})).1, "names");
    assert_eq!(told::<Admit>(json!({"resource": "a", "token": 0})).1, "token");
    assert_eq!(told::<LocksQuery>(json!({"limit": 1025})).1, "limit");
}

#[test]
fn a_round_is_at_most_five_times_the_ttl() {
    let acquire: Acquire = parse(br#"{"name":"a","ttl_ms":1000}"#).unwrap();
    assert_eq!(acquire.round().as_millis(), 5000);
    let acquire: Acquire = parse(br#"{"name":"a","ttl_ms":18446744073709551615}"#).unwrap();
    assert_eq!(acquire.round().as_millis(), 10_000);
}

#[test]
fn a_query_is_as_strict_as_a_body() {
    let query: LockQuery = parse_query("name=gr%C3%B6%C3%9Fe+a%2Fb&wait_ms=25000&watch=holders").unwrap();
    assert_eq!((query.name.as_str(), query.wait_ms, query.watch), ("größe a/b", 25_000, Watch::Holders));
    assert_eq!(parse_query::<LocksQuery>("").unwrap(), LocksQuery::default());
    assert_eq!(parse_query::<LocksQuery>("prefix=&&limit=7&").unwrap().limit, 7);
    let refused = |text: &str| {
        let problem = parse_query::<LockQuery>(text).unwrap_err();
        (problem.status, problem.member.clone().unwrap_or_default())
    };
    assert_eq!(refused("name=a&wait=1"), (422, "wait".to_owned()));
    assert_eq!(refused("name=a&wait_ms=1s"), (422, "wait_ms".to_owned()));
    assert_eq!(refused("name=a&wait_ms="), (422, "wait_ms".to_owned()));
    assert_eq!(refused("name=a&wait_ms=%2B1"), (422, "wait_ms".to_owned()));
    assert_eq!(refused("name=a&name=b").0, 422);
    assert_eq!(refused("watch=holders"), (422, "name".to_owned()));
    for malformed in ["name=%", "name=%4", "name=%zz", "name=%ff"] {
        assert_eq!(refused(malformed).0, 400, "{malformed}");
    }
}
