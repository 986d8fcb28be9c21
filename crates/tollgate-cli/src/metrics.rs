//! Metrics of a command that runs for long, in the text format of Prometheus at `/metrics`.

use std::convert::Infallible;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::net::{TcpListener, TcpStream};
use tollgate::{Error, ErrorKind, Result};

/// How often histograms are cleaned up; they keep every number until then.
const TIDIED: Duration = Duration::from_secs(5);
/// How long a collector may take to send its request, and the pause after a failed accept.
const TO_ASK: Duration = Duration::from_secs(10);
const BREATH: Duration = Duration::from_millis(50);

/// Records metrics in this process from now on, and serves them on `listener`.
pub(crate) fn serve(listener: TcpListener) -> Result<()> {
    let numbers = PrometheusBuilder::new().install_recorder().map_err(|error| {
        Error::new(ErrorKind::Unexpected, "metrics cannot be recorded; leave --metrics out").caused_by(error)
    })?;
    let tidied = numbers.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(TIDIED).await;
            tidied.run_upkeep();
        }
    });
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(show(stream, numbers.clone()))),
                Err(_) => tokio::time::sleep(BREATH).await,
            }
        }
    });
    Ok(())
}

async fn show(stream: TcpStream, numbers: PrometheusHandle) {
    let answer = service_fn(|request| {
        let shown = shown(&request, &numbers);
        async move { Ok::<_, Infallible>(shown) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(TO_ASK);
    // A collector that disconnects early is no error of ours.
    let _ = server.serve_connection(TokioIo::new(stream), answer).await;
}

fn shown<B>(request: &hyper::Request<B>, numbers: &PrometheusHandle) -> Response<String> {
    if request.uri().path() != "/metrics" {
        let mut nothing = Response::new("not found; the metrics are at /metrics\n".to_owned());
        *nothing.status_mut() = StatusCode::NOT_FOUND;
        return nothing;
    }
    let mut response = Response::new(numbers.render());
    let kind = hyper::header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
    response
}
