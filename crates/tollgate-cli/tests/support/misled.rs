//! People on the wrong way to an engine: what they are told, and certificates for encrypted ones.

use std::collections::HashSet;
use std::process::Child;
use std::time::{Duration, Instant};

use super::{Sandbox, text};

/// What is wrong, the URL that has it wrong, the exit code, and what must be said of it.
pub type Case<'a> = (&'a str, String, i32, &'a [&'a str]);

/// Runs a command under a lock with each URL, and has the doctor look at it.
pub fn check(sandbox: &Sandbox, cases: &[Case<'_>]) {
    for (what, url, code, words) in cases {
        let began = Instant::now();
        let output = sandbox.output(&["run", "--url", url, "--try", "a", "--", "true"]);
        let said = text(&output.stderr);
        println!("{what}: {said}");
        assert_eq!(output.status.code(), Some(*code), "{what}: {said}");
        assert!(began.elapsed() < Duration::from_secs(15), "{what}: it took {:?}", began.elapsed());
        assert_eq!(said.trim_end().lines().count(), 1, "{what}: {said}");
        for word in *words {
            assert!(said.contains(word), "{what}: {word:?} is not in: {said}");
        }
        check_tone(what, &said);
        let doctor = sandbox.output(&["doctor", url]);
        let (says, told) = (doctor.status.code(), text(&doctor.stderr));
        println!("{what}, says the doctor: {told}");
        // What it can look at it tells as a finding, and what is found is something to change.
        assert!(
            says == Some(*code) || doctor.stderr.is_empty() && says == Some(78),
            "{what}: {says:?} {told}"
        );
        check_tone(what, &told);
    }
}

/// No secrets, nothing that Rust prints for programmers, and nothing twice.
fn check_tone(what: &str, said: &str) {
    for word in ["Error {", "Some(", "source:", "{ ", "\\\"", "hush", "wrong-one"] {
        assert!(!said.contains(word), "{what}: {word:?} is in: {said}");
    }
    let words: Vec<_> =
        said.split_whitespace().map(|word| word.trim_matches(['`', '\'', '"', ':', '.', ',', ';'])).collect();
    let mut heard = HashSet::new();
    for phrase in words.windows(4) {
        assert!(heard.insert(phrase), "{what}: {phrase:?} is said twice: {said}");
    }
}

/// Commands that do not wait for ever end in time while another session has what the database keeps of the lock `a` locked,
/// and after that session has ended nobody has the lock. `--try` finds the row in use: 75. A waiting command gets no answer
/// from the database: 69.
pub fn give_up(sandbox: &Sandbox, url: &str, sit: impl FnOnce() -> Child, rise: impl FnOnce()) {
    let run = |words: &[&str]| {
        let began = Instant::now();
        let output = sandbox.output(&[&["run", "--url", url], words, &["a", "--", "true"]].concat());
        println!("{words:?}: {:?} after {:?}", output.status.code(), began.elapsed());
        (output.status.code(), began.elapsed())
    };
    assert_eq!(run(&["--try"]).0, Some(0));
    let mut sitter = sit();
    for (words, expected) in
        [(&["--try"][..], 75), (&["--wait", "1s"], 69), (&["--wait", "1s", "--shared"], 69)]
    {
        let (code, took) = run(words);
        assert_eq!(code, Some(expected), "{words:?}");
        // Twice what is usual.
        assert!(took < Duration::from_secs(5), "{words:?} took {took:?}");
    }
    rise();
    sitter.wait().unwrap();
    assert_eq!(run(&["--try"]).0, Some(0), "nothing was left behind");
}

/// A server's certificate for 127.0.0.1, its key, and the certificate of who signed it, as files have them.
pub struct Signed {
    pub ca: String,
    pub cert: String,
    pub key: String,
}

impl Signed {
    pub fn new() -> Self {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca = rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let cert = params.signed_by(&key, &ca).unwrap();
        Self { ca: ca.pem(), cert: cert.pem(), key: key.serialize_pem() }
    }
}
