//! Runs test programs side by side, and shows what is running.

use std::collections::VecDeque;
use std::io::{IsTerminal, Write};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::parts::Part;
use crate::programs::Program;
use crate::report::{PartReport, ProgramReport, print_line};
use crate::runner::{self, End, Line};

/// How often the progress line is printed where it cannot be written over.
const PROGRESS_EVERY: Duration = Duration::from_secs(30);

/// How many unfinished tests of a program that hung are named: those that were running are the first of them.
const SHOWN: usize = 8;

/// A program to run.
pub(crate) struct Job<'a> {
    part: &'static str,
    title: String,
    program: &'a Program,
    arguments: Vec<String>,
    command: Mutex<Command>,
}

impl Job<'_> {
    /// The command that runs one of its tests and nothing else.
    pub(crate) fn alone(&self, test: &str) -> Command {
        self.program.command(&[test, "--exact"])
    }

    /// Its tests that `lines` do not tell the end of, in the order in which they start.
    fn unfinished(&self, lines: &[Line]) -> Vec<String> {
        let mut arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        arguments.push("--list");
        let Ok(listed) = self.program.command(&arguments).output() else { return Vec::new() };
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let ended = |name: &str| {
            lines.iter().any(|line| {
                line.text.strip_prefix("test ").is_some_and(|line| line.split(' ').next() == Some(name))
            })
        };
        let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
        names.filter(|name| !ended(name)).map(str::to_owned).collect()
    }

    /// Sets variables in its environment.
    pub(crate) fn set(&mut self, variables: &[(&str, &str)]) {
        self.command.get_mut().unwrap_or_else(PoisonError::into_inner).envs(variables.iter().copied());
    }
}

/// The programs of `parts`, in their order, each to be called with `arguments`.
pub(crate) fn jobs<'a>(parts: &[&'static Part], programs: &'a [Program], arguments: &[&str]) -> Vec<Job<'a>> {
    let of_part = |part: &'static Part| {
        programs.iter().filter(|program| program.is_of(part.packages)).map(|program| Job {
            part: part.name,
            title: program.title(),
            program,
            arguments: arguments.iter().map(ToString::to_string).collect(),
            command: Mutex::new(program.command(arguments)),
        })
    };
    parts.iter().flat_map(|part| of_part(part)).collect()
}

/// What a worker tells.
enum Event {
    Started(usize),
    Ended(usize, ProgramReport),
}

/// How programs are run.
pub(crate) struct How {
    /// This many side by side. One by itself is shown as it runs; of several, each part as one block when its
    /// last program has ended.
    pub(crate) at_a_time: usize,
    /// How long a program may take.
    pub(crate) limit: Duration,
}

/// Runs all `jobs`. A program that fails keeps no other from running.
pub(crate) fn run(jobs: &[Job<'_>], how: &How) -> Vec<PartReport> {
    let one_by_one = how.at_a_time == 1;
    let on_line: fn(&str) = if one_by_one { print_line } else { |_| {} };
    let queue: Mutex<VecDeque<usize>> = Mutex::new((0..jobs.len()).collect());
    let (sender, events) = mpsc::channel();
    let mut progress = Progress::new(jobs);
    let mut reports = PartReport::of_all(jobs.iter().map(|job| job.part));
    std::thread::scope(|scope| {
        for _ in 0..how.at_a_time {
            let (queue, sender) = (&queue, sender.clone());
            scope.spawn(move || {
                let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                while let Some(number) = next() {
                    // The receiver lives until all senders are gone.
                    let _ = sender.send(Event::Started(number));
                    let job = &jobs[number];
                    if one_by_one {
                        println!("\n-- {}: {}", job.part, job.title);
                    }
                    let mut command = job.command.lock().unwrap_or_else(PoisonError::into_inner);
                    let mut outcome = runner::run(&mut command, how.limit, on_line);
                    if let Ok(outcome) = &mut outcome
                        && outcome.end == End::Hung
                    {
                        let names = job.unfinished(&outcome.lines);
                        let first: Vec<_> = names.iter().take(SHOWN).map(String::as_str).collect();
                        let line = format!(
                            "not finished: {} tests, in the order in which they start: {}",
                            names.len(),
                            first.join(", ")
                        );
                        on_line(&line);
                        outcome.lines.push(Line::now(line));
                    }
                    let report = ProgramReport::new(&job.title, number, outcome);
                    let _ = sender.send(Event::Ended(number, report));
                }
            });
        }
        drop(sender);
        loop {
            match events.recv_timeout(Duration::from_secs(1)) {
                Ok(Event::Started(number)) => {
                    progress.start(number);
                }
                Ok(Event::Ended(number, program)) => {
                    progress.end(number);
                    let part = jobs[number].part;
                    let report =
                        reports.iter_mut().find(|report| report.name == part).expect("each job has a part");
                    report.add(program);
                    if report.is_complete() && !one_by_one {
                        progress.clear();
                        report.print();
                    }
                }
                Err(RecvTimeoutError::Timeout) if one_by_one => {}
                Err(RecvTimeoutError::Timeout) => progress.show(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        progress.clear();
    });
    reports
}

/// The line that says which programs run, and for how long.
struct Progress<'a> {
    jobs: &'a [Job<'a>],
    began: Instant,
    running: Vec<(usize, Instant)>,
    ended: usize,
    shown: Option<Instant>,
    /// On a terminal one line is written over and over; in a log each stays.
    terminal: bool,
}

impl<'a> Progress<'a> {
    fn new(jobs: &'a [Job<'a>]) -> Self {
        let terminal = std::io::stdout().is_terminal();
        Self { jobs, began: Instant::now(), running: Vec::new(), ended: 0, shown: None, terminal }
    }

    fn start(&mut self, number: usize) {
        self.running.push((number, Instant::now()));
    }

    fn end(&mut self, number: usize) {
        self.running.retain(|(running, _)| *running != number);
        self.ended += 1;
    }

    fn show(&mut self) {
        if !self.terminal && self.shown.unwrap_or(self.began).elapsed() < PROGRESS_EVERY {
            return;
        }
        self.shown = Some(Instant::now());
        if self.terminal {
            // Cut at the edge, not wrapped onto a second line that nothing would write over.
            print!("\r\x1b[K\x1b[?7l{}\x1b[?7h", self.line());
            let _ = std::io::stdout().flush();
        } else {
            println!("{}", self.line());
        }
    }

    fn line(&self) -> String {
        let name = |(number, since): &(usize, Instant)| {
            format!("{} {} s", self.jobs[*number].title, since.elapsed().as_secs())
        };
        let running: Vec<String> = self.running.iter().map(name).collect();
        let seconds = self.began.elapsed().as_secs();
        format!(
            "{seconds} s, {}/{} programs done, running: {}",
            self.ended,
            self.jobs.len(),
            running.join(", ")
        )
    }

    fn clear(&self) {
        if self.terminal {
            print!("\r\x1b[K");
        }
    }
}
