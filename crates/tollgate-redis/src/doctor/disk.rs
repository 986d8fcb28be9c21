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
            "it is still reading its data from its disk",
            "it answers nothing else until it has",
            "wait, and examine it again",
        ));
    }
    for (field, what) in [
        ("aof_last_write_status", "the last write to its append-only file failed"),
        ("aof_last_bgrewrite_status", "the last rewrite of its append-only file failed"),
        ("rdb_last_bgsave_status", "the last snapshot failed"),
    ] {
        if seen.info(field) == Some("err") {
            findings.push(Finding::problem(
                format!("{what} ({field}:err)"),
                "Redis refuses to write then: no lock can be taken or renewed, or what it keeps is old",
                "make room on its disk, or repair it; its log says more",
            ));
        }
    }
}

const FREE: &str =
    "what it lacks after a restart is free: two can be in at once; tokens go on from its clock";

fn appended(seen: &Seen) -> Option<Finding> {
    let fence = "set appendfsync always if its locks must outlive that; fence what they protect";
    match seen.setting("appendfsync")? {
        "always" if seen.setting("no-appendfsync-on-rewrite") == Some("yes") => Some(Finding::note(
            "its disk may lack the last seconds while the file is rewritten (no-appendfsync-on-rewrite yes)",
            FREE,
            "set no-appendfsync-on-rewrite no",
        )),
        "always" => {
            Some(Finding::fine("every change is on its disk before it is answered (appendfsync always)"))
        }
        "everysec" => Some(Finding::note(
            "its disk may lack the last second after a power cut (appendfsync everysec)",
            FREE,
            fence,
        )),
        other => Some(Finding::note(
            format!("its disk may lack the last half minute after a power cut (appendfsync {other})"),
            FREE,
            fence,
        )),
    }
}

fn snapshots(seen: &Seen) -> Finding {
    let what = match seen.setting("save") {
        Some("") => "it keeps nothing on a disk (appendonly no, save '')".to_owned(),
        Some(save) => format!("it writes snapshots, minutes apart (appendonly no, save {save})"),
        None => "it has no append-only file (appendonly no)".to_owned(),
    };
    let advice = "set appendonly yes and appendfsync everysec, or always; fence what the locks protect";
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
