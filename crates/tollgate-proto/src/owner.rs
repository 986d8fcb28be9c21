//! The owner as the server answers it: the owner id, and what the engine needs beside it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tollgate_types::OwnerId;

use crate::limits::MAX_OWNER_CHARS;

/// The secret that a claim is kept, extended and released by.
///
/// It is written `ID` or `ID.REST`. ID is an [`OwnerId`], 32 lower-case hexadecimal digits, which a
/// client may propose. REST is what the engine behind the server needs; only the server reads it.
/// REST has letters, digits and `-._~` only, so that an owner needs no escape anywhere.
///
/// ```
/// use tollgate_proto::Owner;
///
/// let owner: Owner = "0123456789abcdef0123456789abcdef.lease-7".parse()?;
/// assert_eq!(owner.rest(), Some("lease-7"));
/// assert_eq!(format!("{owner:?}"), "Owner(…)");
/// # Ok::<(), tollgate_proto::InvalidOwner>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(
    feature = "openapi",
    derive(utoipa::ToSchema),
    schema(
        value_type = String,
        pattern = r"^[0-9a-f]{32}(\.[A-Za-z0-9._~-]+)?$",
        min_length = 32,
        max_length = 256
    )
)]
#[serde(try_from = "String", into = "String")]
pub struct Owner(Box<str>);

/// A text that is not an owner. It does not repeat the text, which may be a secret with a typing
/// error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "an owner is 32 lower-case hexadecimal digits, or those followed by a dot and more as the server answered it, \
     at most {MAX_OWNER_CHARS} characters"
)]
pub struct InvalidOwner;

impl Owner {
    const ID_CHARS: usize = 32;

    /// The owner of an engine that needs `rest` to find the grant again.
    pub fn with_rest(id: OwnerId, rest: &str) -> Result<Self, InvalidOwner> {
        format!("{}.{rest}", id.to_hex()).parse()
    }

    /// The owner id.
    pub fn id(&self) -> OwnerId {
        self.0[..Self::ID_CHARS].parse().expect("an owner is checked when it is made")
    }

    /// What the engine needs; only the server reads it.
    pub fn rest(&self) -> Option<&str> {
        self.0.get(Self::ID_CHARS + 1..)
    }

    /// The text as it travels. Do not print it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl FromStr for Owner {
    type Err = InvalidOwner;
    fn from_str(text: &str) -> Result<Self, InvalidOwner> {
        let (id, rest) = text.split_at_checked(Self::ID_CHARS).ok_or(InvalidOwner)?;
        id.parse::<OwnerId>().map_err(|_| InvalidOwner)?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '~');
        let is_rest =
            rest.strip_prefix('.').is_some_and(|rest| !rest.is_empty() && rest.chars().all(is_plain));
        if (rest.is_empty() || is_rest) && text.len() <= MAX_OWNER_CHARS {
            Ok(Self(text.into()))
        } else {
            Err(InvalidOwner)
        }
    }
}

impl From<OwnerId> for Owner {
    fn from(id: OwnerId) -> Self {
        Self(id.to_hex().into())
    }
}

impl TryFrom<String> for Owner {
    type Error = InvalidOwner;
    fn try_from(text: String) -> Result<Self, InvalidOwner> {
        text.parse()
    }
}

impl From<Owner> for String {
    fn from(owner: Owner) -> Self {
        owner.0.into()
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn an_owner_is_split_into_the_id_and_what_the_engine_needs() {
        let plain: Owner = ID.parse().unwrap();
        assert_eq!((plain.id().to_hex().as_str(), plain.rest()), (ID, None));
        assert_eq!(Owner::from(plain.id()), plain);
        let longer = Owner::with_rest(plain.id(), "etcd.7587.x_y~z-1").unwrap();
        assert_eq!((longer.id(), longer.rest()), (plain.id(), Some("etcd.7587.x_y~z-1")));
        assert_eq!(longer.reveal(), format!("{ID}.etcd.7587.x_y~z-1"));
        let longest = format!("{ID}.{}", "x".repeat(MAX_OWNER_CHARS - 33));
        assert_eq!(longest.parse::<Owner>().unwrap().reveal().len(), MAX_OWNER_CHARS);
    }

    #[test]
    fn what_is_no_owner_is_refused_and_not_repeated() {
        let too_long = format!("{ID}.{}", "x".repeat(MAX_OWNER_CHARS - 32));
        let upper = ID.to_uppercase();
        let texts = ["", &ID[1..], &upper, &too_long];
        let odd = ["0", ".", ".a b", ".\"", ".é", " ", "\n"].map(|end| format!("{ID}{end}"));
        for text in texts.into_iter().chain(odd.iter().map(String::as_str)) {
            assert_eq!(text.parse::<Owner>(), Err(InvalidOwner), "{text:?}");
        }
        assert!("é".repeat(40).parse::<Owner>().is_err(), "a character is never split");
        assert!(!InvalidOwner.to_string().contains(ID));
    }
}
