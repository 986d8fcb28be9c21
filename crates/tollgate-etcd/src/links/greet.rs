//! Finding a member to talk to: who is there, who leads, and whether they let us in.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tollgate_core::url::Host;
use tollgate_core::{Error, ErrorKind, Result};
use tonic::Status;
use tonic::metadata::{Ascii, MetadataValue};

use super::{Asks, Links, TO_CONNECT};
use crate::config::Login;
use crate::error::{Failure, Why};
use crate::link::Link;
use crate::restored;
use crate::secure;
use crate::wire::auth_client::AuthClient;
use crate::wire::maintenance_client::MaintenanceClient;
use crate::wire::{AuthenticateRequest, StatusRequest};

/// How long members are asked again that are there and know of no leader.
const TO_FIND_A_LEADER: Duration = Duration::from_secs(5);
/// Between two times.
const BETWEEN: Duration = Duration::from_millis(100);
/// After how long the next endpoint is tried beside one that has not answered yet.
const STAGGER: Duration = Duration::from_millis(200);
/// The oldest etcd that lets clients number their watches.
const OLDEST: (u32, u32) = (3, 4);

/// A connection to a member that answers.
pub(super) struct Opened {
    pub(super) link: Link,
    pub(super) token: Option<MetadataValue<Ascii>>,
    /// Whether that member is the leader, as it says.
    leads: bool,
    /// Whether it knows of one.
    led: bool,
    /// The cluster that it is in.
    pub(super) cluster: u64,
    pub(super) behind: u64,
}

impl Links {
    /// The leader, if it is among the endpoints and answers soon: others have to ask it, too. Else the first that answers, those
    /// that failed least lately first, and the next one tried when one hesitates. The first time all are asked that answer soon:
    /// they must be of one cluster. Members that elect a leader are waited for.
    pub(super) async fn open(&self) -> Result<Opened> {
        let end = Instant::now() + TO_FIND_A_LEADER;
        loop {
            let first = self.first_to_answer().await?;
            // Who knows only one member asks that: it says so itself of each request.
            if first.led || self.0.endpoints.len() == 1 || self.0.asks == Asks::Anybody {
                return self.best(first).await;
            }
            if Instant::now() + BETWEEN >= end {
                let host = &self.0.endpoints[first.link.endpoint()];
                let message = format!("etcd at {host} knows no leader; are most members up?");
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            self.note_failure(first.link.endpoint());
            tokio::time::sleep(BETWEEN).await;
        }
    }

    /// The endpoints, those that failed least lately first.
    fn in_order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.0.endpoints.len()).collect();
        order.sort_by_key(|endpoint| self.current().failed[*endpoint]);
        order
    }

    /// The first member that answers and knows of a leader; if there is none, one that answers.
    async fn first_to_answer(&self) -> Result<Opened> {
        let attempts = self.in_order().into_iter().zip(0..).map(|(endpoint, place)| async move {
            tokio::time::sleep(STAGGER * place).await;
            self.greet_in_time(endpoint).await
        });
        let mut attempts: FuturesUnordered<_> = attempts.collect();
        let (mut worst, mut without_leader) = (None, None);
        while let Some(attempt) = attempts.next().await {
            match attempt {
                Ok(opened) if opened.led => return Ok(opened),
                Ok(opened) => without_leader = Some(opened),
                // What must be changed says more than that somebody was not there.
                Err(error) if worst.as_ref().is_none_or(Error::is_retryable) => worst = Some(error),
                Err(_) => {}
            }
        }
        match (worst, without_leader) {
            (Some(error), _) if !error.is_retryable() => Err(error),
            (_, Some(opened)) => Ok(opened),
            (worst, None) => {
                Err(worst.unwrap_or_else(|| Error::invalid("an etcd URL names at least one host")))
            }
        }
    }

    /// The leader if it answers soon, else `first`.
    async fn best(&self, first: Opened) -> Result<Opened> {
        let known = self.current().cluster;
        if first.leads && known.is_some() {
            return Ok(first);
        }
        let others = self.in_order().into_iter().filter(|endpoint| *endpoint != first.link.endpoint());
        let mut others: FuturesUnordered<_> = others.map(|endpoint| self.greet_in_time(endpoint)).collect();
        let (until, mut best) = (tokio::time::Instant::now() + STAGGER, first);
        while let Ok(Some(other)) = tokio::time::timeout_at(until, others.next()).await {
            let Ok(other) = other else { continue };
            if other.cluster != best.cluster {
                return Err(self.of_strangers(&best.link, &other.link));
            }
            if other.leads && !best.leads {
                best = other;
            }
            if best.leads && known.is_some() {
                break;
            }
        }
        Ok(best)
    }

    fn of_strangers(&self, one: &Link, other: &Link) -> Error {
        let (one, other) = (&self.0.endpoints[one.endpoint()], &self.0.endpoints[other.endpoint()]);
        let message = format!(
            "{one} and {other} belong to two clusters, which do not share locks; name members of one \
             cluster"
        );
        Error::new(ErrorKind::Config, message)
    }

    async fn greet_in_time(&self, endpoint: usize) -> Result<Opened> {
        let opened = tokio::time::timeout(TO_CONNECT, self.greet(endpoint)).await;
        let late = |_| {
            let host = &self.0.endpoints[endpoint];
            let message = format!("etcd at {host} did not answer within {TO_CONNECT:?}");
            Err(Error::new(ErrorKind::Unavailable, message))
        };
        opened.unwrap_or_else(late).inspect_err(|_| self.note_failure(endpoint))
    }

    /// Connects to one endpoint, says who we are, and has it say its first word: a connection alone proves nothing.
    async fn greet(&self, endpoint: usize) -> Result<Opened> {
        let host = &self.0.endpoints[endpoint];
        let link = Link::dial(host, endpoint, self.0.tls.as_ref()).await?;
        let mut maintenance = MaintenanceClient::with_origin(link.channel(), link.origin());
        let status = match maintenance.status(StatusRequest {}).await {
            Ok(status) => status.into_inner(),
            Err(status) => return Err(self.of_greeting(host, &link, status).await),
        };
        let mut numbers = status.version.split('.').map(|number| number.parse().unwrap_or(0));
        if (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < OLDEST {
            let message = format!("this is etcd {}; locks need 3.4 or later", status.version);
            return Err(Error::new(ErrorKind::Config, message));
        }
        link.note_term(status.raft_term);
        let token = match self.0.asks {
            // It would have to ask the others who we are.
            Asks::Anybody if status.leader == 0 => None,
            _ => self.authenticate(&link).await?,
        };
        let header = status.header.unwrap_or_default();
        if self.current().cluster.is_some_and(|known| known != header.cluster_id) {
            let message =
                format!("etcd at {host} belongs to another cluster than before; name members of one cluster");
            return Err(Error::new(ErrorKind::Config, message));
        }
        let (leads, led) = (header.member_id == status.leader, status.leader != 0);
        Ok(Opened {
            link,
            token,
            leads,
            led,
            cluster: header.cluster_id,
            behind: restored::behind(&status, &status),
        })
    }

    pub(super) async fn authenticate(&self, link: &Link) -> Result<Option<MetadataValue<Ascii>>> {
        let Some(Login { user, password }) = &self.0.login else { return Ok(None) };
        let request = AuthenticateRequest { name: user.clone(), password: password.clone() };
        let mut auth = AuthClient::with_origin(link.channel(), link.origin());
        match auth.authenticate(request).await {
            Ok(answer) => {
                let token = answer.into_inner().token.parse();
                token
                    .map(Some)
                    .map_err(|_| crate::error::unexpected("a token that does not fit into a header"))
            }
            // Nobody needs to say who they are here.
            Err(status) if status.message().contains("authentication is not enabled") => Ok(None),
            Err(status) => Err(Failure::from(status).into()),
        }
    }

    async fn of_greeting(&self, host: &Host, link: &Link, status: Status) -> Error {
        let failure = Failure::from(status);
        if failure.why != Why::LinkLost {
            return failure.into();
        }
        let refused = match &self.0.tls {
            Some(tls) => link.is_refused() || secure::is_refused(host, tls).await,
            None => false,
        };
        if refused {
            let message = match self.0.has_certificate {
                false => format!("{host} requires a client certificate; give one with ?cert=FILE&key=FILE"),
                true => format!(
                    "{host} rejected the client certificate; give one that it trusts with \
                     ?cert=FILE&key=FILE"
                ),
            };
            return Error::new(ErrorKind::Denied, message);
        }
        let message = match self.0.tls {
            None => format!(
                "{host} closed the connection at the first request; if it requires TLS, write etcds:// \
                 instead of etcd://"
            ),
            Some(_) => format!(
                "{host} closed the connection; if it requires a client certificate, give one with \
                 ?cert=FILE&key=FILE"
            ),
        };
        Error::new(ErrorKind::Unavailable, message)
    }
}
