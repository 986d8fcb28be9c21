//! What makes resources refuse stale tokens that know nothing of tokens: files, and services behind HTTP.
//!
//! - [`FencedFile`]: a file that is replaced as a whole, by whoever holds the lock and nobody else.
//! - [`FencingLayer`]: a tower layer for your own service, which looks at the header `Fencing-Token`.
//! - [`Proxy`]: the same before a service that nobody wants to change. `tollgate fence-proxy` runs it.
//! - [`Issued`]: a gate that asks the lock engine before it believes a token.
//!
//! Marks are kept by a [`Gate`](tollgate_core::Gate), which `tollgate::gate(url)` opens. Read `turnstile.rs` for the rule that
//! both HTTP parts follow, `answer.rs` and `proxy/exchange.rs` for when a request can do nothing more.

mod answer;
mod draft;
mod file;
mod issued;
mod layer;
mod problem;
mod proxy;
mod together;
mod token_header;
mod turnstile;
mod unread;

pub use file::FencedFile;
pub use issued::Issued;
pub use layer::{Fencing, FencingFuture, FencingLayer, PassedBody};
pub use proxy::{Proxy, ProxyConfig, Resources, Upstream};
pub use token_header::{FENCING_TOKEN, header_value};
pub use tollgate_core::tls::TlsFiles;
pub use turnstile::DRAIN;
