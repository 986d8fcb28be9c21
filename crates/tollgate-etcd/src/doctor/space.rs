//! How full the databases are.

use tollgate_core::Finding;

use super::seen::Seen;

/// What etcd allows unless it is told otherwise.
const DEFAULT_QUOTA: i64 = 2 << 30;

pub(super) fn look(seen: &Seen, findings: &mut Vec<Finding>) {
    for (member, status) in seen.answers() {
        let (name, status) = (&member.name, &status.now);
        if seen.is_full(name) {
            findings.push(Finding::problem(
                format!(
                    "the database of {name} is full: it takes {}, of which {} are in use",
                    size(status.db_size),
                    size(status.db_size_in_use)
                ),
                "etcd refuses every write except deletions: no lock can be taken, but held locks can be \
                 released",
                "run etcdctl compact and etcdctl defrag, then etcdctl alarm disarm; if all of it is in \
                 use, raise --quota-backend-bytes first",
            ));
            continue;
        }
        // Only later versions say what they were told.
        let known = status.db_size_quota > 0;
        let quota = if known { status.db_size_quota } else { DEFAULT_QUOTA };
        let percent = status.db_size.saturating_mul(100) / quota;
        let takes = format!("the database of {name} takes {}", size(status.db_size));
        let what = if known {
            format!("{takes} of its quota of {}", size(quota))
        } else {
            format!("{takes}; etcd allows {} by default", size(quota))
        };
        findings.push(if percent >= 80 {
            Finding::problem(
                what,
                "when the database is full, etcd refuses every write, and no lock can be taken",
                "compact and defragment the database, or raise --quota-backend-bytes; \
                 --auto-compaction-retention keeps it small",
            )
        } else {
            Finding::fine(what)
        });
    }
}

/// Bytes, for people.
fn size(bytes: i64) -> String {
    const UNITS: [(i64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / unit as f64),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_in_the_unit_that_fits() {
        assert_eq!(
            [0, 1023, 20 << 10, 3 << 19, 2 << 30].map(size),
            ["0 bytes", "1023 bytes", "20.0 KiB", "1.5 MiB", "2.0 GiB"]
        );
    }
}
