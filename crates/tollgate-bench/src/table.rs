//! The report as people read it.

use comfy_table::{CellAlignment, Table, presets};

use crate::report::{Line, Report};

/// A column, and what a line has in it. One that no line has anything in is left out.
type Column = (&'static str, fn(&Line) -> String);

const COLUMNS: &[Column] = &[
    ("workload", |line| line.workload.clone()),
    ("who", |line| line.contender.clone()),
    ("per second", |line| number(line.measured.per_second, 0)),
    ("p50 µs", |line| number(line.measured.p50_us, 1)),
    ("p99 µs", |line| number(line.measured.p99_us, 1)),
    ("CPU µs", |line| number(line.measured.cpu_us, 1)),
    ("most/fewest", |line| {
        let fairness = line.measured.fairness;
        fairness.map(|fairness| or_starved(fairness.most_by_fewest)).unwrap_or_default()
    }),
    ("same again", |line| {
        let fairness = line.measured.fairness;
        fairness.map(|fairness| format!("{:.0} %", fairness.same_again_percent)).unwrap_or_default()
    }),
    ("B/lock", |line| number(line.measured.bytes_per_lock, 0)),
    ("connections", |line| number(line.measured.wire.map(|wire| wire.connections as f64), 0)),
    ("requests", |line| number(line.measured.wire.map(|wire| wire.requests), 1)),
    ("B out", |line| number(line.measured.wire.map(|wire| wire.bytes_out), 0)),
    ("B back", |line| number(line.measured.wire.map(|wire| wire.bytes_back), 0)),
    ("× first", |line| number(line.ratio, 2)),
];

impl Report {
    /// For people.
    pub fn table(&self) -> String {
        let filled = |column: &&Column| self.lines.iter().any(|line| !(column.1)(line).is_empty());
        let columns: Vec<&Column> = COLUMNS.iter().filter(filled).collect();
        let mut table = Table::new();
        table.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_header(columns.iter().map(|(name, _)| *name));
        for line in &self.lines {
            table.add_row(columns.iter().map(|(_, cell)| cell(line)));
        }
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let seconds = self.round_seconds;
        let rounds = self.lines.iter().map(|line| line.rounds).max().unwrap_or(0);
        let mut text =
            format!("{table}\nmedian of {rounds} rounds of {seconds} s, in turns; {}\n", self.machine);
        for note in &self.notes {
            text += &format!("{note}\n");
        }
        text
    }
}

fn or_starved(most_by_fewest: Option<f64>) -> String {
    most_by_fewest.map_or_else(|| "starved".to_owned(), |ratio| format!("{ratio:.2}"))
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map(|value| format!("{value:.digits$}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::meter::Wire;
    use crate::report::Measured;

    fn report(wire: Option<Wire>) -> Report {
        let measured = Measured { per_second: Some(1000.0), wire, ..Measured::default() };
        let line = Line {
            workload: "own name, 1 client".to_owned(),
            contender: "somebody".to_owned(),
            measured,
            ratio: Some(1.0),
            rounds: 3,
        };
        Report {
            machine: Machine { cores: vec![0], pinned: false },
            round_seconds: 1.0,
            lines: vec![line],
            notes: vec!["nobody else was there".to_owned()],
        }
    }

    #[test]
    fn what_nobody_counted_has_no_column() {
        let counted =
            report(Some(Wire { connections: 16, requests: 2.0, bytes_out: 171.0, bytes_back: 9.0 }));
        for words in ["connections", "requests", " 171 ", "nobody else was there"] {
            assert!(counted.table().contains(words), "{words:?} is not in\n{}", counted.table());
        }
        let table = report(None).table();
        assert!(!table.contains("requests") && table.contains("per second"), "{table}");
    }
}
