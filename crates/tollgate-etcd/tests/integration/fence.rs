//! Writes that etcd applies only while a lock is held.

use crate::support::{ctl, secs, url};
use tollgate_core::{ErrorKind, Revocation};
use tollgate_testkit::engines::{self, Config};

#[tokio::test]
async fn a_holder_that_lost_its_lock_cannot_write() {
    let engine = engines::shared(&Config::etcd());
    for parameters in ["", "?namespace=team&prefix=/other/"] {
        let url = format!("{}{parameters}", url(engine));
        let (locks, fence) = (tollgate::connect(&url).await.unwrap(), tollgate::etcd::fence(&url).unwrap());
        let old = locks.lock("total").ttl(secs(60)).acquire().await.unwrap();
        let stale = old.grant().clone();
        fence.guarded(&stale).unwrap().put("total", "1").put("draft", "x").commit().await.unwrap();
        assert_eq!(locks.revoke_by_force("total", old.token()).await.unwrap(), Revocation::Revoked);
        let new = locks.lock("total").ttl(secs(60)).acquire().await.unwrap();
        // Between the two, also before the new holder has written anything.
        let refused = fence.guarded(&stale).unwrap().put("total", "stale").commit().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Lost);
        assert_eq!(ctl(engine.address(), &["get", "--print-value-only", "total"]), "1");
        fence.guarded(new.grant()).unwrap().put("total", "2").delete("draft").commit().await.unwrap();
        assert_eq!(ctl(engine.address(), &["get", "--print-value-only", "total"]), "2");
        assert_eq!(ctl(engine.address(), &["get", "draft"]), "", "all of it is written, or nothing");
        new.release().await.unwrap();
        let refused = fence.guarded(&stale).unwrap().put("total", "stale").commit().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Lost, "a free lock is not one's own");
    }
}

#[tokio::test]
async fn a_lock_s_key_is_what_etcd_has() {
    let engine = engines::shared(&Config::etcd());
    let url = url(engine);
    let (locks, fence) = (tollgate::connect(&url).await.unwrap(), tollgate::etcd::fence(&url).unwrap());
    let guard = locks.lock("seen").ttl(secs(60)).acquire().await.unwrap();
    let lock = fence.key(guard.grant()).unwrap();
    let fields = ctl(engine.address(), &["get", "-w", "fields", &String::from_utf8(lock.key).unwrap()]);
    assert!(fields.contains(&format!("\"CreateRevision\" : {}", lock.create_revision)), "{fields}");
    assert_eq!(guard.token().get(), lock.create_revision.unsigned_abs());
    let permit = locks.lock("pool").permit(2).ttl(secs(60)).acquire().await.unwrap();
    assert_eq!(fence.key(permit.grant()).unwrap_err().kind(), ErrorKind::Unsupported);
}
