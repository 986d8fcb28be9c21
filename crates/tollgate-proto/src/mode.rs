//! Modes as messages write them: a word, and for permits a limit in a member of its own.

use serde::{Deserialize, Serialize};
use tollgate_types::Mode;

/// How a lock is shared. A permit's `limit` is the member beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Mode))]
#[serde(rename_all = "snake_case")]
pub enum ModeKind {
    /// One holder alone.
    #[default]
    Exclusive,
    /// Together with every other shared holder.
    Shared,
    /// Together with other permits of the same limit.
    Permit,
}

impl ModeKind {
    /// The two members that write `mode`.
    ///
    /// ```
    /// use tollgate_proto::ModeKind;
    /// use tollgate_types::Mode;
    ///
    /// assert_eq!(ModeKind::of(Mode::Shared), (ModeKind::Shared, None));
    /// let permit = Mode::permit(3).expect("at least one");
    /// assert_eq!(ModeKind::of(permit), (ModeKind::Permit, Some(3)));
    /// ```
    pub fn of(mode: Mode) -> (Self, Option<u32>) {
        match mode {
            Mode::Exclusive => (Self::Exclusive, None),
            Mode::Shared => (Self::Shared, None),
            Mode::Permit { limit } => (Self::Permit, Some(limit.get())),
        }
    }

    /// The mode that the two members write; `None` for a permit without a limit of at least 1, and
    /// for a limit beside another mode.
    pub fn with_limit(self, limit: Option<u32>) -> Option<Mode> {
        match (self, limit) {
            (Self::Exclusive, None) => Some(Mode::Exclusive),
            (Self::Shared, None) => Some(Mode::Shared),
            (Self::Permit, Some(limit)) => Mode::permit(limit),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_belongs_to_a_permit_and_to_nothing_else() {
        for mode in [Mode::Exclusive, Mode::Shared, Mode::permit(7).unwrap()] {
            let (kind, limit) = ModeKind::of(mode);
            assert_eq!(kind.with_limit(limit), Some(mode));
        }
        assert_eq!(ModeKind::Permit.with_limit(None), None);
        assert_eq!(ModeKind::Permit.with_limit(Some(0)), None);
        assert_eq!(ModeKind::Shared.with_limit(Some(2)), None);
    }
}
