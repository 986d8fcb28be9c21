//! How full the databases are.

use tollgate_core::Finding;

use super::seen::Seen;

/// What etcd allows unless it is told otherwise.
const DEFAULT_QUOTA: i64 = 2 << 30;

pub(super) fn look(seen: &Seen, findings: &mut Vec<Finding>) {
    for (member, status) in seen.answers() {
        // Only later versions say what they were told.
        let known = status.db_size_quota > 0;
        let quota = if known { status.db_size_quota } else { DEFAULT_QUOTA };
        let percent = status.db_size.saturating_mul(100) / quota;
        let of = if known { "its quota" } else { "the 2 GiB that etcd allows unless it is told otherwise" };
        let what = format!("the database of {} takes {percent} % of {of}", member.name);
        findings.push(if percent >= 80 {
            Finding::problem(
                what,
                "once it is full etcd refuses every write, and no lock can be taken",
                "compact and defragment it, or raise --quota-backend-bytes; --auto-compaction-retention keeps it small",
            )
        } else {
            Finding::fine(what)
        });
    }
}
