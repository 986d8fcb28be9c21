//! Makes resources that know nothing of tokens refuse stale ones: files, and services behind HTTP.
//!
//! - [`FencedFile`]: a file that is replaced as a whole, by the current holder of the lock alone.
//! - [`FencingLayer`]: a tower layer for your own service, which checks the header `Fencing-Token`.
//! - [`Proxy`]: the same before a service that stays unchanged. `tollgate fence-proxy` runs it.
//! - [`Issued`]: a gate that asks the lock engine before it believes a token.
//!
//! A [`Gate`](tollgate_core::Gate) keeps the marks; `tollgate::gate(url)` opens one.
//!
//! # How a request passes
//!
//! - A gate says whether a token is stale *now*, and a request that was admitted a moment ago may
//!   still be at work. So a larger token waits until the requests with smaller ones are over.
//!   `turnstile.rs` has this rule, which `layer.rs` and `proxy` share.
//! - `together.rs` has the gate asked once for all requests that show the same token: a verdict
//!   holds for the requests that had arrived before the gate was asked
//!   (test: together::tests::ten_who_come_together_ask_twice_at_most). Where the gate answers
//!   without waiting (`Gate::admit_at_once`: memory, and a file's mark that is kept open and was
//!   seen on the disk), each request asks for itself.
//! - `answer.rs`, for both, reads an answer on while a larger token waits for its end. `unread.rs`
//!   reads on the body of a refused request, so that a connection reset does not hide the reason.
//! - `issued.rs` asks the engine before a mark is raised. No engine tells the highest token it ever
//!   gave, but all show the holders of a lock: a token up to a holder's was given, and a client
//!   that shows a larger one has lost its lock or made the token up
//!   (test: proxy::a_token_that_was_never_given_is_refused_where_the_engine_is_asked).
//! - `file.rs` writes the content first, in a file whose name is held by a kernel lock
//!   (`draft.rs`). Then it checks, marks and renames under the lock of the mark beside the file
//!   (test: file::a_crash_at_any_moment_leaves_whole_content_and_a_mark_that_is_not_behind_it).
//!
//! # Invariants
//!
//! `file::…` is a test in `tests/integration`, `file::tests::…` a test beside the code, `cli::…` a
//! test of the crate `tollgate-cli`.
//!
//! - A request is in its lane from before the gate is asked until it can do nothing more, and the
//!   lane remembers the highest token that it admitted; a reader's counts for the requests that
//!   were at the gate then. So of two requests that the gate admitted the one with the smaller
//!   token is waited for if it was noted first, and refused if it was noted second.
//!   (test: turnstile::tests::a_larger_token_waits_until_the_smaller_ones_are_over)
//!   (test: turnstile::tests::who_comes_from_the_gate_behind_a_larger_token_is_stale)
//! - No request waits for a request that is still asking the gate: a refused client may come again
//!   without end. (test: turnstile::tests::who_is_refused_again_and_again_keeps_nobody_waiting)
//! - A forwarded request is over when its answer has come to the end and all of the request was
//!   handed to the network, or the service has closed the connection. A client that goes away
//!   (`Outlives` in `proxy/exchange.rs`, `answer.rs`) and a connection that breaks
//!   (`proxy/lingering.rs`) leave the request's passage with the connection to the service; a reset
//!   connection keeps it for `--timeout`.
//!   (test: passing::a_request_that_breaks_off_is_over_when_the_service_has_closed_its_side)
//!   (test: waiting::a_connection_that_is_reset_ends_nothing_while_the_service_may_be_at_work)
//!   (test: proxy::a_client_that_goes_away_ends_nothing)
//! - A request that waits for an answer to end waits for the service alone, never for a client to
//!   read it. (test: waiting::a_client_that_does_not_read_its_answer_keeps_nobody_waiting)
//! - The proxy has a limited number of clients and of connections to the service, and the store's
//!   files are not among them (`proxy/clients.rs`, `proxy/upstream.rs`). Only a client that has no
//!   request under way, and whose answers are with the network, makes room for another.
//!   (test: crowded::a_connection_whose_request_is_under_way_is_not_closed_for_another)
//!   (test: crowded::an_answer_that_is_not_fetched_yet_is_not_cut_off_for_another_client)
//!   (test: proxy::clients::tests::files_are_left_for_the_store_whatever_the_limit)
//! - `Fencing-Problem` in an answer is the proxy's own: it is removed from everything that a
//!   service answers. (test: untrusted::an_answer_of_the_service_does_not_pass_as_the_proxys_own)
//! - Nothing is sent twice. A request that hyper returns unsent, because an idle connection was
//!   closed, goes out over another connection for the first time.
//!   (test:
//!   cli::fence_proxy::a_write_whose_connection_was_closed_before_it_was_sent_is_not_overtaken)

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
pub use proxy::{Proxy, ProxyConfig, Resources, Upstream, possible_connections};
pub use token_header::{FENCING_TOKEN, header_value};
pub use tollgate_core::tls::TlsFiles;
pub use turnstile::DRAIN;
