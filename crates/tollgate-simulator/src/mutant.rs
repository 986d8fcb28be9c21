//! Servers, disks and clients with one flaw each.

/// One flaw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mutant {
    /// Answers leave before the commit that they depend on.
    AnswersBeforeTheCommit,
    /// A start makes nothing durable that it read.
    StartsWithoutACommit,
    /// The token ceiling is not read after a restart.
    ForgetsTheCeiling,
    /// The mark of a clean stop stays until the first commit after the start.
    KeepsTheCleanMark,
    /// A restart of `grace` waits half as long as it has to.
    WaitsHalfAsLong,
    /// A restart of `grace` does not wait.
    DoesNotWait,
    /// A lease is restarted with a tenth of its time to live.
    RestartsLeasesShort,
    /// A longer time to live is not stored.
    ForgetsLongerLeases,
    /// Lock-delays are not stored.
    ForgetsLockDelays,
    /// Releases and breaks are not stored.
    ForgetsEnds,
    /// Grants are not stored.
    ForgetsGrants,
    /// That a holder was asked to leave is not stored.
    ForgetsRevocations,
    /// Fence marks are not stored.
    ForgetsMarks,
    /// The engine's clock goes on while the server is stopped.
    ExpiresDuringItsOwnPause,
    /// Clients count the time that they are told from the arrival of the answer.
    CountsFromTheAnswer,
    /// The server takes no margin off.
    TakesNoMargin,
    /// A request that was displaced withdraws its claim.
    DisplacedRequestWithdraws,
    /// A release is not sent again when its answer is lost, and believed all the same; the lease is extended on.
    ReleasesAndGoesOn,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::AnswersBeforeTheCommit,
        Self::StartsWithoutACommit,
        Self::ForgetsTheCeiling,
        Self::KeepsTheCleanMark,
        Self::WaitsHalfAsLong,
        Self::DoesNotWait,
        Self::RestartsLeasesShort,
        Self::ForgetsLongerLeases,
        Self::ForgetsLockDelays,
        Self::ForgetsEnds,
        Self::ForgetsGrants,
        Self::ForgetsRevocations,
        Self::ForgetsMarks,
        Self::ExpiresDuringItsOwnPause,
        Self::CountsFromTheAnswer,
        Self::TakesNoMargin,
        Self::DisplacedRequestWithdraws,
        Self::ReleasesAndGoesOn,
    ];
}
