//! Locks that live exactly as long as the user's own transaction.

use std::time::{Duration, Instant};

use tokio_postgres::Transaction;
use tokio_postgres::types::Type;
use tollgate_core::{Error, ErrorKind, LockName, Result, Token};

use crate::names::Names;
use crate::user_error::{Missing, in_transaction};

/// The SQLSTATE of a transaction that does not see who is in now.
const ABOVE_READ_COMMITTED: &str = "TG409";
const NOT_INSTALLED: Missing = Missing(
    "Tollgate's tables are not in this database; connect once with tollgate::connect(\"postgres://…\") as \
     a user who may create them, or run what `tollgate sql-schema` prints",
);

/// How long an attempt that is not to wait gives a request that is under way.
const MOMENT: Duration = Duration::from_millis(20);
/// How long one that waits stands in line for another transaction; longer than PostgreSQL takes to find out that two
/// wait for each other.
const IN_LINE: Duration = Duration::from_millis(1500);
/// The pauses between two looks at a lock that is held by a lease.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// Locks that live exactly as long as a transaction: no ttl, nothing to release, nothing to lose before it ends.
///
/// They exclude with leases of the same name, taken by [`Locks`](tollgate_core::Locks) over `postgres://`, both ways,
/// and with each other. A transaction gets in when nobody holds the lock and nobody waits for it. Those who come while
/// it is in find the lock busy, or wait until the transaction has committed or was rolled back. Nobody sees in the list of
/// locks who is in like this: what a transaction has not committed nobody sees.
///
/// A transaction that has the lock and asks again gets the same token again; one that went back to a savepoint before it has
/// neither.
///
/// The transaction must be READ COMMITTED, which is PostgreSQL's default: above, it would not see who is in now.
///
/// ```no_run
/// # async fn example(mut postgres: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate_postgres::lock_in_transaction;
///
/// let mut transaction = postgres.transaction().await?;
/// let token = lock_in_transaction(&mut transaction, "orders/42").await?;
/// transaction.execute("update orders set state = 'paid' where id = 42", &[]).await?;
/// transaction.commit().await?;
/// println!("done as number {token}");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionLocks {
    take: String,
}

impl Default for TransactionLocks {
    fn default() -> Self {
        Self::with(&Names::default())
    }
}

impl TransactionLocks {
    /// Locks in the schema `tollgate`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Locks in another schema, with tables that start with `table_prefix`, as the URL of the leases says it.
    ///
    /// # Errors
    /// `InvalidArgument` for what cannot be a schema's or a table's name.
    pub fn in_schema(schema: &str, table_prefix: &str) -> Result<Self> {
        Ok(Self::with(&Names::new(schema, table_prefix)?))
    }

    fn with(names: &Names) -> Self {
        Self { take: names.written_into("select tollgate.take_in_transaction($1, $2)") }
    }

    /// Waits until the lock is the transaction's.
    ///
    /// # Errors
    /// `InvalidArgument` for a bad name and a transaction above READ COMMITTED; `Deadlock` if two transactions wait for each
    /// other; `Timeout` if a limit of the connection ended the wait; `Config` if the tables are not there. The
    /// transaction has failed then.
    pub async fn lock(&self, transaction: &mut Transaction<'_>, name: &str) -> Result<Token> {
        let taken = self.wait(transaction, name, None).await?;
        taken.ok_or_else(|| Error::new(ErrorKind::Unexpected, "a wait without a limit ended"))
    }

    /// Takes the lock now, or not at all: the transaction goes on without it then.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub async fn try_lock(&self, transaction: &mut Transaction<'_>, name: &str) -> Result<Option<Token>> {
        self.wait(transaction, name, Some(Duration::ZERO)).await
    }

    /// Waits for the lock no longer than `limit`; the transaction goes on without it then.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub async fn lock_within(
        &self,
        transaction: &mut Transaction<'_>,
        name: &str,
        limit: Duration,
    ) -> Result<Option<Token>> {
        self.wait(transaction, name, Some(limit)).await
    }

    async fn wait(
        &self,
        transaction: &mut Transaction<'_>,
        name: &str,
        limit: Option<Duration>,
    ) -> Result<Option<Token>> {
        let fail = |error: Error| error.during("lock in a transaction");
        let name = LockName::new(name).map_err(|error| fail(error.into()))?;
        let started = Instant::now();
        let mut pause = PAUSES.0;
        loop {
            let left = limit.map(|limit| limit.saturating_sub(started.elapsed()));
            let patience = left.map_or(IN_LINE, |left| left.clamp(MOMENT, IN_LINE));
            let taken =
                self.take(transaction, &name, patience).await.map_err(|error| fail(error).on(&name))?;
            if taken.is_some() || limit.is_some_and(|limit| started.elapsed() >= limit) {
                return Ok(taken);
            }
            tokio::time::sleep(left.map_or(pause, |left| left.min(pause))).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    async fn take(
        &self,
        transaction: &mut Transaction<'_>,
        name: &LockName,
        patience: Duration,
    ) -> Result<Option<Token>> {
        let patience = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
        let asked = transaction
            .query_typed_one(&self.take, &[(&name.as_str(), Type::TEXT), (&patience, Type::INT4)])
            .await;
        let row = asked.map_err(|error| match error.code() {
            Some(code) if code.code() == ABOVE_READ_COMMITTED => Error::invalid(
                "a lock within a transaction needs READ COMMITTED: at a higher level the transaction does \
                 not see the current holder; begin it with ISOLATION LEVEL READ COMMITTED",
            )
            .caused_by(error),
            _ => in_transaction(error, &NOT_INSTALLED),
        })?;
        let given: Option<i64> = row.get(0);
        Ok(given.map(|given| Token::new(given.unsigned_abs())).transpose()?)
    }
}

/// Waits until the lock is the transaction's, in the schema `tollgate`. See [`TransactionLocks`].
///
/// # Errors
/// As [`TransactionLocks::lock`].
pub async fn lock_in_transaction(transaction: &mut Transaction<'_>, name: &str) -> Result<Token> {
    TransactionLocks::new().lock(transaction, name).await
}

/// Takes the lock for the transaction now, or not at all, in the schema `tollgate`. See [`TransactionLocks`].
///
/// # Errors
/// As [`TransactionLocks::lock`].
pub async fn try_lock_in_transaction(transaction: &mut Transaction<'_>, name: &str) -> Result<Option<Token>> {
    TransactionLocks::new().try_lock(transaction, name).await
}
