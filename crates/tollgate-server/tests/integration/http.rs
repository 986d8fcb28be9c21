//! The HTTP API without a socket: which status each call has, and what it says.

use std::rc::Rc;

use serde_json::{Value, json};
use tollgate_embedded::durable::{Durability, Options, RedbStore};
use tollgate_server::TableService;
use tollgate_server::http::{Api, Call, Reply};

/// A client of a service.
#[derive(Clone)]
pub(crate) struct Client(pub(crate) Api);

impl Client {
    pub(crate) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let reply = self.call("POST", path, "", body.to_string().as_bytes()).await;
        (reply.status, serde_json::from_slice(reply.bytes().unwrap()).unwrap())
    }

    pub(crate) async fn get(&self, path: &str, query: &str) -> (u16, Value) {
        let reply = self.call("GET", path, query, b"").await;
        (reply.status, serde_json::from_slice(reply.bytes().unwrap()).unwrap())
    }

    /// `GET /v1/lock` with `If-None-Match`.
    pub(crate) async fn get_tagged(&self, query: &str, tag: Option<&str>) -> Reply {
        let call = Call {
            method: "GET",
            path: "/v1/lock",
            query,
            if_none_match: tag,
            last_event_id: None,
            body: b"",
            request_id: "r-1",
        };
        self.0.answer(call).await
    }

    async fn call(&self, method: &str, path: &str, query: &str, body: &[u8]) -> Reply {
        let call =
            Call { method, path, query, if_none_match: None, last_event_id: None, body, request_id: "r-1" };
        self.0.answer(call).await
    }
}

pub(crate) fn serve<W: Future<Output = ()>>(work: impl FnOnce(Client) -> W) {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        durability: Durability::Sync,
        token_floor: None,
        longest: std::time::Duration::from_secs(300),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = RedbStore::open(&folder.path().join("locks.redb")).unwrap();
        let (service, running) = TableService::open(store, &options).unwrap();
        let work = async {
            work(Client(Api::new(Rc::new(service.clone())))).await;
            service.stop();
        };
        let (ended, ()) = tokio::join!(running.run(), work);
        ended.unwrap();
    });
}

#[test]
fn a_strangers_first_minute() {
    serve(async |client| {
        let (status, grant) = client
            .post(
                "/v1/acquire",
                json!({"name": "orders/42", "host": "web-1", "pid": 17, "meta": {"job": "import"}}),
            )
            .await;
        assert_eq!(status, 200, "{grant}");
        assert_eq!((&grant["name"], &grant["mode"]), (&json!("orders/42"), &json!("exclusive")));
        assert_eq!(grant["valid_ms"], 29_395);
        assert_eq!(grant["owner"].as_str().unwrap().len(), 32);

        let (status, busy) = client.post("/v1/acquire", json!({"name": "orders/42"})).await;
        assert_eq!((status, &busy["type"]), (409, &json!("urn:tollgate:problem:busy")));
        let holder = &busy["holders"][0];
        assert_eq!(
            (&holder["host"], &holder["pid"], &holder["token"]),
            (&json!("web-1"), &json!(17), &grant["token"])
        );
        assert_eq!(busy["request_id"], "r-1");
        assert!(!busy.to_string().contains(grant["owner"].as_str().unwrap()), "owners are secrets");

        let waiting = client.post("/v1/acquire", json!({"name": "orders/42", "wait_ms": 10_000}));
        let release = async {
            let (_, lock) = client.get("/v1/lock", "name=orders%2F42").await;
            assert_eq!(
                (lock["holders"].as_array().unwrap().len(), lock["waiters"].as_array().unwrap().len()),
                (1, 1)
            );
            let (status, released) = client.post("/v1/release", grant.clone()).await;
            assert_eq!((status, &released["released"]), (200, &json!(true)));
        };
        let ((status, next), ()) = tokio::join!(waiting, release);
        assert_eq!(status, 200, "{next}");
        assert!(next["token"].as_u64() > grant["token"].as_u64());

        let (status, again) = client.post("/v1/release", grant.clone()).await;
        assert_eq!((status, &again["repeated"]), (200, &json!(true)));
        let (status, lost) = client.post("/v1/extend", grant).await;
        assert_eq!((status, &lost["type"]), (410, &json!("urn:tollgate:problem:lost")));
        let (status, extended) = client.post("/v1/extend", next.clone()).await;
        assert_eq!((status, &extended["token"]), (200, &next["token"]));
    });
}

#[test]
fn a_claim_that_waits_is_asked_for_again_with_its_owner() {
    serve(async |client| {
        client.post("/v1/acquire", json!({"name": "a"})).await;
        let owner = "0123456789abcdef0123456789abcdef";
        let wanted = json!({"name": "a", "owner": owner, "wait_ms": 60_000, "round_ms": 1});
        let (status, waiting) = client.post("/v1/acquire", wanted.clone()).await;
        assert_eq!((status, &waiting["type"]), (409, &json!("urn:tollgate:problem:waiting")));
        assert_eq!((&waiting["owner"], &waiting["ahead"]), (&json!(owner), &json!(1)));
        let (status, other) = client
            .post("/v1/acquire", json!({"name": "a", "owner": owner, "mode": "shared", "wait_ms": 1}))
            .await;
        assert_eq!((status, &other["member"]), (422, &json!("owner")));
        let (status, withdrawn) = client.post("/v1/withdraw", json!({"name": "a", "owner": owner})).await;
        assert_eq!((status, &withdrawn["released"]), (200, &json!(false)));
        let (status, late) = client.post("/v1/acquire", wanted).await;
        assert_eq!((status, &late["type"]), (410, &json!("urn:tollgate:problem:lost")));
    });
}

#[test]
fn an_operator_breaks_a_lock_by_its_token() {
    serve(async |client| {
        let (_, grant) = client.post("/v1/acquire", json!({"name": "a"})).await;
        let (status, asked) = client.post("/v1/break", json!({"name": "a", "token": grant["token"]})).await;
        assert_eq!((status, asked), (200, json!({"pending": true})));
        let (status, revoked) = client.post("/v1/extend", grant.clone()).await;
        assert_eq!((status, &revoked["cause"]), (410, &json!("revoked")));
        let (status, broken) =
            client.post("/v1/break", json!({"name": "a", "token": grant["token"], "force": true})).await;
        assert_eq!((status, broken), (200, json!({"revoked": true})));
        let (status, _) = client.post("/v1/break", json!({"name": "a", "token": grant["token"]})).await;
        assert_eq!(status, 404);
    });
}

#[test]
fn a_resource_asks_whether_a_token_is_stale() {
    serve(async |client| {
        let mut tokens = Vec::new();
        for _ in 0..2 {
            let (_, grant) = client.post("/v1/acquire", json!({"name": "a"})).await;
            tokens.push(grant["token"].as_u64().unwrap());
            client.post("/v1/release", grant).await;
        }
        let (status, admitted) = client.post("/v1/admit", json!({"resource": "r", "token": tokens[1]})).await;
        assert_eq!((status, admitted), (200, json!({"mark": tokens[1]})));
        let (status, stale) = client.post("/v1/admit", json!({"resource": "r", "token": tokens[0]})).await;
        assert_eq!((status, &stale["token"], &stale["mark"]), (412, &json!(tokens[0]), &json!(tokens[1])));
        let (status, invented) =
            client.post("/v1/admit", json!({"resource": "r", "token": tokens[1] + 1})).await;
        assert_eq!((status, &invented["member"]), (422, &json!("token")));
    });
}

#[test]
fn bad_input_gets_a_sentence_and_no_server_error() {
    serve(async |client| {
        for (method, path, body, status) in [
            ("POST", "/v1/acquire", "{", 400),
            ("POST", "/v1/acquire", "[]", 422),
            ("POST", "/v1/acquire", r#"{"name": ""}"#, 422),
            ("POST", "/v1/acquire", r#"{"name": "a", "ttl": 5}"#, 422),
            ("POST", "/v1/acquire", r#"{"name": "a", "ttl_ms": 0}"#, 422),
            ("POST", "/v1/acquire", r#"{"name": "a", "mode": "permit"}"#, 422),
            ("POST", "/v1/acquire", r#"{"name": "a", "owner": "me"}"#, 422),
            ("POST", "/v1/release", r#"{"name": "a"}"#, 422),
            ("POST", "/v1/admit", r#"{"resource": "r", "token": -1}"#, 422),
            ("GET", "/v1/acquire", "", 405),
            ("POST", "/v1/nothing", "{}", 404),
            ("GET", "/v1/lock", "", 422),
        ] {
            let reply = client.call(method, path, "", body.as_bytes()).await;
            let problem: Value = serde_json::from_slice(reply.bytes().unwrap()).unwrap();
            assert_eq!(reply.status, status, "{method} {path} {body}: {problem}");
            assert_eq!(reply.media_type, "application/problem+json");
            let detail = problem["detail"].as_str().unwrap();
            assert!(
                detail.split_whitespace().count() >= 3,
                "{method} {path} {body}: {detail:?} says too little"
            );
        }
        assert_eq!(client.get("/healthz", "").await.0, 200);
        let (status, free) = client.get("/v1/lock", "name=free").await;
        assert_eq!((status, free), (200, json!({"name": "free", "holders": [], "waiters": []})));
    });
}
