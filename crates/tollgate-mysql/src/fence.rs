//! What makes tables in MySQL and MariaDB refuse stale tokens, in the user's own transaction.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Transaction};
use tollgate_core::{Error, ErrorKind, Fence, Result, Token};
use tollgate_sql::check_identifier;

use crate::error::Trouble;
use crate::ownership;
use crate::schema::{TO_INSTALL, Tables};

/// The most bytes that a resource's name may have.
const LONGEST: usize = 512;
/// What the last of the procedures says of itself, as `fence.sql` makes it.
const VERSION: &str = "tollgate fence 2";

/// A fence around data in MySQL or MariaDB: whoever comes with a stale token is refused, whatever it believes.
///
/// It works in your own transaction, over your own connection. A *resource* is what one lock protects. Its mark is a row of
/// `tollgate_fences`. An exclusive token raises the mark; a shared one is let in if it is not below it, and raises nothing.
/// Equal passes, smaller is `Lost`.
///
/// - **Admit before the first read.** Otherwise a stale write can slip in between your read and your write.
/// - **Whoever is refused rolls back.** An error does not end a transaction here: drop it.
/// - **Every write has to be in a transaction that admitted.** [`guard`](Self::guard) sees to that for a table.
///
/// ```no_run
/// # async fn example(guard: tollgate_core::Guard) -> Result<(), Box<dyn std::error::Error>> {
/// use mysql_async::prelude::Queryable;
/// use tollgate_mysql::MySqlFence;
///
/// let mut connection = mysql_async::Conn::from_url("mysql://root@127.0.0.1/shop").await?;
/// let orders = MySqlFence::around("orders")?;
/// orders.install(&mut connection).await?;
///
/// let mut tx = connection.start_transaction(Default::default()).await?;
/// orders.admit(&mut tx, guard.fence()?).await?;
/// tx.query_drop("update orders set total = total + 1").await?;
/// tx.commit().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct MySqlFence {
    resource: String,
    tables: Tables,
    /// An account that is trusted with what has our names.
    owner: Option<String>,
}

impl MySqlFence {
    /// A fence around `resource`: a table's name, or whatever you call what one lock protects.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is empty or longer than 512 bytes.
    pub fn around(resource: &str) -> Result<Self> {
        if resource.is_empty() || resource.len() > LONGEST {
            return Err(Error::invalid(format!("a resource name has 1 to {LONGEST} bytes")));
        }
        Ok(Self { resource: resource.to_owned(), tables: Tables::new("tollgate_"), owner: None })
    }

    /// With the tables that start with `prefix`, as `?table_prefix=` says it of locks.
    ///
    /// # Errors
    /// `InvalidArgument` if it is not made of letters, digits and underscores.
    pub fn with_table_prefix(mut self, prefix: &str) -> Result<Self> {
        check_identifier("table_prefix", prefix)?;
        self.tables = Tables::new(prefix);
        Ok(self)
    }

    /// The same where the procedures were made by another account that is trusted, `USER@HOST`.
    ///
    /// [`install`](Self::install) refuses what others have made, because it would run with the rights of this account: one that may
    /// change all databases uses only what itself or one with `SUPER` has made, any other what one account has made.
    #[must_use]
    pub fn owned_by(mut self, account: &str) -> Self {
        self.owner = Some(account.to_owned());
        self
    }

    /// Makes the table and the procedures, if they are not there: `fence.sql`. A database with locks in it has them.
    ///
    /// # Errors
    /// `Denied` if this user may not create them, or an account has made them that is not [trusted](Self::owned_by).
    pub async fn install(&self, connection: &mut Conn) -> Result<()> {
        self.judge(connection).await?;
        match self.is_there(connection).await.map_err(Trouble::of) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(trouble) => return Err(trouble.into_error("the version check").during("install the fence")),
        }
        let made = match self.make(connection).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                let message = "another client has been creating the fence for a long time; try again";
                return Err(Error::new(ErrorKind::Unavailable, message).during("install the fence"));
            }
            Err(error) => Err(Trouble::of(error)),
        };
        made.map_err(|trouble| {
            let message =
                "this user may not create the table and the procedures of fences; let a user with that \
                 right run fence.sql, which `tollgate sql-schema URL` prints, too";
            let error = match trouble.is_denied() {
                true => trouble.into_error_of(ErrorKind::Denied, message),
                false => trouble.into_error("creating the fence"),
            };
            error.during("install the fence")
        })?;
        self.judge(connection).await
    }

    /// Refuses what others have made.
    async fn judge(&self, connection: &mut Conn) -> Result<()> {
        let checked = ownership::check(connection, &self.tables, self.owner.as_deref()).await;
        checked.map_err(|error| error.during("install the fence"))
    }

    /// Whether all of it is, as it is now: what is made last says so.
    async fn is_there(&self, connection: &mut Conn) -> mysql_async::Result<bool> {
        let last = self.tables.named("tollgate_check");
        let asked = "select routine_comment from information_schema.routines \
                     where routine_schema = database() and routine_name = ?";
        let version: Option<String> = connection.exec_first(asked, (last.trim_matches('`'),)).await?;
        Ok(version.as_deref() == Some(VERSION))
    }

    /// One after the other, if several come at once: the first makes it, and the others find it. Answers whether it was this
    /// one's turn in time.
    async fn make(&self, connection: &mut Conn) -> mysql_async::Result<bool> {
        let name = self.tables.named("tollgate_schema");
        let locked: Option<Option<i64>> =
            connection.exec_first("select get_lock(?, ?)", (&name, TO_INSTALL)).await?;
        if locked.flatten() != Some(1) {
            return Ok(false);
        }
        let made = match self.is_there(connection).await {
            Ok(false) => connection.query_drop(self.tables.named(include_str!("fence.sql"))).await,
            other => other.map(drop),
        };
        // It ends with the connection anyway.
        let _ = connection.exec_drop("do release_lock(?)", (&name,)).await;
        made.map(|()| true)
    }

    /// Lets a holder in, in your transaction, which shuts out everybody before it. Do this before the first read.
    ///
    /// # Errors
    /// `Lost` if somebody was in after this holder: roll back. `Indeterminate` if no answer came.
    pub async fn admit(&self, tx: &mut Transaction<'_>, fence: Fence) -> Result<()> {
        let call = match fence.is_exclusive() {
            true => "call tollgate_admit(?, ?)",
            false => "call tollgate_admit_shared(?, ?)",
        };
        let token = i64::from(fence);
        let admitted = tx.exec_drop(self.tables.named(call), (self.resource.as_bytes(), token)).await;
        admitted.map_err(|error| refusal(error, fence).during("admit"))
    }

    /// Has `table` refuse everybody who writes to it in a transaction that has not admitted an exclusive token for this
    /// resource, by triggers called `TABLE_fenced_insert`, `_update` and `_delete`.
    ///
    /// # Errors
    /// `Denied` if this user may not make triggers, `Config` if there is no such table.
    pub async fn guard(&self, connection: &mut Conn, table: &str) -> Result<()> {
        check_identifier("table", table)?;
        let resource = format!("x'{}'", hex(self.resource.as_bytes()));
        let script = self.tables.named(include_str!("guard.sql"));
        let script = script.replace("THE_TABLE", table).replace("THE_RESOURCE", &resource);
        let made = connection.query_drop(script).await.map_err(Trouble::of);
        made.map_err(|trouble| {
            let kind = if trouble.is_denied() { ErrorKind::Denied } else { ErrorKind::Config };
            let message = format!(
                "the table {table:?} cannot be guarded; it must exist, and this user needs the right to \
                 create triggers"
            );
            trouble.into_error_of(kind, message).during("guard")
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a refused token is told.
fn refusal(error: mysql_async::Error, fence: Fence) -> Error {
    let mysql_async::Error::Server(said) = &error else {
        return Trouble::of(error).into_error("admitting the token");
    };
    match said.state.as_str() {
        "TG412" => {
            let mark = said.message.split_whitespace().find_map(|word| word.parse().ok());
            let highest = mark.and_then(|mark| Token::new(mark).ok());
            fence.refused(highest.unwrap_or(fence.token()))
        }
        "TG428" => {
            Error::invalid("a token must be admitted in a transaction; begin one first").caused_by(error)
        }
        _ => Trouble::of(error).into_error("admitting the token"),
    }
}
