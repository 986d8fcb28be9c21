//! New databases, made once for each test program and copied for each engine: to make one takes a second of processor
//! time, and there are hundreds.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::config::Kind;
use super::home::Home;
use super::launch::{Owner, Place, program, run};
use super::trouble::Trouble;

/// Gives the node at `place` the files of a new database.
pub(super) fn copy(kind: Kind, place: &Place) -> Result<(), Trouble> {
    let template = template(kind)?;
    let mut copy = program("cp", "coreutils")?;
    copy.args(["--archive", "--sparse=always"]).arg(template.join(".")).arg(place.data());
    run(copy, place)
}

/// The folder of the database that is copied. The guardian removes it when the test program is gone.
fn template(kind: Kind) -> Result<PathBuf, Trouble> {
    static TEMPLATES: Mutex<Vec<(Kind, Home)>> = Mutex::new(Vec::new());
    let mut templates = TEMPLATES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, home)) = templates.iter().find(|(made, _)| *made == kind) {
        return Ok(home.path().join("data"));
    }
    let home = Home::new()?;
    let place = Place { number: 1, folder: home.path().to_owned(), ports: Vec::new(), hosts: None };
    make(kind, &place)?;
    let data = place.data();
    templates.push((kind, home));
    Ok(data)
}

fn make(kind: Kind, place: &Place) -> Result<(), Trouble> {
    let data = place.data();
    fs::create_dir_all(&data)?;
    let owner = Owner::of(kind)?;
    for folder in [&place.folder, &data] {
        owner.give(folder)?;
    }
    let command = match kind {
        Kind::MariaDb => {
            let mut command = program("mariadb-install-db", "mariadb-server")?;
            command.args(["--no-defaults", "--auth-root-authentication-method=normal"]);
            command.arg(format!("--datadir={}", data.display()));
            command
        }
        _ => {
            let mut command = program("/usr/lib/postgresql/15/bin/initdb", "postgresql-15")?;
            command.args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync", "-D"]).arg(&data);
            command
        }
    };
    run(owner.become_it(command), place)
}
