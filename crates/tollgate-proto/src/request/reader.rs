//! Reads a value into a type and knows, when that fails, where in the value it was.

use std::fmt;

use serde::de::value::StringDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, Error, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

/// What is wrong, and where.
#[derive(Debug)]
pub(super) struct Wrong {
    /// From the innermost step to the outermost.
    pub(super) path: Vec<Step>,
    /// What must be, as it goes on after the place's name.
    pub(super) rule: String,
}

#[derive(Debug)]
pub(super) enum Step {
    Member(String),
    Item(usize),
}

/// A path as people write it: `items[3].ttl_ms`.
pub(super) fn shown(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path.iter().rev() {
        match step {
            Step::Member(name) if text.is_empty() => text.push_str(&short(name)),
            Step::Member(name) => text.extend([".", &short(name)]),
            Step::Item(at) => text.push_str(&format!("[{at}]")),
        }
    }
    text
}

/// A member's name as an answer repeats it. A request may contain one of any length.
fn short(name: &str) -> String {
    const MOST: usize = 64;
    let mut text: String = name.chars().take(MOST).collect();
    if text.len() < name.len() {
        text.push('…');
    }
    text
}

/// The same between quotation marks.
pub(super) fn echo(name: &str) -> String {
    format!("`{}`", short(name))
}

impl Wrong {
    fn at(mut self, step: Step) -> Self {
        self.path.push(step);
        self
    }

    fn of_member(name: &str, rule: String) -> Self {
        Self { path: vec![Step::Member(name.to_owned())], rule }
    }
}

fn listed(allowed: &[&str]) -> String {
    allowed.join(", ")
}

/// What the types of this crate expect, in words that do not need Rust.
fn in_words(expected: &dyn Expected) -> String {
    match expected.to_string() {
        text if text == "u64" => "a whole number, at least 0".to_owned(),
        text if text == "u32" => format!("a whole number from 0 to {}", u32::MAX),
        text if text.starts_with("struct ") || text == "a map" => "a JSON object".to_owned(),
        text if text == "a sequence" => "a JSON array".to_owned(),
        text => text,
    }
}

/// The sort of a value, never the value: it may be a secret that got into the wrong member.
fn sort(unexpected: Unexpected<'_>) -> &'static str {
    match unexpected {
        Unexpected::Bool(_) => "a boolean",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) => "an integer",
        Unexpected::Float(_) => "a number with decimals",
        Unexpected::Str(_) | Unexpected::Char(_) => "a string",
        Unexpected::Unit => "null",
        Unexpected::Seq => "an array",
        Unexpected::Map => "an object",
        _ => "something else",
    }
}

impl Error for Wrong {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { path: Vec::new(), rule: format!("is not allowed: {message}") }
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let rule = format!("must be {}, not {}", in_words(expected), sort(unexpected));
        Self { path: Vec::new(), rule }
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self { path: Vec::new(), rule: format!("must be {}", in_words(expected)) }
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self { path: Vec::new(), rule: format!("must be one of {}", listed(expected)) }
    }

    fn unknown_field(name: &str, expected: &'static [&'static str]) -> Self {
        Self::of_member(name, format!("is not known here; there are {}", listed(expected)))
    }

    fn missing_field(name: &'static str) -> Self {
        Self::of_member(name, "is missing".to_owned())
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", shown(&self.path), self.rule)
    }
}

impl std::error::Error for Wrong {}

/// A value to be read.
pub(super) struct Reader {
    value: Value,
    /// Whether numbers are written as text, as in a query.
    is_text: bool,
}

impl Reader {
    pub(super) fn of_json(value: Value) -> Self {
        Self { value, is_text: false }
    }

    pub(super) fn of_query(parameters: Map<String, Value>) -> Self {
        Self { value: parameters.into(), is_text: true }
    }

    fn unexpected(&self) -> Unexpected<'_> {
        match &self.value {
            Value::Null => Unexpected::Unit,
            Value::Bool(value) => Unexpected::Bool(*value),
            Value::Number(number) if number.is_f64() => Unexpected::Float(0.0),
            Value::Number(_) => Unexpected::Unsigned(0),
            Value::String(_) => Unexpected::Str(""),
            Value::Array(_) => Unexpected::Seq,
            Value::Object(_) => Unexpected::Map,
        }
    }

    fn number_of_text(mut self) -> Self {
        if let (true, Some(text)) = (self.is_text, self.value.as_str())
            && text.bytes().all(|byte| byte.is_ascii_digit())
            && let Ok(number) = text.parse::<u64>()
        {
            self.value = number.into();
        }
        self
    }
}

impl<'de> Deserializer<'de> for Reader {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        let is_text = self.is_text;
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::String(text) => visitor.visit_string(text),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(number), _) => visitor.visit_u64(number),
                (None, Some(number)) => visitor.visit_i64(number),
                (None, None) => visitor.visit_f64(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::Array(items) => visitor.visit_seq(Items { items: items.into_iter().enumerate(), is_text }),
            Value::Object(members) => {
                visitor.visit_map(Members { members: members.into_iter(), value: None, is_text })
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    /// An array is not taken for the members of a struct in the order of their declaration.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        match &self.value {
            Value::Object(_) => self.deserialize_any(visitor),
            _ => Err(Wrong::invalid_type(self.unexpected(), &visitor)),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        match self.value {
            Value::String(text) => visitor.visit_enum(text.into_deserializer()),
            _ => Err(Wrong::unknown_variant("", variants)),
        }
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        self.number_of_text().deserialize_any(visitor)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        self.number_of_text().deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

struct Members {
    members: serde_json::map::IntoIter,
    value: Option<(String, Value)>,
    is_text: bool,
}

impl<'de> MapAccess<'de> for Members {
    type Error = Wrong;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Wrong> {
        let Some((name, value)) = self.members.next() else { return Ok(None) };
        let key: StringDeserializer<Wrong> = name.clone().into_deserializer();
        self.value = Some((name, value));
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Wrong> {
        let (name, value) = self.value.take().expect("a value is asked for after its key");
        seed.deserialize(Reader { value, is_text: self.is_text })
            .map_err(|wrong| wrong.at(Step::Member(name)))
    }
}

struct Items {
    items: std::iter::Enumerate<std::vec::IntoIter<Value>>,
    is_text: bool,
}

impl<'de> SeqAccess<'de> for Items {
    type Error = Wrong;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Wrong> {
        let Some((at, value)) = self.items.next() else { return Ok(None) };
        let read = seed.deserialize(Reader { value, is_text: self.is_text });
        read.map(Some).map_err(|wrong| wrong.at(Step::Item(at)))
    }
}
