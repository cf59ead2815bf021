//! `/livez`, `/readyz` and `/metrics`, as an axum router that a plane extends with its own pages.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::Readiness;

/// What OpenMetrics text is served as.
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone)]
struct Sources {
    readiness: Readiness,
    registry: Arc<Registry>,
}

/// The three pages.
///
/// `/livez` answers 200 while the process runs. `/readyz` answers 200 or 503, and its body names what is pending,
/// given up or failed. `/metrics` is OpenMetrics text.
pub fn router(readiness: Readiness, registry: Arc<Registry>) -> Router {
    Router::new()
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(Sources { readiness, registry })
}

async fn readyz(State(sources): State<Sources>) -> (StatusCode, String) {
    let report = sources.readiness.report();
    let status = if report.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, report.to_string())
}

async fn metrics(State(sources): State<Sources>) -> Response {
    let mut text = String::new();
    match encode(&mut text, &sources.registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("metrics: {error}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::{Policy, Supervisor, telemetry};

    /// Serves the router on a real socket and answers the whole response to `GET path`.
    async fn get(router: Router, path: &str) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let supervisor = Supervisor::new("test");
        supervisor.spawn("server", Policy::best_effort().dropped_on_cancel(), async move {
            axum::serve(listener, router).await
        });
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        supervisor.cancel();
        answer
    }

    #[tokio::test]
    async fn readyz_is_503_with_the_pending_names_and_then_200() {
        let readiness = Readiness::new();
        let condition = readiness.condition("environment /apisix");
        let pages = router(readiness.clone(), Arc::new(telemetry::registry()));
        let answer = get(pages.clone(), "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.ends_with("not ready\npending: environment /apisix: not started\n"), "{answer}");
        condition.met();
        assert!(get(pages.clone(), "/readyz").await.starts_with("HTTP/1.1 200"));
        readiness.begin_drain();
        assert!(get(pages.clone(), "/readyz").await.starts_with("HTTP/1.1 503"));
        assert!(get(pages, "/livez").await.starts_with("HTTP/1.1 200"));
    }

    #[tokio::test]
    async fn metrics_are_openmetrics_text_under_our_name() {
        let mut registry = telemetry::registry();
        let refused = Counter::<u64>::default();
        registry.register("nodes_refused", "Nodes refused at the door", refused.clone());
        refused.inc_by(3);
        let answer = get(router(Readiness::new(), Arc::new(registry)), "/metrics").await;
        assert!(answer.contains(OPENMETRICS), "{answer}");
        assert!(answer.contains("headwater_nodes_refused_total 3"), "{answer}");
        assert!(answer.trim_end().ends_with("# EOF"), "{answer}");
    }
}
