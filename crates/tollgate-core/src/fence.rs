//! What a holder shows to a resource that refuses stale tokens.

use tollgate_types::Token;

/// Proof, as fresh as it can be, to show to a resource that refuses stale tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    pub(crate) token: Token,
    pub(crate) exclusive: bool,
}

impl Fence {
    /// The number to compare.
    pub fn token(self) -> Token {
        self.token
    }

    /// Whether it raises the resource's mark; a shared holder's does not.
    pub fn is_exclusive(self) -> bool {
        self.exclusive
    }
}

impl std::fmt::Display for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.token.fmt(f)
    }
}

impl From<Fence> for u64 {
    fn from(fence: Fence) -> Self {
        fence.token.get()
    }
}

/// For databases, whose numbers have a sign. A token is below 2^53.
impl From<Fence> for i64 {
    fn from(fence: Fence) -> Self {
        fence.token.get() as Self
    }
}
