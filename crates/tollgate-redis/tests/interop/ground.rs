//! What the lock protects: a number in a file, to which everybody adds one, and traces of those who were not alone.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::time::Duration;

/// A folder that one may be in at a time.
pub(crate) struct Ground(pub(crate) PathBuf);

/// What a folder looks like when everybody has left.
#[derive(Debug)]
pub(crate) struct Traces {
    /// What was counted.
    pub(crate) counter: usize,
    /// Who passed, in order, with the token if there was one.
    pub(crate) passages: Vec<(String, Option<u64>)>,
}

impl Ground {
    /// A folder in which nobody was yet.
    pub(crate) fn prepare(&self) {
        fs::write(self.0.join("counter"), "0\n").unwrap();
        fs::write(self.0.join("passages"), "").unwrap();
    }

    /// A passage: read, pause, write, so that two at it at once lose a count. Says whether it was alone in there.
    pub(crate) fn pass(&self, who: &str, token: Option<u64>) -> bool {
        let (inside, counter) = (self.0.join("inside"), self.0.join("counter"));
        let entered = OpenOptions::new().write(true).create_new(true).open(&inside);
        let found_nobody = match entered {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
            Err(error) => panic!("{}: {error}", inside.display()),
        };
        // Another one, who has no business here, may have emptied it to write.
        let seen: u64 = fs::read_to_string(&counter).unwrap().trim().parse().unwrap_or(0);
        std::thread::sleep(Duration::from_millis(1));
        fs::write(&counter, format!("{}\n", seen + 1)).unwrap();
        let token = token.map(|token| format!(" {token}")).unwrap_or_default();
        let mut passages = OpenOptions::new().append(true).open(self.0.join("passages")).unwrap();
        passages.write_all(format!("{who}{token}\n").as_bytes()).unwrap();
        // Whoever else was in has taken it away.
        let left_alone = fs::remove_file(&inside).is_ok();
        found_nobody && left_alone
    }

    pub(crate) fn traces(&self) -> Traces {
        let counter = fs::read_to_string(self.0.join("counter")).unwrap().trim().parse().unwrap_or(0);
        let passages = fs::read_to_string(self.0.join("passages")).unwrap();
        let passages = passages.lines().map(|line| match line.split_once(' ') {
            Some((who, token)) => (who.to_owned(), Some(token.parse().unwrap())),
            None => (line.to_owned(), None),
        });
        Traces { counter, passages: passages.collect() }
    }
}

impl Traces {
    /// Everybody's passage was counted, and tokens rose from each of ours to the next.
    pub(crate) fn must_be_of(&self, passages: usize, of_ours: usize) {
        assert_eq!(self.passages.len(), passages, "everybody passed as often as asked");
        assert_eq!(self.counter, passages, "counts were lost");
        let tokens: Vec<u64> = self.passages.iter().filter_map(|(_, token)| *token).collect();
        assert_eq!(tokens.len(), of_ours, "each of ours has a token");
        assert!(tokens.is_sorted_by(|before, after| before < after), "tokens do not rise: {tokens:?}");
    }

    /// How often somebody of another kind came next.
    pub(crate) fn turns(&self) -> usize {
        self.passages.windows(2).filter(|two| two[0].0 != two[1].0).count()
    }
}
