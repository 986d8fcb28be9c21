//! A request that comes late: taken from the wire, and sent once more when the test likes.
#![allow(dead_code, clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tollgate_testkit::fault::Operation;
use tollgate_testkit::proxy::{Http2, Which};

/// Transactions that were seen on the wire.
#[derive(Clone, Default)]
pub(crate) struct Late(Arc<Mutex<Vec<Vec<u8>>>>);

impl Late {
    /// The next request that does this is meant, and noted.
    pub(crate) fn noting(&self, operation: Operation) -> Which {
        let seen = self.0.clone();
        Which::matching(move |frame| {
            let meant = super::wire::asks_for(operation, frame);
            if meant {
                let (mut seen, message) = (seen.lock().unwrap(), Http2::message(frame).to_vec());
                // Every rule is shown every frame.
                if !seen.contains(&message) {
                    seen.push(message);
                }
            }
            meant
        })
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Has etcd execute all that were noted, one after the other; answers the codes of gRPC that it gives them.
    pub(crate) async fn arrive(&self, at: SocketAddr) -> Vec<String> {
        let seen = self.0.lock().unwrap().clone();
        let mut codes = Vec::new();
        for message in seen {
            codes.push(transact(at, &message).await);
        }
        codes
    }
}

/// Sends an encoded transaction over a connection of its own.
async fn transact(at: SocketAddr, message: &[u8]) -> String {
    let stream = tokio::net::TcpStream::connect(at).await.unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    let driver = tokio::spawn(connection);
    let request = http::Request::post(format!("http://{at}/etcdserverpb.KV/Txn"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap();
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend(message);
    let (answer, mut stream) = sender.ready().await.unwrap().send_request(request, false).unwrap();
    stream.send_data(Bytes::from(body), true).unwrap();
    let (head, mut body) = answer.await.unwrap().into_parts();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
    }
    let trailers = body.trailers().await.unwrap().unwrap_or(head.headers);
    driver.abort();
    trailers["grpc-status"].to_str().unwrap().to_owned()
}
