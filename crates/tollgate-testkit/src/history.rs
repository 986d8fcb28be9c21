//! What clients observed, checked against the fenced mutex: an acquire is legal only with no incompatible
//! owner and with a larger token than every grant before it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tollgate_core::{Clock, LockName, Mode, Moment, Token};

/// Everything that was observed, in any order, by any number of clients on one host.
#[derive(Clone)]
pub struct History {
    clock: Arc<dyn Clock>,
    passages: Arc<Mutex<Vec<Passage>>>,
}

/// One acquisition, as its client saw it.
#[derive(Debug, Clone)]
pub struct Passage {
    /// Which lock.
    pub name: LockName,
    /// How it was shared.
    pub mode: Mode,
    /// Its number.
    pub token: Token,
    /// When it was asked for.
    pub asked: Moment,
    /// When the client knew of the grant.
    pub granted: Moment,
    /// Until when the client knew that it held the lock.
    pub until: Moment,
}

/// A passage that was asked for.
pub struct Asked {
    history: History,
    name: LockName,
    mode: Mode,
    at: Moment,
}

/// A passage that was granted.
pub struct Held {
    history: History,
    index: usize,
}

impl History {
    /// An empty history whose times are read from `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, passages: Arc::default() }
    }

    /// Notes that a client is about to ask for `name`.
    pub fn ask(&self, name: &LockName, mode: Mode) -> Asked {
        Asked { history: self.clone(), name: name.clone(), mode, at: self.clock.now() }
    }

    /// Panics with the first violation, if there is one.
    pub fn check(&self) {
        let passages = self.passages.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(violation) = check(&passages) {
            panic!("{violation}");
        }
    }

    /// How many grants were observed.
    pub fn len(&self) -> usize {
        self.passages.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Asked {
    /// Notes that it was granted, with `token`.
    pub fn granted(self, token: Token) -> Held {
        let now = self.history.clock.now();
        let mut passages = self.history.passages.lock().unwrap_or_else(PoisonError::into_inner);
        passages.push(Passage {
            name: self.name,
            mode: self.mode,
            token,
            asked: self.at,
            granted: now,
            until: now,
        });
        let index = passages.len() - 1;
        drop(passages);
        Held { history: self.history, index }
    }
}

impl Held {
    /// Notes that the lock is known to be held now.
    pub fn still(&self) {
        let now = self.history.clock.now();
        self.history.passages.lock().unwrap_or_else(PoisonError::into_inner)[self.index].until = now;
    }

    /// Notes that the lock was held until now and is about to be released.
    pub fn releasing(self) {
        self.still();
    }
}

/// What no fenced mutex would have done.
#[derive(Debug, Clone)]
pub enum Violation {
    /// Two grants of a name carry one token.
    SameToken(Box<[Passage; 2]>),
    /// The second was asked for after the first was granted, and has no larger token.
    TokensWentBack(Box<[Passage; 2]>),
    /// Two held a lock at once that exclude each other.
    Overlap(Box<[Passage; 2]>),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, [first, second]) = match self {
            Self::SameToken(pair) => ("two grants carry one token", &**pair),
            Self::TokensWentBack(pair) => ("a later acquisition has no larger token", &**pair),
            Self::Overlap(pair) => ("two holders overlapped", &**pair),
        };
        write!(f, "{what}:\n  {first:?}\n  {second:?}")
    }
}

/// Finds a violation, if there is one. Takes n log n steps, so that a million grants can be checked.
pub fn check(passages: &[Passage]) -> Result<(), Violation> {
    let mut by_name: HashMap<&LockName, Vec<&Passage>> = HashMap::new();
    for passage in passages {
        by_name.entry(&passage.name).or_default().push(passage);
    }
    for mut passages in by_name.into_values() {
        passages.sort_by_key(|passage| passage.token);
        check_unique(&passages)?;
        passages.sort_by_key(|passage| passage.granted);
        check_order(&passages)?;
        check_overlap(&passages)?;
    }
    Ok(())
}

fn pair(one: &Passage, other: &Passage) -> Box<[Passage; 2]> {
    Box::new([one.clone(), other.clone()])
}

/// Sorted by token.
fn check_unique(passages: &[&Passage]) -> Result<(), Violation> {
    match passages.windows(2).find(|two| two[0].token == two[1].token) {
        Some(two) => Err(Violation::SameToken(pair(two[0], two[1]))),
        None => Ok(()),
    }
}

/// Sorted by grant: nobody has a smaller token than somebody who was in before it asked.
fn check_order(passages: &[&Passage]) -> Result<(), Violation> {
    let mut by_asking = passages.to_vec();
    by_asking.sort_by_key(|passage| passage.asked);
    let mut granted = passages.iter();
    let mut largest: Option<&Passage> = None;
    for later in by_asking {
        while let Some(earlier) = granted.as_slice().first().filter(|earlier| earlier.granted < later.asked) {
            largest =
                Some(largest.map_or(
                    *earlier,
                    |largest| if earlier.token > largest.token { earlier } else { largest },
                ));
            granted.next();
        }
        if let Some(largest) = largest.filter(|largest| largest.token > later.token) {
            return Err(Violation::TokensWentBack(pair(largest, later)));
        }
    }
    Ok(())
}

/// Sorted by grant: whoever comes in is compatible with everybody who is still in.
fn check_overlap(passages: &[&Passage]) -> Result<(), Violation> {
    let mut inside: Vec<&Passage> = Vec::new();
    for next in passages {
        inside.retain(|earlier| earlier.until > next.granted);
        if !next.mode.joins(inside.iter().map(|earlier| earlier.mode)) {
            return Err(Violation::Overlap(pair(inside[0], next)));
        }
        inside.push(next);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passage(mode: Mode, token: u64, asked: u64, granted: u64, until: u64) -> Passage {
        let moment = Moment::from_nanos;
        Passage {
            name: LockName::new("a").unwrap(),
            mode,
            token: Token::new(token).unwrap(),
            asked: moment(asked),
            granted: moment(granted),
            until: moment(until),
        }
    }

    #[test]
    fn a_fenced_mutex_passes() {
        let x = Mode::Exclusive;
        assert!(check(&[passage(x, 1, 0, 1, 5), passage(x, 2, 0, 5, 9), passage(x, 7, 9, 9, 10)]).is_ok());
        let two = Mode::permit(2).unwrap();
        assert!(
            check(&[passage(two, 1, 0, 1, 5), passage(two, 2, 0, 2, 9), passage(two, 3, 0, 5, 10)]).is_ok()
        );
    }

    #[test]
    fn what_no_fenced_mutex_does_is_found() {
        let (x, two) = (Mode::Exclusive, Mode::permit(2).unwrap());
        let same = check(&[passage(x, 1, 0, 1, 2), passage(x, 1, 3, 4, 5)]);
        assert!(matches!(same, Err(Violation::SameToken(_))), "{same:?}");
        let back = check(&[passage(x, 5, 0, 1, 2), passage(x, 4, 3, 4, 5)]);
        assert!(matches!(back, Err(Violation::TokensWentBack(_))), "{back:?}");
        let overlap = check(&[passage(x, 1, 0, 1, 5), passage(x, 2, 0, 4, 9)]);
        assert!(matches!(overlap, Err(Violation::Overlap(_))), "{overlap:?}");
        let mixed = check(&[passage(Mode::Shared, 1, 0, 1, 5), passage(x, 2, 0, 4, 9)]);
        assert!(matches!(mixed, Err(Violation::Overlap(_))), "{mixed:?}");
        let third = check(&[passage(two, 1, 0, 1, 9), passage(two, 2, 0, 2, 9), passage(two, 3, 0, 5, 10)]);
        assert!(matches!(third, Err(Violation::Overlap(_))), "{third:?}");
    }
}
