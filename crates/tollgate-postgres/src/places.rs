//! Keeps the places of a client's waiting claims: all that are due together by one statement.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_postgres::Row;
use tollgate_core::queued::Wait;
use tollgate_core::{Claim, Error, ErrorKind, Moment, Result};
use tollgate_sql::{Ticket, millis};

use crate::driven::Value;
use crate::owner::Owner;

/// As many places are kept by one statement.
const TOGETHER: usize = 1024;
/// How long places that are due together take to ask, about.
const TO_GATHER: Duration = Duration::from_millis(5);

/// A claim whose place is to be kept.
#[derive(Debug)]
pub(crate) struct Place {
    name: String,
    ticket: i64,
    owner: Owner,
    ttl: i64,
    answer: oneshot::Sender<Result<Option<Wait>>>,
}

/// Where claims ask for it.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    due: mpsc::UnboundedSender<Place>,
}

/// What claims asked for, on the side that does it.
#[derive(Debug)]
pub(crate) struct Due {
    places: mpsc::UnboundedReceiver<Place>,
    /// Whether several were due together the last time.
    crowded: bool,
}

/// Both sides.
pub(crate) fn places() -> (Places, Due) {
    let (due, places) = mpsc::unbounded_channel();
    (Places { due }, Due { places, crowded: false })
}

impl Places {
    /// Keeps the place of `claim`, and tells how it stands. Nothing if that takes an acquire: it was let in, lost its place, or
    /// its turn may have come.
    pub(crate) async fn keep(&self, claim: &Claim, ticket: Ticket) -> Result<Option<Wait>> {
        let (answer, answered) = oneshot::channel();
        let (name, owner, ttl) = (claim.name.as_str().to_owned(), Owner(claim.owner), millis(claim.ttl));
        let place = Place { name, ticket: ticket.0, owner, ttl, answer };
        let asked = self.due.send(place).is_ok();
        let closed = || Error::new(ErrorKind::Unavailable, "this client was closed; connect again");
        if !asked {
            return Err(closed());
        }
        answered.await.map_err(|_| closed())?
    }
}

impl Due {
    /// The places that are due, as soon as there are some. Dropping this loses none.
    pub(crate) async fn next(&mut self) -> Vec<Place> {
        let mut places = Vec::new();
        self.places.recv_many(&mut places, TOGETHER).await;
        places
    }

    /// Adds the places that are due together with `places`, if there is a crowd.
    pub(crate) async fn gather(&mut self, places: &mut Vec<Place>) {
        if self.crowded || places.len() > 1 {
            tokio::time::sleep(TO_GATHER).await;
        }
        while places.len() < TOGETHER
            && let Ok(place) = self.places.try_recv()
        {
            places.push(place);
        }
        self.crowded = places.len() > 1;
    }

    /// Answers all that ask now with an error.
    pub(crate) fn refuse(&mut self, error: &Error) {
        while let Ok(place) = self.places.try_recv() {
            place.fail(error);
        }
    }
}

impl Place {
    fn fail(self, error: &Error) {
        // Fails if the claim was given up meanwhile.
        let _ = self.answer.send(Err(Error::new(error.kind(), error.to_string())));
    }
}

/// The statement's values for places that are kept together.
pub(crate) struct Values<'a> {
    names: Vec<&'a str>,
    tickets: Vec<i64>,
    owners: Vec<&'a Owner>,
    ttls: Vec<i64>,
    stamps: Vec<i64>,
}

impl<'a> Values<'a> {
    /// Those of `places`, whose statement is sent at `sent`.
    pub(crate) fn of(places: &'a [Place], sent: Moment) -> Self {
        Self {
            names: places.iter().map(|place| place.name.as_str()).collect(),
            tickets: places.iter().map(|place| place.ticket).collect(),
            owners: places.iter().map(|place| &place.owner).collect(),
            ttls: places.iter().map(|place| place.ttl).collect(),
            stamps: vec![sent.as_nanos() as i64; places.len()],
        }
    }

    pub(crate) fn all(&self) -> [Value<'_>; 5] {
        [&self.names, &self.tickets, &self.owners, &self.ttls, &self.stamps]
    }
}

/// Tells all of `places` what the statement was answered.
pub(crate) fn tell(places: Vec<Place>, answer: Result<Vec<Row>>) {
    let rows = match answer {
        Ok(rows) => rows,
        Err(error) => return places.into_iter().for_each(|place| place.fail(&error)),
    };
    let mut stand: Vec<Option<Wait>> = vec![None; places.len()];
    for row in rows {
        let number = usize::try_from(row.get::<_, i64>(0) - 1).unwrap_or(usize::MAX);
        if let Some(place) = stand.get_mut(number) {
            *place = stands(&row);
        }
    }
    for (place, stands) in places.into_iter().zip(stand) {
        // Fails if the claim was given up meanwhile.
        let _ = place.answer.send(Ok(stands));
    }
}

/// How a claim stands; nothing if its turn may have come.
fn stands(row: &Row) -> Option<Wait> {
    let look_in = u64::try_from(row.get::<_, i64>(2)).ok().filter(|millis| *millis > 0)?;
    let ahead = u32::try_from(row.get::<_, i64>(1)).unwrap_or(0);
    Some(Wait { ahead, free_in: Some(Duration::from_millis(look_in)), foreign: false, told: true })
}
