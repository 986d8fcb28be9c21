//! The server's disk: full, or a folder that cannot be written.

use crate::support::{Sandbox, text};

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("file"), "").unwrap();
    let output = sandbox.output(&["serve", "--listen", "127.0.0.1:0", "--data", "file/data"]);
    assert_eq!(output.status.code(), Some(69));
    assert!(text(&output.stderr).contains("file/data"), "{}", text(&output.stderr));
    let output = sandbox.output(&["serve", "--listen", "127.0.0.1:0", "--data", "/proc/data"]);
    assert_eq!(output.status.code(), Some(69));
    assert!(text(&output.stderr).contains("--data"), "{}", text(&output.stderr));
}

mod as_root {
    //! Mounts file systems.

    use rustix::process::Signal;
    use serde_json::json;
    use tollgate_testkit::small_disk::SmallDisk;

    use crate::support::server::Server;
    use crate::support::{Sandbox, eventually};

    #[test]
    fn with_a_full_disk_held_locks_live_on_and_new_ones_wait_for_room() {
        let (sandbox, disk) = (Sandbox::new(), SmallDisk::mount());
        let data = disk.place("root");
        let mut server = Server::start_on(&sandbox, &data, "127.0.0.1:0", &[]);
        let mut client = server.client();
        let (kept, left) = (client.acquire("kept"), client.acquire("left"));
        let rest = disk.fill();
        // The store has some room of its own at first.
        let refused = eventually("the disk is full", || {
            for number in 0..200 {
                let meta = json!({"x": "y".repeat(3_000)});
                let body = json!({"name": format!("fills/{number}"), "owner": format!("{number:032x}"), "meta": meta});
                let answer = client.post("/v1/acquire", &body).unwrap();
                if answer.status == 503 {
                    return Some(answer);
                }
            }
            None
        });
        assert!(refused.body["detail"].as_str().unwrap().contains("disk"), "{refused:?}");
        assert!(refused.head.contains("retry-after: "), "{refused:?}");
        assert_eq!(client.post("/v1/extend", &kept).unwrap().status, 200, "a renewal needs no room");
        assert_eq!(client.post("/v1/release", &left).unwrap().status, 200, "nor does a release");
        let mut longer = kept.clone();
        longer["ttl_ms"] = json!(200_000);
        assert_eq!(
            client.post("/v1/extend", &longer).unwrap().status,
            503,
            "a longer lease has to be stored"
        );
        assert_eq!(client.post("/v1/extend", &kept).unwrap().status, 200, "and costs no renewal");
        assert_eq!(client.get("/readyz").unwrap().status, 200);
        std::fs::remove_file(rest).unwrap();
        let granted = eventually("it grants again", || {
            let answer = client.post("/v1/acquire", &json!({"name": "left"})).unwrap();
            (answer.status == 200).then_some(answer)
        });
        assert!(granted.body["token"].as_u64() > left["token"].as_u64());
        // What was answered survives a crash.
        server.running.signal(Signal::KILL);
        server.running.wait();
        let server = Server::start_on(&sandbox, &data, "127.0.0.1:0", &[]);
        for held in [&kept, &granted.body] {
            assert_eq!(server.client().post("/v1/extend", held).unwrap().status, 200);
        }
    }
}
