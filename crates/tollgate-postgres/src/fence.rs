//! What makes tables in PostgreSQL refuse stale tokens, within the user's own transactions.

use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Transaction};
use tollgate_core::{Error, ErrorKind, Fence, Result, Token};

use crate::names::Names;
use crate::ownership::Ownership;
use crate::user_error::{Missing, in_transaction};

/// The SQLSTATE of a token that is stale.
pub const STALE: &str = "TG412";
/// The SQLSTATE of a write without a token.
pub const NO_TOKEN: &str = "TG428";

const SQL: &str = include_str!("fence.sql");
/// What the tables' comment says if everything is there.
const INSTALLED: &str = "tollgate fence 3";
/// Where that is said.
const FIND: &str = "select pg_catalog.obj_description(pg_catalog.to_regclass($1), 'pg_class')";
const NOT_INSTALLED: Missing = Missing(
    "the fence is not installed in this database; call PostgresFence::install once, or run its sql()",
);

/// A fence around data in PostgreSQL: a transaction that comes with a stale token fails as a whole, whatever its
/// client believes.
///
/// It works within your own [`tokio_postgres::Transaction`]. A *resource* is what one lock protects: a table, some rows,
/// several tables. Its mark, the highest exclusive token that was admitted, is a row of `tollgate.fences`. An exclusive
/// token raises it; a shared one is let in if it is not below it, and raises nothing. Equal passes, smaller is `Lost`.
///
/// - **Admit first.** What the transaction reads before it is admitted may be changed by a stale writer after.
/// - **A refusal ends the transaction**: every later statement in it fails, too, and nothing of it is kept.
/// - **Transactions of one resource go one after the other** from the admission on; those of readers go together.
/// - **Every write has to come through the fence.** `select tollgate.guard('orders')` has the table see to that: it
///   refuses ([`NO_TOKEN`]) who was not let in with an exclusive token in the same transaction. A reader's is not enough.
///
/// Other languages call the same functions: `select tollgate.admit('orders', 42)`, and `tollgate.admit_shared` for the
/// token of a shared lock. A stale token is the SQLSTATE [`STALE`].
///
/// ```no_run
/// # async fn example(locks: tollgate_core::Locks, mut postgres: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate_postgres::PostgresFence;
///
/// let fence = PostgresFence::new();
/// fence.install(&postgres).await?;
///
/// let guard = locks.lock("orders").acquire().await?;
/// let mut transaction = postgres.transaction().await?;
/// fence.admit(&mut transaction, "orders", guard.fence()?).await?;
/// // However long this takes: if somebody was admitted after us, nothing of it is kept.
/// transaction.execute("update orders set state = 'paid' where id = 7", &[]).await?;
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct PostgresFence {
    names: Names,
    /// A role that is trusted with the schema.
    owner: Option<String>,
    admit: String,
    admit_shared: String,
}

impl Default for PostgresFence {
    fn default() -> Self {
        Self::with(Names::default())
    }
}

impl PostgresFence {
    /// A fence whose marks are in the schema `tollgate`.
    pub fn new() -> Self {
        Self::default()
    }

    /// A fence whose marks are in another schema.
    ///
    /// # Errors
    /// `InvalidArgument` for what cannot be a schema's name.
    pub fn in_schema(schema: &str) -> Result<Self> {
        Ok(Self::with(Names::new(schema, "")?))
    }

    pub(crate) fn with(names: Names) -> Self {
        let [admit, admit_shared] = ["admit", "admit_shared"]
            .map(|function| names.written_into(&format!("select tollgate.{function}($1, $2)")));
        Self { names, owner: None, admit, admit_shared }
    }

    /// The same where the schema, or what is in it, belongs to another role that is trusted.
    ///
    /// [`install`](Self::install) refuses what belongs to neither this user nor a superuser: it would run the code that its owner
    /// has put there. A role that is no superuser trusts the owners of the schema and of the database, too.
    #[must_use]
    pub fn owned_by(mut self, role: &str) -> Self {
        self.owner = Some(role.to_owned());
        self
    }

    /// What [`install`](Self::install) runs, for those who apply it themselves.
    pub fn sql(&self) -> String {
        self.names.written_into(SQL)
    }

    /// Makes the table and the functions, unless they are there. Safe when many do it at once.
    ///
    /// # Errors
    /// `Denied` if this user may not create them, or they belong to a role that is not [trusted](Self::owned_by); `Unavailable` if the connection is lost.
    pub async fn install(&self, client: &impl GenericClient) -> Result<()> {
        self.make(client).await.map_err(|error| error.during("install the fence"))
    }

    async fn make(&self, client: &impl GenericClient) -> Result<()> {
        let ownership = Ownership::of(&self.names, self.owner.as_deref());
        judge(client, &ownership).await?;
        let table = self.names.written_into("tollgate.fences");
        let said = client
            .query_typed_one(FIND, &[(&table, Type::TEXT)])
            .await
            .map_err(|error| in_transaction(error, &NOT_INSTALLED))?;
        if said.get::<_, Option<&str>>(0) == Some(INSTALLED) {
            return Ok(());
        }
        let denied = |error| {
            let error = in_transaction(error, &NOT_INSTALLED);
            if error.kind() != ErrorKind::Denied {
                return error;
            }
            Error::new(
                ErrorKind::Denied,
                "this user may not create the fence's table and functions; let a user with that right run \
                 what `tollgate sql-schema URL` prints",
            )
        };
        // The schema first: once its owner is known, no other role can put anything into it.
        client.batch_execute(ownership.create()).await.map_err(denied)?;
        judge(client, &ownership).await?;
        // Several statements in one request are one transaction.
        client.batch_execute(&self.sql()).await.map_err(denied)?;
        judge(client, &ownership).await
    }

    /// Lets a holder in, which shuts out everybody before it. Do this first in the transaction. One statement, which is
    /// kept or undone with the transaction.
    ///
    /// # Errors
    /// `Lost` if somebody was in after this holder; `Config` if the fence is not [installed](Self::install). The
    /// transaction has failed then.
    pub async fn admit(&self, transaction: &mut Transaction<'_>, resource: &str, fence: Fence) -> Result<()> {
        self.ask(transaction, resource, fence).await.map_err(|error| error.during("admit"))
    }

    async fn ask(&self, transaction: &mut Transaction<'_>, resource: &str, fence: Fence) -> Result<()> {
        if resource.is_empty() || resource.contains('\0') {
            return Err(Error::invalid("a resource name must have at least one character, and no NUL"));
        }
        let statement = if fence.is_exclusive() { &self.admit } else { &self.admit_shared };
        let token = i64::from(fence);
        let asked =
            transaction.query_typed(statement, &[(&resource, Type::TEXT), (&token, Type::INT8)]).await;
        match asked {
            Ok(_) => Ok(()),
            Err(error) => {
                Err(refusal(&error, fence).unwrap_or_else(|| in_transaction(error, &NOT_INSTALLED)))
            }
        }
    }
}

/// Refuses what belongs to others.
async fn judge(client: &impl GenericClient, ownership: &Ownership) -> Result<()> {
    let seen = ownership.look_over(client).await;
    ownership.judge(seen.map_err(|error| in_transaction(error, &NOT_INSTALLED))?)
}

/// What a refused token is told; nothing if it was not refused.
pub(crate) fn refusal(error: &tokio_postgres::Error, fence: Fence) -> Option<Error> {
    let said = error.as_db_error().filter(|said| said.code().code() == STALE)?;
    let highest = Token::new(said.detail()?.parse().ok()?).ok()?;
    Some(fence.refused(highest))
}
