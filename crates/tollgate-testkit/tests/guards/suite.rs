//! A case that cannot fail proves nothing.

use tollgate_testkit::{Subject, conformance};

use crate::support::*;

/// Every client has an engine of its own: nobody keeps anybody out.
struct Everybody;

impl Subject for Everybody {
    fn name(&self) -> &'static str {
        "memory"
    }
    fn address(&self) -> String {
        String::new()
    }
    fn open<'a>(&'a self, _: &'a str, _: Arc<dyn Clock>) -> BoxFuture<'a, Result<Arc<dyn Backend>>> {
        Box::pin(std::future::ready(Ok(memory())))
    }
}

#[test]
fn a_crowd_that_is_in_together_is_caught() {
    let case = conformance::named("many_waiters_are_all_served");
    let verdict = conformance::run(case, Arc::new(Everybody), PATIENCE);
    // The task that saw it panicked, and the case tells of that task.
    assert!(verdict.unwrap_err().contains("two holders overlapped"));
}
