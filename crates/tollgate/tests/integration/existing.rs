//! Connecting to where a program's own client is connected.

use tollgate_testkit::engines::{self, Config};

async fn is_the_same_engine(url: &str, others: &str) {
    let ours = tollgate::connect(url).await.unwrap();
    let others = tollgate::connect(others).await.unwrap();
    let guard = others.lock("existing").acquire().await.unwrap();
    assert!(ours.lock("existing").try_acquire().await.unwrap().is_none(), "{url} is another engine");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn locks_are_where_the_clients_of_the_program_are() {
    let redis = format!("redis://{}/", engines::shared(&Config::redis()).address());
    let client = redis::Client::open(redis.as_str()).unwrap();
    is_the_same_engine(&tollgate::redis::url_of(&client).unwrap(), &redis).await;

    let address = engines::shared(&Config::postgres()).address();
    let config = format!("host={} port={} user=postgres dbname=postgres", address.ip(), address.port());
    let config: tokio_postgres::Config = config.parse().unwrap();
    let url = format!("postgres://postgres@{address}/postgres");
    is_the_same_engine(&tollgate::postgres::url_of(&config).unwrap(), &url).await;

    let url = format!("mysql://root@{}/test", engines::shared(&Config::mariadb()).address());
    let pool = mysql_async::Pool::from_url(&url).unwrap();
    let opts = pool.get_conn().await.unwrap().opts().clone();
    pool.disconnect().await.unwrap();
    is_the_same_engine(&tollgate::mysql::url_of(&opts).unwrap(), &url).await;
}
