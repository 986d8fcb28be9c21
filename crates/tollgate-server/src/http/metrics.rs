//! How many calls were answered, for Prometheus.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write;

use super::route::Route;

/// The number of answers by path and status.
#[derive(Default)]
pub struct Counters {
    answers: RefCell<BTreeMap<(&'static str, u16), u64>>,
}

impl Counters {
    pub(super) fn count(&self, route: Option<Route>, status: u16) {
        // A path that is no route is a client's invention, and must not become a label.
        let path = route.map_or("other", Route::path);
        *self.answers.borrow_mut().entry((path, status)).or_default() += 1;
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::from(
            "# HELP tollgate_server_requests_total Calls that were answered.\n\
             # TYPE tollgate_server_requests_total counter\n",
        );
        for ((route, status), count) in &*self.answers.borrow() {
            let line = writeln!(
                text,
                "tollgate_server_requests_total{{route=\"{route}\",status=\"{status}\"}} {count}"
            );
            line.expect("a string takes everything");
        }
        text
    }
}
