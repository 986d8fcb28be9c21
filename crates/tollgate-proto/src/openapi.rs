//! Schemas of all messages, for the server's OpenAPI document.

use std::collections::BTreeSet;

use utoipa::OpenApi;
use utoipa::openapi::schema::{AdditionalProperties, Object, Schema, SchemaType, Type};
use utoipa::openapi::{Components, RefOr};

use crate as proto;

/// The words of the messages whose Rust types belong to other crates, or are written as text.
#[allow(dead_code)]
pub(crate) mod words {
    use utoipa::ToSchema;

    /// The name of a lock: UTF-8, 1 to 512 bytes, no control characters, hierarchical by `/`.
    #[derive(ToSchema)]
    #[schema(
        value_type = String,
        min_length = 1,
        max_length = 512,
        pattern = "^[^\\u0000-\\u001f\\u007f-\\u009f]+$"
    )]
    pub(crate) struct LockName(String);

    /// A fencing token: a later acquisition of a lock has a larger one.
    #[derive(ToSchema)]
    #[schema(value_type = u64, minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    pub(crate) struct Token(u64);

    /// A task or transaction that takes several locks: 32 random hexadecimal digits.
    #[derive(ToSchema)]
    #[schema(value_type = String, pattern = "^[0-9a-f]{32}$")]
    pub(crate) struct PartyId(String);

    /// The place of an event in the stream: `BOOT-SEQ`.
    #[derive(ToSchema)]
    #[schema(value_type = String, pattern = "^[0-9a-f]{16}-[0-9]+$")]
    pub(crate) struct EventId(String);

    /// What to do if waiting might never end.
    #[derive(ToSchema)]
    #[serde(rename_all = "snake_case")]
    pub(crate) enum OnDeadlock {
        Timeout,
        Detect,
        WaitDie,
        WoundWait,
    }
}

#[derive(OpenApi)]
#[openapi(components(schemas(
    proto::Acquire,
    proto::AcquireAll,
    proto::Admit,
    proto::Admitted,
    proto::Basis,
    proto::Break,
    proto::Broken,
    proto::Capabilities,
    proto::Circle,
    proto::Contended,
    proto::Deadlocks,
    proto::Durability,
    proto::Event,
    proto::EventKind,
    proto::EventsQuery,
    proto::Extend,
    proto::Grant,
    proto::Grants,
    proto::Guarantee,
    proto::Health,
    proto::HealthStatus,
    proto::Holder,
    proto::Info,
    proto::Keep,
    proto::KeepItem,
    proto::KeepState,
    proto::Kept,
    proto::KeptItem,
    proto::Limits,
    proto::Lock,
    proto::LockQuery,
    proto::Locks,
    proto::LocksQuery,
    proto::LongestHeld,
    proto::LongestWaited,
    proto::LossCause,
    proto::ModeKind,
    proto::Owner,
    proto::ProblemKind,
    proto::ProblemMembers,
    proto::Queue,
    proto::Release,
    proto::Released,
    proto::Timestamp,
    proto::Top,
    proto::WaitForEdge,
    proto::WaitForNode,
    proto::Waiter,
    proto::Waits,
    proto::Watch,
    proto::Withdraw,
    words::EventId,
    words::LockName,
    words::OnDeadlock,
    words::PartyId,
    words::Token,
)))]
struct Messages;

/// Requests that may be a whole grant as it was answered, so that more members than their own are
/// allowed.
const TAKES_A_GRANT: [&str; 4] = ["Extend", "KeepItem", "Release", "Withdraw"];

/// The schema of every message, by its name. A server replaces what its document has collected by
/// these.
///
/// No schema has alternatives (`oneOf`): the clients that generators make from those cannot be
/// used.
pub fn components() -> Components {
    let mut components = Messages::openapi().components.expect("the derive lists schemas");
    for (name, schema) in &mut components.schemas {
        if let RefOr::T(Schema::Object(object)) = schema {
            without_null(object);
            object.properties.values_mut().for_each(describe);
            if TAKES_A_GRANT.contains(&name.as_str()) {
                object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(true)));
            }
        }
        describe(schema);
    }
    components
}

/// A member that may be left out is left out, and not written as `null`: says so, which also keeps
/// references free of alternatives.
fn without_null(object: &mut Object) {
    let required: BTreeSet<&String> = object.required.iter().collect();
    for (_, property) in object.properties.iter_mut().filter(|(name, _)| !required.contains(name)) {
        match property {
            RefOr::T(Schema::Object(object)) => one_type(&mut object.schema_type),
            RefOr::T(Schema::Array(array)) => one_type(&mut array.schema_type),
            RefOr::T(Schema::OneOf(either)) => {
                let named = either.items.iter().find(|item| matches!(item, RefOr::Ref(_)));
                *property = named.cloned().expect("the other one is null");
            }
            _ => {}
        }
    }
}

fn one_type(schema_type: &mut SchemaType) {
    if let SchemaType::Array(types) = schema_type
        && let Some(other) = types.iter().find(|of| !matches!(of, Type::Null))
    {
        *schema_type = SchemaType::Type(other.clone());
    }
}

/// Makes a doc comment readable for those who do not write Rust.
fn describe(schema: &mut RefOr<Schema>) {
    match schema {
        RefOr::Ref(reference) => reference.description = in_plain_words(&reference.description),
        RefOr::T(Schema::Object(object)) => {
            object.description = object.description.as_deref().map(in_plain_words);
        }
        RefOr::T(Schema::Array(array)) => {
            array.description = array.description.as_deref().map(in_plain_words);
        }
        RefOr::T(_) => {}
    }
}

/// The text up to an example in Rust, with each paragraph on one line, and names instead of links.
fn in_plain_words(text: &str) -> String {
    let text = text.split("```").next().unwrap_or_default();
    let paragraphs: Vec<String> = text.trim().split("\n\n").map(|lines| lines.replace('\n', " ")).collect();
    let mut rest = paragraphs.join("\n\n");
    let mut plain = String::new();
    while let Some((before, link)) = rest.split_once("[`") {
        let Some((name, after)) = link.split_once("`]") else { break };
        let target = after.strip_prefix('(').and_then(|target| target.split_once(')'));
        plain.push_str(&format!("{before}`{name}`"));
        rest = target.map_or(after, |(_, after)| after).to_owned();
    }
    plain + &rest
}
