//! The plainest HTTP question: GET, status, body.

use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// How long one question may take.
const LIMIT: Duration = Duration::from_secs(5);

/// Asks `http://<address><path>` on a connection of its own.
///
/// # Errors
/// When there is no whole answer within 5 s; a status is an answer, whatever it is.
pub async fn get(address: &str, path: &str) -> Result<(u16, String)> {
    get_within(address, path, LIMIT).await
}

/// As [`get`], within `limit`: for what is large.
///
/// # Errors
/// As [`get`].
pub async fn get_within(address: &str, path: &str, limit: Duration) -> Result<(u16, String)> {
    let target = format!("http://{address}{path}").parse().context("build the URL")?;
    let ask = async {
        let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        let answer = client.get(target).await.context("ask")?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.context("read the body")?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    };
    tokio::time::timeout(limit, ask)
        .await
        .with_context(|| format!("GET {address}{path}: no answer in {limit:?}"))?
}
