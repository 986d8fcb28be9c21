//! `tollgate fence-proxy`: a service that knows nothing of tokens, and holders that come too late.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};

use crate::support::{PATIENCE, Sandbox, eventually, text};
use rustix::process::{Pid, Signal, kill_process};

/// A service that answers everything with 200, when it is told to; the heads of what it is asked come out here.
struct Service {
    address: SocketAddr,
    came: mpsc::Receiver<String>,
    go: mpsc::Sender<()>,
}

impl Service {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ((tell, came), (go, wait)) = (mpsc::channel(), mpsc::channel());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let head = head(&mut stream);
                if tell.send(head).is_err() || wait.recv().is_err() {
                    return;
                }
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
                stream.write_all(answer).unwrap();
            }
        });
        Self { address, came, go }
    }
}

fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// A running proxy, killed with the test.
struct Proxy {
    child: Child,
    address: SocketAddr,
    metrics: Option<SocketAddr>,
}

impl Proxy {
    fn start(sandbox: &Sandbox, arguments: &[&str]) -> Self {
        Self::run(sandbox.tollgate(&["fence-proxy", "--json", "-l", "127.0.0.1:0"]), arguments)
    }

    /// A proxy that may open so many files.
    fn with_files(sandbox: &Sandbox, files: &str, arguments: &[&str]) -> Self {
        let script = format!("ulimit -n {files} && exec tollgate fence-proxy --json -l 127.0.0.1:0 \"$@\"");
        let mut command = sandbox.bash(&script);
        command.arg("bash");
        Self::run(command, arguments)
    }

    fn run(mut command: Command, arguments: &[&str]) -> Self {
        let command = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: serde_json::Value = serde_json::from_str(&line).unwrap();
        let address = |name: &str| said[name].as_str().map(|address| address.parse().unwrap());
        Self { child, address: address("listening").unwrap(), metrics: address("metrics") }
    }

    /// What it says on stderr.
    fn lines(&mut self) -> mpsc::Receiver<String> {
        let (tell, lines) = mpsc::channel();
        let said = BufReader::new(self.child.stderr.take().unwrap());
        std::thread::spawn(move || said.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        lines
    }

    fn send(&self, method: &str, token: Option<&str>) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let token = token.map(|token| format!("Fencing-Token: {token}\r\n")).unwrap_or_default();
        let head =
            format!("{method} /orders/42/lines HTTP/1.1\r\nhost: shop\r\n{token}connection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    fn ask(&self, method: &str, token: Option<&str>) -> String {
        answer(self.send(method, token))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn closed(proxy: &Proxy) {
    eventually("the port is closed", || TcpStream::connect(proxy.address).is_err().then_some(()));
}

fn answer(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn arguments<'a>(upstream: &'a str, store: &'a str) -> Vec<&'a str> {
    vec!["-u", upstream, "-s", store, "-r", "/orders/{id}/*=orders/{id}"]
}

#[test]
fn a_holder_that_was_overtaken_is_refused_also_by_the_next_proxy_on_the_same_store() {
    let (sandbox, service) = (Sandbox::new(), Service::start());
    let upstream = format!("http://{}", service.address);
    for _ in 0..9 {
        service.go.send(()).unwrap();
    }
    let proxy = Proxy::start(&sandbox, &arguments(&upstream, "file:marks"));
    assert!(proxy.ask("PUT", Some("7")).starts_with("HTTP/1.1 200"));
    assert!(service.came.recv_timeout(PATIENCE).unwrap().starts_with("PUT /orders/42/lines HTTP/1.1"));
    assert!(proxy.ask("PUT", Some("9")).starts_with("HTTP/1.1 200"));
    drop(proxy);
    let proxy = Proxy::start(&sandbox, &arguments(&upstream, "file:marks"));
    let stale = proxy.ask("PUT", Some("7"));
    assert!(
        stale.starts_with("HTTP/1.1 412") && stale.contains("\"highest\":9") && stale.contains("\"token\":7"),
        "{stale}"
    );
    assert!(proxy.ask("PUT", None).starts_with("HTTP/1.1 428"));
    assert!(proxy.ask("PUT", Some("x")).starts_with("HTTP/1.1 400"));
    assert!(proxy.ask("GET", None).starts_with("HTTP/1.1 200"));
}

/// A service that keeps its connections, closes those that are idle when it is told to, and takes its time over what is slow.
struct Keeping {
    address: SocketAddr,
    events: mpsc::Receiver<String>,
    idle: Arc<Mutex<Vec<TcpStream>>>,
    slow: mpsc::Sender<()>,
}

impl Keeping {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ((tell, events), (slow, wait)) = (mpsc::channel(), mpsc::channel());
        let (idle, wait) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(wait)));
        let connections = idle.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                connections.lock().unwrap().push(stream.try_clone().unwrap());
                let (tell, wait) = (tell.clone(), wait.clone());
                std::thread::spawn(move || serve(stream, &tell, &wait));
            }
        });
        Self { address, events, idle, slow }
    }

    fn next(&self) -> String {
        self.events.recv_timeout(PATIENCE).unwrap()
    }
}

fn serve(stream: TcpStream, tell: &mpsc::Sender<String>, wait: &Mutex<mpsc::Receiver<()>>) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    loop {
        let head: Vec<String> =
            lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        let token = head.iter().find_map(|line| line.strip_prefix("fencing-token: "))?;
        tell.send(format!("{token} came")).ok()?;
        if head.iter().any(|line| line.starts_with("x-slow")) {
            wait.lock().ok()?.recv().ok()?;
        }
        tell.send(format!("{token} done")).ok()?;
        (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").ok()?;
    }
}

/// Threads on other cores go on for a moment after the signal was sent.
fn all_stopped(pid: Pid) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).unwrap();
    tasks.flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|state| state.starts_with('T'))
    })
}

#[test]
fn a_write_whose_connection_was_closed_before_it_was_sent_is_not_overtaken() {
    let (sandbox, service) = (Sandbox::new(), Keeping::start());
    let upstream = format!("http://{}", service.address);
    let proxy = Proxy::start(&sandbox, &arguments(&upstream, "memory:"));
    let pid = Pid::from_child(&proxy.child);
    for old in [10_u64, 20, 30] {
        let client = TcpStream::connect(proxy.address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let put = |more: &str| {
            let head =
                format!("PUT /orders/42/lines HTTP/1.1\r\nhost: shop\r\nfencing-token: {old}\r\n{more}\r\n");
            (&client).write_all(head.as_bytes()).unwrap();
        };
        put("");
        assert_eq!([service.next(), service.next()], [format!("{old} came"), format!("{old} done")]);
        let mut answered = [0; 64];
        assert!((&client).read(&mut answered).unwrap() > 0);
        // While the proxy stands still the next request comes, and the service closes the connection it would go over.
        kill_process(pid, Signal::STOP).unwrap();
        eventually("every thread of the proxy has stopped", || all_stopped(pid).then_some(()));
        put("x-slow: 1\r\n");
        for stream in service.idle.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        kill_process(pid, Signal::CONT).unwrap();
        assert_eq!(service.next(), format!("{old} came"));
        let newer = proxy.send("PUT", Some(&(old + 1).to_string()));
        let early = service.events.recv_timeout(std::time::Duration::from_millis(300));
        assert!(early.is_err(), "it overtook the older one: {early:?}");
        service.slow.send(()).unwrap();
        assert_eq!(service.next(), format!("{old} done"));
        assert_eq!(
            [service.next(), service.next()],
            [format!("{} came", old + 1), format!("{} done", old + 1)]
        );
        assert!(answer(newer).starts_with("HTTP/1.1 200"));
    }
}

#[test]
fn a_token_that_the_engine_never_gave_is_refused() {
    let (sandbox, service) = (Sandbox::new(), Service::start());
    let (upstream, engine) = (format!("http://{}", service.address), sandbox.url());
    let mut words = arguments(&upstream, "file:marks");
    words.extend(["--engine", &engine]);
    let proxy = Proxy::start(&sandbox, &words);
    let refused = proxy.ask("PUT", Some("9007199254740991"));
    assert!(refused.starts_with("HTTP/1.1 412") && refused.contains("never"), "{refused}");
    service.go.send(()).unwrap();
    let put = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{}; printf 'PUT /orders/42 HTTP/1.1\\r\\nhost: x\\r\\nFencing-Token: %s\\r\\nconnection: \
         close\\r\\n\\r\\n' $TOLLGATE_TOKEN >&3; head -n 1 <&3",
        proxy.address.port()
    );
    let held = sandbox.output(&["run", "--url", &engine, "orders/42", "--", "bash", "-c", &put]);
    assert!(text(&held.stdout).starts_with("HTTP/1.1 200"), "{} {}", text(&held.stdout), text(&held.stderr));

    words.pop();
    words.extend(["memory:", "--check"]);
    let cannot = sandbox.output(&[&["fence-proxy"][..], &words].concat());
    assert_eq!(cannot.status.code(), Some(78), "{}", text(&cannot.stderr));
}

#[test]
fn what_it_does_is_logged_and_counted() {
    let (sandbox, service) = (Sandbox::new(), Service::start());
    let upstream = format!("http://{}", service.address);
    let mut words = arguments(&upstream, "file:marks");
    words.extend(["--metrics", "127.0.0.1:0"]);
    let mut proxy = Proxy::start(&sandbox, &words);
    let lines = proxy.lines();
    let next = || lines.recv_timeout(PATIENCE).unwrap();
    let first = next();
    for part in [&proxy.address.to_string(), &upstream, "/orders/{id}/*=orders/{id}", "file:marks"] {
        assert!(first.contains(part), "{first}");
    }
    service.go.send(()).unwrap();
    assert!(proxy.ask("PUT", Some("9")).starts_with("HTTP/1.1 200"));
    for token in ["7", "8"] {
        assert!(proxy.ask("PUT", Some(token)).starts_with("HTTP/1.1 412"));
        let line = next();
        for part in ["orders/42", &format!("token={token}"), "highest=9", "WARN"] {
            assert!(line.contains(part), "one line says all of it: {line}");
        }
    }
    let numbers = || {
        let mut stream = TcpStream::connect(proxy.metrics.unwrap()).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        answer(stream)
    };
    let shown = numbers();
    assert!(shown.starts_with("HTTP/1.1 200"), "{shown}");
    for line in [
        "tollgate_fence_rejected_total 2",
        "tollgate_fence_proxy_requests_total{outcome=\"forwarded\"} 1",
        "tollgate_fence_proxy_requests_total{outcome=\"stale\"} 2",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
    }
}

#[test]
fn a_log_that_nobody_reads_keeps_nobody_waiting() {
    let (sandbox, service) = (Sandbox::new(), Service::start());
    let upstream = format!("http://{}", service.address);
    let proxy = Proxy::start(&sandbox, &arguments(&upstream, "memory:"));
    service.go.send(()).unwrap();
    assert!(proxy.ask("PUT", Some("9")).starts_with("HTTP/1.1 200"));
    // More than a pipe and the lines that wait for it have room for.
    for _ in 0..3000 {
        assert!(proxy.ask("PUT", Some("8")).starts_with("HTTP/1.1 412"));
    }
}

/// A service that keeps its connections and answers at once.
fn willing() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).count() > 0 {
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
                }
            });
        }
    });
    address
}

/// Sends a request over a connection that stays, and reads the answer.
fn cycle(stream: &mut TcpStream, path: &str, token: u32) -> String {
    let put = format!("PUT /orders/{path} HTTP/1.1\r\nhost: shop\r\nfencing-token: {token}\r\n\r\n");
    stream.write_all(put.as_bytes()).unwrap();
    let head = head(stream);
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    stream.read_exact(&mut vec![0; length.unwrap()]).unwrap();
    head
}

#[test]
fn idle_connections_keep_no_holder_out_and_leave_files_for_the_store() {
    let sandbox = Sandbox::new();
    let upstream = format!("http://{}", willing());
    for (files, most, crowd) in [("256", None, 300), ("256", Some("20"), 60), ("64", None, 30)] {
        let mut words = arguments(&upstream, "file:marks");
        words.extend(most.iter().flat_map(|most| ["--max-connections", most]));
        let proxy = Proxy::with_files(&sandbox, files, &words);
        let connect = || {
            let stream = TcpStream::connect(proxy.address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream
        };
        let mut idle: Vec<_> = (0..crowd).map(|_| connect()).collect();
        let mut holder = connect();
        assert!(cycle(&mut holder, "1", 5).starts_with("HTTP/1.1 200"));
        idle.extend((0..5).map(|_| connect()));
        // New marks: each needs files of its own.
        for order in 2..60 {
            let answered = cycle(&mut holder, &order.to_string(), 5);
            assert!(answered.starts_with("HTTP/1.1 200"), "{files} {most:?} {order}: {answered}");
        }
        idle.extend((0..crowd / 3).map(|_| connect()));
        for order in 60..70 {
            let answered = cycle(&mut connect(), &order.to_string(), 5);
            assert!(answered.starts_with("HTTP/1.1 200"), "{files} {most:?} {order}: {answered}");
        }
        drop(idle);
    }
}

#[test]
fn more_connections_than_there_may_be_files_are_refused_at_the_start() {
    let sandbox = Sandbox::new();
    for (most, code) in [("80", 0), ("81", 78), ("0", 2)] {
        let script = format!(
            "ulimit -n 256 && tollgate fence-proxy --check -u http://127.0.0.1:1 -s file:m -r shop --max-connections {most}"
        );
        let output = sandbox.bash(&script).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(code != 78 || said.contains("room for 80") && said.contains("ulimit -n"), "{said}");
    }
}

#[test]
fn a_signal_ends_it_when_everything_is_answered() {
    let (sandbox, service) = (Sandbox::new(), Service::start());
    let upstream = format!("http://{}", service.address);
    let mut proxy = Proxy::start(&sandbox, &arguments(&upstream, "memory:"));
    let asked = proxy.send("PUT", Some("5"));
    service.came.recv_timeout(PATIENCE).unwrap();
    proxy.signal(Signal::TERM);
    closed(&proxy);
    assert!(proxy.child.try_wait().unwrap().is_none(), "somebody is not answered yet");
    service.go.send(()).unwrap();
    assert!(answer(asked).starts_with("HTTP/1.1 200"));
    assert_eq!(proxy.child.wait().unwrap().code(), Some(0));

    let mut proxy = Proxy::start(&sandbox, &arguments(&upstream, "memory:"));
    let _asked = proxy.send("PUT", Some("5"));
    service.came.recv_timeout(PATIENCE).unwrap();
    proxy.signal(Signal::TERM);
    closed(&proxy);
    proxy.signal(Signal::INT);
    assert_eq!(proxy.child.wait().unwrap().code(), Some(130), "the second one does not wait");
}

#[test]
fn what_is_written_wrong_or_not_there_is_told_at_the_start() {
    let sandbox = Sandbox::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let (busy, nobody) = (taken.local_addr().unwrap().to_string(), "redis://127.0.0.1:1/");
    let good = ["-u", "http://127.0.0.1:1", "-s", "file:marks"];
    for (words, code, says) in [
        (&["-r", "shop", "-l", &busy][..], 69, "taken"),
        (&[], 2, "--resource"),
        (&["-r", "/orders"], 2, "has no =NAME after its path"),
        (&["-r", "/{a}={b}"], 2, "that is not in its path"),
        (&["-r", "shop", "--unguarded", "get"], 2, "is not an HTTP method"),
        (&["-r", "shop", "--drain", "5"], 2, "--drain"),
        (&["-r", "shop", "--drain", "0s"], 2, "--drain of zero"),
        (&["-r", "shop", "--timeout", "0s"], 2, "--timeout of zero"),
        (&["-r", "shop", "--engine", nobody], 69, "reached"),
        (&["-r", "shop", "--resource-header", "x"], 2, "cannot be used with"),
    ] {
        let output = sandbox.output(&[&["fence-proxy"], &good[..], words].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(says), "{words:?}: {said}");
    }
    for (upstream, store, code, says) in [
        ("ftp://a", "file:m", 2, "http://HOST"),
        ("http://shop:secret@a", "file:m", 2, "must not have a user"),
        ("http://a/b/../c", "file:m", 2, "must not contain . or .."),
        ("http://a?b", "file:m", 2, "query"),
        ("http://a:99999", "file:m", 2, "http://HOST"),
        ("http://a:", "file:m", 2, "http://HOST"),
        ("http://a/#b", "file:m", 2, "http://HOST"),
        ("http://a", nobody, 69, "reached"),
        ("http://a", "etcd://127.0.0.1", 78, "keeps no marks"),
        ("http://a", "nonsense", 2, "no scheme"),
        ("http://a", "redis://127.0.0.1:1/?prefix=x", 2, "namespace"),
    ] {
        let output = sandbox.output(&["fence-proxy", "-u", upstream, "-s", store, "-r", "shop"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{upstream} {store}: {said}");
        assert!(said.contains(says) && !said.contains("secret"), "{upstream} {store}: {said}");
    }
}
