//! What is left of locks and tokens after a restart.

use tollgate_core::Finding;

use super::seen::Seen;

/// Whether every change is on the disk before it is answered.
pub(super) fn is_durable(seen: &Seen) -> bool {
    seen.info("aof_enabled") == Some("1")
        && seen.setting("appendfsync") == Some("always")
        && seen.setting("no-appendfsync-on-rewrite") != Some("yes")
        && seen.info("aof_last_write_status") != Some("err")
}

pub(super) fn look(seen: &Seen, findings: &mut Vec<Finding>) {
    trouble(seen, findings);
    match seen.info("aof_enabled") {
        Some("1") => findings.extend(appended(seen)),
        Some("0") => findings.push(snapshots(seen)),
        _ => {}
    }
}

/// A disk that cannot be written, or is still being read.
pub(super) fn trouble(seen: &Seen, findings: &mut Vec<Finding>) {
    if seen.info("loading") == Some("1") {
        findings.push(Finding::problem(
            "the server is still loading its data from disk",
            "it answers no other request until it has finished",
            "wait, and run the doctor again",
        ));
    }
    for (field, what) in [
        ("aof_last_write_status", "the last write to the append-only file failed"),
        ("aof_last_bgrewrite_status", "the last rewrite of the append-only file failed"),
        ("rdb_last_bgsave_status", "the last snapshot failed"),
    ] {
        if seen.info(field) == Some("err") {
            findings.push(Finding::problem(
                format!("{what} ({field}:err)"),
                "Redis then refuses to write, so that no lock can be taken or renewed, or the data on its \
                 disk is old",
                "free space on its disk, or repair it; its log has details",
            ));
        }
    }
}

const FREE: &str = "locks that are missing after a restart are free: two holders can overlap; tokens \
                    continue from the server's clock";

fn appended(seen: &Seen) -> Option<Finding> {
    let fence = "set appendfsync always if locks must survive a power cut; fence the resources";
    match seen.setting("appendfsync")? {
        "always" if seen.setting("no-appendfsync-on-rewrite") == Some("yes") => Some(Finding::note(
            "the disk may lack the last seconds while the file is rewritten (no-appendfsync-on-rewrite yes)",
            FREE,
            "set no-appendfsync-on-rewrite no",
        )),
        "always" => Some(Finding::fine("every change is on disk before it is answered (appendfsync always)")),
        "everysec" => Some(Finding::note(
            "the disk may lack the last second after a power cut (appendfsync everysec)",
            FREE,
            fence,
        )),
        other => Some(Finding::note(
            format!("the disk may lack the last half minute after a power cut (appendfsync {other})"),
            FREE,
            fence,
        )),
    }
}

fn snapshots(seen: &Seen) -> Finding {
    let what = match seen.setting("save") {
        Some("") => "the server keeps nothing on disk (appendonly no, save '')".to_owned(),
        Some(save) => format!("the server writes snapshots, minutes apart (appendonly no, save {save})"),
        None => "the server has no append-only file (appendonly no)".to_owned(),
    };
    let advice = "set appendonly yes and appendfsync everysec, or always; fence the resources";
    Finding::note(what, FREE, advice)
}

#[cfg(test)]
mod tests {
    use tollgate_core::Severity;

    use super::super::seen::tests::healthy;
    use super::*;

    fn said(info: &[(&str, &str)], settings: &[(&str, &str)]) -> Vec<(Severity, String)> {
        let mut findings = Vec::new();
        look(&healthy(info, settings), &mut findings);
        findings.into_iter().map(|finding| (finding.severity, finding.what)).collect()
    }

    #[test]
    fn a_disk_that_fails_is_a_problem_and_one_that_lags_is_not() {
        assert_eq!(said(&[], &[])[0].0, Severity::Fine);
        for field in ["aof_last_write_status", "rdb_last_bgsave_status", "aof_last_bgrewrite_status"] {
            let (severity, what) = &said(&[(field, "err")], &[])[0];
            assert_eq!(*severity, Severity::Problem);
            assert!(what.contains(field));
        }
        for (setting, value) in
            [("appendfsync", "everysec"), ("appendfsync", "no"), ("no-appendfsync-on-rewrite", "yes")]
        {
            assert_eq!(said(&[], &[(setting, value)])[0].0, Severity::Note);
            assert!(!is_durable(&healthy(&[], &[(setting, value)])));
        }
        assert_eq!(said(&[("loading", "1")], &[])[0].0, Severity::Problem);
        assert!(said(&[("aof_enabled", "0")], &[])[0].1.contains("nothing"));
        assert!(said(&[("aof_enabled", "0")], &[("save", "3600 1")])[0].1.contains("3600 1"));
        assert!(is_durable(&healthy(&[], &[])));
    }
}
