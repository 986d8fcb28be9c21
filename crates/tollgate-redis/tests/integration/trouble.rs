//! Everything that can be wrong with a Redis: each is a clear error or a quiet recovery, and none a hang.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use crate::support::{backend, claim, cli, locks, until};
use tollgate_core::{Attempt, Backend, Claim, Error, ErrorKind, LockName, Locks, Mode, Release, Token};
use tollgate_testkit::engines::{self, Config, Data};

/// What connecting to `url` fails with, within the time a person has.
async fn refusal(url: &str) -> Error {
    let connecting = tokio::time::timeout(Duration::from_secs(12), backend(url));
    connecting.await.expect("it does not hang").err().unwrap_or_else(|| panic!("{url} lets us in"))
}

fn url(address: SocketAddr) -> String {
    format!("redis://{address}/")
}

#[track_caller]
fn says(error: &Error, kind: ErrorKind, words: &[&str]) {
    assert_eq!(error.kind(), kind, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{word:?} is not in: {error}");
    }
}

#[tokio::test]
async fn a_wrong_password_or_none_is_denied() {
    let engine = engines::private(&Config::redis()).unwrap();
    cli(engine.address(), &["CONFIG", "SET", "requirepass", "right"]);
    let with = |login: &str| format!("redis://{login}@{}/", engine.address());
    for login in [":wrong", "nobody:right"] {
        says(&refusal(&with(login)).await, ErrorKind::Denied, &["USER:PASSWORD"]);
    }
    says(&refusal(&url(engine.address())).await, ErrorKind::Denied, &["USER:PASSWORD"]);
    assert!(!refusal(&with(":wrong")).await.to_string().contains("wrong"), "nobody prints a password");
    backend(&with(":right")).await.unwrap();
}

#[tokio::test]
async fn nobody_at_the_port_is_said_with_the_address() {
    let port = engines::spare_port();
    let address = port.address().to_string();
    says(&refusal(&url(port.address())).await, ErrorKind::Unavailable, &[&address, "running"]);
    let nowhere = refusal("redis://no-such-host.invalid/").await;
    says(&nowhere, ErrorKind::Unavailable, &["no-such-host.invalid", "address"]);
}

/// Somebody who is no Redis, and says one thing after the other, whatever is said to it.
fn impostor(words: Vec<&'static [u8]>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            let words = words.clone();
            std::thread::spawn(move || {
                for word in words {
                    let mut bytes = [0; 4096];
                    if !socket.read(&mut bytes).is_ok_and(|read| read > 0) || socket.write_all(word).is_err()
                    {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn a_server_that_is_no_redis_is_told_from_one() {
    let web = impostor(vec![b"HTTP/1.1 400 Bad Request\r\n\r\n"]);
    says(&refusal(&url(web)).await, ErrorKind::Config, &["not a Redis"]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    says(&refusal(&url(silent.local_addr().unwrap())).await, ErrorKind::Unavailable, &["did not answer"]);
}

#[tokio::test]
async fn tls_and_no_tls_are_told_from_each_other() {
    let engine = engines::private(&Config::redis()).unwrap();
    let plain = refusal(&format!("rediss://{}/", engine.address())).await;
    says(&plain, ErrorKind::Unavailable, &["does not speak TLS", "redis://"]);

    let (folder, port) = (tempfile::tempdir().unwrap(), engines::spare_port());
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (folder.path().join("cert"), folder.path().join("key"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let mut config = Config::redis().argument("--tls-port").argument(port.number().to_string());
    for (name, file) in [("--tls-cert-file", &cert), ("--tls-key-file", &key), ("--tls-ca-cert-file", &cert)]
    {
        config = config.argument(name).argument(file.display().to_string());
    }
    let _encrypted = engines::private(&config).unwrap();
    says(&refusal(&url(port.address())).await, ErrorKind::Unavailable, &["rediss://"]);
}

#[tokio::test]
async fn a_key_of_another_type_in_our_place_is_left_alone() {
    let engine = engines::private(&Config::redis()).unwrap();
    let backend = backend(&url(engine.address())).await.unwrap();
    cli(engine.address(), &["HSET", "lock:a", "field", "value"]);
    for wait in [false, true] {
        let claim = claim("a");
        let error = match wait {
            false => backend.try_acquire(&claim).await.err(),
            true => backend.acquire(&claim).await.err(),
        };
        says(&error.unwrap(), ErrorKind::Config, &["prefix="]);
        backend.withdraw(&claim).await.unwrap_err();
    }
    assert_eq!(cli(engine.address(), &["HGET", "lock:a", "field"]), "value");
    // Where tokens are kept.
    cli(engine.address(), &["SET", "{lock:b}:fence", "7"]);
    says(&backend.try_acquire(&claim("b")).await.unwrap_err(), ErrorKind::Config, &["prefix="]);
    assert_eq!(cli(engine.address(), &["GET", "{lock:b}:fence"]), "7");
    assert_eq!(cli(engine.address(), &["EXISTS", "lock:b"]), "0", "nobody has it, so it is free");
}

#[tokio::test]
async fn a_user_without_the_rights_that_locks_need_takes_none() {
    let engine = engines::private(&Config::redis()).unwrap();
    let rights = ["on", ">pw", "~*", "&*", "+@all", "-@scripting"];
    cli(engine.address(), &[&["ACL", "SETUSER", "mute"], &rights[..]].concat());
    let with = |user: &str| format!("redis://{user}:pw@{}/", engine.address());
    says(&refusal(&with("mute")).await, ErrorKind::Denied, &["ACL SETUSER"]);
    // One who may take the lock, but not touch what stands beside it.
    cli(engine.address(), &["ACL", "SETUSER", "half", "on", ">pw", "~lock:*", "&tg:*", "+@all"]);
    let half = backend(&with("half")).await.unwrap();
    says(&half.try_acquire(&claim("a")).await.unwrap_err(), ErrorKind::Denied, &["ACL SETUSER"]);
    assert_eq!(cli(engine.address(), &["EXISTS", "lock:a"]), "0", "nobody has it, so it is free");
}

#[tokio::test]
async fn tokens_ahead_of_the_servers_clock_go_on_from_there() {
    let engine = engines::private(&Config::redis()).unwrap();
    let backend = backend(&url(engine.address())).await.unwrap();
    let floor = Token::new(4_000_000_000_000_000).unwrap();
    backend.raise_floor(&LockName::new("a").unwrap(), floor).await.unwrap();
    let mut last = floor;
    for _ in 0..3 {
        let Attempt::Granted(grant) = backend.try_acquire(&claim("a")).await.unwrap() else {
            panic!("nobody has it")
        };
        assert!(grant.token > last, "{} after {last}", grant.token);
        last = grant.token;
        assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn what_redis_forgets_while_we_are_connected_does_not_step_back() {
    let engine = engines::private(&Config::redis()).unwrap();
    let locks = locks(&url(engine.address())).await.unwrap();
    let mut last = None;
    for _ in 0..50 {
        let guard = locks.lock("a").acquire().await.unwrap();
        assert!(last < Some(guard.token()));
        last = Some(guard.token());
        cli(engine.address(), &["FLUSHALL"]);
        let _ = guard.release().await;
    }
}

#[tokio::test]
async fn the_last_token_is_remembered_for_days_also_if_it_was_drawn_in_a_hand_over() {
    let engine = engines::private(&Config::redis()).unwrap();
    let locks = locks(&url(engine.address())).await.unwrap();
    // Nobody of ours has had it yet, so nothing is remembered when the first one starts to wait.
    assert_eq!(cli(engine.address(), &["SET", "lock:a", "somebody"]), "OK");
    let waiting = [(); 2].map(|()| {
        let locks = locks.clone();
        tokio::spawn(async move { locks.lock("a").acquire().await.unwrap().release().await })
    });
    until("both wait", async || cli(engine.address(), &["ZCARD", "{lock:a}:queue"]) == "2").await;
    assert_eq!(cli(engine.address(), &["DEL", "lock:a"]), "1");
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().unwrap(), Release::Released);
    }
    let left: u64 = cli(engine.address(), &["TTL", "{lock:a}:fence"]).parse().unwrap();
    assert!(left > 7 * 24 * 3600 && left < 8 * 24 * 3600, "{left} s");
}

#[tokio::test]
async fn a_counter_that_was_lost_before_a_hand_over_is_forgotten_some_day_too() {
    let engine = engines::private(&Config::redis()).unwrap();
    let locks = locks(&url(engine.address())).await.unwrap();
    let waits = || cli(engine.address(), &["ZCARD", "{lock:a}:queue"]) == "1";
    for shared in [false, true] {
        let held = locks.lock("a").acquire().await.unwrap();
        let request = locks.lock("a");
        let waiting = tokio::spawn(if shared { request.shared().acquire() } else { request.acquire() });
        until("it waits", async || waits()).await;
        assert_eq!(cli(engine.address(), &["DEL", "{lock:a}:fence"]), "1");
        let before = held.token();
        held.release().await.unwrap();
        let next = waiting.await.unwrap().unwrap();
        assert!(next.token() > before, "{} after {before}", next.token());
        let left: i64 = cli(engine.address(), &["TTL", "{lock:a}:fence"]).parse().unwrap();
        assert!(left > 7 * 24 * 3600, "shared: {shared}: {left} s");
        next.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_counter_at_its_end_is_named_and_those_who_wait_hear_of_it() {
    let engine = engines::private(&Config::redis()).unwrap();
    let backend = backend(&url(engine.address())).await.unwrap();
    let name = LockName::new("a").unwrap();
    let error = backend.raise_floor(&name, Token::MAX).await.unwrap_err();
    says(&error, ErrorKind::InvalidArgument, &["lower floor"]);
    // One token is left, for one who holds it while others wait.
    backend.raise_floor(&name, Token::new(Token::MAX.get() - 1).unwrap()).await.unwrap();
    let locks = Locks::new(std::sync::Arc::new(backend)).unwrap();
    let held = locks.lock("a").acquire().await.unwrap();
    assert_eq!(held.token(), Token::MAX);
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..8 {
        let request = locks.lock("a").ttl(Duration::from_secs(3));
        waiting.spawn(if number < 6 { request.acquire() } else { request.shared().acquire() });
    }
    until("all wait", async || cli(engine.address(), &["ZCARD", "{lock:a}:queue"]) == "8").await;
    assert_eq!(held.release().await.unwrap(), Release::Released);
    assert_eq!(
        cli(engine.address(), &["EXISTS", "{lock:a}:queue"]),
        "0",
        "nobody waits for what cannot come"
    );
    let told = tokio::time::timeout(Duration::from_secs(30), waiting.join_all()).await;
    for waited in told.expect("all are told") {
        says(&waited.unwrap_err(), ErrorKind::Config, &["\"{lock:a}:fence\"", "Delete"]);
    }
    // Also for whoever would take it without a script, and nobody has it then.
    let error = locks.lock("a").try_acquire().await.unwrap_err();
    says(&error, ErrorKind::Config, &["\"{lock:a}:fence\""]);
    assert_eq!(cli(engine.address(), &["EXISTS", "lock:a", "{lock:a}:queue"]), "0");
    assert_eq!(cli(engine.address(), &["DEL", "{lock:a}:fence"]), "1");
    drop(locks.lock("a").acquire().await.unwrap());
}

#[tokio::test]
async fn a_waiter_whose_place_redis_evicted_gets_another() {
    let engine = engines::private(&Config::redis()).unwrap();
    let locks = locks(&url(engine.address())).await.unwrap();
    assert_eq!(cli(engine.address(), &["SET", "lock:a", "somebody"]), "OK");
    let waiting = tokio::spawn(async move { locks.lock("a").acquire().await.map(|guard| guard.token()) });
    let waits = || cli(engine.address(), &["ZCARD", "{lock:a}:queue"]) == "1";
    until("it waits", async || waits()).await;
    assert_eq!(cli(engine.address(), &["DEL", "{lock:a}:queue"]), "1");
    until("it waits again", async || waits()).await;
    assert_eq!(cli(engine.address(), &["DEL", "lock:a"]), "1");
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_renewal_is_as_long_as_it_says_and_keeps_the_last_token_in_mind() {
    let engine = engines::private(&Config::redis()).unwrap();
    let backend = backend(&url(engine.address())).await.unwrap();
    let number = |words: &[&str]| cli(engine.address(), words).parse::<i64>().unwrap();
    for mode in [Mode::Exclusive, Mode::Shared] {
        let claim = Claim::new(LockName::new("a").unwrap(), mode, Duration::from_secs(60));
        let Attempt::Granted(grant) = backend.try_acquire(&claim).await.unwrap() else {
            panic!("it is free")
        };
        cli(engine.address(), &["EXPIRE", "{lock:a}:fence", "100"]);
        backend.extend(&grant, Duration::from_secs(2), None).await.unwrap();
        assert!(number(&["PTTL", "lock:a"]) <= 2000, "{mode:?}: the lock's own key outlives its holder");
        assert!(
            number(&["TTL", "{lock:a}:fence"]) > 7 * 24 * 3600,
            "{mode:?}: its counter would be forgotten"
        );
        assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn a_lock_is_handed_on_also_by_whoever_may_not_say_so() {
    let engine = engines::private(&Config::redis()).unwrap();
    cli(engine.address(), &["ACL", "SETUSER", "mute", "on", ">pw", "~*", "&*", "+@all"]);
    let mute = locks(&format!("redis://mute:pw@{}/", engine.address())).await.unwrap();
    let other = locks(&url(engine.address())).await.unwrap();
    let held = mute.lock("a").acquire().await.unwrap();
    let waiting = tokio::spawn(other.lock("a").shared().acquire());
    until("one waits", async || cli(engine.address(), &["EXISTS", "{lock:a}:queue"]) == "1").await;
    cli(engine.address(), &["ACL", "SETUSER", "mute", "-publish"]);
    assert_eq!(held.release().await.unwrap(), Release::Released);
    assert_eq!(cli(engine.address(), &["SET", "lock:a", "x", "NX"]), "", "it is held by the next one");
    drop(waiting.await.unwrap().unwrap());
}

#[tokio::test]
async fn a_lock_that_somebody_made_last_for_ever_is_seen() {
    let engine = engines::private(&Config::redis()).unwrap();
    let locks = locks(&url(engine.address())).await.unwrap();
    let _guard = locks.lock("a").acquire().await.unwrap();
    assert_eq!(cli(engine.address(), &["PERSIST", "lock:a"]), "1");
    let state = locks.inspect("a").await.unwrap().expect("it is held");
    assert_eq!(state.holders[0].expires_in, None);
}

#[tokio::test]
async fn those_who_wait_for_one_connection_fail_together() {
    let engine = engines::private(&Config::redis()).unwrap();
    let backend = std::sync::Arc::new(backend(&url(engine.address())).await.unwrap());
    engine.kill();
    engine.restart(Data::Lost).unwrap();
    engine.pause();
    let since = std::time::Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let backend = backend.clone();
        tasks.spawn(async move { backend.try_acquire(&claim("a")).await.unwrap_err() });
    }
    while let Some(error) = tasks.join_next().await {
        assert!(matches!(error.unwrap().kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate));
    }
    assert!(since.elapsed() < Duration::from_secs(14), "it took {:?}", since.elapsed());
    engine.resume();
}

#[tokio::test]
async fn many_readers_behind_a_writer_do_not_block_redis() {
    let engine = engines::private(&Config::redis()).unwrap();
    let locks = locks(&url(engine.address())).await.unwrap();
    let writer = locks.lock("a").acquire().await.unwrap();
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..1500 {
        let locks = locks.clone();
        readers.spawn(async move { locks.lock("a").shared().acquire().await });
    }
    until("all wait", async || cli(engine.address(), &["ZCARD", "{lock:a}:queue"]) == "1500").await;
    cli(engine.address(), &["CONFIG", "RESETSTAT"]);
    writer.release().await.unwrap();
    let guards = readers.join_all().await.into_iter().collect::<Result<Vec<_>, _>>().unwrap();
    for guard in guards {
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
    let stats = cli(engine.address(), &["INFO", "commandstats"]);
    let spent = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap();
    let micros: u64 = spent.split("usec=").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
    // About 0.1 s; it was 10 s when each one that left looked at all that stayed.
    assert!(micros < 2_000_000, "{spent}");
}

#[tokio::test]
async fn a_replica_is_refused_with_what_to_do() {
    let engine = engines::private(&Config::redis()).unwrap();
    let port = engine.address().port().to_string();
    let replica = Config::redis().argument("--replicaof").argument(format!("127.0.0.1 {port}"));
    let replica = engines::private(&replica).unwrap();
    let backend = backend(&url(replica.address())).await.unwrap();
    let error = backend.try_acquire(&claim("a")).await.unwrap_err();
    says(&error, ErrorKind::Config, &["replica", "primary", "Sentinel"]);
}

#[tokio::test]
async fn a_redis_without_memory_refuses_new_locks_and_renews_old_ones_and_lets_them_go() {
    let engine =
        engines::private(&Config::redis().argument("--maxmemory-policy").argument("noeviction")).unwrap();
    let locks = locks(&url(engine.address())).await.unwrap();
    let ttl = Duration::from_millis(600);
    let guard = locks.lock("a").ttl(ttl).acquire().await.unwrap();
    let readers = [(); 2].map(|()| locks.lock("r").ttl(ttl).shared().acquire());
    let readers = futures_util::future::try_join_all(readers).await.unwrap();
    cli(engine.address(), &["CONFIG", "SET", "maxmemory", "1"]);
    let error = locks.lock("b").acquire().await.unwrap_err();
    says(&error, ErrorKind::Unavailable, &["memory"]);
    tokio::time::sleep(2 * ttl).await;
    for guard in readers.into_iter().chain([guard]) {
        guard.check().expect("it is renewed");
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
    cli(engine.address(), &["CONFIG", "SET", "maxmemory", "0"]);
    drop(locks.lock("b").acquire().await.unwrap());
}

#[tokio::test]
async fn a_redis_that_still_loads_its_data_is_unavailable_and_then_is_not() {
    let config = Config::redis().argument("--key-load-delay").argument("10000");
    let config = config.argument("--loading-process-events-interval-bytes").argument("1024");
    let engine = engines::private(&config).unwrap();
    let locks = locks(&url(engine.address())).await.unwrap();
    let before = locks.lock("a").acquire().await.unwrap();
    // Whenever it has loaded a kilobyte, which is one of these, it has a word for its clients.
    let fill = "for i = 1, 300 do redis.call('SET', 'k' .. i, string.rep(tostring(i), 700)) end";
    cli(engine.address(), &["CONFIG", "SET", "rdbcompression", "no"]);
    cli(engine.address(), &["EVAL", fill, "0"]);
    let token = before.token();
    before.release().await.unwrap();
    assert_eq!(cli(engine.address(), &["SAVE"]), "OK");
    engine.kill();
    let starting = std::thread::spawn(move || {
        engine.restart(Data::Kept).unwrap();
        engine
    });
    let mut told = None;
    let mut after = None;
    until("it is up", async || {
        match locks.lock("a").try_acquire().await {
            Ok(guard) => after = guard,
            Err(error) if error.to_string().contains("not ready yet") => told = Some(error),
            Err(error) => assert!(error.kind() != ErrorKind::Unexpected, "{error}"),
        }
        after.is_some()
    })
    .await;
    assert!(after.unwrap().token() > token, "tokens rise over the restart");
    says(&told.expect("loading took its time"), ErrorKind::Unavailable, &["try again"]);
    starting.join().unwrap();
}

#[tokio::test]
async fn scripts_that_redis_forgot_are_sent_again() {
    let engine = engines::private(&Config::redis()).unwrap();
    let locks = locks(&url(engine.address())).await.unwrap();
    let mut last = None;
    for _ in 0..20 {
        let guard = locks.lock("a").acquire().await.unwrap();
        assert!(last < Some(guard.token()));
        last = Some(guard.token());
        cli(engine.address(), &["SCRIPT", "FLUSH"]);
        let waiting = tokio::spawn({
            let locks = locks.clone();
            async move { locks.lock("a").acquire().await.unwrap().release().await.unwrap() }
        });
        until("one waits", async || {
            locks.inspect("a").await.unwrap().is_some_and(|state| !state.waiters.is_empty())
        })
        .await;
        cli(engine.address(), &["SCRIPT", "FLUSH"]);
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        assert_eq!(waiting.await.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn a_redis_that_is_too_old_is_told_so() {
    let unknown = b"-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n-ERR x\r\n-ERR x\r\n";
    let older = impostor(vec![unknown]);
    says(&refusal(&url(older)).await, ErrorKind::Config, &["6.2"]);
    // One that knows HELLO: it answers that, the naming of the client, and then what it is.
    let greeting = b"%1\r\n+proto\r\n:3\r\n+OK\r\n+OK\r\n";
    let old = impostor(vec![greeting, b"$22\r\nredis_version:6.0.16\r\n\r\n"]);
    says(&refusal(&url(old)).await, ErrorKind::Config, &["6.0.16", "6.2"]);
}

/// A server that answers everything with one string of 300 MB, and how much of it was taken.
fn flood() -> (SocketAddr, std::thread::JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let sending = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        assert!(stream.read(&mut [0; 1024]).unwrap() > 0, "it says something first");
        stream.write_all(b"$300000000\r\n").unwrap();
        let (part, mut taken) = (vec![b'x'; 1 << 20], 0);
        while taken < 300_000_000 && stream.write_all(&part).is_ok() {
            taken += part.len();
        }
        taken
    });
    (address, sending)
}

#[tokio::test]
async fn an_endless_answer_is_refused_before_it_fills_the_memory() {
    let (address, sending) = flood();
    let refused = refusal(&url(address)).await;
    says(&refused, ErrorKind::Config, &["is not a Redis"]);
    let taken = tokio::task::spawn_blocking(|| sending.join().unwrap()).await.unwrap();
    assert!(taken < 100 << 20, "{} MB of an answer were read", taken >> 20);
}

#[tokio::test]
async fn a_redis_restarted_empty_goes_on_with_larger_tokens() {
    let engine = engines::private(&Config::redis()).unwrap();
    let locks = locks(&url(engine.address())).await.unwrap();
    let mut last = None;
    for _ in 0..3 {
        let guard = locks.lock("a").ttl(Duration::from_secs(1)).acquire().await.unwrap();
        assert!(last < Some(guard.token()), "{last:?} {:?}", guard.token());
        last = Some(guard.token());
        engine.kill();
        engine.restart(Data::Lost).unwrap();
        let lost = tokio::time::timeout(Duration::from_secs(3), guard.lost()).await;
        lost.expect("the holder hears that Redis has forgotten it");
    }
}

/// Whether a server does not answer, for a while that no server needs that is not blocked.
fn is_silent(address: SocketAddr) -> bool {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(150))).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    stream.read(&mut [0; 16]).is_err()
}

#[tokio::test]
async fn a_script_that_blocks_redis_delays_locks_and_loses_none() {
    let engine = engines::private(&Config::redis()).unwrap();
    let backend = backend(&url(engine.address())).await.unwrap();
    let address = engine.address();
    let blocking = std::thread::spawn(move || {
        let spin = "local t = redis.call('TIME')[1] + 2 while tonumber(redis.call('TIME')[1]) < t do end";
        cli(address, &["EVAL", spin, "0"])
    });
    until("it is blocked", async || is_silent(address)).await;
    let claim = claim("a");
    let attempt = tokio::time::timeout(Duration::from_secs(10), backend.try_acquire(&claim)).await;
    match attempt.expect("it does not hang") {
        Ok(Attempt::Granted(grant)) => drop(backend.release(&grant).await.unwrap()),
        Ok(Attempt::Busy(contention)) => panic!("nobody has it: {contention:?}"),
        Err(error) => panic!("two seconds are no reason to give up: {error}"),
    }
    blocking.join().unwrap();
}
