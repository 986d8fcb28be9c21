//! A client of an HTTP service that keeps its connection.

use std::net::SocketAddr;

use bytes::Bytes;
use http::header::HeaderValue;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use hyper::client::conn::http1::SendRequest;
use tollgate_fence::FENCING_TOKEN;

use crate::support::{Body, body, client};

pub(crate) struct Caller {
    address: SocketAddr,
    sender: Option<SendRequest<Body>>,
}

impl Caller {
    pub(crate) fn of(address: SocketAddr) -> Self {
        Self { address, sender: None }
    }

    /// What is answered, read to the end.
    pub(crate) async fn ask(
        &mut self,
        method: &str,
        path: &str,
        token: Option<HeaderValue>,
        content: String,
    ) -> (StatusCode, Bytes) {
        let mut request = Request::builder().method(method).uri(path).header("host", "register");
        if let Some(token) = token {
            request = request.header(FENCING_TOKEN, token);
        }
        let request = request.body(body(content)).unwrap();
        let mut sender = match self.sender.take() {
            Some(sender) if !sender.is_closed() => sender,
            _ => client(self.address).await,
        };
        sender.ready().await.unwrap();
        let response = sender.send_request(request).await.unwrap();
        self.sender = Some(sender);
        let status = response.status();
        (status, response.into_body().collect().await.unwrap().to_bytes())
    }
}
