//! A client: how far its one acquisition has come, and what it has to do with each node.

use crate::node::Token;
use crate::plain::{PACKETS, Packet};

/// How often an acquisition may be started over.
pub(crate) const ATTEMPTS: usize = 2;

/// Where an acquisition stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Phase {
    Idle,
    /// It has sent its acquire, and perhaps its commit.
    Asking,
    /// Its validity ran out before it was granted.
    TooLate,
    Held,
    /// Held, and a majority has answered a renewal.
    Renewed,
    Released,
}

/// One client.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    pub(crate) attempt: u8,
    /// Its first attempt is a plain take of this token.
    pub(crate) proposal: Option<Token>,
    /// What each attempt wants the nodes to stand at, once it has decided.
    pub(crate) targets: [Option<Token>; ATTEMPTS],
    /// What it was granted; zero before.
    pub(crate) token: Token,
    /// The largest token that was granted to anybody when it started; forgotten once it is granted.
    pub(crate) granted_before: Token,
    /// It was granted no more than somebody before it started.
    pub(crate) out_of_order: bool,
    /// How many of its acquires and packets may still arrive twice.
    pub(crate) duplicates: u8,
}

impl Client {
    pub(crate) fn new(duplicates: u8) -> Self {
        Self {
            phase: Phase::Idle,
            attempt: 0,
            proposal: None,
            targets: [None; ATTEMPTS],
            token: 0,
            granted_before: 0,
            out_of_order: false,
            duplicates,
        }
    }

    pub(crate) fn holds(&self) -> bool {
        matches!(self.phase, Phase::Held | Phase::Renewed)
    }

    /// This attempt is its plain take.
    pub(crate) fn is_plain(&self, attempt: u8) -> bool {
        attempt == 0 && self.proposal.is_some()
    }

    pub(crate) fn was_granted(&self) -> bool {
        self.token > 0
    }

    /// What the attempt that is under way has decided on.
    pub(crate) fn target(&self) -> Option<Token> {
        self.targets[usize::from(self.attempt)]
    }

    /// There is no commit for a plain take.
    pub(crate) fn may_commit(&self) -> bool {
        self.target().is_none() && !self.is_plain(self.attempt)
    }

    pub(crate) fn grant(&mut self, token: Token) {
        self.phase = Phase::Held;
        self.token = token;
        self.out_of_order = token <= self.granted_before;
        self.granted_before = 0;
    }
}

/// What one client and one node have to do with each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Seat {
    /// The tokens at which the node said it stands for this client.
    pub(crate) votes: Votes,
    /// The attempt was first sent before the node lost its data.
    pub(crate) predates_loss: bool,
    /// The node has answered a renewal.
    pub(crate) renewed: bool,
    /// Acquires on their way to the node, by attempt. Each may arrive at any time, or never.
    pub(crate) acquires: [bool; ATTEMPTS],
    /// Packets of plain takes, too.
    pub(crate) packets: [Packet; PACKETS],
    /// And releases.
    pub(crate) releases: [bool; ATTEMPTS],
}

impl Seat {
    /// The client counts no more votes.
    pub(crate) fn close_tally(&mut self) {
        self.votes = Votes::default();
        self.predates_loss = false;
    }

    /// Nothing that was sent to the node will arrive.
    pub(crate) fn cut(&mut self) {
        self.acquires = [false; ATTEMPTS];
        self.packets = [Packet::None; PACKETS];
        self.releases = [false; ATTEMPTS];
    }
}

/// A set of tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Votes(u32);

impl Votes {
    pub(crate) fn add(&mut self, token: Token) {
        self.0 |= 1_u32.checked_shl(token.into()).expect("the world is too small for its tokens");
    }

    pub(crate) fn has(self, token: Token) -> bool {
        self.0 >> token & 1 == 1
    }

    pub(crate) fn has_up_to(self, token: Token) -> bool {
        self.0 & (u32::MAX >> (31 - token)) != 0
    }

    pub(crate) fn tokens(self) -> impl Iterator<Item = Token> {
        (0..32).filter(move |token| self.has(*token))
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
