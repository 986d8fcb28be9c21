//! The lock table with its clients. It takes requests and gives answers; no socket, clock or disk is in it.
//!
//! # Invariants
//!
//! - An answer leaves only when everything that it depends on is durable.
//!   (test: table::a_grant_is_answered_when_it_is_stored)
//! - A claim has one attachment: a repeated request displaces the one before, which is answered `Moved` and changes nothing.
//!   (test: table::a_repeated_acquire_displaces_the_request_before)
//! - A waiting claim whose client is gone keeps its place for `min(ttl, 10 s)`, and a grant that its client does not fetch lasts no longer.
//!   (test: table::a_grant_that_is_not_fetched_lasts_as_long_as_its_place)
//! - An extend shortens no lease. (test: table::a_late_extend_takes_nothing_away)
//! - A withdrawn claim is never granted afterwards, also if its acquire arrives late.
//!   (test: table::a_late_acquire_of_a_withdrawn_claim_is_refused)

mod acquire;
mod answer;
mod claims;
mod ended;
mod happenings;
mod keep;
mod request;
mod state;
mod told;
mod view;

pub use answer::{Answer, Granted};
pub use happenings::Happened;
pub use request::{Acquire, Key, Request, Source};
pub use state::Table;
pub use told::Told;
pub use view::Held;
