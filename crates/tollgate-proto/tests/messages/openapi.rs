//! The schemas of all messages: compared with a golden file, and fit for generated clients.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tollgate_proto::openapi::components;
use tollgate_proto::{EventsQuery, Extend, Keep, LockQuery, LocksQuery, parse};
use utoipa::IntoParams;
use utoipa::openapi::path::ParameterIn;

use crate::golden::compare;
use crate::samples::samples;

fn schemas() -> Value {
    serde_json::to_value(components()).unwrap()
}

/// Calls `each` with every member of every object in `value`.
fn walk<'a>(value: &'a Value, each: &mut impl FnMut(&'a str, &'a Value)) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                each(name, value);
                walk(value, each);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, each)),
        _ => {}
    }
}

#[test]
fn the_schemas_are_those_of_the_golden_file() {
    // Not by way of a `Value`, whose members another crate of the build may keep in another order.
    compare("openapi_components", &(serde_json::to_string_pretty(&components()).unwrap() + "\n"));
}

#[test]
fn no_schema_has_alternatives() {
    let schemas = schemas();
    walk(&schemas, &mut |name, value| {
        assert!(!["oneOf", "anyOf", "allOf"].contains(&name), "{name}: {value}");
    });
}

#[test]
fn a_parameter_that_may_be_left_out_has_no_alternatives() {
    let all = [
        LockQuery::into_params(|| Some(ParameterIn::Query)),
        LocksQuery::into_params(|| Some(ParameterIn::Query)),
        EventsQuery::into_params(|| Some(ParameterIn::Query)),
    ];
    let mut required = Vec::new();
    for parameter in all.into_iter().flatten() {
        let parameter = serde_json::to_value(parameter).unwrap();
        assert_eq!(parameter["in"], "query", "{parameter}");
        assert!(!parameter.to_string().contains("null"), "{parameter}");
        assert!(!parameter.to_string().contains("Of\""), "{parameter}");
        if parameter["required"] == true {
            required.push(parameter["name"].clone());
        }
    }
    assert_eq!(required, ["name"]);
}

#[test]
fn a_description_needs_no_rust() {
    walk(&schemas(), &mut |name, value| {
        let Some(text) = value.as_str().filter(|_| name == "description") else { return };
        assert!(!["](", "[`", "```", "::"].iter().any(|rust| text.contains(rust)), "{text}");
    });
}

#[test]
fn every_reference_leads_to_a_named_schema() {
    let schemas = schemas();
    let named: BTreeSet<String> = schemas["schemas"]
        .as_object()
        .unwrap()
        .keys()
        .map(|name| format!("#/components/schemas/{name}"))
        .collect();
    let mut references = 0;
    walk(&schemas, &mut |name, value| {
        if name == "$ref" {
            assert!(named.contains(value.as_str().unwrap()), "{value}");
            references += 1;
        }
    });
    assert!(references > 40, "{references}");
}

#[test]
fn no_object_is_described_without_a_name() {
    for (name, schema) in schemas()["schemas"].as_object().unwrap() {
        for (member, property) in schema["properties"].as_object().into_iter().flatten() {
            let inner = [property, &property["items"]];
            assert!(inner.iter().all(|inner| inner["properties"].is_null()), "{name}.{member}");
        }
    }
}

#[test]
fn a_request_that_takes_a_grant_takes_every_member_of_it() {
    let schemas = schemas();
    let own = ["name", "owner", "ttl_ms"];
    for member in schemas["schemas"]["Grant"]["properties"].as_object().unwrap().keys() {
        let mut body = json!({"name": "a", "owner": "0123456789abcdef0123456789abcdef"});
        if !own.contains(&member.as_str()) {
            body[member] = json!(1);
        }
        assert!(parse::<Extend>(body.to_string().as_bytes()).is_ok(), "{member}");
        assert!(parse::<Keep>(json!({"items": [body]}).to_string().as_bytes()).is_ok(), "{member}");
    }
}

#[test]
fn every_message_has_a_schema() {
    let schemas = schemas();
    for sample in samples() {
        let name = match sample.of_type.as_str() {
            "ProblemMembers" => "Problem",
            "ModeKind" => "Mode",
            other => other,
        };
        let schema = &schemas["schemas"][name];
        assert!(schema.is_object(), "{name} has no schema");
        assert!(schema["description"].is_string(), "{name} is not described");
    }
}

#[test]
fn every_member_of_a_golden_file_is_in_its_schema() {
    let schemas = schemas();
    for sample in samples() {
        let name = if sample.of_type == "ProblemMembers" { "Problem" } else { &sample.of_type };
        let schema = &schemas["schemas"][name];
        let json: Value = serde_json::from_str(&sample.json).unwrap();
        let Some(members) = json.as_object() else { continue };
        for (member, value) in members {
            let property = &schema["properties"][member];
            assert!(property.is_object(), "{name}.{member}");
            let may_be_null = property["type"].as_array().is_some_and(|types| types.contains(&"null".into()));
            assert!(may_be_null || !value.is_null(), "{name}.{member} is null");
        }
        for required in schema["required"].as_array().into_iter().flatten() {
            assert!(members.contains_key(required.as_str().unwrap()), "{name} lacks {required}");
        }
    }
}
