//! The OpenAPI document is what the routes and the types say; `TOLLGATE_BLESS=1` writes it anew.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use tollgate_proto::openapi::components;
use tollgate_proto::{EventsQuery, LockQuery, LocksQuery};
use tollgate_server::http::Route;
use utoipa::IntoParams;
use utoipa::openapi::path::{Parameter, ParameterIn};

/// What the document says of one route.
struct Described {
    id: &'static str,
    summary: &'static str,
    request: Option<&'static str>,
    answer: Answer,
    parameters: Vec<Parameter>,
    problems: &'static [(u16, &'static str)],
}

enum Answer {
    Json(&'static str),
    Other(&'static str),
}

const BUSY: (u16, &str) = (
    409,
    "Other holders have the lock, or the claim still waits (its place is kept: repeat the call with the same owner), or waiting might never end.",
);
const LOST: (u16, &str) = (410, "The claim of this owner is over.");

fn described(route: Route) -> Described {
    let json = |id, summary, request: &'static str, answer, problems| Described {
        id,
        summary,
        request: (!request.is_empty()).then_some(request),
        answer: Answer::Json(answer),
        parameters: Vec::new(),
        problems,
    };
    let other = |id, summary, media_type| Described {
        id,
        summary,
        request: None,
        answer: Answer::Other(media_type),
        parameters: Vec::new(),
        problems: &[],
    };
    let query = || Some(ParameterIn::Query);
    match route {
        Route::Acquire => json("acquire", "Take a lock", "Acquire", "Grant", &[BUSY, LOST]),
        Route::AcquireAll => {
            json("acquireAll", "Take several locks, all or nothing", "AcquireAll", "Grants", &[BUSY, LOST])
        }
        Route::Keep => {
            json("keep", "Renew grants and keep the places of claims that wait", "Keep", "Kept", &[])
        }
        Route::Extend => json("extend", "Renew one grant", "Extend", "Grant", &[LOST]),
        Route::Release => json("release", "Give locks back", "Release", "Released", &[LOST]),
        Route::Withdraw => {
            json("withdraw", "Remove claims in whatever state they are", "Withdraw", "Released", &[])
        }
        Route::Admit => json(
            "admit",
            "Ask whether a token is stale, and raise the mark of the resource",
            "Admit",
            "Admitted",
            &[(412, "A larger token was admitted before.")],
        ),
        Route::Break => json(
            "break",
            "Take a lock from its holder",
            "Break",
            "Broken",
            &[(404, "No grant has this token.")],
        ),
        Route::Locks => Described {
            parameters: LocksQuery::into_params(query),
            ..json("listLocks", "List the locks, page by page", "", "Locks", &[])
        },
        Route::Lock => Described {
            parameters: LockQuery::into_params(query),
            ..json(
                "getLock",
                "Look at one lock, or wait for a change of it",
                "",
                "Lock",
                &[(304, "The lock still has the tag of If-None-Match.")],
            )
        },
        Route::Events => Described {
            parameters: EventsQuery::into_params(query),
            ..other("events", "Follow what happens to locks, as Server-Sent Events", "text/event-stream")
        },
        Route::Top => json("top", "The locks that stand out", "", "Top", &[]),
        Route::Deadlocks => json("deadlocks", "The wait-for graph", "", "Deadlocks", &[]),
        Route::Info => json("info", "What the server is and promises", "", "Info", &[]),
        Route::Healthz => json("healthz", "Whether the process is up", "", "Health", &[]),
        Route::Readyz => json("readyz", "Whether the server serves", "", "Health", &[]),
        Route::Metrics => other("metrics", "Figures for Prometheus", "text/plain; version=0.0.4"),
        Route::OpenApi => other("openapi", "This document", "application/json"),
        Route::Root => other("root", "A page for people", "text/html; charset=utf-8"),
    }
}

fn operation(route: Route) -> Value {
    let Described { id, summary, request, answer, parameters, problems } = described(route);
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let mut operation = json!({"operationId": id, "summary": summary});
    let mut parameters = serde_json::to_value(parameters).unwrap();
    if route == Route::Lock {
        let header = json!({"name": "If-None-Match", "in": "header", "required": false,
            "description": "The tag of an earlier answer: with `wait_ms` the call waits for a change.",
            "schema": {"type": "string"}});
        parameters.as_array_mut().unwrap().push(header);
    }
    if route == Route::Events {
        let header = json!({"name": "Last-Event-ID", "in": "header", "required": false,
            "description": "The last event that the client has: the stream goes on after it.",
            "schema": {"type": "string"}});
        parameters.as_array_mut().unwrap().push(header);
    }
    if parameters.as_array().is_some_and(|all| !all.is_empty()) {
        operation["parameters"] = parameters;
    }
    if let Some(request) = request {
        operation["requestBody"] =
            json!({"required": true, "content": {"application/json": {"schema": reference(request)}}});
    }
    let content = match answer {
        Answer::Json(name) => json!({"application/json": {"schema": reference(name)}}),
        Answer::Other(media_type) if media_type == "application/json" => {
            json!({media_type: {"schema": {"type": "object"}}})
        }
        Answer::Other(media_type) => json!({media_type: {"schema": {"type": "string"}}}),
    };
    operation["responses"]["200"] = json!({"description": "Done.", "content": content});
    let problem = json!({"application/problem+json": {"schema": reference("Problem")}});
    let common = [
        (400, "The request cannot be read."),
        (403, "The request came from a page of another origin, or for another host."),
        (413, "The body is too long."),
        (422, "A value is not valid, or a member is not known."),
        (503, "The server cannot do this now, and nothing was changed."),
    ];
    for (status, description) in common.iter().chain(problems) {
        operation["responses"][status.to_string()] = match status {
            304 => json!({"description": description}),
            _ => json!({"description": description, "content": problem}),
        };
    }
    operation["responses"]["default"] =
        json!({"description": "Any other problem; clients go by the status.", "content": problem});
    operation
}

fn document() -> Value {
    let mut paths = json!({});
    for route in Route::ALL {
        paths[route.path()][route.method().to_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tollgate",
            "version": "1",
            "description": "A lock server: every grant carries a fencing token. Only a grant is answered \
                with 2xx on the acquire calls. Durations are milliseconds.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:7420"}],
        "paths": paths,
        "components": serde_json::to_value(components()).unwrap(),
    })
}

#[test]
fn the_document_is_what_the_routes_and_types_say() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http/openapi.json");
    // By way of a sorted map: other crates of a build may make `Value` keep another order.
    let text = sorted(&document()) + "\n";
    if std::env::var_os("TOLLGATE_BLESS").is_some_and(|bless| bless == "1") {
        std::fs::write(&file, &text).unwrap();
    }
    let golden = std::fs::read_to_string(&file).unwrap();
    assert!(
        golden == text,
        "src/http/openapi.json is old; if the change is intended, run with TOLLGATE_BLESS=1"
    );
}

/// JSON with the members of every object in the order of their names.
fn sorted(value: &Value) -> String {
    fn write(value: &Value, indent: usize, text: &mut String) {
        let pad = " ".repeat(indent + 1);
        match value {
            Value::Object(members) if !members.is_empty() => {
                let names: BTreeSet<&String> = members.keys().collect();
                for (at, name) in names.iter().enumerate() {
                    text.push_str(if at == 0 { "{\n" } else { ",\n" });
                    text.push_str(&format!("{pad}{}: ", json!(name)));
                    write(&members[*name], indent + 1, text);
                }
                text.push_str(&format!("\n{}}}", " ".repeat(indent)));
            }
            Value::Array(items) if !items.is_empty() => {
                for (at, item) in items.iter().enumerate() {
                    text.push_str(if at == 0 { "[\n" } else { ",\n" });
                    text.push_str(&pad);
                    write(item, indent + 1, text);
                }
                text.push_str(&format!("\n{}]", " ".repeat(indent)));
            }
            other => text.push_str(&other.to_string()),
        }
    }
    let mut text = String::new();
    write(value, 0, &mut text);
    text
}

#[test]
fn generated_clients_can_use_the_document() {
    let document = document();
    let mut ids = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{method} {path}");
            let responses = operation["responses"].as_object().unwrap();
            assert_eq!(
                responses.keys().filter(|status| status.starts_with('2')).count(),
                1,
                "{method} {path}"
            );
        }
    }
    assert_eq!(ids.len(), Route::ALL.len());
    let text = document.to_string();
    for alternatives in ["oneOf", "anyOf", "allOf"] {
        assert!(!text.contains(alternatives), "{alternatives}");
    }
    // Every reference leads somewhere.
    for reference in text.split("\"$ref\":\"#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(document["components"]["schemas"][name].is_object(), "{name}");
    }
}
