//! Runs one test program: what it printed, how it ended, and that nothing of it is left.

use std::io::{self, BufRead, BufReader, PipeReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::count::Count;

/// How long the output of a program that has ended may stay open.
const OUTPUT_CLOSES_WITHIN: Duration = Duration::from_secs(20);
/// How often a running program is looked at.
const POLL: Duration = Duration::from_millis(20);

/// Marks every process that a test program starts, so that those which left its process group are found, too.
const MARK: &str = "TOLLGATE_TEST_PROGRAM";

/// What became of a program.
pub(crate) struct Outcome {
    /// Its standard output and error, line by line in the order of writing.
    pub(crate) lines: Vec<Line>,
    pub(crate) count: Count,
    pub(crate) took: Duration,
    /// How it ended, if not by itself with a verdict.
    pub(crate) end: End,
}

/// A line of output.
pub(crate) struct Line {
    pub(crate) at: Instant,
    pub(crate) text: String,
}

impl Line {
    pub(crate) fn now(text: String) -> Self {
        Self { at: Instant::now(), text }
    }
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// With a verdict on each of its tests, and nothing left behind.
    Complete,
    /// It was ended because it took too long.
    Hung,
    /// It died, or left a process behind.
    Broken,
}

/// Runs `command` for `limit` at most. `on_line` gets each line that it prints, as it comes.
pub(crate) fn run(command: &mut Command, limit: Duration, on_line: fn(&str)) -> io::Result<Outcome> {
    let started = Instant::now();
    let mark = format!("{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
    let mut guardian = Guardian::start(&mark)?;
    let (mut child, output) = spawn(command.env(MARK, &mark))?;
    guardian.watch(child.id())?;
    let lines = read_lines(output, on_line);
    let mut outcome =
        Outcome { lines: Vec::new(), count: Count::default(), took: Duration::ZERO, end: End::Complete };
    let mut complaints = Vec::new();
    let status = wait(&mut child, limit)?;
    if status.is_none() {
        outcome.end = End::Hung;
        complaints.push(format!("it hung: ended after {} s", limit.as_secs()));
    }
    // Whatever it started and did not end goes with it, also after a verdict.
    if !guardian.end()? {
        complaints.push("it left a process behind, which had to be killed".to_owned());
    }
    child.wait()?;
    let closes = Instant::now() + OUTPUT_CLOSES_WITHIN;
    loop {
        match lines.recv_timeout(closes.saturating_duration_since(Instant::now())) {
            Ok(line) if Instant::now() < closes => outcome.lines.push(line),
            Err(RecvTimeoutError::Disconnected) => break,
            _ => {
                complaints.push("it left a process behind, which still holds its output".to_owned());
                break;
            }
        }
    }
    outcome.lines.iter().for_each(|line| outcome.count.add_line(&line.text));
    let has_verdict = outcome.lines.iter().any(|line| Count::is_verdict(&line.text));
    // A program that counted failures itself ends with an error, and has said why.
    complaints
        .extend(status.and_then(|status| complaint_about(status, has_verdict, outcome.count.failed > 0)));
    if !complaints.is_empty() {
        if outcome.end == End::Complete {
            outcome.end = End::Broken;
        }
        let complaint = format!("FAILED: {}", complaints.join("; "));
        on_line(&complaint);
        outcome.lines.push(Line::now(complaint));
        outcome.count.failed += 1;
    }
    outcome.took = started.elapsed();
    Ok(outcome)
}

/// Starts `command` in a process group of its own, with both outputs in one pipe.
fn spawn(command: &mut Command) -> io::Result<(Child, PipeReader)> {
    let (reader, writer) = io::pipe()?;
    let child = command.stdout(writer.try_clone()?).stderr(writer).process_group(0).spawn();
    // The command would keep the pipe's other end open, which is to close with the program.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Ok((child?, reader))
}

/// Numbers the programs that this process runs.
static RUNS: AtomicU32 = AtomicU32::new(0);

/// Kills a program's process group and the marked processes when it is dropped, or when xtask is gone, however that ends: a
/// shell that waits for the end of a pipe, in a group of its own, so that Ctrl-C does not reach it.
struct Guardian {
    shell: Child,
}

impl Guardian {
    fn start(mark: &str) -> io::Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", include_str!("guardian.sh"), &format!("{MARK}={mark}")]);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Ok(Self { shell: shell.spawn()? })
    }

    /// Has it kill this group, too.
    fn watch(&mut self, group: u32) -> io::Result<()> {
        self.shell.stdin.as_mut().map_or(Ok(()), |pipe| writeln!(pipe, "{group}"))
    }
}

impl Guardian {
    /// Has it do its work. Answers whether nothing was left but the group.
    fn end(mut self) -> io::Result<bool> {
        drop(self.shell.stdin.take());
        Ok(self.shell.wait()?.success())
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// Reads on a thread of its own, because a process that was left behind may hold the pipe open.
fn read_lines(output: PipeReader, on_line: fn(&str)) -> mpsc::Receiver<Line> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            on_line(&line);
            if sender.send(Line::now(line)).is_err() {
                return;
            }
        }
    });
    lines
}

/// How the program ended; `None` if it has not within `limit`.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let ends = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= ends {
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

/// What is wrong with how a program ended, given whether it printed a verdict and whether tests `failed`.
fn complaint_about(status: ExitStatus, has_verdict: bool, failed: bool) -> Option<String> {
    match (status.success(), status.signal()) {
        (false, Some(signal)) => Some(format!("it was killed by signal {signal}")),
        (false, None) if !failed => Some(format!("it ended with {status} and no verdict")),
        // A `process::exit(0)` inside a test skips the tests after it.
        (true, _) if !has_verdict => Some("it ended without a verdict".to_owned()),
        (true, _) | (false, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn until_gone(pid: &str) {
        let lives = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|state| !state.is_empty() && !state.starts_with('Z'))
        };
        let ends = Instant::now() + OUTPUT_CLOSES_WITHIN;
        while lives() {
            assert!(Instant::now() < ends, "its child lives on");
            std::thread::sleep(POLL);
        }
    }

    #[test]
    fn both_outputs_are_kept_in_order_and_counted() {
        let script = "echo one; echo two >&2; echo 'test result: ok. 3 passed; 0 failed; 1 ignored'";
        let outcome = run(&mut shell(script), Duration::from_secs(60), |_| {}).unwrap();
        assert_eq!([&outcome.lines[0].text, &outcome.lines[1].text], ["one", "two"]);
        assert_eq!(outcome.end, End::Complete);
        assert_eq!(outcome.count, Count { passed: 3, not_applicable: 1, ..Count::default() });
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_its_children_and_counts_as_failed() {
        let outcome = run(&mut shell("sleep 500 & echo $!; wait"), Duration::from_secs(3), |_| {}).unwrap();
        assert_eq!((outcome.count.failed, outcome.end), (1, End::Hung));
        assert!(outcome.lines[1].text.contains("it hung"), "{}", outcome.lines[1].text);
        until_gone(&outcome.lines[0].text);
    }

    /// Its children hold nothing but a pipe to it, so that nothing else shows that they are left.
    #[test]
    fn a_program_that_is_killed_leaves_no_child_behind() {
        let script = "{ sleep 500 >/dev/null 2>&1 & echo $!; } && kill -9 $$";
        let outcome = run(&mut shell(script), Duration::from_secs(60), |_| {}).unwrap();
        until_gone(&outcome.lines[0].text);
    }

    /// As the holder processes of `tollgate acquire` do.
    #[test]
    fn a_child_in_a_session_of_its_own_is_not_left_behind() {
        let script = "setsid sh -c 'echo $$; exec sleep 500 >/dev/null 2>&1' & sleep 1; kill -9 $$";
        let outcome = run(&mut shell(script), Duration::from_secs(60), |_| {}).unwrap();
        until_gone(&outcome.lines[0].text);
        let complaint = &outcome.lines.last().unwrap().text;
        assert!(complaint.contains("left a process behind"), "{complaint}");
        assert_eq!(outcome.end, End::Broken);
    }

    #[test]
    fn a_program_that_dies_after_a_failure_counts_as_broken_besides() {
        let script = "echo 'test result: FAILED. 3 passed; 1 failed; 0 ignored'; kill -9 $$";
        let outcome = run(&mut shell(script), Duration::from_secs(60), |_| {}).unwrap();
        assert_eq!((outcome.count.failed, outcome.end), (2, End::Broken));
        let script = "echo 'test result: FAILED. 3 passed; 1 failed; 0 ignored'; exit 101";
        let outcome = run(&mut shell(script), Duration::from_secs(60), |_| {}).unwrap();
        assert_eq!((outcome.count.failed, outcome.end), (1, End::Complete));
    }

    #[test]
    fn a_program_that_dies_before_its_verdict_counts_as_failed() {
        let outcome = run(&mut shell("kill -9 $$"), Duration::from_secs(60), |_| {}).unwrap();
        assert_eq!(outcome.count.failed, 1);
        assert!(outcome.lines[0].text.contains("signal 9"), "{}", outcome.lines[0].text);
        assert_eq!(run(&mut shell("exit 3"), Duration::from_secs(60), |_| {}).unwrap().count.failed, 1);
    }
    #[test]
    fn a_program_that_ends_well_without_a_verdict_counts_as_failed() {
        for script in ["exit 0", "echo 'running 3 tests'; echo 'test a ... ok'"] {
            let outcome = run(&mut shell(script), Duration::from_secs(60), |_| {}).unwrap();
            assert_eq!((outcome.count.failed, outcome.end), (1, End::Broken), "{script}");
            let complaint = &outcome.lines.last().unwrap().text;
            assert!(complaint.contains("ended without a verdict"), "{complaint}");
        }
        let script = "echo 'test result: ok. 0 passed; 0 failed; 0 ignored'";
        let outcome = run(&mut shell(script), Duration::from_secs(60), |_| {}).unwrap();
        assert_eq!((outcome.count, outcome.end), (Count::default(), End::Complete), "it has no tests");
    }
}
