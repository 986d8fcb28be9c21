//! `GET /v1/events`: what happens to locks, as Server-Sent Events.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tollgate_types::{LockName, Token};

use crate::acquire::is_default;
use crate::look::Holder;
use crate::open::Open;
use crate::problem::Problem;
use crate::request::Request;
use crate::timestamp::Timestamp;

/// Something that happened to a lock. [`to_sse`](Self::to_sse) writes it as the stream has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    /// The event's place in the stream, also the `id` of Server-Sent Events.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::words::EventId))]
    pub id: EventId,
    /// What happened, also the `event` of Server-Sent Events: one of those of the schema
    /// `EventKind`, to which later servers may add.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub event: Open<EventKind>,
    /// When the server heard of it.
    pub happened_at: Timestamp,
    /// The lock; left out for `reset`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::words::LockName>))]
    pub name: Option<LockName>,
    /// The fencing token of the grant that it happened to; left out for `reset`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::words::Token>))]
    pub token: Option<Token>,
    /// The grant's holder, where the engine tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
}

/// What can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A claim was granted.
    Granted,
    /// The holder released the lock.
    Released,
    /// The holder's lease expired.
    Expired,
    /// The lock was broken.
    Revoked,
    /// A grant ended, and the engine cannot tell which of these it was.
    Ended,
    /// Events between the one that the client had last and this one are not known: list the locks
    /// again.
    Reset,
}

impl EventKind {
    /// The word, as it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Ended => "ended",
            Self::Reset => "reset",
        }
    }
}

/// An event's place in the stream, written `BOOT-SEQ`: which run of the server, as 16 hexadecimal
/// digits, and the number of the event in it.
///
/// ```
/// use tollgate_proto::EventId;
///
/// let id = EventId { boot: 0xbeef, sequence: 41 };
/// assert_eq!(id.to_string(), "000000000000beef-41");
/// assert_eq!("000000000000beef-41".parse(), Ok(id));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EventId {
    /// Which run of the server.
    pub boot: u64,
    /// The number of the event.
    pub sequence: u64,
}

/// A text that is not the id of an event. A server answers it with `reset`, as every id that it
/// does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event's id is 16 hexadecimal digits, a hyphen and a number")]
pub struct InvalidEventId;

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.boot, self.sequence)
    }
}

impl FromStr for EventId {
    type Err = InvalidEventId;
    fn from_str(text: &str) -> Result<Self, InvalidEventId> {
        let (boot, sequence) = text.split_once('-').ok_or(InvalidEventId)?;
        let id = Self {
            boot: u64::from_str_radix(boot, 16).map_err(|_| InvalidEventId)?,
            sequence: sequence.parse().map_err(|_| InvalidEventId)?,
        };
        // One id, one text: no signs, no leading zeros, no capitals.
        if id.to_string() == text { Ok(id) } else { Err(InvalidEventId) }
    }
}

impl TryFrom<String> for EventId {
    type Error = InvalidEventId;
    fn try_from(text: String) -> Result<Self, InvalidEventId> {
        text.parse()
    }
}

impl From<EventId> for String {
    fn from(id: EventId) -> Self {
        id.to_string()
    }
}

impl Event {
    /// The comment that keeps a silent stream open.
    pub const KEEP_ALIVE: &'static str = ": keep-alive\n\n";

    /// The event as Server-Sent Events write it.
    pub fn to_sse(&self) -> String {
        let data = serde_json::to_string(self).expect("an event has only string keys");
        let kind = match &self.event {
            Open::Known(kind) => kind.word(),
            Open::Other(word) => word,
        };
        format!("id: {}\nevent: {kind}\ndata: {data}\n\n", self.id)
    }
}

/// The parameters of `GET /v1/events`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(
    feature = "openapi",
    derive(utoipa::ToSchema, utoipa::IntoParams),
    into_params(parameter_in = Query)
)]
#[serde(deny_unknown_fields)]
pub struct EventsQuery {
    /// Only locks whose names start with this.
    #[serde(default, skip_serializing_if = "is_default")]
    pub prefix: String,
}

impl Request for EventsQuery {
    fn check(&self) -> Result<(), Problem> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_text_only() {
        for text in [
            "",
            "-",
            "1-2",
            "000000000000beef-",
            "000000000000BEEF-1",
            "000000000000beef-01",
            "+00000000000beef-1",
        ] {
            assert_eq!(text.parse::<EventId>(), Err(InvalidEventId), "{text}");
        }
        let last = EventId { boot: u64::MAX, sequence: u64::MAX };
        assert_eq!(last.to_string().parse(), Ok(last));
    }

    #[test]
    fn an_event_is_one_block_of_the_stream_whatever_the_names_are() {
        let event = Event {
            id: EventId { boot: 1, sequence: 2 },
            event: EventKind::Granted.into(),
            happened_at: Timestamp::from_unix_ms(0),
            name: Some(LockName::new("a\u{2028}b: c").unwrap()),
            token: Token::new(7).ok(),
            holder: None,
        };
        let text = event.to_sse();
        assert!(text.starts_with("id: 0000000000000001-2\nevent: granted\ndata: {"), "{text}");
        assert_eq!((text.matches('\n').count(), text.ends_with("}\n\n")), (4, true));
    }

    #[test]
    fn the_word_is_what_json_has() {
        for kind in [
            EventKind::Granted,
            EventKind::Released,
            EventKind::Expired,
            EventKind::Revoked,
            EventKind::Ended,
            EventKind::Reset,
        ] {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{}\"", kind.word()));
        }
    }
}
