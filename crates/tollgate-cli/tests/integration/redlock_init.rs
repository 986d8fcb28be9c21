//! The first start of Redlock, as an operator sees it.

use crate::support::{Sandbox, text};
use tollgate_testkit::engines::{self, Config, Data, Engine};

fn three() -> Vec<Engine> {
    (0..3).map(|_| engines::private(&Config::redis()).unwrap()).collect()
}

fn url(nodes: &[Engine]) -> String {
    let hosts: Vec<String> = nodes.iter().map(|node| node.address().to_string()).collect();
    format!("redlock://{}", hosts.join(","))
}

#[test]
fn new_nodes_give_no_lock_until_somebody_says_that_they_are_new() {
    let (sandbox, nodes) = (Sandbox::new(), three());
    let url = url(&nodes);
    let early = sandbox.output(&["run", "--url", &url, "--try", "a", "--", "true"]);
    let said = text(&early.stderr);
    assert_eq!(early.status.code(), Some(69), "{said}");
    assert!(said.contains("tollgate redlock-init URL") && said.contains(" s;"), "{said}");

    let init = sandbox.output(&["redlock-init", "--json", &url]);
    assert_eq!((init.status.code(), text(&init.stdout).trim()), (Some(0), "{\"state\":\"initialized\"}"));
    let again = sandbox.output(&["redlock-init", &url]);
    assert_eq!(again.status.code(), Some(0));
    assert!(text(&again.stdout).contains("nothing was changed"), "{}", text(&again.stdout));

    let run = sandbox.output(&["run", "--url", &url, "a", "--", "true"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
}

#[test]
fn what_is_no_first_start_is_refused_with_the_reason() {
    let (sandbox, nodes) = (Sandbox::new(), three());
    let url = url(&nodes);
    let outcome = |arguments: &[&str]| {
        let output = sandbox.output(arguments);
        (output.status.code(), text(&output.stderr))
    };
    nodes[2].kill();
    let (code, said) = outcome(&["redlock-init", &url]);
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains(&nodes[2].address().to_string()), "{said}");

    nodes[2].restart(Data::Lost).unwrap();
    assert_eq!(outcome(&["redlock-init", &url]).0, Some(0));
    nodes[0].restart(Data::Lost).unwrap();
    let (code, said) = outcome(&["redlock-init", &url]);
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("these nodes are not new"), "{said}");

    assert_eq!(outcome(&["redlock-init", "file:locks"]).0, Some(2));
    assert_eq!(outcome(&["redlock-init", "redlock://user:secret@a,b"]).0, Some(78));
    assert!(!outcome(&["redlock-init", "redlock://user:secret@a,b"]).1.contains("secret"));
}
