//! `tollgate doctor`: what an engine's locks survive, and what is wrong with it.

use anstyle::{AnsiColor, Style};
use clap::Args;
use serde_json::json;
use tollgate::guarantees::{Basis, Row};
use tollgate::{Checkup, Fault, Finding, Result, Severity};

use crate::exit::Exit;
use crate::{holder, show, tell};

/// Examine an engine: what its locks survive, what is wrong with it, and what to change.
///
/// Looks at the engine as it really is and changes nothing. For file: that is the folder: the file system it is on,
/// who can take locks in it, its token counters, what killed processes left behind, and locks whose holder is stopped.
/// For redis: it is every server: its version, what it keeps on its disk, what it evicts, its replicas, its clock, and
/// what this user may do; for redlock: also whether the nodes are independent. For etcd: it is every member: who answers, who
/// leads, its version, how full it is, alarms, whether it was restored from a backup, and what this user may do. For postgres:
/// it is the server: what is on its disk or its replicas when a lock is called held, poolers in between, its clock, whether it
/// can clean up, and what this user may do. For mysql: the same. What locks survive is told for the ?style= of the URL.
///
/// Exit code 0 if nothing must be changed, 78 if something must, 69 if it cannot be looked at.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,

    /// The engine; $TOLLGATE_URL, or file:, if it is left out.
    #[arg(value_name = "URL", env = "TOLLGATE_URL", default_value = "file:", hide_env_values = true)]
    url: String,
}

const EXAMPLES: &str = "\
Examples:
  tollgate doctor
  tollgate doctor file:locks
  tollgate doctor --json | head -c 300";

pub(crate) async fn run(args: DoctorArgs) -> Result<Exit> {
    let mut checkup = tollgate::doctor(&args.url).await?;
    if args.url.starts_with("file:") {
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

/// What the locks survive, in plain words.
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
        list("Its locks survive this as long as clocks run at nearly the same speed:", &|row| {
            worst(row) == Some(Basis::Time)
        }),
        list("Its locks do not survive this; two may be in at once, or tokens may come again:", &|row| {
            worst(row) == Some(Basis::Broken)
        }),
    ]
    .concat()
}

fn words(fault: Fault) -> &'static str {
    match fault {
        Fault::HolderKilled => "a holder is killed",
        Fault::HolderPaused => "a holder is stopped for long and then goes on",
        Fault::RenewalsFail => "renewals do not get through",
        Fault::ClockForward => "the wall clock jumps forward",
        Fault::ClockBack => "the wall clock jumps back",
        Fault::ClockDrift => "clocks run at slightly different speeds",
        Fault::ReplyLost => "the network is cut, or an answer is lost",
        Fault::RequestRepeated => "a request arrives twice, or late",
        Fault::EngineRestarted => {
            "the machine or server that keeps the locks crashes and comes back with its data"
        }
        Fault::EngineEmptied => "the data is deleted, or comes back empty",
        Fault::FailedOver => "a replica takes over that lags behind",
        Fault::Restored => "the data is restored from a backup",
        Fault::MachinePaused => "a holder's virtual machine is paused or migrated",
    }
}
