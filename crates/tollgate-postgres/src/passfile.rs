//! Passwords from a file, as `psql` reads them: a line for each server, `HOST:PORT:DATABASE:USER:PASSWORD`.

use std::os::unix::fs::MetadataExt;

use tollgate_core::{Error, Result};

/// The permissions of group and others.
const OTHERS: u32 = 0o077;

/// The password that `file` has for the first of the servers in it, each `[HOST, PORT, DATABASE, USER]`.
pub(crate) fn password(file: &str, servers: &[[String; 4]]) -> Result<Option<String>> {
    let unreadable = |error: std::io::Error| {
        Error::invalid(format!("passfile={file} cannot be read; correct its name, or leave it out"))
            .caused_by(error)
    };
    if std::fs::metadata(file).map_err(unreadable)?.mode() & OTHERS != 0 {
        return Err(Error::invalid(format!("other users can read passfile={file}; run chmod 600 on it")));
    }
    let text = std::fs::read_to_string(file).map_err(unreadable)?;
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).map(fields).collect();
    Ok(servers.iter().find_map(|server| lines.iter().find_map(|line| suits(line, server))))
}

/// The parts of a line. A backslash takes the character after it as it is.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ':' if fields.len() < 5 => fields.push(String::new()),
            letter => {
                let taken = if letter == '\\' { letters.next() } else { Some(letter) };
                if let (Some(field), Some(taken)) = (fields.last_mut(), taken) {
                    field.push(taken);
                }
            }
        }
    }
    fields
}

fn suits(line: &[String], server: &[String; 4]) -> Option<String> {
    let (wanted, password) = (line.get(..4)?, line.get(4)?);
    let suits = wanted.iter().zip(server).all(|(wanted, said)| wanted == "*" || wanted == said);
    suits.then(|| password.clone())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_first_line_that_suits_has_the_password() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let lines = "# ours\nother:*:*:*:no\ndb:5432:shop:ann:s\\:e\\\\c:ret\n*:*:*:*:last\n";
        file.write_all(lines.as_bytes()).unwrap();
        let path = file.path().to_str().unwrap();
        let server = |host: &str, user: &str| [host, "5432", "shop", user].map(ToOwned::to_owned);
        assert_eq!(password(path, &[server("db", "ann")]).unwrap().as_deref(), Some("s:e\\c:ret"));
        assert_eq!(password(path, &[server("db", "bob")]).unwrap().as_deref(), Some("last"));
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let error = password(path, &[server("db", "ann")]).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
        let error = password("/nowhere", &[]).unwrap_err().to_string();
        assert!(error.contains("/nowhere"), "{error}");
    }
}
