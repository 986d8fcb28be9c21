//! Marks of resources, kept by the server.

use std::sync::Arc;

use tokio::runtime::Handle;
use tollgate_core::{BootClock, BoxFuture, Error, Fence, Gate, Keeper, Result, Token, gate};
use tollgate_proto::frame::Call;

use crate::calls::Told;
use crate::config::RemoteConfig;
use crate::error;
use crate::links::Links;

/// A [`Gate`] whose marks are kept by the server, beside its locks.
pub struct RemoteGate {
    links: Arc<Links>,
    takes_foreign: bool,
}

impl RemoteGate {
    /// Connects. Tokens that the server never gave are refused, unless `takes_foreign` says that
    /// they come from the locks of another engine.
    ///
    /// # Errors
    /// `Unavailable` if no server answers.
    pub fn connect(config: RemoteConfig, takes_foreign: bool) -> BoxFuture<'static, Result<Self>> {
        Box::pin(async move {
            let keeper = Keeper::global()?;
            let clock = Arc::new(BootClock::new(keeper));
            let links = Arc::new(Links::new(config.servers, clock, Handle::current().id()));
            links.link().await?;
            Ok(Self { links, takes_foreign })
        })
    }

    async fn decide(&self, resource: &str, fence: Fence) -> Result<()> {
        gate::check(resource)?;
        let call = Call::Admit {
            resource,
            token: fence.token(),
            raises: fence.is_exclusive(),
            is_foreign: self.takes_foreign,
        };
        match self.links.link().await?.ask(&call).await? {
            Told::Admitted => Ok(()),
            Told::Stale { mark } => Err(fence.refused(mark)),
            Told::NeverGiven => Err(Error::invalid(format!(
                "the token {fence} is larger than every token that this server has granted; show the token of a \
                 grant, or open the gate with ?foreign_tokens=allow if another engine has the locks"
            ))),
            other => Err(error::of(other)),
        }
    }

    async fn mark(&self, resource: &str) -> Result<Option<Token>> {
        gate::check(resource)?;
        match self.links.link().await?.ask(&Call::Mark { resource }).await? {
            Told::Mark { mark } => Ok(mark),
            other => Err(error::of(other)),
        }
    }
}

impl Gate for RemoteGate {
    fn admit<'a>(&'a self, resource: &'a str, fence: Fence) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.decide(resource, fence).await.map_err(|error| error.during("admit")) })
    }

    fn highest<'a>(&'a self, resource: &'a str) -> BoxFuture<'a, Result<Option<Token>>> {
        Box::pin(async move { self.mark(resource).await.map_err(|error| error.during("read the mark")) })
    }
}
