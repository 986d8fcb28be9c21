//! Looking at a folder as it really is: what is wrong with it, why that matters, and what to do. Changes nothing.

mod access;
mod contents;
mod disk;

use std::path::{Path, PathBuf};

use tollgate_core::{Checkup, ErrorKind, Finding, Result};

use crate::capabilities::capabilities;
use crate::error::Trouble;

/// Examines the folder `dir`. Does file I/O and changes nothing.
///
/// # Errors
/// [`ErrorKind::Unavailable`] if the folder cannot be looked at; what is wrong with it is a finding.
pub fn examine(dir: impl AsRef<Path>) -> Result<Checkup> {
    let dir = std::path::absolute(dir.as_ref()).map_err(Trouble::at(dir.as_ref()))?;
    let findings = findings(&dir).map_err(|trouble| {
        let error = tollgate_core::Error::from(trouble);
        match error.kind() {
            // It may be healthy: what is wrong is that we may not look.
            ErrorKind::Config => tollgate_core::Error::new(ErrorKind::Unavailable, error.message()),
            _ => error,
        }
        .during("examine the folder")
    })?;
    Ok(Checkup { subject: dir.display().to_string(), findings, guarantees: capabilities().guarantees })
}

fn findings(dir: &Path) -> Result<Vec<Finding>, Trouble> {
    let nearest = nearest_that_exists(dir)?;
    if !nearest.is_dir() {
        return Ok(vec![Finding::problem(
            format!("{} is not a folder", nearest.display()),
            "locks are files in a folder",
            "pass a folder as file:DIR",
        )]);
    }
    let mut findings = Vec::new();
    if nearest != dir {
        findings
            .push(Finding::fine(format!("{} does not exist yet: the first lock creates it", dir.display())));
    }
    disk::look(&nearest, &mut findings)?;
    access::look(dir, &nearest, &mut findings)?;
    if nearest == dir {
        contents::look(dir, &mut findings)?;
    }
    Ok(findings)
}

/// The folder, or the one in which it would be made.
fn nearest_that_exists(dir: &Path) -> Result<PathBuf, Trouble> {
    for folder in dir.ancestors() {
        match std::fs::metadata(folder) {
            Ok(_) => return Ok(folder.to_owned()),
            // Below a file nothing is: the file itself is what is wrong.
            Err(error)
                if [std::io::ErrorKind::NotFound, std::io::ErrorKind::NotADirectory]
                    .contains(&error.kind()) => {}
            Err(error) => return Err(Trouble::at(folder)(error)),
        }
    }
    Ok(PathBuf::from("/"))
}
