//! What URLs of engines have in common: hosts, and what is percent-encoded.

use crate::{Error, Result};

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Host {
    /// A name or an address, without brackets.
    pub name: String,
    /// Its port.
    pub port: u16,
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

impl Host {
    /// Reads `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`; `port` where none is said.
    pub fn parse(text: &str, port: u16) -> Result<Self> {
        // Not what it was: it may be a part of a password.
        let wrong = || {
            Error::invalid(
                "this is not a server address; write HOST:PORT, and / ? # , @ in a user or password as %2F \
                 %3F %23 %2C %40",
            )
        };
        let (name, rest) = match text.strip_prefix('[') {
            Some(bracketed) => bracketed.split_once(']').ok_or_else(wrong)?,
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        let port = match rest.strip_prefix(':') {
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?,
            None if rest.is_empty() => port,
            None => return Err(wrong()),
        };
        if name.contains(['@', '/', '?', ' ', '#']) {
            return Err(wrong());
        }
        let name = if name.is_empty() { "127.0.0.1" } else { name };
        Ok(Self { name: name.to_owned(), port })
    }
}

/// Reads one address or several, with commas between them; none of several is left out.
pub fn hosts(text: &str, port: u16) -> Result<Vec<Host>> {
    if text.contains(',') && text.split(',').any(str::is_empty) {
        return Err(Error::invalid("an address is missing before or after a comma; write HOST,HOST"));
    }
    text.split(',').map(|host| Host::parse(host, port)).collect()
}

/// Percent-encodes everything that could mean something in a URL.
pub fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// Undoes percent-encoding.
pub fn decoded(text: &str) -> Result<String> {
    let wrong = || {
        Error::invalid("a % in a URL must be followed by two hexadecimal digits; write %25 for a literal %")
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok()).ok_or_else(wrong)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_of_several_addresses_is_left_out() {
        assert_eq!(hosts("a,b:2", 1).unwrap().len(), 2);
        assert_eq!(hosts("", 1).unwrap()[0].name, "127.0.0.1");
        for missing in ["a,", ",a", "a,,b", ","] {
            hosts(missing, 1).unwrap_err();
        }
    }
}
