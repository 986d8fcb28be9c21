//! Examines a server as it is.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tollgate_core::{BootClock, BoxFuture, Checkup, Error, ErrorKind, Finding, Keeper, Result};
use tollgate_proto::Durability;

use crate::capabilities::capabilities;
use crate::config::RemoteConfig;
use crate::links::Links;

/// The ttl of a lock that does not say another: a server that takes no such ttl refuses most locks.
const USUAL_TTL: Duration = Duration::from_secs(30);

/// Connects to every address, and says what each server promises. Changes nothing.
///
/// # Errors
/// `Unavailable` if no server answers.
pub fn examine(config: RemoteConfig) -> BoxFuture<'static, Result<Checkup>> {
    Box::pin(async move {
        let clock = Arc::new(BootClock::new(Keeper::global()?));
        let subject = config.servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let (mut findings, mut longest, mut failed) = (Vec::new(), None, None);
        for address in config.servers {
            let name = address.to_string();
            let links = Links::new(vec![address], clock.clone(), Handle::current().id());
            match links.link().await {
                Ok(link) => {
                    let welcome = link.welcome();
                    longest = longest.max(Some(welcome.longest));
                    findings.extend(of_server(&name, welcome.durability, welcome.longest));
                }
                Err(error) => {
                    findings.push(Finding::problem(
                        format!("{name} does not answer: {}", error.message()),
                        "clients try the addresses in turn, and lose time with each that does not answer",
                        "start the server, or take the address out of the URL",
                    ));
                    failed = Some(error);
                }
            }
        }
        let Some(longest) = longest else {
            let none = || Error::new(ErrorKind::Unavailable, "the URL names no address");
            return Err(failed.unwrap_or_else(none));
        };
        Ok(Checkup { subject, findings, guarantees: capabilities(longest).guarantees })
    })
}

fn of_server(name: &str, durability: Durability, longest: Duration) -> Vec<Finding> {
    let promise = match durability {
        Durability::Sync => Finding::fine(format!(
            "{name} stores every grant before it answers: holders keep their locks when it is killed"
        )),
        Durability::Grace | Durability::Engine => Finding::note(
            format!("{name} runs with durability grace"),
            format!("after a crash it grants nothing for up to {longest:?}, and holders lose their locks"),
            "start it with --durability sync if a restart must not cost locks",
        ),
    };
    let ttl = if longest < USUAL_TTL {
        Finding::note(
            format!("{name} takes a ttl of at most {longest:?}"),
            "a lock that does not say another ttl asks for 30s, and is refused",
            "start it with a longer --max-ttl, or give every lock a shorter ttl",
        )
    } else {
        Finding::fine(format!("{name} takes a ttl of at most {longest:?}, with the lock-delay"))
    };
    vec![promise, ttl]
}
