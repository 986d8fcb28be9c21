//! `tollgate man` and `completions`: pages that render, and shells that complete.

use crate::support::{Sandbox, text};

/// What bash offers when TAB is pressed after `words`, the last of which may be empty.
fn completed(sandbox: &Sandbox, words: &[&str]) -> Vec<String> {
    let line = words.join(" ");
    let script = format!(
        "source <(tollgate completions bash)
        COMP_WORDS=({}); COMP_CWORD={}; COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}
        _tollgate tollgate '{}' '{}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
        words.len() - 1,
        words[words.len() - 1],
        words[words.len() - 2],
    );
    let output = sandbox.bash(&script).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_sub_commands_options_and_their_values() {
    let sandbox = Sandbox::new();
    let commands = completed(&sandbox, &["tollgate", ""]);
    for command in ["run", "acquire", "release", "break", "doctor"] {
        assert!(commands.iter().any(|offered| offered == command), "{command} is not in {commands:?}");
    }
    assert_eq!(completed(&sandbox, &["tollgate", "acq"]), ["acquire"]);
    assert_eq!(completed(&sandbox, &["tollgate", "run", "--at"]), ["--at-least"]);
    assert_eq!(completed(&sandbox, &["tollgate", "run", "--on-lost", "k"]), ["kill"]);
    assert_eq!(completed(&sandbox, &["tollgate", "man", "acq"]), ["acquire"]);
    assert!(completed(&sandbox, &["tollgate", "break", "--"]).contains(&"--token".to_owned()));
}

#[test]
fn every_shell_gets_a_script() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = sandbox.output(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        let script = text(&output.stdout);
        assert!(script.contains("at-least") && script.contains("acquire"), "{shell}");
        assert!(!script.contains("guardian"), "{shell}");
    }
    assert_eq!(sandbox.output(&["completions", "abacus"]).status.code(), Some(2));
}

#[test]
fn every_page_renders_without_a_warning() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.output(&["man", "--out", "share/man1"]).status.code(), Some(0));
    let mut pages = 0;
    for page in std::fs::read_dir(sandbox.path("share/man1")).unwrap() {
        let page = page.unwrap().path();
        let name = page.file_stem().unwrap().to_str().unwrap().to_owned();
        let script = format!("MANPAGER=cat MANWIDTH=80 LC_ALL=C.UTF-8 man --warnings -l {}", page.display());
        let output = sandbox.bash(&script).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{name}: {}", text(&output.stderr));
        let shown = text(&output.stdout);
        assert!(shown.contains("SYNOPSIS") && shown.contains(&format!("{name}(1)")), "{shown}");
        assert!(shown.contains("EXIT CODES") && shown.contains("76 lock lost"), "{shown}");
        assert!(!shown.contains("EXTRA"), "{shown}");
        if let Some(command) = name.strip_prefix("tollgate-") {
            let help = text(&sandbox.output(&[command, "--help"]).stdout);
            let takes_url = help.contains("--url <URL>");
            assert_eq!(shown.contains("ENVIRONMENT"), takes_url, "{shown}");
            let examples = help.lines().skip_while(|line| *line != "Examples:").skip(1);
            for example in examples.map(str::trim) {
                assert!(shown.lines().any(|line| line.trim() == example), "{example} is not in {shown}");
            }
        }
        pages += 1;
    }
    assert!(pages >= 12, "{pages} pages");
    let found = sandbox.bash("MANPAGER=cat man -M share tollgate-run").output().unwrap();
    assert!(text(&found.stdout).contains("--at-least"), "{}", text(&found.stderr));
    assert!(text(&found.stdout).contains("<NAME>... -- <COMMAND>..."), "{}", text(&found.stdout));
}

#[test]
fn one_page_is_printed_and_an_unknown_one_is_a_usage_error() {
    let sandbox = Sandbox::new();
    let shown = sandbox.bash("tollgate man run | MANPAGER=cat man --warnings -l -").output().unwrap();
    assert!(
        text(&shown.stdout).contains("tollgate-run") && shown.stderr.is_empty(),
        "{}",
        text(&shown.stderr)
    );
    let by_its_name = sandbox.output(&["man", "tollgate-run"]);
    assert_eq!(by_its_name.stdout, sandbox.output(&["man", "run"]).stdout);
    assert_eq!(by_its_name.status.code(), Some(0));
    let unknown = sandbox.output(&["man", "nonsense"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("acquire"), "{}", text(&unknown.stderr));
}

#[test]
fn advice_on_ttls_is_for_people_and_machines() {
    let sandbox = Sandbox::new();
    let arguments = ["ttl", "--op", "5s", "--latency", "100ms", "--drift", "50ms"];
    let advice = text(&sandbox.output(&arguments).stdout);
    for wanted in ["10s300ms", "15s100ms", "tollgate run --ttl 16s", "every third"] {
        assert!(advice.contains(wanted), "{wanted} is missing: {advice}");
    }
    let json = sandbox.output(&[&arguments[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["twice_everything_ms"], 10_300);
    assert_eq!(json["thrice_the_work_ms"], 15_100);
    assert_eq!(sandbox.output(&["ttl"]).status.code(), Some(2));
}
