//! Answers grow, and a client that does not know what is new reads the rest.

use serde_json::{Value, json};
use tollgate_proto::*;

use crate::samples::samples;

/// Adds a member to every object but `meta`, whose members are the user's.
fn grow(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.iter_mut().filter(|(name, _)| *name != "meta").for_each(|(_, value)| grow(value));
            members.insert("later".to_owned(), json!({"a": [1, null]}));
        }
        Value::Array(items) => items.iter_mut().for_each(grow),
        _ => {}
    }
}

#[test]
fn a_client_ignores_members_it_does_not_know() {
    let answers = samples().into_iter().filter(|sample| !sample.is_request && sample.file != "keep_item");
    for sample in answers {
        let mut answer: Value = serde_json::from_str(&sample.json).unwrap();
        grow(&mut answer);
        let read = (sample.reread)(answer.to_string().as_bytes());
        assert_eq!(read.as_ref(), Ok(&sample.json), "{}", sample.file);
    }
}

#[test]
fn a_client_keeps_values_it_does_not_know() {
    let kept = r#"{"items":[{"name":"a","state":"suspended","cause":"asleep"}]}"#;
    let kept: Kept = serde_json::from_str(kept).unwrap();
    assert_eq!(kept.items[0].state, Open::Other("suspended".into()));
    assert_eq!(kept.items[0].cause, Some(Open::Other("asleep".into())));
    let event = r#"{"id":"0000000000000001-2","event":"moved","happened_at":"2026-11-19T21:47:08Z"}"#;
    let event: Event = serde_json::from_str(event).unwrap();
    assert_eq!(event.event, Open::Other("moved".into()));
    assert!(event.to_sse().contains("\nevent: moved\n"));
}

#[test]
fn a_mode_that_a_client_does_not_know_is_no_mode() {
    let grant = Grant { mode: Open::Other("intent".into()), ..crate::samples::grant() };
    assert_eq!(grant.mode(), None);
    assert_eq!(crate::samples::grant().mode(), Some(tollgate_types::Mode::Exclusive));
}
