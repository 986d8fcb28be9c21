//! Whether our names in the database belong to accounts that may have their code run by this one.
//!
//! Our procedures run with the rights of their caller, and so do views and functions that ask for that. An account that may make
//! routines in a database can put theirs in the place of ours before a more powerful account connects. So nothing of that name
//! is read or called before this was asked. Tables have no owner here, and no code of their own but triggers.

use std::collections::BTreeSet;

use mysql_async::Conn;
use tollgate_core::{Error, ErrorKind, Result};

use crate::error::Trouble;
use crate::schema::Tables;
use crate::wire::{first, queried};

/// All that is ours: names follow the prefix in it.
const OURS: [&str; 8] = [
    include_str!("schema.sql"),
    include_str!("tokens_mariadb.sql"),
    include_str!("tokens_mysql.sql"),
    include_str!("fence.sql"),
    include_str!("statements.sql"),
    include_str!("transaction.sql"),
    include_str!("session/sql/install.sql"),
    include_str!("session/sql/wake_mariadb.sql"),
];

/// Rights everywhere with which an account could give itself all others, or change what is not its own.
const POWERFUL: [&str; 15] = [
    "ALL PRIVILEGES",
    "SUPER",
    "CREATE USER",
    "FILE",
    "INSERT",
    "UPDATE",
    "DELETE",
    "ALTER",
    "DROP",
    "ALTER ROUTINE",
    "CREATE ROUTINE",
    "TRIGGER",
    "SYSTEM_USER",
    "SET_USER_ID",
    "SET USER",
];

/// Something of ours that another account has made, or that is not what we make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stranger {
    what: String,
    /// Whose it is; of a view it does not matter.
    definer: Option<String>,
    caller: String,
    /// Whether the caller may do more than use this database.
    is_powerful: bool,
}

/// Something that was found under one of our names.
#[derive(Debug, Clone)]
struct Thing {
    kind: &'static str,
    name: String,
    /// The account that has made it, if it is code.
    definer: Option<String>,
}

/// The account that asks, and the accounts it trusts.
#[derive(Debug, Clone)]
struct Caller {
    account: String,
    is_powerful: bool,
    trusted: Option<String>,
    /// Accounts with SUPER, as far as this one is shown them, in quotes.
    superusers: BTreeSet<String>,
}

/// Refuses what belongs to others than this account, those that are as powerful, and `owner`.
pub(crate) async fn check(connection: &mut Conn, tables: &Tables, owner: Option<&str>) -> Result<()> {
    let looked = look(connection, tables, owner).await;
    match looked.map_err(|trouble| trouble.not_done().into_error("the ownership check"))? {
        None => Ok(()),
        Some(stranger) => Err(Error::new(
            ErrorKind::Denied,
            format!("{}; {}: {}", stranger.what(), stranger.why(), stranger.advice()),
        )),
    }
}

/// What belongs to others, if something does.
pub(crate) async fn look(
    connection: &mut Conn,
    tables: &Tables,
    owner: Option<&str>,
) -> std::result::Result<Option<Stranger>, Trouble> {
    let names = names(tables);
    let mut things = Vec::new();
    let asked = format!(
        "select table_name from information_schema.tables where table_schema = database() \
         and table_type not in ('BASE TABLE', 'SEQUENCE') and table_name in ({names})"
    );
    for name in queried::<String>(connection, &asked).await? {
        things.push(Thing { kind: "an object that is not a table, perhaps a view:", name, definer: None });
    }
    let asked = format!(
        "select routine_name, definer from information_schema.routines \
         where routine_schema = database() and routine_name in ({names})"
    );
    for (name, definer) in queried::<(String, String)>(connection, &asked).await? {
        things.push(Thing { kind: "the routine", name, definer: Some(definer) });
    }
    let asked = format!(
        "select trigger_name, definer from information_schema.triggers \
         where event_object_schema = database() and event_object_table in ({names})"
    );
    for (name, definer) in queried::<(String, String)>(connection, &asked).await? {
        things.push(Thing { kind: "the trigger", name, definer: Some(definer) });
    }
    if things.is_empty() {
        return Ok(None);
    }
    let account: Option<String> = first(connection, "select current_user()").await?;
    let grants: Vec<String> = queried(connection, "show grants").await?;
    let database: Option<String> = first(connection, "select database()").await?;
    let asked = "select grantee from information_schema.user_privileges where privilege_type = 'SUPER'";
    let caller = Caller {
        account: account.unwrap_or_default(),
        is_powerful: is_powerful(&grants, &database.unwrap_or_default()),
        trusted: owner.map(ToOwned::to_owned),
        superusers: queried(connection, asked).await?.into_iter().collect(),
    };
    Ok(caller.judge(&things))
}

/// Our names as a list of texts.
fn names(tables: &Tables) -> String {
    let of_text = |text: &'static str| {
        text.split("tollgate_").skip(1).map(|rest| {
            let end = rest.find(|letter: char| !(letter.is_ascii_lowercase() || letter == '_'));
            &rest[..end.unwrap_or(rest.len())]
        })
    };
    let ours: BTreeSet<_> = OURS.into_iter().flat_map(of_text).collect();
    let quoted = ours.into_iter().map(|name| format!("'{}{name}'", tables.prefix()));
    quoted.collect::<Vec<_>>().join(", ")
}

/// Whether one of the grants is for more than `database`, and more than looking. What a role may do is not told.
fn is_powerful(grants: &[String], database: &str) -> bool {
    let own = [format!("`{database}`."), format!("`{}`.", database.replace('_', "\\_"))];
    // A right of every account is a right of the one that plants code, too.
    let own_grants = grants.iter().filter(|grant| !grant.contains(" TO PUBLIC"));
    own_grants.filter_map(|grant| grant.strip_prefix("GRANT ")).any(|grant| {
        let Some((rights, object)) = grant.split_once(" ON ") else { return true };
        let object = object.trim_start_matches("PROCEDURE ").trim_start_matches("FUNCTION ");
        let is_own = own.iter().any(|own| object.starts_with(own.as_str()));
        // A right may be for some columns: `INSERT (a, b)`.
        let has = |wanted: &str| rights.split(", ").any(|right| right.split(" (").next() == Some(wanted));
        !is_own && POWERFUL.iter().any(|right| has(right))
    })
}

impl Caller {
    fn judge(&self, things: &[Thing]) -> Option<Stranger> {
        if let Some(view) = things.iter().find(|thing| thing.definer.is_none()) {
            return Some(self.stranger(view));
        }
        let strange: Vec<_> = things.iter().filter(|thing| !self.trusts(thing)).collect();
        let definers: BTreeSet<_> = strange.iter().map(|thing| &thing.definer).collect();
        // An account without rights beyond this database uses what one other account has made for it.
        let is_refused = if self.is_powerful { !definers.is_empty() } else { definers.len() > 1 };
        if is_refused { strange.first().map(|thing| self.stranger(thing)) } else { None }
    }

    fn trusts(&self, thing: &Thing) -> bool {
        let Some(definer) = &thing.definer else { return false };
        *definer == self.account
            || self
                .trusted
                .as_ref()
                .is_some_and(|trusted| trusted.split(',').any(|trusted| trusted == definer))
            || self.is_powerful && self.superusers.contains(&in_quotes(definer))
    }

    fn stranger(&self, thing: &Thing) -> Stranger {
        Stranger {
            what: format!("{} {:?}", thing.kind, thing.name),
            definer: thing.definer.clone(),
            caller: self.account.clone(),
            is_powerful: self.is_powerful,
        }
    }
}

/// An account as the list of privileges has it: `'ann'@'%'`.
fn in_quotes(account: &str) -> String {
    let (user, host) = account.rsplit_once('@').unwrap_or((account, ""));
    format!("'{user}'@'{host}'")
}

impl Stranger {
    /// What was found.
    pub(crate) fn what(&self) -> String {
        match &self.definer {
            None => format!("the lock tables include {}", self.what),
            Some(definer) if self.is_powerful => format!("{} belongs to {definer}", self.what),
            Some(definer) => {
                format!("{} belongs to {definer}, and others belong to another account", self.what)
            }
        }
    }

    /// Why that matters.
    pub(crate) fn why(&self) -> String {
        format!("code that another account put there would run with the rights of {}", self.caller)
    }

    /// What to do about it.
    pub(crate) fn advice(&self) -> String {
        match &self.definer {
            None => "drop it, or use another ?table_prefix=".to_owned(),
            Some(definer) => format!(
                "if you trust {definer}, add ?owner={} to the URL; if not, drop the objects of that name \
                 and run what `tollgate sql-schema URL` prints again, or use another ?table_prefix=",
                definer.replace('%', "%25").replace('@', "%40")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(is_powerful: bool) -> Caller {
        let superusers = ["'root'@'localhost'".to_owned()].into();
        Caller { account: "app@%".to_owned(), is_powerful, trusted: Some("ops@%".to_owned()), superusers }
    }

    fn routines(definers: &[&str]) -> Vec<Thing> {
        let thing = |definer: &&str| Thing {
            kind: "the routine",
            name: "tollgate_acquire".to_owned(),
            definer: Some((*definer).to_owned()),
        };
        definers.iter().map(thing).collect()
    }

    #[test]
    fn a_powerful_account_uses_only_what_powerful_accounts_have_made() {
        let judged = |definers: &[&str]| caller(true).judge(&routines(definers)).is_none();
        assert!(judged(&["app@%", "ops@%", "root@localhost"]));
        assert!(!judged(&["app@%", "mallory@%"]));
        assert!(!judged(&["root@%"]), "another account of that name");
    }

    #[test]
    fn an_ordinary_account_uses_what_one_account_has_made() {
        let judged = |definers: &[&str]| caller(false).judge(&routines(definers)).is_none();
        assert!(judged(&["root@localhost", "root@localhost", "app@%"]));
        assert!(!judged(&["root@localhost", "mallory@%"]));
    }

    #[test]
    fn rights_beyond_the_own_database_are_told_from_others() {
        let judged = |grant: &str| is_powerful(&[grant.to_owned()], "shop_1");
        assert!(judged("GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` WITH GRANT OPTION"));
        assert!(judged("GRANT SELECT, CREATE USER ON *.* TO `admin`@`%`"));
        assert!(!judged("GRANT USAGE ON *.* TO `app`@`%` IDENTIFIED BY PASSWORD '*0'"));
        assert!(!judged("GRANT SELECT, PROCESS ON *.* TO `app`@`%`"));
        assert!(!judged("GRANT ALL PRIVILEGES ON `shop_1`.* TO `app`@`%`"));
        assert!(!judged("GRANT ALL PRIVILEGES ON `shop\\_1`.* TO `app`@`%`"));
        assert!(!judged("GRANT EXECUTE ON PROCEDURE `shop_1`.`tollgate_acquire` TO `app`@`%`"));
        assert!(!judged("GRANT SELECT ON `performance_schema`.`threads` TO `app`@`%`"));
        assert!(!judged("GRANT SELECT, INSERT, DROP ON `test\\_%`.* TO PUBLIC"), "MariaDB's default");
        assert!(judged("GRANT ALL PRIVILEGES ON `payroll`.* TO `app`@`%`"));
        assert!(judged("GRANT SELECT, INSERT (`a`) ON `payroll`.`wages` TO `app`@`%`"));
        assert!(judged("GRANT `operators`@`%` TO `app`@`%`"), "what a role may do is not told");
    }
}
