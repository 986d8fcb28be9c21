//! The rules of the protocol, each of which can be left out to see whether it is needed.

/// How clients, nodes and recoveries behave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// A client whose answers differ commits the largest before it believes it.
    pub(crate) grant_needs_majority_at_token: bool,
    /// Commit refuses a token that is not above F and G.
    pub(crate) commit_must_rise: bool,
    /// Acquire gives a token above G.
    pub(crate) acquire_heeds_general: bool,
    /// Commit leaves F where it is if that is above the token.
    pub(crate) commit_never_lowers: bool,
    /// A node votes only if `member` was written for this start of the server.
    pub(crate) run_id_is_checked: bool,
    /// Validity counts from an attempt's first send, whatever is sent again.
    pub(crate) validity_counts_from_first_send: bool,
    /// An attempt counts only what its own requests were answered.
    pub(crate) tally_is_the_attempts_own: bool,
    /// A recovery reads the others after its wait, not before.
    pub(crate) recovery_reads_after_its_wait: bool,
    /// A recovery raises G on those it has read.
    pub(crate) recovery_raises_the_others: bool,
    /// `member` is refused by a node that has started again since the recovery that writes it began.
    pub(crate) member_is_of_one_start: bool,
    /// A recovery adds the margin to the nodes' times alone, not to F and G. Not needed: see `main.rs`.
    pub(crate) margin_is_for_times_alone: bool,
    /// Every attempt of an acquisition has an id of its own. Not needed: see `main.rs`.
    pub(crate) attempts_have_own_ids: bool,
    /// A release reaches a node before the acquire of the next attempt does.
    pub(crate) release_comes_before_next_acquire: bool,
    /// A plain take counts a node only if its ZADD raised F.
    pub(crate) plain_vote_asks_what_zadd_said: bool,
    /// And only if its G is below the token.
    pub(crate) plain_vote_heeds_general: bool,
    /// Acquire and commit do not take a lock of their own id that was taken plainly for a vote.
    pub(crate) scripts_distrust_plain_locks: bool,
}

impl Rules {
    /// The protocol.
    pub(crate) const RIGHT: Self = Self {
        grant_needs_majority_at_token: true,
        commit_must_rise: true,
        commit_never_lowers: true,
        acquire_heeds_general: true,
        run_id_is_checked: true,
        validity_counts_from_first_send: true,
        tally_is_the_attempts_own: true,
        recovery_reads_after_its_wait: true,
        recovery_raises_the_others: true,
        member_is_of_one_start: true,
        margin_is_for_times_alone: false,
        attempts_have_own_ids: false,
        release_comes_before_next_acquire: true,
        plain_vote_asks_what_zadd_said: true,
        plain_vote_heeds_general: true,
        scripts_distrust_plain_locks: true,
    };
}
