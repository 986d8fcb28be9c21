//! Whether a pooler stands in between that lends one server process to several connections.

use tokio_postgres::{Client, Error, SimpleQueryMessage};

/// Whether statements of `one` do not all go to one process of the server that is its own: what it would keep there, an
/// advisory lock or a setting, would be somebody else's in the next moment.
pub(crate) async fn is_pooled(one: &Client, other: &Client) -> Result<bool, Error> {
    let first = process(one, "select pg_catalog.pg_backend_pid()").await?;
    // Within a transaction a pooler leaves a connection the process that it has.
    let meanwhile = process(other, "begin; select pg_catalog.pg_backend_pid()").await;
    let again = process(one, "select pg_catalog.pg_backend_pid()").await;
    other.batch_execute("rollback").await?;
    Ok(meanwhile? == first || again? != first)
}

async fn process(client: &Client, sql: &str) -> Result<String, Error> {
    let answer = client.simple_query(sql).await?;
    let found = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    Ok(found.unwrap_or_default().to_owned())
}
