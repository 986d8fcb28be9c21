//! Passwords that a URL leaves out, from the places where the engines' own tools look.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use tollgate::Result;

use crate::tell;

/// The environment variable from which each engine's own tools take a password.
const VARIABLES: &[(&str, &str)] = &[
    ("postgres", "PGPASSWORD"),
    ("mysql", "MYSQL_PWD"),
    ("redis", "REDISCLI_AUTH"),
    ("etcd", "ETCDCTL_PASSWORD"),
];

/// `url` with a password, if it has none and one is found.
pub(crate) fn complete(url: String) -> Result<String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    Ok(completed(&url, variable, pgpass).unwrap_or(url))
}

/// `None` if the URL has a password, or no place for one, or no password is found.
fn completed(
    url: &str,
    variable: impl Fn(&str) -> Option<String>,
    file: impl Fn() -> Option<String>,
) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let engine = engine(scheme)?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, _)) if user.contains(':') => return None,
        Some((user, hosts)) => (user, hosts),
        // Only Redis takes a password without a user.
        None if engine == "redis" => ("", authority),
        None => return None,
    };
    let (_, query) = path.split_once('?').unwrap_or((path, ""));
    if query
        .split('&')
        .any(|parameter| parameter.starts_with("password=") || parameter.starts_with("passfile="))
    {
        return None;
    }
    let name = VARIABLES.iter().find(|(of, _)| *of == engine)?.1;
    let password = variable(name).or_else(|| {
        let database = path.trim_start_matches('/').split('?').next().unwrap_or_default();
        if engine == "postgres" { in_pgpass(&file()?, hosts, database, user) } else { None }
    })?;
    Some(format!("{scheme}://{user}:{}@{hosts}{path}", tollgate::encoded(&password)))
}

fn engine(scheme: &str) -> Option<&'static str> {
    match scheme {
        "postgres" | "postgresql" => Some("postgres"),
        "mysql" | "mariadb" => Some("mysql"),
        "etcd" | "etcds" => Some("etcd"),
        _ if scheme.starts_with("redis") || scheme.starts_with("redlock") => Some("redis"),
        _ => None,
    }
}

/// The text of the file that PostgreSQL's own tools read. As those tools do, refuses a file that
/// other users may read.
fn pgpass() -> Option<String> {
    let path = std::env::var_os("PGPASSFILE").map(PathBuf::from);
    let path = path.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pgpass")))?;
    let mode = std::fs::metadata(&path).ok()?.mode();
    if mode & 0o077 != 0 {
        tell::note(&format!(
            "{} is not read, because other users may read it; run chmod 600 on it",
            path.display()
        ));
        return None;
    }
    std::fs::read_to_string(&path).ok()
}

/// The password in a file of lines `host:port:database:user:password`: that of the first line that
/// matches the first host.
fn in_pgpass(text: &str, hosts: &str, database: &str, user: &str) -> Option<String> {
    let host = hosts.split(',').next().unwrap_or_default();
    let (host, port) = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':').unwrap_or("5432")),
        None => host.split_once(':').unwrap_or((host, "5432")),
    };
    let host = if host.is_empty() { "localhost" } else { host };
    let (user, database) = (decoded(user), decoded(database));
    let database = if database.is_empty() { user.clone() } else { database };
    let lines = text.lines().filter(|line| !line.starts_with('#')).map(fields);
    let mut fitting = lines.filter(|fields| {
        let wanted = [host, port, &database, &user];
        fields.len() == 5 && fields.iter().zip(wanted).all(|(field, wanted)| field == "*" || field == wanted)
    });
    fitting.next()?.pop()
}

/// The fields of a line, in which `\` escapes the next character.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let field = fields.last_mut().expect("there is always one");
        match character {
            '\\' => field.extend(characters.next()),
            ':' => fields.push(String::new()),
            other => field.push(other),
        }
    }
    fields
}

fn decoded(text: &str) -> String {
    tollgate::decoded(text).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(url: &str, variables: &[(&str, &str)], file: &str) -> Option<String> {
        let variable =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        completed(url, variable, || Some(file.to_owned()))
    }

    #[test]
    fn a_password_is_taken_from_where_the_engines_tools_look() {
        let some = |text: &str| Some(text.to_owned());
        let pg = [("PGPASSWORD", "p@ss/1")];
        assert_eq!(with("postgres://app@db/shop", &pg, ""), some("postgres://app:p%40ss%2F1@db/shop"));
        assert_eq!(with("redis://h:1/2", &[("REDISCLI_AUTH", "x")], ""), some("redis://:x@h:1/2"));
        assert_eq!(with("rediss://u@h", &[("REDISCLI_AUTH", "x")], ""), some("rediss://u:x@h"));
        assert_eq!(with("mariadb://u@h/d", &[("MYSQL_PWD", "x")], ""), some("mariadb://u:x@h/d"));
        assert_eq!(with("etcd://u@a,b", &[("ETCDCTL_PASSWORD", "x")], ""), some("etcd://u:x@a,b"));
    }

    #[test]
    fn a_url_with_a_password_or_without_a_place_for_one_stays_as_it_is() {
        let pg = [("PGPASSWORD", "x")];
        for url in [
            "postgres://app:own@db/shop",
            "postgres://app@db/shop?password=own",
            "postgres://db/shop",
            "file:x",
        ] {
            assert_eq!(with(url, &pg, ""), None, "{url}");
        }
        assert_eq!(with("redis://h", &pg, ""), None);
        assert!(with("postgres://app@db/shop?plain_password=allow", &pg, "").is_some());
    }

    #[test]
    fn the_first_line_of_a_password_file_that_fits_is_taken() {
        let file =
            "# hosts\nother:*:*:*:no\ndb:5432:shop:app:s\\:e\\\\c\ndb:5433:*:app:second\n*:*:*:app:last\n";
        let password = |url: &str| {
            let completed = with(url, &[], file)?;
            Some(completed.split_once(":/").unwrap().1.split('@').next().unwrap().to_owned())
        };
        assert_eq!(password("postgres://app@db/shop").as_deref(), Some("/app:s%3Ae%5Cc"));
        assert_eq!(password("postgres://app@db:5433,x/shop").as_deref(), Some("/app:second"));
        assert_eq!(password("postgres://app@[::1]:5/").as_deref(), Some("/app:last"));
        assert_eq!(password("postgres://root@db/shop"), None);
    }
}
