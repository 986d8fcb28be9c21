//! The protocol's numbers: defaults of requests, and the most that a request may ask for.
//!
//! The defaults are part of the protocol and never change: a client leaves out a member that has
//! its default, and two servers must not understand that differently.

use std::time::Duration;

/// How long a grant lives without renewal, unless the request says otherwise.
pub const DEFAULT_TTL_MS: u64 = 30_000;
/// How long an acquire call stays open, unless the request says otherwise.
pub const DEFAULT_ROUND_MS: u64 = 10_000;
/// The longest that one call stays open. Proxies cut connections that are silent for a minute.
pub const MAX_ROUND: Duration = Duration::from_secs(55);
/// The most locks that one acquire-all takes.
pub const MAX_NAMES: usize = 64;
/// The most claims that one keep renews.
pub const MAX_ITEMS: usize = 256;
/// The most bytes that keys and values of `meta` have together.
pub const MAX_META_BYTES: usize = 4096;
/// The most bytes of a host's name.
pub const MAX_HOST_BYTES: usize = 255;
/// The most characters of an answered owner.
pub const MAX_OWNER_CHARS: usize = 256;
/// How many locks a page lists, unless the request says otherwise.
pub const DEFAULT_PAGE: u32 = 256;
/// The most locks that a page lists.
pub const MAX_PAGE: u32 = 1024;
/// The most bytes of a request's body, and of a frame.
pub const MAX_BODY_BYTES: usize = 64 * 1024;
/// The most bytes of a keep's body.
pub const MAX_KEEP_BYTES: usize = 256 * 1024;
