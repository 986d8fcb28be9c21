//! A `tollgate serve` under way, and an HTTP client.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Running, Sandbox};

/// A server, killed with the test.
pub struct Server {
    pub running: Running,
    pub address: SocketAddr,
}

impl Server {
    /// Starts a server on `listen` with its data in the sandbox, and waits until it is ready.
    pub fn start(sandbox: &Sandbox, listen: &str, arguments: &[&str]) -> Self {
        Self::start_on(sandbox, &sandbox.path("data"), listen, arguments)
    }

    /// The same with its data elsewhere.
    pub fn start_on(sandbox: &Sandbox, data: &Path, listen: &str, arguments: &[&str]) -> Self {
        let mut command = sandbox.tollgate(&["serve", "--json", "--listen", listen, "--data"]);
        command.arg(data);
        Self::run(command, arguments)
    }

    /// Runs a command that ends in `serve --json …`, and waits until it is ready.
    pub fn run(mut command: Command, arguments: &[&str]) -> Self {
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = Running(command.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap_or_default();
        let url = ready["url"].as_str().unwrap_or_else(|| panic!("it does not start: {}", running.stderr()));
        let address = url.strip_prefix("http://").unwrap().parse().unwrap();
        Self { running, address }
    }

    pub fn client(&self) -> Http {
        Http::new(self.address)
    }
}

/// A client with one connection, opened anew when it broke.
pub struct Http {
    address: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Value,
}

impl Http {
    pub fn new(address: SocketAddr) -> Self {
        Self { address, stream: None }
    }

    pub fn post(&mut self, path: &str, body: &Value) -> io::Result<Answer> {
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.exchange(&(head + &body))
    }

    pub fn get(&mut self, path: &str) -> io::Result<Answer> {
        self.exchange(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    /// Takes a lock, or panics.
    pub fn acquire(&mut self, name: &str) -> Value {
        let answer = self.post("/v1/acquire", &json!({ "name": name })).unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    }

    /// Sends the text, and reads one answer.
    pub fn exchange(&mut self, request: &str) -> io::Result<Answer> {
        let exchanged = self.send(request).and_then(|()| self.receive());
        if exchanged.is_err() {
            self.stream = None;
        }
        exchanged
    }

    pub fn send(&mut self, request: &str) -> io::Result<()> {
        if self.stream.is_none() {
            let stream = TcpStream::connect(self.address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(Duration::from_secs(60)))?;
            self.stream = Some(BufReader::new(stream));
        }
        self.stream.as_mut().unwrap().get_mut().write_all(request.as_bytes())
    }

    pub fn receive(&mut self) -> io::Result<Answer> {
        let ended = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let stream = self.stream.as_mut().ok_or_else(ended)?;
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head)? == 0 {
                return Err(ended());
            }
        }
        let head = head.to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(ended)?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.and_then(|length| length.parse().ok()).unwrap_or(0)];
        stream.read_exact(&mut body)?;
        Ok(Answer { status, head, body: serde_json::from_slice(&body).unwrap_or_default() })
    }

    /// The next line of a stream of events.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.as_mut().unwrap().read_line(&mut line).unwrap();
        line
    }
}
