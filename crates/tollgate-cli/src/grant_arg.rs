//! The grant that a script passes to a command: as an argument, or on stdin.

use std::io::{IsTerminal, Read};

use clap::Args;
use tollgate::{Error, Grant, Result};

/// The longest grant that is read from stdin, in bytes.
const LONGEST: u64 = 64 * 1024;

/// The argument that names a grant.
#[derive(Debug, Args)]
pub(crate) struct GrantArg {
    /// The grant that tollgate acquire printed. Without it, the grant is read from stdin, where
    /// other users cannot see it in the list of processes.
    #[arg(value_name = "GRANT")]
    grant: Option<String>,
}

impl GrantArg {
    pub(crate) fn read(&self) -> Result<Grant> {
        match &self.grant {
            Some(text) => parse(text),
            None => parse(&from_stdin()?),
        }
    }
}

fn from_stdin() -> Result<String> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Err(Error::invalid(
            "no grant was given; pass what tollgate acquire printed, as an argument or on stdin: printf %s \"$G\" | tollgate …",
        ));
    }
    let mut text = String::new();
    match stdin.take(LONGEST).read_to_string(&mut text) {
        Ok(_) => Ok(text),
        Err(error) => Err(Error::invalid("no grant can be read from stdin").caused_by(error)),
    }
}

fn parse(text: &str) -> Result<Grant> {
    if text.trim().is_empty() {
        return Err(Error::invalid("the grant is empty; did tollgate acquire fail?"));
    }
    let json: serde_json::Value = serde_json::from_str(text.trim()).map_err(|error| {
        Error::invalid(format!("the grant is not JSON ({error}); pass what tollgate acquire printed"))
    })?;
    serde_json::from_value(json).map_err(|error| Error::invalid(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_grant_says_what_to_pass() {
        let says = |text: &str| parse(text).unwrap_err().to_string();
        assert!(says(" \n").contains("did tollgate acquire fail"), "{}", says(""));
        assert!(says("x").contains("what tollgate acquire printed"), "{}", says("x"));
        assert!(says("{}").contains("not a grant"), "{}", says("{}"));
        assert!(says("{\"tollgate_grant\":2}").ends_with("use a newer tollgate"));
    }
}
