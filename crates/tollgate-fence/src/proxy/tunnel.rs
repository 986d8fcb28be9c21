//! What follows when both sides changed to another protocol, as for a WebSocket: bytes, both ways.

use http::{Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::clients::UnderWay;
use super::lingering::Work;
use super::{Sent, headers};
use crate::problem::{self, Problem};
use crate::turnstile::Watch;

/// Passes the service's change of protocol on, and everything after it, until somebody with a larger token waits for it. The request is under way
/// until the service has closed its side.
pub(super) fn open(
    mut response: Response<Incoming>,
    client: Option<OnUpgrade>,
    work: Work,
    watch: Option<Watch>,
    under_way: Option<UnderWay>,
) -> Result<Sent, Problem> {
    let service = hyper::upgrade::on(&mut response);
    let protocol = headers::wanted_upgrade(response.headers());
    let (mut parts, _) = response.into_parts();
    let Some(client) = client else {
        let detail = "the service switched to another protocol, which the client did not request";
        return Err(Problem::new(StatusCode::BAD_GATEWAY, "broken", detail));
    };
    let passing = async move {
        // The service's side first: if the client is gone by now, dropping it waits until the service is done.
        let (Ok(service), Ok(client)) = (service.await, client.await) else { return };
        let (mut client, mut service) = (TokioIo::new(client), TokioIo::new(service));
        // Unless both sides have come to their end, the passage stays with the service's side, which is closed here.
        if tokio::io::copy_bidirectional(&mut client, &mut service).await.is_ok() {
            drop(work.end());
        }
    };
    tokio::spawn(async move {
        // The client is connected until then.
        let _under_way = under_way;
        let Some(watch) = watch else { return passing.await };
        tokio::select! {
            () = passing => {}
            newer = watch.awaited() => {
                // There is nobody to be told so any more; it counts all the same.
                drop(watch.refused(newer));
            }
        }
    });
    headers::strip(&mut parts.headers, protocol);
    problem::disown(&mut parts.headers);
    Ok(Response::from_parts(parts, Either::Right(Full::default())))
}
