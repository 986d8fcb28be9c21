//! What `docs/fencing.md` and `docs/choosing.md` tell a stranger to paste, pasted into a fresh database.

use crate::support::{Sandbox, text};
use tollgate_testkit::engines::{self, Config};

const PAGE: &str = include_str!("../../../../docs/fencing.md");

/// The blocks of a text in one language.
fn blocks(text: &'static str, language: &str) -> Vec<&'static str> {
    text.split(&format!("\n```{language}\n"))
        .skip(1)
        .map(|block| block.split("\n```").next().unwrap_or_default())
        .collect()
}

fn section(heading: &str) -> &'static str {
    PAGE.split("\n## ").find(|section| section.starts_with(heading)).expect("it is there")
}

#[test]
fn a_stranger_fences_a_postgresql_table() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let url = format!("postgres://postgres@{}/postgres", engine.address());
    let sandbox = Sandbox::new();
    let blocks = blocks(section("PostgreSQL in five minutes"), "sh");
    assert_eq!(blocks.len(), 4, "the steps of the page");
    let script = blocks.join("\necho == >&2; echo ==\n");
    let output = sandbox.bash(&script).env("DATABASE_URL", &url).output().unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let (said, complained): (Vec<&str>, Vec<&str>) =
        (stdout.split("==\n").collect(), stderr.split("==\n").collect());
    assert_eq!(complained[0], "", "it is installed without a word");
    assert!(
        complained[1].contains("ERROR") && complained[1].contains("token"),
        "who forgot is refused: {stderr}"
    );
    assert!(said[2].contains("paid with "), "who has a token writes: {stdout}\n{stderr}");
    assert_eq!(complained[2], "", "and nobody complains");
    assert!(complained[3].contains("the token 1 is stale"), "who is late is refused: {stderr}");
    assert_eq!(said[3].lines().last(), said[2].lines().last(), "and nothing is overwritten: {stdout}");
}

/// The script with the host and the account of the test in place of the page's.
#[test]
fn a_php_script_fences_a_mariadb_table() {
    let engine = engines::private(&Config::mariadb()).unwrap();
    let (address, sandbox) = (engine.address(), Sandbox::new());
    let url = format!("mysql://root@{address}/test");
    let blocks = blocks(section("MySQL and MariaDB"), "php");
    assert_eq!(blocks.len(), 1, "the script of the page");
    let place = format!("mysql:host=127.0.0.1;port={};dbname=test", address.port());
    let script = blocks[0].replace("mysql:host=127.0.0.1;dbname=shop", &place).replace("'app'", "'root'");
    assert!(script.contains(&place) && script.contains("'root'"), "{script}");
    std::fs::write(sandbox.path("pay.php"), script).unwrap();
    let port = address.port();
    let sql = format!("mariadb -h 127.0.0.1 -P {port} -u root test");
    let setup = format!(
        "set -e; tollgate sql-schema '{url}' | {sql}
        {sql} -e \"create table orders (id int primary key, state varchar(10)) engine=innodb; insert into orders values (7, 'new')\"
        tollgate run --url '{url}' orders -- true
        tollgate run --url '{url}' orders -- php pay.php; {sql} -N -e 'select state from orders'"
    );
    let output = sandbox.bash(&setup).output().unwrap();
    assert_eq!(text(&output.stdout), "paid\n", "{}", text(&output.stderr));
    let late = format!(
        "{sql} -e \"update orders set state = 'sent'\"; TOLLGATE_TOKEN=1 php pay.php; echo $?; {sql} -N -e 'select state from orders'"
    );
    let output = sandbox.bash(&late).output().unwrap();
    assert_eq!(text(&output.stdout), "76\nsent\n", "a stale token writes nothing: {}", text(&output.stderr));
    assert!(text(&output.stderr).contains("the lock was lost"), "{}", text(&output.stderr));
}

#[test]
fn what_is_better_than_a_lock_works_when_pasted() {
    let page = include_str!("../../../../docs/choosing.md");
    let engine = engines::private(&Config::postgres()).unwrap();
    let url = format!("postgres://postgres@{}/postgres", engine.address());
    let sandbox = Sandbox::new();
    let run = |sql: &str| {
        let script = format!("psql -At -v ON_ERROR_STOP=1 '{url}' <<'SQL'\n{sql}\nSQL");
        let output = sandbox.bash(&script).output().unwrap();
        assert!(output.status.success(), "{sql}\n{}", text(&output.stderr));
        text(&output.stdout)
    };
    let sql = blocks(page, "sql");
    assert_eq!(sql.len(), 4, "the blocks of the page");
    sql.iter().for_each(|block| drop(run(block)));
    assert_eq!(run("select left_over from stock; select balance, version from account"), "0\n80|4\n");
    // Once more, as somebody would who does not know that it was done.
    let again = |block: &str| {
        block.lines().filter(|line| !line.starts_with("create table")).collect::<Vec<_>>().join("\n")
    };
    let charged = again(sql[2]);
    run(&charged);
    assert_eq!(run("select balance from account"), "80\n", "it is charged once");
    assert_eq!(run("select id from jobs where state = 'done'"), "1\n");
    let redis = engines::private(&Config::redis()).unwrap();
    let shell = blocks(page, "sh")
        .join("\n")
        .replace("redis-cli", &format!("redis-cli -p {}", redis.address().port()));
    let output = sandbox.bash(&shell).output().unwrap();
    assert_eq!(text(&output.stdout), "OK\n0\nOK\nOK\nOK\n", "{}", text(&output.stderr));
}
