//! What follows when both sides changed to another protocol, as for a WebSocket: bytes, both ways.

use http::{Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::exchange::Answer;
use super::lingering::Work;
use super::{Sent, headers};
use crate::problem::Problem;
use crate::turnstile::Watch;

/// Passes the service's change of protocol on, and everything after it, until a larger token comes. The request is under way
/// until the service has closed its side.
pub(super) fn open(
    mut response: Response<Answer>,
    client: Option<OnUpgrade>,
    work: Work,
    watch: Option<Watch>,
) -> Result<Sent, Problem> {
    let service = hyper::upgrade::on(&mut response);
    let protocol = headers::wanted_upgrade(response.headers());
    let (mut parts, answer) = response.into_parts();
    answer.forget();
    let Some(client) = client else {
        let detail = "the service changes to another protocol, for which nobody asked";
        return Err(Problem::new(StatusCode::BAD_GATEWAY, "broken", detail));
    };
    tokio::spawn(async move {
        // The service's side first: if the client is gone by now, dropping it waits until the service is done.
        let Ok(service) = service.await else { return };
        let Ok(client) = client.await else { return };
        let (mut client, mut service) = (TokioIo::new(client), TokioIo::new(service));
        let overtaken = async {
            match watch {
                Some(watch) => watch.overtaken().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Unless both sides have come to their end, the passage stays with the service's side, which is closed here.
            ended = tokio::io::copy_bidirectional(&mut client, &mut service) => {
                if ended.is_ok() {
                    drop(work.end());
                }
            }
            () = overtaken => {}
        }
    });
    headers::strip(&mut parts.headers, protocol);
    Ok(Response::from_parts(parts, Either::Right(Full::default())))
}
