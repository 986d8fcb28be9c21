//! `tollgate doctor`: which failures the locks of an engine survive, and what is wrong with the
//! engine.

use anstyle::{AnsiColor, Style};
use clap::Args;
use serde_json::json;
use tollgate::guarantees::{Basis, Row};
use tollgate::{Checkup, Fault, Finding, Result, Severity};

use crate::engine_url::EngineArg;
use crate::exit::Exit;
use crate::{holder, show, tell};

/// Examine an engine: which failures its locks survive, what is wrong with it, and what to change.
///
/// Looks at the engine as it really is, and changes nothing. What it looks at depends on the
/// engine:
///
/// file: the file system of the folder, the users who can take locks in it, its token counters,
/// what killed processes left behind, and locks whose holder is stopped.
///
/// redis, rediss: version, persistence on disk, eviction, replicas, clock, and the rights of this
/// user. redis-sentinel: the sentinels, and the same of their primary. redis-cluster: the same of
/// every primary.
///
/// redlock: the same of every node but for the disk, and whether the nodes vote and are independent
/// of each other.
///
/// etcd: which members answer, the leader, version, size of the database, alarms, whether it was
/// restored from a backup, and the rights of this user.
///
/// zookeeper: which servers answer, how many of them vote, version, tickTime, session timeouts, and
/// access to the folder of the locks.
///
/// postgres: version, whether a grant is on the server's disk or its replicas before it is given,
/// poolers in between, clock, whether dead rows can be cleaned up, free connections, and the rights
/// of this user.
///
/// mysql, mariadb: version, whether a grant is on the server's disk before it is given, replicas,
/// Galera, clock, free connections, and the rights of this user.
///
/// tollgate: which addresses answer, what a crash of the server costs, and the longest ttl.
///
/// memory: nothing, because its locks live in one process.
///
/// Which failures the locks survive depends on the ?style= of the URL, if it has one.
///
/// Exit code 0 if nothing must be changed, 78 if something must be changed, 69 if the engine cannot
/// be examined.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    engine: EngineArg,
}

const EXAMPLES: &str = "\
Examples:
  tollgate doctor
  tollgate doctor file:locks
  tollgate doctor --json | head -c 300";

pub(crate) async fn run(args: DoctorArgs) -> Result<Exit> {
    let url = args.engine.resolve()?;
    let mut checkup = tollgate::doctor(&url).await?;
    if url.starts_with("file:") {
        checkup.findings.extend(holder::survey());
    }
    tell::answer_in_colour(&if args.json { json(&checkup) } else { text(&checkup) })?;
    Ok(if checkup.has_problems() { Exit::CONFIG } else { Exit::OK })
}

fn json(checkup: &Checkup) -> String {
    let row = |row: &Row| {
        json!({
            "fault": format!("{:?}", row.fault),
            "exclusion": format!("{:?}", row.exclusion),
            "tokens": format!("{:?}", row.tokens),
        })
    };
    let guarantees: Vec<_> = checkup.guarantees.rows().iter().map(row).collect();
    let report = json!({
        "subject": checkup.subject,
        "healthy": !checkup.has_problems(),
        "findings": checkup.findings,
        "guarantees": guarantees,
    });
    format!("{report:#}\n")
}

fn text(checkup: &Checkup) -> String {
    let findings: String = checkup.findings.iter().map(paragraph).collect();
    let survived = survived(checkup);
    format!("{}\n{findings}\n{survived}", show::printable(&checkup.subject))
}

fn paragraph(finding: &Finding) -> String {
    let (word, style) = match finding.severity {
        Severity::Fine => ("ok", AnsiColor::Green.on_default()),
        Severity::Note => ("note", AnsiColor::Yellow.on_default()),
        Severity::Problem => ("problem", AnsiColor::Red.on_default().bold()),
    };
    let mut text = format!("  {style}{word:8}{style:#} {}\n", show::printable(&finding.what));
    if let Some(why) = &finding.why {
        text.push_str(&format!("           {}\n", show::printable(why)));
    }
    if let Some(advice) = &finding.advice {
        const TO_DO: Style = Style::new().bold();
        text.push_str(&format!("           {TO_DO}to do:{TO_DO:#} {}\n", show::printable(advice)));
    }
    text
}

/// The failures that the locks survive, and those that they do not.
fn survived(checkup: &Checkup) -> String {
    let list = |heading: &str, wanted: &dyn Fn(&Row) -> bool| {
        let rows = checkup.guarantees.rows().iter().filter(|row| wanted(row));
        let lines: String = rows.map(|row| format!("  - {}\n", words(row.fault))).collect();
        if lines.is_empty() { String::new() } else { format!("{heading}\n{lines}") }
    };
    let worst = |row: &Row| {
        let both = [row.exclusion, row.tokens];
        [Basis::Broken, Basis::Time, Basis::Kept].into_iter().find(|basis| both.contains(basis))
    };
    [
        list("Its locks survive:", &|row| worst(row) == Some(Basis::Kept)),
        list("Its locks survive as long as clocks run at nearly the same speed:", &|row| {
            worst(row) == Some(Basis::Time)
        }),
        list("Its locks do not survive (two holders may overlap, or a token may be given twice):", &|row| {
            worst(row) == Some(Basis::Broken)
        }),
    ]
    .concat()
}

fn words(fault: Fault) -> &'static str {
    match fault {
        Fault::HolderKilled => "a holder is killed",
        Fault::HolderPaused => "a holder is paused for long and then resumes",
        Fault::RenewalsFail => "renewals do not reach the engine",
        Fault::ClockForward => "the wall clock jumps forward",
        Fault::ClockBack => "the wall clock jumps back",
        Fault::ClockDrift => "clocks run at slightly different speeds",
        Fault::ReplyLost => "the network is cut, or a reply is lost",
        Fault::RequestRepeated => "a request arrives twice, or late",
        Fault::EngineRestarted => {
            "the machine or server that keeps the locks crashes and restarts with its data"
        }
        Fault::EngineEmptied => "the data is deleted, or the engine restarts empty",
        Fault::FailedOver => "a replica that lags behind takes over",
        Fault::Restored => "the data is restored from a backup",
        Fault::MachinePaused => "a holder's virtual machine is paused or migrated",
    }
}
