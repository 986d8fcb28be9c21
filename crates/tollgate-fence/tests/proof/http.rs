//! A service that keeps entries: behind a proxy, or with the layer in it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::runtime::Runtime;
use tollgate_core::{BoxFuture, Error, ErrorKind, OwnerId, Result, Token};
use tollgate_fence::{FencingLayer, header_value};
use tollgate_testkit::proof::{Entry, Proof, Register, Resource};
use tower_layer::Layer;
use tower_service::Service;

use crate::caller::Caller;
use crate::file::folder;
use crate::support::{Body, body, config, proxy, service};

/// Keeps what is put, by its path.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<HashMap<String, String>>>);

impl Shelf {
    async fn answer(self, request: Request<Incoming>) -> Response<Body> {
        let (parts, content) = request.into_parts();
        let path = parts.uri.path().to_owned();
        if parts.method == Method::PUT {
            let content = content.collect().await.unwrap().to_bytes();
            self.0.lock().unwrap().insert(path, String::from_utf8(content.to_vec()).unwrap());
            return Response::new(body(""));
        }
        let kept = self.0.lock().unwrap().get(&path).cloned();
        Response::new(body(kept.unwrap_or_else(|| Entry::default().to_string())))
    }
}

impl Service<Request<Incoming>> for Shelf {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, std::result::Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let shelf = self.clone();
        Box::pin(async { Ok(shelf.answer(request).await) })
    }
}

/// Where the fence is, and where the service is without it.
type Doors = (SocketAddr, SocketAddr);

pub(crate) struct Shelves {
    name: &'static str,
    build: fn() -> BoxFuture<'static, Doors>,
    /// The service outlives the case that first asks for it.
    built: OnceLock<(Runtime, Doors)>,
}

impl Shelves {
    pub(crate) fn behind_a_proxy() -> Self {
        Self { name: "http-proxy", build: || Box::pin(with_proxy()), built: OnceLock::new() }
    }

    pub(crate) fn with_the_layer() -> Self {
        Self { name: "http-layer", build: || Box::pin(with_layer()), built: OnceLock::new() }
    }

    fn doors(&self) -> Doors {
        let built = self.built.get_or_init(|| {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            let runtime = runtime.unwrap();
            let (sender, doors) = std::sync::mpsc::channel();
            let build = (self.build)();
            runtime.spawn(async move { sender.send(build.await).unwrap() });
            (runtime, doors.recv().unwrap())
        });
        built.1
    }
}

async fn with_proxy() -> Doors {
    let shelf = Shelf::default();
    let plain = service(move |request| shelf.clone().answer(request)).await;
    let gate = tollgate::gate(&format!("file:{}", folder().join("marks").display())).await.unwrap();
    (proxy(gate, config(plain)).await, plain)
}

async fn with_layer() -> Doors {
    let shelf = Shelf::default();
    let gate = tollgate::gate("memory:proof").await.unwrap();
    let resource = |parts: &http::request::Parts| Some(parts.uri.path().to_owned());
    let fenced = FencingLayer::new(gate, resource).layer(shelf.clone());
    let door = service(move |request| {
        let mut fenced = fenced.clone();
        async move {
            let (parts, content) = fenced.call(request).await.unwrap().into_parts();
            Response::from_parts(parts, body(content.collect().await.unwrap().to_bytes()))
        }
    });
    (door.await, service(move |request| shelf.clone().answer(request)).await)
}

impl Resource for Shelves {
    fn name(&self) -> &'static str {
        self.name
    }

    fn found(&self) -> BoxFuture<'_, String> {
        let (fenced, plain) = self.doors();
        Box::pin(async move { format!("{fenced} {plain} {}", OwnerId::random().to_hex()) })
    }

    fn open<'a>(&'a self, place: &'a str) -> BoxFuture<'a, Box<dyn Register>> {
        let [fenced, plain, name] = place.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let [fenced, plain] = [fenced, plain].map(|address| Caller::of(address.parse().unwrap()));
        let name = name.to_owned();
        Box::pin(async { Box::new(Shop { fenced, plain, name }) as Box<dyn Register> })
    }
}

struct Shop {
    fenced: Caller,
    plain: Caller,
    name: String,
}

impl Shop {
    async fn fenced(&mut self, method: &str, proof: &Proof, content: String) -> Result<String> {
        let (path, token) = (format!("/{}/entry", self.name), header_value(proof.fence));
        let (status, answer) = self.fenced.ask(method, &path, Some(token), content).await;
        let text = String::from_utf8(answer.to_vec()).unwrap();
        match status {
            StatusCode::OK => Ok(text),
            StatusCode::PRECONDITION_FAILED => {
                let said: serde_json::Value = serde_json::from_str(&text).unwrap();
                Err(proof.fence.refused(Token::new(said["highest"].as_u64().unwrap()).unwrap()))
            }
            _ => Err(Error::new(ErrorKind::Unavailable, text)),
        }
    }

    async fn plain(&mut self, method: &str, content: String) -> String {
        let path = format!("/{}-plain/entry", self.name);
        let (status, answer) = self.plain.ask(method, &path, None, content).await;
        assert_eq!(status, StatusCode::OK);
        String::from_utf8(answer.to_vec()).unwrap()
    }
}

impl Register for Shop {
    fn enter<'a>(&'a mut self, proof: &'a Proof) -> BoxFuture<'a, Result<Entry>> {
        Box::pin(async { Ok(self.fenced("GET", proof, String::new()).await?.parse().unwrap()) })
    }

    fn write<'a>(&'a mut self, proof: &'a Proof, entry: Entry) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.fenced("PUT", proof, entry.to_string()).await.map(drop) })
    }

    fn peek(&mut self) -> BoxFuture<'_, Entry> {
        Box::pin(async { self.plain("GET", String::new()).await.parse().unwrap() })
    }

    fn overwrite(&mut self, entry: Entry) -> BoxFuture<'_, ()> {
        Box::pin(async move { drop(self.plain("PUT", entry.to_string()).await) })
    }
}
