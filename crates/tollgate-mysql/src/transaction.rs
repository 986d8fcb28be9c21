//! Locks that live exactly as long as a transaction of the user's.
//!
//! The transaction keeps the row of the lock while it says that nobody is in. Who wants the lock otherwise finds the row
//! taken. A transaction must not keep the row of a lock that somebody holds: its holder could not renew it. READ COMMITTED
//! lets go of rows that do not fit, and nothing else does: so a transaction above it that meets a lock in use is rolled
//! back, as it would be for a deadlock.

use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Transaction, Value};
use tokio::sync::OnceCell;
use tollgate_core::{Error, ErrorKind, LockName, Result, Token};
use tollgate_sql::check_identifier;

use crate::config::Dialect;
use crate::error::Trouble;
use crate::schema::Tables;
use crate::statement::section;

/// How long a transaction that waits pauses between looks: at first, and at most.
const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Takes locks within transactions of the user's own connections.
///
/// The tables have to be there: whoever takes locks by `tollgate::connect` has them made. Such a lock excludes those, and
/// the other way round. It ends with the transaction, however that ends, and nobody can renew, break or see it.
///
/// A transaction that has the lock and asks again gets the same token again.
///
/// Take it **first** in the transaction, and begin that in READ COMMITTED if it is to wait.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use mysql_async::{IsolationLevel, TxOpts, prelude::Queryable};
/// use tollgate_mysql::MySqlTransactions;
///
/// let locks = MySqlTransactions::new();
/// let mut connection = mysql_async::Conn::from_url("mysql://root@127.0.0.1/shop").await?;
/// connection.query_drop("set session transaction isolation level read committed").await?;
/// let mut tx = connection.start_transaction(TxOpts::default()).await?;
/// let token = locks.lock_in_transaction(&mut tx, "orders/42").await?;
/// tx.query_drop("update orders set state = 'paid' where id = 42").await?;
/// tx.commit().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MySqlTransactions {
    tables: Tables,
    /// Where tokens come from, once that was asked.
    dialect: OnceCell<Dialect>,
}

impl Default for MySqlTransactions {
    fn default() -> Self {
        Self { tables: Tables::new("tollgate_"), dialect: OnceCell::new() }
    }
}

impl MySqlTransactions {
    /// With the tables as they are called usually.
    pub fn new() -> Self {
        Self::default()
    }

    /// With the tables that start with `prefix`, as `?table_prefix=` says it.
    ///
    /// # Errors
    /// `InvalidArgument` if it is not made of letters, digits and underscores.
    pub fn with_table_prefix(prefix: &str) -> Result<Self> {
        check_identifier("table_prefix", prefix)?;
        Ok(Self { tables: Tables::new(prefix), dialect: OnceCell::new() })
    }

    /// Takes the lock `name` until `tx` ends, waiting for it as long as it takes.
    ///
    /// # Errors
    /// `Deadlock` if `tx` is above READ COMMITTED and the lock was in use, or a holder that seemed dead came back in that
    /// moment: `tx` was rolled back, begin again.
    pub async fn lock_in_transaction(&self, tx: &mut Transaction<'_>, name: &str) -> Result<Token> {
        let locked =
            self.wait(tx, name, None).await.map_err(|error| error.during("lock in a transaction"))?;
        locked.ok_or_else(|| Error::new(ErrorKind::Unexpected, "a wait without a limit ended"))
    }

    /// The same, for at most `limit`; `None` if it is in use then.
    ///
    /// # Errors
    /// As [`lock_in_transaction`](Self::lock_in_transaction).
    pub async fn lock_in_transaction_within(
        &self,
        tx: &mut Transaction<'_>,
        name: &str,
        limit: Duration,
    ) -> Result<Option<Token>> {
        self.wait(tx, name, Some(limit)).await.map_err(|error| error.during("lock in a transaction"))
    }

    /// The same without waiting; `None` if it is in use.
    ///
    /// # Errors
    /// As [`lock_in_transaction`](Self::lock_in_transaction).
    pub async fn try_lock_in_transaction(
        &self,
        tx: &mut Transaction<'_>,
        name: &str,
    ) -> Result<Option<Token>> {
        self.lock_in_transaction_within(tx, name, Duration::ZERO).await
    }

    async fn wait(
        &self,
        tx: &mut Transaction<'_>,
        name: &str,
        limit: Option<Duration>,
    ) -> Result<Option<Token>> {
        let name = LockName::new(name)?;
        let until = limit.map(|limit| tokio::time::Instant::now() + limit);
        let mut pause = PAUSE;
        loop {
            if let Some(token) = self.attempt(tx, &name).await.map_err(|error| error.on(&name))? {
                return Ok(Some(token));
            }
            let left = until.map(|until| until.saturating_duration_since(tokio::time::Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            tokio::time::sleep(left.map_or(pause, |left| left.min(pause))).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn attempt(&self, tx: &mut Transaction<'_>, name: &LockName) -> Result<Option<Token>> {
        let dialect = *self.dialect.get_or_try_init(|| self.ask_dialect(tx)).await?;
        if dialect == Dialect::MariaDb {
            is_open(tx).await?;
        }
        let taking = Taking { name, dialect, passage: passage(tx).await? };
        if let Some(token) = self.take_free(tx, &taking).await? {
            return Ok(Some(token));
        }
        let made = tx.exec_drop(self.text("make"), (name.as_str(), name.as_str())).await;
        match made.map_err(Trouble::of) {
            Ok(()) if tx.affected_rows() == 1 => return self.take_free(tx, &taking).await,
            Ok(()) => {}
            Err(trouble) if trouble.code() == Some(DUPLICATE) => return roll_back(tx, IN_USE).await,
            Err(trouble) => return Err(trouble.into_error("taking the lock")),
        }
        match is_read_committed(tx).await? {
            true => self.take_from_the_dead(tx, &taking).await,
            false => self.take_or_roll_back(tx, &taking).await,
        }
    }

    /// Takes a lock whose holders and waiters are all dead: they are counted until somebody looks. Nothing is locked before it
    /// is seen that nobody lives.
    async fn take_from_the_dead(
        &self,
        tx: &mut Transaction<'_>,
        taking: &Taking<'_>,
    ) -> Result<Option<Token>> {
        let Some(seen) = self.row(tx, taking, "row").await? else { return Ok(None) };
        if !seen.is_over || self.lives(tx, taking, &seen, "lives").await? {
            return Ok(None);
        }
        let Some(token) = self.take_as_seen(tx, taking, seen.clone()).await? else { return Ok(None) };
        // One that is being renewed in this moment looked dead.
        if self.lives(tx, taking, &seen, "lives_locked").await? {
            return roll_back(tx, REVIVED).await;
        }
        Ok(Some(token))
    }

    /// The same for a transaction that keeps whatever it looks at: it takes the lock, or gives up everything.
    async fn take_or_roll_back(
        &self,
        tx: &mut Transaction<'_>,
        taking: &Taking<'_>,
    ) -> Result<Option<Token>> {
        if let Some(seen) = self.row(tx, taking, "row_locked").await?
            && seen.is_over
            && !self.lives(tx, taking, &seen, "lives_locked").await?
            && let Some(token) = self.take_as_seen(tx, taking, seen).await?
        {
            return Ok(Some(token));
        }
        roll_back(tx, IN_USE).await
    }

    async fn take_free(&self, tx: &mut Transaction<'_>, taking: &Taking<'_>) -> Result<Option<Token>> {
        self.take(tx, taking, "if_free", vec![taking.passage.as_str().into()]).await
    }

    async fn take_as_seen(
        &self,
        tx: &mut Transaction<'_>,
        taking: &Taking<'_>,
        seen: Row,
    ) -> Result<Option<Token>> {
        self.take(tx, taking, "if_as_seen", vec![seen.owner.into(), seen.last.into()]).await
    }

    async fn take(
        &self,
        tx: &mut Transaction<'_>,
        taking: &Taking<'_>,
        condition: &str,
        of_condition: Vec<Value>,
    ) -> Result<Option<Token>> {
        let take = self.text(match taking.dialect {
            Dialect::MariaDb => "take",
            Dialect::MySql => "take_counted",
        });
        // The name comes last, and all before it is whose transaction it is.
        let mut values: Vec<Value> = vec![taking.passage.as_str().into(); take.matches('?').count() - 1];
        values.push(taking.name.as_str().into());
        values.extend(of_condition);
        let taken = tx.exec_drop(format!("{take}\n{}", self.text(condition)), values).await;
        match taken.map_err(Trouble::of) {
            Ok(()) if tx.affected_rows() == 1 => {
                let number = tx.last_insert_id().unwrap_or_default();
                Ok(Some(Token::new(number)?))
            }
            Ok(()) => Ok(None),
            Err(trouble) => blocked(trouble).map(|()| None),
        }
    }

    async fn row(&self, tx: &mut Transaction<'_>, taking: &Taking<'_>, how: &str) -> Result<Option<Row>> {
        let asked = tx.exec_first(self.text(how), (taking.name.as_str(),)).await;
        match asked.map_err(Trouble::of) {
            Ok(row) => Ok(row.map(|(owner, last, is_over)| Row { owner, last, is_over })),
            Err(trouble) => blocked(trouble).map(|()| None),
        }
    }

    /// Whether anybody lives of those whom the row stands for.
    async fn lives(
        &self,
        tx: &mut Transaction<'_>,
        taking: &Taking<'_>,
        seen: &Row,
        how: &str,
    ) -> Result<bool> {
        let asked = tx.exec_first(self.text(how), (taking.name.as_str(), seen.owner.as_deref())).await;
        match asked.map_err(Trouble::of) {
            Ok(lives) => Ok(lives != Some(0_i64)),
            // Somebody has had it for so long that it lives, most likely.
            Err(trouble) => blocked(trouble).map(|()| true),
        }
    }

    async fn ask_dialect(&self, tx: &mut Transaction<'_>) -> Result<Dialect> {
        let asked: Option<String> = tx
            .query_first(self.text("dialect"))
            .await
            .map_err(|error| Trouble::of(error).into_error("taking the lock"))?;
        asked.as_deref().and_then(Dialect::named).ok_or_else(|| {
            let message =
                "the lock tables do not exist yet; connect to this database once, or run what `tollgate \
                 sql-schema URL` prints";
            Error::new(ErrorKind::Config, message)
        })
    }

    fn text(&self, name: &str) -> String {
        self.tables.named(section(include_str!("transaction.sql"), name))
    }
}

/// What is taken, and by whom.
struct Taking<'a> {
    name: &'a LockName,
    dialect: Dialect,
    /// Which transaction it is.
    passage: String,
}

/// What the row of a lock in use says.
#[derive(Clone)]
struct Row {
    owner: Option<Vec<u8>>,
    last: i64,
    /// Whether its holder, if it has one, was not renewed there in time.
    is_over: bool,
}

/// Fine if another transaction has the row; waiting for that took as long as this connection allows.
fn blocked(trouble: Trouble) -> Result<()> {
    if trouble.is_blocked() {
        return Ok(());
    }
    if trouble.is_passing() {
        let message = "the database rolled this transaction back to end a deadlock; begin again";
        return Err(trouble.into_error_of(ErrorKind::Deadlock, message));
    }
    Err(trouble.into_error("taking the lock"))
}

/// Tells this transaction from all others, together with what its connection is called: nothing else does, for users who may
/// not look at those of others.
async fn passage(tx: &mut Transaction<'_>) -> Result<String> {
    let failed = |error| Trouble::of(error).into_error("taking the lock");
    tx.query_drop("set @session_of_tollgate = coalesce(@session_of_tollgate, uuid())")
        .await
        .map_err(failed)?;
    let counted: Vec<(String, String)> = tx
        .query("show session status where variable_name in ('Com_begin', 'Com_commit', 'Com_rollback')")
        .await
        .map_err(failed)?;
    Ok(counted.into_iter().map(|(_, count)| format!(" {count}")).collect())
}

/// Fails if the transaction has ended without its owner's doing: nothing would hold the lock. MySQL does not say.
async fn is_open(tx: &mut Transaction<'_>) -> Result<()> {
    let open: Option<i64> = tx
        .query_first("select @@in_transaction")
        .await
        .map_err(|error| Trouble::of(error).into_error("taking the lock"))?;
    if open == Some(0) {
        let message = "this transaction has ended: a DDL statement commits it, and a deadlock rolls it \
                       back; begin another one";
        return Err(Error::invalid(message));
    }
    Ok(())
}

/// A row that was made by somebody else meanwhile.
const DUPLICATE: u16 = 1062;

/// Whether this connection's transactions let go of rows that do not fit. One that was begun otherwise than the connection
/// is set up cannot be told from the others.
async fn is_read_committed(tx: &mut Transaction<'_>) -> Result<bool> {
    // MySQL and later MariaDBs call it otherwise.
    let shown: Option<(String, String)> = tx
        .query_first(
            "show session variables where variable_name in ('tx_isolation', 'transaction_isolation')",
        )
        .await
        .map_err(|error| Trouble::of(error).into_error("taking the lock"))?;
    Ok(shown.is_some_and(|(_, level)| matches!(level.as_str(), "READ-COMMITTED" | "READ-UNCOMMITTED")))
}

const IN_USE: &str = "the lock is in use, and above READ COMMITTED a waiting transaction would keep the \
                      holder from renewing it: this transaction was rolled back; begin again, or run `set \
                      session transaction isolation level read committed` on this connection first";
const REVIVED: &str = "a holder or waiter of this lock that was overdue renewed at this moment: this \
                       transaction was rolled back, because it would block that client; begin again";

/// Gives up everything that the transaction has: its holder could not renew the lock otherwise.
async fn roll_back(tx: &mut Transaction<'_>, message: &str) -> Result<Option<Token>> {
    tx.query_drop("rollback").await.map_err(|error| Trouble::of(error).into_error("taking the lock"))?;
    Err(Error::new(ErrorKind::Deadlock, message))
}
