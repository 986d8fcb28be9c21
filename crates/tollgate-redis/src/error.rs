//! What can go wrong with Redis, in the words of the contract.

use redis::{ErrorKind as Kind, RedisError};
use tollgate_core::{Error, ErrorKind, Token};

use crate::link::Link;
use crate::refusal::Refusal;

/// An error of a request that may have been executed if its reply was lost.
pub(crate) fn of_request(error: RedisError, link: &Link) -> Error {
    if error.is_io_error() || error.is_timeout() || error.is_connection_dropped() {
        // Nothing more goes over it.
        link.close();
        let message = "the connection to Redis was lost before its answer; the request may have been \
                       executed";
        return Error::new(ErrorKind::Indeterminate, message).caused_by(error);
    }
    if Refusal::of(&error).is_some_and(|refusal| refusal.leave) {
        link.close();
    }
    let error = of_answer(error);
    if link.was_primary() { of_former_primary(error) } else { error }
}

/// The same of a server that was a primary when we last wrote to it: what a replica says is no mistake in the URL then.
pub(crate) fn of_former_primary(error: Error) -> Error {
    if !said(&error).and_then(Refusal::of).is_some_and(|refusal| refusal.of_replica) {
        return error;
    }
    let message = "this server is no longer the primary; a fail-over may be under way: try again, or, if \
                   this persists, connect to the primary, or through Sentinel";
    Error::new(ErrorKind::Unavailable, message).caused_by(error)
}

/// An error of a connection that could not be opened.
pub(crate) fn of_connect(error: RedisError) -> Error {
    if error.is_io_error() || error.is_timeout() || error.is_connection_dropped() {
        return unreachable(error);
    }
    of_answer(error)
}

fn unreachable(error: RedisError) -> Error {
    Error::new(ErrorKind::Unavailable, "Redis cannot be reached; is it running, and is the address right?")
        .caused_by(error)
}

/// What Redis itself said.
pub(crate) fn of_answer(error: RedisError) -> Error {
    // Of several commands the first one's: the others follow from it, or are alike.
    let error = match error.clone().into_server_errors().as_deref() {
        Some([(_, first), ..]) => first.clone().into(),
        _ => error,
    };
    if let Some(counter) = spent(&error) {
        let message = format!(
            "the token counter {counter:?} has reached {}, the largest token: this lock can no longer be \
             taken. Delete that key and every mark that holds a token of this lock: tokens then continue \
             from the server's clock",
            Token::MAX
        );
        return Error::new(ErrorKind::Config, message).caused_by(error);
    }
    let (kind, message) = of_words(&error).unwrap_or_else(|| of_code(&error));
    Error::new(kind, message).caused_by(error)
}

/// The counter that a script could draw no token from.
fn spent(error: &RedisError) -> Option<&str> {
    error.detail().filter(|_| error.code() == Some("NOTOKENS"))
}

/// What Redis has a code for: the state it is in, or what is wrong with the request.
fn of_code(error: &RedisError) -> (ErrorKind, &'static str) {
    if let Some(refusal) = Refusal::of(error) {
        return (refusal.kind, refusal.message);
    }
    match code_of(error).unwrap_or_default() {
        _ if is_of_login(error) => (
            ErrorKind::Denied,
            "Redis does not accept the user or password; put them into the URL: redis://USER:PASSWORD@HOST",
        ),
        _ if of_rights(error) => (
            ErrorKind::Denied,
            "this user lacks rights that locks need; ACL SETUSER NAME ~lock:* ~{lock:* &tg:* +@read \
             +@write +@scripting +@pubsub +@connection +time +client|kill grants them",
        ),
        "WRONGTYPE" => (
            ErrorKind::Config,
            "a key of this lock holds data of another type; choose another prefix with ?prefix=",
        ),
        "MOVED" | "ASK" | "CROSSSLOT" => (
            ErrorKind::Config,
            "this Redis belongs to a cluster, and another of its servers has the lock; write \
             redis-cluster:// instead of redis:// (a Redlock node must not belong to a cluster)",
        ),
        _ => (ErrorKind::Unexpected, "Redis answered with an error"),
    }
}

/// What Redis has only words for.
fn of_words(error: &RedisError) -> Option<(ErrorKind, &'static str)> {
    let words = error.to_string();
    let says = |what: &str| words.contains(what);
    Some(match () {
        () if error.code() != Some("ERR") => return None,
        () if says("max number of clients reached") => (
            ErrorKind::Unavailable,
            "Redis has reached its limit of clients; try again, close some, or raise its maxclients",
        ),
        () if says("refused to switch database") => (
            ErrorKind::Config,
            "this Redis has no database with the number in the URL; use a smaller number, or raise its \
             `databases`",
        ),
        () if says("cluster support disabled") => (
            ErrorKind::Config,
            "this Redis belongs to no cluster; write redis:// instead of redis-cluster://",
        ),
        () if is_unknown_command(error) => (
            ErrorKind::Config,
            "this server lacks a command that locks need; use a Redis of version 6.2 or later, and not a \
             sentinel",
        ),
        () => return None,
    })
}

/// Whether it is about who we are.
pub(crate) fn is_of_login(error: &RedisError) -> bool {
    matches!(error.code(), Some("NOAUTH" | "WRONGPASS")) || error.kind() == Kind::AuthenticationFailed
}

/// Whether the server has no such command at all.
fn is_unknown_command(error: &RedisError) -> bool {
    error.detail().is_some_and(|words| words.to_lowercase().contains("unknown command"))
}

/// Whether the server has no command that it was asked for.
pub(crate) fn lacks_command(error: &Error) -> bool {
    said(error).is_some_and(is_unknown_command)
}

/// What Redis calls the error. Of what went wrong inside a script, versions before 7 say it in the middle of a sentence:
/// `ERR Error running script (call to f_…): @user_script:12: -READONLY You can't write …`.
pub(crate) fn code_of(error: &RedisError) -> Option<&str> {
    let code = error.code()?;
    let words = error.detail().unwrap_or_default();
    let inner = || {
        let (_, inner) = words.split_once("@user_script:")?;
        let is_code =
            |word: &&str| matches!(*word, "NOPERM" | "WRONGTYPE") || Refusal::called(word).is_some();
        inner.split_whitespace().map(|word| word.trim_start_matches('-')).find(is_code)
    };
    if code == "ERR" { inner().or(Some(code)) } else { Some(code) }
}

/// Whether Redis said that one of the keys is of another type.
pub(crate) fn is_of_another_type(error: &Error) -> bool {
    said(error).is_some_and(|error| code_of(error) == Some("WRONGTYPE"))
}

/// What Redis said, if this error is of its making.
pub(crate) fn said(error: &Error) -> Option<&RedisError> {
    std::error::Error::source(error)?.downcast_ref()
}

/// Whether it is about what this user may do; what a script may not do is said in words alone.
fn of_rights(error: &RedisError) -> bool {
    let words = error.detail().unwrap_or_default();
    error.code() == Some("NOPERM")
        || words.contains("NOPERM")
        || words.contains("The user executing the script can't")
        || words.contains("ACL failure in script")
}

/// A Redis that lacks what scripts use.
pub(crate) fn too_old(version: &str) -> Error {
    let message = format!("this is Redis {version}; locks need 6.2 or later");
    Error::new(ErrorKind::Config, message)
}

/// An answer that no script gives.
pub(crate) fn unexpected(answer: &impl std::fmt::Debug) -> Error {
    Error::new(ErrorKind::Unexpected, format!("Redis sent an unexpected answer to a script: {answer:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(answer: &str) -> ErrorKind {
        let answer = redis::parse_redis_value(format!("-{answer}\r\n").as_bytes()).unwrap();
        of_answer(answer.extract_error().unwrap_err()).kind()
    }

    #[test]
    fn errors_of_scripts_count_alike_whatever_version_says_them() {
        let older = "ERR Error running script (call to f_0a1b): @user_script:12: ";
        for (code, expected) in [
            ("READONLY You can't write against a read only replica.", ErrorKind::Config),
            ("OOM command not allowed when used memory > 'maxmemory'.", ErrorKind::Unavailable),
            ("MISCONF Redis is configured to save RDB snapshots", ErrorKind::Unavailable),
            ("NOREPLICAS Not enough good replicas to write.", ErrorKind::Unavailable),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", ErrorKind::Config),
            ("NOPERM this user has no permissions", ErrorKind::Denied),
        ] {
            for said in [
                format!("{code} script: 0a1b, on @user_script:12."),
                format!("{older}@user_script: 12: -{code}"),
                format!("{older}{code}"),
            ] {
                assert_eq!(kind(&said), expected, "{said}");
            }
        }
        assert_eq!(
            kind("ERR Error running script (call to f_0a1b): @user_script:3: x"),
            ErrorKind::Unexpected
        );
    }

    #[test]
    fn what_has_no_code_of_its_own_is_told_by_its_words() {
        for (said, expected) in [
            ("ERR max number of clients reached", ErrorKind::Unavailable),
            ("ERR This instance has cluster support disabled", ErrorKind::Config),
            ("ERR unknown command 'EVAL', with args beginning with: ", ErrorKind::Config),
            ("MOVED 866 127.0.0.1:7001", ErrorKind::Config),
            ("NOAUTH Authentication required.", ErrorKind::Denied),
        ] {
            assert_eq!(kind(said), expected, "{said}");
        }
    }
}
