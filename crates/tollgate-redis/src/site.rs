//! Which server a lock is on: one, or the one of a cluster that has its slot.

use std::sync::Arc;

use redis::{Cmd, Value};
use tollgate_core::{Clock, Result};

use crate::cluster::Cluster;
use crate::config::{RedisConfig, Servers};
use crate::endpoint::{Endpoint, Target};
use crate::error::of_request;
use crate::link::Link;
use crate::links::{Links, Subscription};
use crate::script::Request;
use crate::sentinel::Sentinel;

/// Every server of a client.
pub(crate) enum Site {
    /// All locks are on one.
    One(Links),
    /// They are spread.
    Spread(Cluster),
}

impl Site {
    pub(crate) fn new(
        config: &RedisConfig,
        subscription: Option<Subscription>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let speech = config.speech()?;
        let target = match &config.servers {
            Servers::One(host) => Target::Fixed(Endpoint::new(host.clone(), speech)),
            Servers::Sentinel { sentinels, service, login } => {
                Target::Primary(Sentinel::new(sentinels, login, service, speech))
            }
            Servers::Cluster(hosts) => {
                return Ok(Self::Spread(Cluster::new(hosts.clone(), speech, subscription, clock)));
            }
        };
        Ok(Self::One(Links::new(target, subscription, clock)))
    }

    /// Connects, so that what is wrong is told at once.
    pub(crate) async fn open(&self) -> Result<()> {
        match self {
            Self::One(links) => links.here().await.map(drop),
            Self::Spread(cluster) => cluster.look_around().await,
        }
    }

    /// A connection to where `key` is, as far as is known.
    pub(crate) async fn link(&self, key: &str) -> Result<Link> {
        match self {
            Self::One(links) => links.here().await,
            // Boxed, here and below: most have one server, and what they wait on is small like that.
            Self::Spread(cluster) => Box::pin(cluster.link(key)).await,
        }
    }

    /// Runs a script where `key` is. `asked` is told of every connection it goes out over, before it does.
    pub(crate) async fn run(
        &self,
        key: &str,
        request: &Request,
        mut asked: impl FnMut(&Link),
    ) -> Result<Value> {
        match self {
            Self::One(links) => {
                let link = links.here().await?;
                asked(&link);
                link.run(request).await.map_err(|error| of_request(error, &link))
            }
            Self::Spread(cluster) => Box::pin(cluster.run(key, request, asked)).await,
        }
    }

    /// Makes sure that nothing more is executed of what was sent over `link`.
    pub(crate) async fn cut(&self, link: &Link) -> Result<()> {
        match self {
            Self::One(links) => links.cut(link).await,
            Self::Spread(cluster) => cluster.cut(link).await,
        }
    }

    /// How many servers there are that have locks.
    pub(crate) async fn count(&self) -> Result<usize> {
        match self {
            Self::One(_) => Ok(1),
            Self::Spread(cluster) => cluster.primaries().await.map(|primaries| primaries.len()),
        }
    }

    /// Sends a command to the server number `index`; `None` if there are not so many any more.
    pub(crate) async fn command(&self, index: usize, command: &Cmd) -> Result<Option<Value>> {
        match self {
            Self::One(links) => links.command(command).await.map(Some),
            Self::Spread(cluster) => match cluster.primaries().await?.get(index) {
                Some(server) => cluster.links_to(server).command(command).await.map(Some),
                None => Ok(None),
            },
        }
    }

    pub(crate) fn close(&self) {
        match self {
            Self::One(links) => links.close(),
            Self::Spread(cluster) => cluster.close(),
        }
    }
}
