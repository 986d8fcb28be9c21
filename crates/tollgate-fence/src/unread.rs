//! The rest of a body that nobody wants.
//!
//! It is read all the same, for a while: a connection that is closed with something unread is reset, and a client that sends
//! before it reads never sees what it was answered. It would take that for a fault of the network, and come again.

use std::time::Duration;

use bytes::Buf;
use http::HeaderMap;
use http::header::EXPECT;
use http_body::Body;
use http_body_util::BodyExt;
use tokio::runtime::Handle;

/// For how long it is read.
const LONGEST: Duration = Duration::from_secs(5);
/// How much of it is read. Whoever sends more may not hear why nobody wants it.
const MOST: usize = 64 * 1024 * 1024;

/// Reads it, beside whatever is done next.
pub(crate) fn discard<B>(body: B)
where
    B: Body<Data: Send, Error: Send> + Send + 'static,
{
    // Without a runtime the process ends.
    if let (false, Ok(runtime)) = (body.is_end_stream(), Handle::try_current()) {
        runtime.spawn(async { drop(tokio::time::timeout(LONGEST, read(body)).await) });
    }
}

async fn read<B: Body>(body: B) {
    let (mut body, mut length) = (Box::pin(body), 0);
    while let Some(Ok(frame)) = body.frame().await
        && length < MOST
    {
        length += frame.data_ref().map_or(0, Buf::remaining);
    }
}

/// Whether a client sends its body only when it is told to. To read it is to tell so.
pub(crate) fn waits_to_be_asked(headers: &HeaderMap) -> bool {
    headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_without_end_is_not_read_for_ever() {
        for pause in [Duration::ZERO, Duration::from_millis(100)] {
            let made = Arc::new(AtomicUsize::new(0));
            let counted = made.clone();
            let piece = move |()| {
                counted.fetch_add(1, Ordering::Relaxed);
                async move {
                    tokio::time::sleep(pause).await;
                    Some((Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[0; 1024 * 1024]))), ()))
                }
            };
            discard(StreamBody::new(futures_util::stream::unfold((), piece)));
            tokio::time::sleep(LONGEST * 2).await;
            let before = made.load(Ordering::Relaxed);
            tokio::time::sleep(LONGEST).await;
            assert!(before > 40 && made.load(Ordering::Relaxed) == before, "{before} MB");
        }
    }
}
