//! The locks that stand out: the longest queues, the longest holds, the longest waits.

use tollgate_proto::{Contended, LongestHeld, LongestWaited, Problem, Top};

use super::driver::TableService;
use super::look::{PER_TURN, shown};

/// How many entries each list has.
const ENTRIES: usize = 10;

/// Looks at every lock, a part of the table per turn.
pub(super) async fn top(service: &TableService) -> Result<Top, Problem> {
    let mut top = Top { contended: Vec::new(), longest_held: Vec::new(), longest_waited: Vec::new() };
    let mut position = Some(0);
    while let Some(from) = position {
        position = service.look(|table, now| {
            let (views, next) = table.page("", from, PER_TURN);
            for view in &views {
                let lock = shown(view, now);
                if !lock.waiters.is_empty() {
                    top.contended.push(Contended {
                        name: lock.name.clone(),
                        holding: lock.holders.len() as u64,
                        waiting: lock.waiters.len() as u64,
                        oldest_wait_ms: lock.waiters.iter().filter_map(|waiter| waiter.waited_ms).max(),
                    });
                }
                let oldest = lock.holders.into_iter().max_by_key(|holder| holder.held_ms);
                top.longest_held.extend(oldest.map(|holder| LongestHeld { name: lock.name.clone(), holder }));
                let longest = lock.waiters.into_iter().max_by_key(|waiter| waiter.waited_ms);
                top.longest_waited
                    .extend(longest.map(|waiter| LongestWaited { name: lock.name.clone(), waiter }));
            }
            next
        });
        shorten(&mut top);
        tokio::task::yield_now().await;
    }
    Ok(top)
}

fn shorten(top: &mut Top) {
    top.contended.sort_by_key(|lock| std::cmp::Reverse((lock.waiting, lock.oldest_wait_ms)));
    top.contended.truncate(ENTRIES);
    top.longest_held.sort_by_key(|lock| std::cmp::Reverse(lock.holder.held_ms));
    top.longest_held.truncate(ENTRIES);
    top.longest_waited.sort_by_key(|lock| std::cmp::Reverse(lock.waiter.waited_ms));
    top.longest_waited.truncate(ENTRIES);
}
