//! From a URL to the SQL that makes what locks need in a database.

use tollgate_core::{Error, Result};

use crate::url::Url;

/// Everything that locks need in the database that `url` names, as SQL, for those who create it themselves. Asks nobody.
///
/// ```
/// # #[cfg(feature = "postgres")] {
/// let sql = tollgate::sql_schema("postgres://127.0.0.1/shop?schema=locks")?;
/// assert!(sql.contains("create schema if not exists \"locks\""));
/// # }
/// # Ok::<(), tollgate::Error>(())
/// ```
pub fn sql_schema(url: &str) -> Result<String> {
    printed(url).map_err(|error| error.during("print the schema"))
}

fn printed(url: &str) -> Result<String> {
    let url = Url::parse(url)?;
    #[cfg(feature = "mysql")]
    if crate::mysql::SCHEMES.contains(&url.scheme) {
        crate::connect::check_layers(&url)?;
        // Both styles need the same.
        crate::mysql::is_session(&url)?;
        return tollgate_mysql::ddl(&crate::mysql::config(&url)?);
    }
    #[cfg(feature = "postgres")]
    if crate::postgres::SCHEMES.contains(&url.scheme) {
        crate::connect::check_layers(&url)?;
        let config = crate::postgres::config(&url)?;
        return match crate::postgres::advisory(&url)? {
            None => tollgate_postgres::ddl(&config),
            Some(_) => tollgate_postgres::ddl_of_advisory(&config),
        };
    }
    crate::engines::check_is_built(url.scheme)?;
    Err(Error::invalid(
        "the URL names no database with tables; write postgres://HOST/DATABASE or mysql://HOST/DATABASE",
    ))
}
