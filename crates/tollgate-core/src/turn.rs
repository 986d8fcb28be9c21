//! The rule for one claim in an engine's queue: whether it is in, and if not, what it waits for.
//!
//! The same verdict as [`Mode::joins`], found by looking at no more of the queue than it takes. For engines that keep a
//! queue and leave it to their clients to judge it.

use tollgate_types::Mode;

/// A claim ahead of the one that is judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place<K> {
    /// What the engine calls it.
    pub key: K,
    /// How it shares.
    pub mode: Mode,
}

/// Where a claim stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict<K> {
    /// It is in.
    In,
    /// It can be in only after this has happened.
    After(Turn<K>),
    /// More of the queue must be looked at.
    More,
}

/// What a claim waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn<K> {
    /// This claim leaves.
    Left(K),
    /// This claim, which waits for a permit, gets in or leaves.
    Moved(K),
    /// Anybody leaves: this is the first that waits for a permit.
    AnyLeft,
}

/// Judges a claim by those before it, the nearest first; `all` if there are no more.
pub fn judge<K: Clone>(mode: Mode, ahead: &[Place<K>], all: bool) -> Verdict<K> {
    match mode {
        Mode::Exclusive => nearest(ahead.first(), all),
        Mode::Shared => nearest(ahead.iter().find(|place| place.mode != Mode::Shared), all),
        Mode::Permit { limit } => permit(mode, limit.get() as usize, ahead, all),
    }
}

fn nearest<K: Clone>(in_the_way: Option<&Place<K>>, all: bool) -> Verdict<K> {
    match in_the_way {
        Some(place) => Verdict::After(Turn::Left(place.key.clone())),
        None if all => Verdict::In,
        None => Verdict::More,
    }
}

/// Permits directly ahead hold each other up only if there are as many as fit. Then the nearest waits itself, or is the
/// last that got in; it tells those behind when its turn has come, so that only one of them looks at all holders.
fn permit<K: Clone>(mode: Mode, limit: usize, ahead: &[Place<K>], all: bool) -> Verdict<K> {
    let alike = ahead.iter().take(limit + 1).take_while(|place| place.mode == mode).count();
    let other = ahead.get(alike);
    match (alike, other) {
        _ if alike > limit => Verdict::After(Turn::Moved(ahead[0].key.clone())),
        // The nearest waits as well, for what is before them.
        (_, Some(_)) if alike == limit => Verdict::After(Turn::Moved(ahead[0].key.clone())),
        (_, Some(other)) => Verdict::After(Turn::Left(other.key.clone())),
        (_, None) if !all => Verdict::More,
        _ if alike == limit => Verdict::After(Turn::AnyLeft),
        _ => Verdict::In,
    }
}

/// How many of a queue, the oldest first, are in. Once one has to wait, so have all behind it.
pub fn how_many_are_in(modes: &[Mode]) -> usize {
    let waits = |at: &usize| match modes[0] {
        // Those who share are in together however many they are; no need to count all again for each.
        Mode::Shared => modes[*at] != Mode::Shared,
        _ => !modes[*at].joins(modes[..*at].iter().copied()),
    };
    (0..modes.len()).find(waits).unwrap_or(modes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: usize = 5;

    fn mode(number: usize) -> Mode {
        let permit = |limit| Mode::permit(limit).unwrap();
        [Mode::Exclusive, Mode::Shared, permit(1), permit(2), permit(3)][number % MODES]
    }

    fn place(key: usize, mode: Mode) -> Place<usize> {
        Place { key, mode }
    }

    /// SplitMix64.
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed ^ (mixed >> 31)) as usize % end
        }
    }

    #[test]
    fn the_verdict_is_the_rules() {
        // Every queue of up to four, and a claim of every mode behind it.
        for length in 0..=4_u32 {
            for number in 0..MODES.pow(length) {
                let modes: Vec<Mode> = (0..length).map(|at| mode(number / MODES.pow(at))).collect();
                let ahead: Vec<Place<usize>> =
                    modes.iter().enumerate().map(|(at, mode)| place(at, *mode)).rev().collect();
                for own in (0..MODES).map(mode) {
                    let verdict = judge(own, &ahead, true);
                    assert_eq!(
                        verdict == Verdict::In,
                        own.joins(modes.iter().copied()),
                        "{own} behind {modes:?}"
                    );
                    assert_ne!(verdict, Verdict::More);
                    for part in 0..ahead.len() {
                        let early = judge(own, &ahead[..part], false);
                        assert!(
                            early == Verdict::More || early == verdict,
                            "{own} behind {modes:?}: {early:?}"
                        );
                    }
                }
            }
        }
    }

    /// One in the queue, as it sees itself.
    struct Claim {
        place: Place<usize>,
        verdict: Verdict<usize>,
        waited: bool,
    }

    /// Everybody looks again only when what they wait for happens. Nobody may be left behind.
    #[test]
    fn nobody_waits_for_something_that_does_not_happen() {
        for seed in 0..400 {
            let mut random = Random(seed);
            let mut queue: Vec<Claim> = Vec::new();
            let (variety, mut next) = (1 + random.below(MODES), 0);
            let offset = random.below(MODES);
            for _ in 0..60 {
                if queue.is_empty() || random.below(5) < 3 {
                    next += 1;
                    let place = place(next, mode(offset + random.below(variety)));
                    queue.push(Claim { place, verdict: Verdict::More, waited: false });
                    let last = queue.len() - 1;
                    look(&mut queue, last);
                } else {
                    let leaves = random.below(queue.len());
                    let key = queue.remove(leaves).place.key;
                    tell(&mut queue, key, true);
                }
                for at in 0..queue.len() {
                    let modes = queue[..at].iter().map(|claim| claim.place.mode);
                    let is_in = queue[at].place.mode.joins(modes);
                    assert_eq!(queue[at].verdict == Verdict::In, is_in, "seed {seed}, place {at}");
                }
            }
        }
    }

    fn look(queue: &mut [Claim], at: usize) {
        let ahead: Vec<Place<usize>> = queue[..at].iter().rev().map(|claim| claim.place.clone()).collect();
        let verdict = judge(queue[at].place.mode, &ahead, true);
        let moved =
            verdict == Verdict::In && queue[at].waited && matches!(queue[at].place.mode, Mode::Permit { .. });
        queue[at].waited |= verdict != Verdict::In;
        queue[at].verdict = verdict;
        if moved {
            let key = queue[at].place.key;
            tell(queue, key, false);
        }
    }

    fn tell(queue: &mut [Claim], key: usize, left: bool) {
        for at in 0..queue.len() {
            let woken = match &queue[at].verdict {
                Verdict::After(Turn::Left(other)) => left && *other == key,
                Verdict::After(Turn::Moved(other)) => *other == key,
                Verdict::After(Turn::AnyLeft) => left,
                Verdict::In | Verdict::More => false,
            };
            if woken {
                look(queue, at);
            }
        }
    }

    #[test]
    fn those_who_are_in_are_the_first_of_the_queue() {
        let modes = [Mode::Exclusive, Mode::Shared, Mode::permit(1).unwrap(), Mode::permit(2).unwrap()];
        for number in 0..4_usize.pow(5) {
            let queue: Vec<Mode> = (0..5).map(|at| modes[number / 4_usize.pow(at) % 4]).collect();
            let first = how_many_are_in(&queue);
            for at in 0..queue.len() {
                assert_eq!(at < first, queue[at].joins(queue[..at].iter().copied()), "{queue:?} at {at}");
            }
        }
    }
}
