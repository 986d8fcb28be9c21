//! `tollgate inspect`: one lock, its holders and its queue.

use tollgate::Result;

use crate::args::InspectArgs;
use crate::connect::connect;
use crate::exit::Exit;
use crate::show;

pub(crate) async fn run(args: InspectArgs) -> Result<Exit> {
    let locks = connect(&args.url.url).await?;
    let state = locks.inspect(&args.name).await?;
    if args.json {
        anstream::println!("{}", serde_json::to_string_pretty(&state).unwrap_or_default());
        return Ok(Exit::OK);
    }
    let Some(state) = state else {
        anstream::println!("{}: free", args.name);
        return Ok(Exit::OK);
    };
    anstream::println!("{}", state.name);
    for holder in &state.holders {
        anstream::println!("  held by {}", show::holder(holder));
    }
    for (place, waiter) in state.waiters.iter().enumerate() {
        anstream::println!("  {}. waits {}", place + 1, show::waiter(waiter));
    }
    Ok(Exit::OK)
}
