//! Whether what is in the schema of locks belongs to roles that may have their code run by this user.
//!
//! A role that may create schemas in a database can make ours first, with triggers on its tables or a view in the place of one,
//! and a superuser who connects later would run them. So nothing in there is read, called or written before this was asked.

use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};
use tollgate_core::{Error, ErrorKind, Result};

use crate::driven::Value;
use crate::names::Names;

/// What finds a [`Stranger`], if there is one.
pub(crate) const LOOK: &str = include_str!("ownership.sql");

/// Makes the schema if it is not there. "create schema if not exists" asks for the right to create one also where it is there
/// already. One client at a time does it.
const SCHEMA: &str = "\
    select pg_catalog.pg_advisory_xact_lock(\
        pg_catalog.hashtextextended('tollgate schema'::pg_catalog.text, 0::pg_catalog.int8)); \
    do $do$ begin \
        if not exists (select from pg_catalog.pg_namespace \
            where nspname operator(pg_catalog.=) 'tollgate'::pg_catalog.name) then \
            create schema tollgate; \
        end if; \
    end $do$";

/// All that is ours: names follow the schema's in it.
const OURS: [&str; 5] = [
    include_str!("schema.sql"),
    include_str!("transaction.sql"),
    include_str!("fence.sql"),
    include_str!("statements.sql"),
    include_str!("advisory/sql/install.sql"),
];

/// The schema, our names in it, and the role that is trusted with it.
#[derive(Debug, Clone)]
pub(crate) struct Ownership {
    schema: String,
    names: Vec<String>,
    trusted: Option<String>,
    create: String,
}

/// Something of ours that belongs to a role that is not trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stranger {
    /// What it is and how it is called.
    what: String,
    /// Its owner; none if it is granted to PUBLIC, which is every role.
    owner: Option<String>,
    caller: String,
    is_superuser: bool,
    /// Not what we make, even if a trusted role made it.
    is_odd: bool,
}

impl Ownership {
    pub(crate) fn of(names: &Names, trusted: Option<&str>) -> Self {
        let of_text = |text: &'static str| {
            text.split("tollgate.").skip(1).map(|rest| {
                let end = rest.find(|letter: char| !(letter.is_ascii_lowercase() || letter == '_'));
                &rest[..end.unwrap_or(rest.len())]
            })
        };
        let mut ours: Vec<_> = OURS.into_iter().flat_map(of_text).chain(["claims_owner"]).collect();
        ours.sort_unstable();
        ours.dedup();
        Self {
            schema: names.schema().to_owned(),
            names: ours.iter().map(|name| format!("{}{name}", names.prefix())).collect(),
            trusted: trusted.map(ToOwned::to_owned),
            create: names.written_into(SCHEMA),
        }
    }

    /// What makes the schema, if it is not there: whose it is can be asked then, before anything is made in it.
    pub(crate) fn create(&self) -> &str {
        &self.create
    }

    /// What [`LOOK`] is asked with.
    pub(crate) fn values(&self) -> [(Value<'_>, Type); 3] {
        [(&self.schema, Type::TEXT), (&self.names, Type::TEXT_ARRAY), (&self.trusted, Type::TEXT)]
    }

    /// Asks over a user's own connection.
    pub(crate) async fn look_over(
        &self,
        client: &impl GenericClient,
    ) -> std::result::Result<Option<Stranger>, tokio_postgres::Error> {
        Ok(Stranger::of(&client.query_typed(LOOK, &self.values()).await?))
    }

    /// The error for a stranger, if one was found.
    pub(crate) fn judge(&self, seen: Option<Stranger>) -> Result<()> {
        match seen {
            None => Ok(()),
            Some(stranger) => Err(Error::new(
                ErrorKind::Denied,
                format!("{}; {}: {}", stranger.what(), stranger.why(), self.advice(&stranger)),
            )),
        }
    }

    /// What to do about it.
    pub(crate) fn advice(&self, stranger: &Stranger) -> String {
        let schema = &self.schema;
        match &stranger.owner {
            _ if stranger.is_odd => format!("drop it, or name a schema other than {schema} with ?schema="),
            None => format!("revoke create on schema {schema} from public, or name another ?schema="),
            Some(owner) => format!(
                "if you trust {owner}, add ?owner={} to the URL; if not, drop schema {schema}, or name \
                 another with ?schema=",
                encoded(owner)
            ),
        }
    }
}

impl Stranger {
    /// What [`LOOK`] is answered with.
    pub(crate) fn of(rows: &[Row]) -> Option<Self> {
        rows.first().map(|row| Self {
            what: format!("{} {:?}", row.get::<_, &str>("kind"), row.get::<_, &str>("name")),
            owner: row.get("owner"),
            caller: row.get("caller"),
            is_superuser: row.get("is_superuser"),
            is_odd: row.get("is_odd"),
        })
    }

    /// What was found.
    pub(crate) fn what(&self) -> String {
        match &self.owner {
            _ if self.is_odd => format!("the schema of locks contains {}", self.what),
            None => format!("{} is granted to PUBLIC, which is every role", self.what),
            Some(owner) => format!("{} belongs to {owner}", self.what),
        }
    }

    /// Why that matters.
    pub(crate) fn why(&self) -> String {
        let rights = if self.is_superuser { "a superuser" } else { "this user" };
        format!("code that its owner put there would run with the rights of {}, {rights}", self.caller)
    }
}

/// A role's name as the value of a parameter.
fn encoded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    name.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_made_is_known() {
        let ownership = Ownership::of(&Names::of("s", "p_"), None);
        for name in [
            "version", "locks", "claims", "tokens", "fences", "sessions", "acquire", "admit", "guarded",
            "wake",
        ] {
            assert!(ownership.names.contains(&format!("p_{name}")), "{name}: {:?}", ownership.names);
        }
        assert!(ownership.create().contains("create schema \"s\""), "{}", ownership.create());
        assert!(ownership.create().contains("'s'::pg_catalog.name"), "{}", ownership.create());
    }

    #[test]
    fn whose_it_is_is_said_with_what_to_do() {
        let ownership = Ownership::of(&Names::default(), None);
        let stranger = Stranger {
            what: "the table \"locks\"".to_owned(),
            owner: Some("mallory & co".to_owned()),
            caller: "postgres".to_owned(),
            is_superuser: true,
            is_odd: false,
        };
        let error = ownership.judge(Some(stranger)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
        for words in
            ["the table \"locks\" belongs to mallory & co", "rights of postgres", "?owner=mallory%20%26%20co"]
        {
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
