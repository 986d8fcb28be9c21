//! One connection that a lock can hang on.

use std::sync::Arc;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Statement, Value};
use tollgate_core::{Error, ErrorKind, LockName, Result, Token};

use super::key::key;
use crate::config::{Dialect, MySqlConfig, TO_CONNECT};
use crate::error::{Trouble, silent_at};
use crate::place::Place;
use crate::schema::Tables;
use crate::wire::{Wire, collected, first};

/// How long the server may let somebody wait, in seconds: a year.
const FOR_EVER: i64 = 365 * 24 * 3600;

/// The statements of this style, with the names of one client's tables.
#[derive(Debug)]
pub(super) struct Texts {
    pub(super) dialect: Dialect,
    take: String,
    draw: String,
    release: &'static str,
    /// What a connection says first, if there is something to say.
    wake: Option<String>,
    pub(super) seen: String,
    pub(super) sessions: String,
    pub(super) revocations: String,
}

impl Texts {
    pub(super) fn new(tables: &Tables, dialect: Dialect) -> Self {
        let take = match dialect {
            Dialect::MariaDb => include_str!("sql/try_mariadb.sql"),
            Dialect::MySql => include_str!("sql/try_mysql.sql"),
        };
        Self {
            dialect,
            take: keep_variables(take, tables),
            draw: tables.named(include_str!("sql/draw.sql")),
            release: include_str!("sql/release.sql"),
            wake: (dialect == Dialect::MariaDb).then(|| tables.named("call tollgate_wake()")),
            seen: tables.named(include_str!("sql/seen.sql")),
            sessions: tables.named("tollgate_sessions"),
            revocations: tables.named("tollgate_revocations"),
        }
    }
}

/// Variables are called like tables, and are none.
fn keep_variables(sql: &str, tables: &Tables) -> String {
    tables
        .named(&sql.replace("@tollgate_turn", "@turn_of_tollgate"))
        .replace("@turn_of_tollgate", "@tollgate_turn")
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    driver: Wire,
    place: Place,
    texts: Arc<Texts>,
    prepared: [Option<Statement>; 3],
    /// How often a lock was asked for over it.
    turn: i64,
    /// Whether a request was answered: it may have been closed since, and nobody has noticed.
    used: bool,
}

impl Connection {
    /// Connects, and makes sure that the server knows the connection by the number that we do.
    pub(super) async fn open(config: &MySqlConfig, texts: &Arc<Texts>) -> Result<Self> {
        let opening = async {
            let mut driver = Wire::open(config, config.lasting_options()?).await?;
            let told = first(&mut driver, "select connection_id(), @tollgate_turn := 0, @@wsrep_on").await;
            let told: Option<(u32, Value, Value)> = match told {
                Ok(told) => told,
                // MySQL does not know Galera.
                Err(_) => first(&mut driver, "select connection_id(), @tollgate_turn := 0, 0")
                    .await
                    .map_err(|trouble| trouble.not_done().into_error("the connection setup"))?,
            };
            let Some((id, _, galera)) = told else {
                return Err(Error::new(ErrorKind::Unexpected, "the server did not report its connection id"));
            };
            if mysql_async::from_value_opt::<i64>(galera).is_ok_and(|on| on == 1) {
                return Err(Error::new(
                    ErrorKind::Config,
                    "GET_LOCK works on one Galera node only; leave out ?style=session: leases work there",
                ));
            }
            if id != driver.id() {
                return Err(Error::new(
                    ErrorKind::Config,
                    "a proxy in between gives one connection to several clients in turn, and its locks \
                     with it: the next client would own the lock. Connect directly, or leave out \
                     ?style=session: leases work through it",
                ));
            }
            let place = Place::of(&mut driver).await;
            let place = place.map_err(|trouble| trouble.not_done().into_error("the connection setup"))?;
            Ok((driver, place))
        };
        let (driver, place) = tokio::time::timeout(config.to_connect, opening)
            .await
            .unwrap_or_else(|_| Err(silent_at(config, config.to_connect)))?;
        Ok(Self { driver, place, texts: texts.clone(), prepared: Default::default(), turn: 0, used: false })
    }

    /// Has the tokens go on above all that were given before the server was started. To be done before the first lock.
    pub(super) async fn wake(&mut self) -> Result<()> {
        let Some(wake) = self.texts.wake.clone() else { return Ok(()) };
        let woken = tokio::time::timeout(TO_CONNECT, self.driver.query_drop(wake)).await;
        let woken = woken.unwrap_or_else(|_| Err(mysql_async::DriverError::ConnectionClosed.into()));
        woken.map_err(|error| Trouble::of(error).not_done().into_error("the connection setup"))
    }

    /// Where it ends at the server.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// The driver's own.
    pub(super) fn driver(&mut self) -> &mut Conn {
        &mut self.driver
    }

    /// Whether it may have been closed while nobody used it.
    pub(super) fn was_used(&self) -> bool {
        self.used
    }

    /// It answers.
    pub(super) fn note_use(&mut self) {
        self.used = true;
    }

    /// Takes a lock, at once or in its turn.
    pub(super) async fn take(
        &mut self,
        name: &LockName,
        waits: bool,
    ) -> Result<Option<Result<Token>>, Trouble> {
        self.turn += 1;
        let (turn, seconds) = (self.turn, if waits { FOR_EVER } else { 0 });
        let values = vec![turn.into(), turn.into(), key(name).into(), seconds.into()];
        let number = match (self.number(0, values).await?, self.texts.dialect) {
            (None, _) => return Ok(None),
            (Some(number), Dialect::MariaDb) => number.unsigned_abs(),
            (Some(_), Dialect::MySql) => self.draw(name).await?,
        };
        Ok(Some(Token::new(number).map_err(Error::from)))
    }

    async fn draw(&mut self, name: &LockName) -> Result<u64, Trouble> {
        self.number(1, vec![name.as_str().into()]).await?;
        Ok(self.driver.last_insert_id().unwrap_or_default())
    }

    /// Gives back whatever was taken. Answers whether something was.
    pub(super) async fn give_back(&mut self) -> Result<bool, Trouble> {
        let turn = self.turn;
        Ok(self.number(2, vec![turn.into()]).await?.is_some_and(|released| released > 0))
    }

    /// Runs a statement that answers with a number, or nothing.
    async fn number(&mut self, which: usize, values: Vec<Value>) -> Result<Option<i64>, Trouble> {
        let text = [self.texts.take.as_str(), self.texts.draw.as_str(), self.texts.release][which];
        let statement = match &self.prepared[which] {
            Some(statement) => statement.clone(),
            None => {
                let made = self.driver.prep(text).await.map_err(|error| Trouble::of(error).not_done())?;
                self.prepared[which].insert(made).clone()
            }
        };
        let mut result = self.driver.exec_iter(statement, values).await.map_err(Trouble::of)?;
        let answer: Vec<Option<i64>> = collected(&mut result).await?;
        result.drop_result().await.map_err(Trouble::of)?;
        self.used = true;
        Ok(answer.into_iter().next().flatten())
    }
}

#[cfg(test)]
mod tests {
    use tollgate_testkit::engines;

    use super::*;

    #[tokio::test]
    async fn a_lock_s_connection_may_be_idle_for_as_long_as_the_server_allows() {
        let address = engines::shared(&engines::Config::mariadb()).address();
        let config = MySqlConfig::from_url(&format!("mariadb://root@{address}/test")).expect("a URL");
        let texts = Arc::new(Texts::new(&Tables::new("tollgate_"), Dialect::MariaDb));
        let mut connection = Connection::open(&config, &texts).await.expect("it answers");
        let asked = "select @@session.wait_timeout, numeric_max_value from information_schema.system_variables \
                     where variable_name = 'wait_timeout'";
        let told: Option<(u64, u64)> = connection.driver().query_first(asked).await.expect("it answers");
        let (ours, most) = told.expect("there is one");
        assert_eq!(ours, most);
    }
}
