//! Sets, keep, lists, long polls and events, without a socket.

use std::time::Duration;

use serde_json::{Value, json};

use crate::http::{Client, serve};

const A: &str = "0123456789abcdef0123456789abcdef";
const B: &str = "fedcba9876543210fedcba9876543210";

/// The states of a keep's answer.
fn states(kept: &Value) -> Vec<&str> {
    kept["items"].as_array().unwrap().iter().map(|item| item["state"].as_str().unwrap()).collect()
}

async fn tokens(client: &Client, name: &str) -> Vec<u64> {
    let (_, lock) = client.get("/v1/lock", &format!("name={name}")).await;
    lock["holders"].as_array().unwrap().iter().map(|holder| holder["token"].as_u64().unwrap()).collect()
}

#[test]
fn a_set_is_taken_whole_and_in_the_order_of_names() {
    serve(async |client| {
        let set = json!({"names": ["b", "a", "c"], "owner": A});
        let (status, taken) = client.post("/v1/acquire-all", set.clone()).await;
        assert_eq!(status, 200, "{taken}");
        let names: Vec<_> = taken["grants"].as_array().unwrap().iter().map(|grant| &grant["name"]).collect();
        assert_eq!(names, [&json!("a"), &json!("b"), &json!("c")]);
        let (status, again) = client.post("/v1/acquire-all", set).await;
        assert_eq!((status, &again["grants"][2]["again"]), (200, &json!(true)));
        assert_eq!(again["grants"][0]["token"], taken["grants"][0]["token"]);
        let (status, released) =
            client.post("/v1/release", json!({"names": ["a", "b", "c"], "owner": A})).await;
        assert_eq!((status, &released["released"]), (200, &json!(true)));
    });
}

#[test]
fn a_set_that_finds_one_lock_busy_holds_nothing() {
    serve(async |client| {
        client.post("/v1/acquire", json!({"name": "b"})).await;
        for wait_ms in [0, 20] {
            let set = json!({"names": ["a", "b", "c"], "wait_ms": wait_ms});
            let (status, busy) = client.post("/v1/acquire-all", set).await;
            assert_eq!((status, &busy["type"]), (409, &json!("urn:tollgate:problem:busy")), "{busy}");
            assert_eq!(busy["name"], "b");
        }
        assert_eq!((tokens(&client, "a").await, tokens(&client, "c").await), (vec![], vec![]));
    });
}

#[test]
fn a_set_goes_on_where_its_last_round_ended() {
    serve(async |client| {
        let (_, other) = client.post("/v1/acquire", json!({"name": "b"})).await;
        let set = json!({"names": ["a", "b"], "owner": A, "wait_ms": 60_000, "round_ms": 20});
        let (status, waiting) = client.post("/v1/acquire-all", set.clone()).await;
        assert_eq!((status, &waiting["type"]), (409, &json!("urn:tollgate:problem:waiting")), "{waiting}");
        let first = tokens(&client, "a").await;
        assert_eq!(first.len(), 1, "the set keeps what it has until the place is over");
        client.post("/v1/release", other).await;
        let (status, taken) = client.post("/v1/acquire-all", set).await;
        assert_eq!(status, 200, "{taken}");
        assert_eq!(taken["grants"][0]["token"], first[0]);
        assert_eq!(taken["grants"][0]["valid_ms"], 29_395);
    });
}

#[test]
fn a_repeated_set_displaces_the_call_before_and_loses_nothing() {
    serve(async |client| {
        let (_, other) = client.post("/v1/acquire", json!({"name": "b"})).await;
        let set = json!({"names": ["a", "b"], "owner": A, "wait_ms": 60_000});
        let (first, second) = (client.post("/v1/acquire-all", set.clone()), async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let repeated = client.post("/v1/acquire-all", set.clone());
            let release = async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                client.post("/v1/release", other).await
            };
            tokio::join!(repeated, release).0
        });
        let ((status, moved), (granted, taken)) = tokio::join!(first, second);
        assert_eq!((status, &moved["type"]), (409, &json!("urn:tollgate:problem:moved")), "{moved}");
        assert_eq!(granted, 200, "{taken}");
        assert_eq!(json!(tokens(&client, "a").await[0]), taken["grants"][0]["token"]);
    });
}

#[test]
fn an_unfinished_set_of_a_client_that_is_gone_is_held_no_longer_than_a_place() {
    serve(async |client| {
        client.post("/v1/acquire", json!({"name": "b"})).await;
        for owner in [None, Some(A)] {
            let mut set = json!({"names": ["a", "b"], "ttl_ms": 300, "wait_ms": 60_000});
            if let Some(owner) = owner {
                set["owner"] = json!(owner);
            }
            let gone = tokio::time::timeout(Duration::from_millis(50), client.post("/v1/acquire-all", set));
            assert!(gone.await.is_err(), "it waits for b");
            // Without an owner that the client knows, nothing is left; with one, its place.
            assert_eq!(tokens(&client, "a").await.len(), usize::from(owner.is_some()));
        }
        let free = client.post("/v1/acquire", json!({"name": "a", "wait_ms": 5_000}));
        assert_eq!(free.await.0, 200, "the place is over after the ttl");
    });
}

#[test]
fn one_call_keeps_all_locks_and_waits_for_all_claims() {
    serve(async |client| {
        let (_, mine) = client.post("/v1/acquire", json!({"name": "mine", "owner": A})).await;
        let (_, other) = client.post("/v1/acquire", json!({"name": "wanted"})).await;
        let wanted = json!({"name": "wanted", "owner": B, "wait_ms": 60_000, "round_ms": 1});
        assert_eq!(client.post("/v1/acquire", wanted).await.0, 409);
        let items = json!([mine, {"name": "wanted", "owner": B}, {"name": "gone", "owner": B}]);
        let (status, kept) = client.post("/v1/keep", json!({"items": items})).await;
        assert_eq!((status, states(&kept)), (200, vec!["held", "waiting", "lost"]), "{kept}");
        assert_eq!((&kept["items"][0]["token"], &kept["items"][1]["ahead"]), (&mine["token"], &json!(1)));

        let items = json!([mine, {"name": "wanted", "owner": B}]);
        let keep = client.post("/v1/keep", json!({"items": items, "wait_ms": 30_000}));
        let release = async {
            tokio::time::sleep(Duration::from_millis(30)).await;
            client.post("/v1/release", other).await
        };
        let ((_, kept), _) = tokio::join!(keep, release);
        assert_eq!(states(&kept), ["held", "held"], "{kept}");
        assert_eq!(json!(tokens(&client, "wanted").await[0]), kept["items"][1]["token"]);

        let keep = client.post("/v1/keep", json!({"items": items, "wait_ms": 30_000}));
        let revoke = async {
            tokio::time::sleep(Duration::from_millis(30)).await;
            client.post("/v1/break", json!({"name": "mine", "token": mine["token"]})).await
        };
        let ((_, kept), _) = tokio::join!(keep, revoke);
        assert_eq!(states(&kept), ["lost", "held"], "{kept}");
        assert_eq!(kept["items"][0]["cause"], "revoked");
    });
}

#[test]
fn a_keep_without_a_change_is_answered_when_its_round_is_over() {
    serve(async |client| {
        let (_, mine) = client.post("/v1/acquire", json!({"name": "mine", "owner": A})).await;
        client.post("/v1/acquire", json!({"name": "b"})).await;
        let wanted = json!({"name": "b", "owner": B, "ttl_ms": 200, "wait_ms": 60_000, "round_ms": 1});
        client.post("/v1/acquire", wanted).await;
        let items = json!([mine, {"name": "b", "owner": B}]);
        for _ in 0..5 {
            let (status, kept) = client.post("/v1/keep", json!({"items": items, "wait_ms": 100, })).await;
            assert_eq!((status, states(&kept)), (200, vec!["held", "waiting"]), "the place is kept: {kept}");
        }
    });
}

#[test]
fn every_lock_that_stays_is_on_exactly_one_page() {
    serve(async |client| {
        for at in 0..50 {
            client.post("/v1/acquire", json!({"name": format!("stays/{at}")})).await;
        }
        let (mut seen, mut after, mut turn) = (Vec::new(), String::new(), 0);
        loop {
            let (status, page) = client.get("/v1/locks", &format!("prefix=stays/&limit=7{after}")).await;
            assert_eq!(status, 200, "{page}");
            let locks = page["locks"].as_array().unwrap();
            assert!(locks.len() <= 7);
            seen.extend(locks.iter().map(|lock| lock["name"].as_str().unwrap().to_owned()));
            // Locks come and go between the pages.
            let (_, passing) = client.post("/v1/acquire", json!({"name": format!("passing/{turn}")})).await;
            if turn % 2 == 0 {
                client.post("/v1/release", passing).await;
            }
            turn += 1;
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&after={next}");
        }
        seen.sort();
        let mut expected: Vec<_> = (0..50).map(|at| format!("stays/{at}")).collect();
        expected.sort();
        assert_eq!(seen, expected);
        assert_eq!(client.get("/v1/locks", "after=nonsense").await.0, 422);
    });
}

#[test]
fn a_look_with_a_tag_waits_for_a_change_and_a_renewal_is_none() {
    serve(async |client| {
        let (_, grant) = client.post("/v1/acquire", json!({"name": "a", "owner": A})).await;
        let tag = client.get_tagged("name=a", None).await.tag.unwrap();
        client.post("/v1/extend", grant.clone()).await;
        let same = client.get_tagged("name=a&wait_ms=20", Some(&tag)).await;
        assert_eq!((same.status, same.tag.as_deref()), (304, Some(&*tag)));

        let holders = client.get_tagged("name=a&watch=holders", None).await.tag.unwrap();
        let queue = json!({"name": "a", "owner": B, "wait_ms": 60_000, "round_ms": 1});
        let look = client.get_tagged("name=a&wait_ms=30000", Some(&tag));
        let (changed, _) = tokio::join!(look, client.post("/v1/acquire", queue));
        assert_eq!(changed.status, 200);
        let same = client.get_tagged("name=a&watch=holders&wait_ms=20", Some(&holders)).await;
        assert_eq!(same.status, 304, "the queue does not count");
        let look = client.get_tagged("name=a&watch=holders&wait_ms=30000", Some(&holders));
        let (changed, _) = tokio::join!(look, client.post("/v1/release", grant));
        assert_eq!(changed.status, 200);
    });
}

#[test]
fn what_stands_out_is_listed_and_a_circle_is_marked() {
    serve(async |client| {
        let party = |number: u8| format!("{number:032x}");
        let take = |name: &'static str, number: u8, wait: u64| {
            let owner = format!("{:031x}{number}", name.len() + usize::from(name.as_bytes()[0]));
            json!({"name": name, "party": party(number), "owner": owner, "wait_ms": wait, "round_ms": 1})
        };
        for (name, number) in [("a", 1), ("b", 2)] {
            assert_eq!(client.post("/v1/acquire", take(name, number, 0)).await.0, 200);
        }
        let (_, graph) = client.get("/v1/deadlocks", "").await;
        assert_eq!((&graph["edges"], &graph["circles"]), (&json!([]), &json!([])));
        assert_eq!(client.post("/v1/acquire", take("b", 1, 60_000)).await.0, 409);
        let (_, graph) = client.get("/v1/deadlocks", "").await;
        assert_eq!((graph["edges"].as_array().unwrap().len(), &graph["circles"]), (1, &json!([])));
        assert_eq!(client.post("/v1/acquire", take("a", 2, 60_000)).await.0, 409);
        let (_, graph) = client.get("/v1/deadlocks", "").await;
        assert_eq!(graph["circles"].as_array().unwrap().len(), 1, "{graph}");
        assert_eq!(graph["circles"][0]["nodes"].as_array().unwrap().len(), 2);

        let (_, top) = client.get("/v1/top", "").await;
        assert_eq!(top["contended"].as_array().unwrap().len(), 2);
        assert_eq!(top["contended"][0]["waiting"], 1);
        assert_eq!(top["longest_held"].as_array().unwrap().len(), 2);
        assert!(top["longest_waited"][0]["waiter"]["waited_ms"].is_u64());
    });
}

#[test]
fn two_permits_held_by_the_waiters_own_circle_are_one_and_a_free_going_holder_is_none() {
    serve(async |client| {
        let take = |name: &str, number: u8, permits: bool, wait: u64| {
            let mut claim = json!({"name": name, "party": format!("{number:032x}"), "wait_ms": wait,
                "owner": format!("{:031x}{number}", name.as_bytes()[0]), "round_ms": 1});
            if permits {
                (claim["mode"], claim["limit"]) = (json!("permit"), json!(2));
            }
            claim
        };
        client.post("/v1/acquire", take("p", 1, true, 0)).await;
        client.post("/v1/acquire", take("p", 2, true, 0)).await;
        client.post("/v1/acquire", take("x", 3, false, 0)).await;
        client.post("/v1/acquire", take("p", 3, true, 60_000)).await;
        client.post("/v1/acquire", take("x", 1, false, 60_000)).await;
        let (_, graph) = client.get("/v1/deadlocks", "").await;
        assert_eq!(graph["circles"], json!([]), "party 2 goes on, and its permit comes free");
        client.post("/v1/acquire", take("x", 2, false, 60_000)).await;
        let (_, graph) = client.get("/v1/deadlocks", "").await;
        assert_eq!(graph["circles"].as_array().unwrap().len(), 1, "{graph}");
    });
}

#[test]
fn a_ttl_beyond_the_servers_longest_is_refused() {
    serve(async |client| {
        for body in [json!({"name": "a", "ttl_ms": 300_001}), json!({"name": "a", "lock_delay_ms": 280_000})]
        {
            let (status, problem) = client.post("/v1/acquire", body).await;
            assert_eq!((status, &problem["member"]), (422, &json!("ttl_ms")), "{problem}");
        }
        let (_, info) = client.get("/v1/info", "").await;
        assert_eq!(
            (&info["capabilities"]["ttl_max_ms"], &info["durability"]),
            (&json!(300_000), &json!("sync"))
        );
        assert_eq!(info["guarantees"].as_array().unwrap().len(), 13);
    });
}

#[test]
fn a_repeat_with_another_mode_or_party_is_refused_also_after_the_grant() {
    serve(async |client| {
        client.post("/v1/acquire", json!({"name": "m", "mode": "shared"})).await;
        let held = json!({"name": "m", "mode": "shared", "owner": A, "ttl_ms": 2_000});
        assert_eq!(client.post("/v1/acquire", held.clone()).await.0, 200);
        for (member, value) in [("mode", json!("exclusive")), ("party", json!(B))] {
            let mut other = held.clone();
            other[member] = value;
            let (status, problem) = client.post("/v1/acquire", other).await;
            assert_eq!((status, &problem["member"]), (422, &json!("owner")), "{problem}");
        }
        let mut longer = held;
        longer["ttl_ms"] = json!(60_000);
        let (status, again) = client.post("/v1/acquire", longer).await;
        assert_eq!((status, &again["ttl_ms"]), (200, &json!(2_000)), "a repeat renews nothing: {again}");
    });
}

#[test]
fn a_look_that_waits_sees_the_grant_and_the_next_holder() {
    serve(async |client| {
        for _ in 0..5 {
            let free = client.get_tagged("name=p", None).await.tag.unwrap();
            let look = client.get_tagged("name=p&wait_ms=20000", Some(&free));
            let (seen, (_, grant)) = tokio::join!(look, client.post("/v1/acquire", json!({"name": "p"})));
            assert_eq!(seen.status, 200, "the grant is seen");
            let queue = json!({"name": "p", "wait_ms": 20_000});
            let follow = async {
                tokio::time::sleep(Duration::from_millis(10)).await;
                let held = client.get_tagged("name=p&watch=holders", None).await.tag.unwrap();
                let change = client.get_tagged("name=p&watch=holders&wait_ms=20000", Some(&held));
                let (first, _) = tokio::join!(change, client.post("/v1/release", grant));
                // The old holder may be gone before the next one is durable.
                let second =
                    client.get_tagged("name=p&watch=holders&wait_ms=200", first.tag.as_deref()).await;
                let last: Value = serde_json::from_slice(second.bytes().unwrap()).unwrap_or_default();
                let first: Value = serde_json::from_slice(first.bytes().unwrap()).unwrap();
                [first, last].map(|lock| lock["holders"][0]["token"].clone())
            };
            let ((_, next), seen) = tokio::join!(client.post("/v1/acquire", queue), follow);
            assert!(seen.contains(&next["token"]), "{seen:?} does not have {next}");
            client.post("/v1/release", next).await;
        }
    });
}

#[test]
fn a_set_that_fails_takes_nothing_from_its_owner() {
    serve(async |client| {
        client.post("/v1/acquire", json!({"name": "s1", "owner": A})).await;
        client.post("/v1/acquire", json!({"name": "s2"})).await;
        let set = json!({"names": ["s0", "s1", "s2"], "owner": A});
        assert_eq!(client.post("/v1/acquire-all", set).await.0, 409);
        assert_eq!((tokens(&client, "s0").await.len(), tokens(&client, "s1").await.len()), (0, 1));
    });
}

#[test]
fn a_keep_stays_open_for_no_longer_than_half_of_a_grant() {
    serve(async |client| {
        let (_, grant) = client.post("/v1/acquire", json!({"name": "a", "owner": A, "ttl_ms": 600})).await;
        for _ in 0..4 {
            let (_, kept) = client.post("/v1/keep", json!({"items": [grant], "wait_ms": 50_000})).await;
            assert_eq!(states(&kept), ["held"], "{kept}");
        }
    });
}

#[test]
fn a_ttl_that_is_over_before_its_answer_arrives_is_refused() {
    serve(async |client| {
        for ttl_ms in [1, 99] {
            let (status, problem) = client.post("/v1/acquire", json!({"name": "a", "ttl_ms": ttl_ms})).await;
            assert_eq!((status, &problem["member"]), (422, &json!("ttl_ms")), "{problem}");
        }
        let (_, held) = client
            .post("/v1/acquire", json!({"name": "a", "ttl_ms": 200_000, "lock_delay_ms": 100_000}))
            .await;
        let mut longer = held.clone();
        longer["ttl_ms"] = json!(200_001);
        assert_eq!(client.post("/v1/extend", longer.clone()).await.0, 422, "the lock-delay counts, too");
        assert_eq!(client.post("/v1/keep", json!({"items": [longer]})).await.0, 422);
        assert_eq!(client.post("/v1/extend", held).await.0, 200);
    });
}
