//! The demo route, and the commands to try.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use headwater_control_plane::app::Addresses as ReplicaAddresses;
use headwater_data_plane::app::Addresses as NodeAddresses;
use headwater_proto::admin::{ApplyRequest, Write};
use serde_json::json;
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::arguments::Connection;
use crate::connection::Replica;
use crate::exit::Error;

/// Writes the demo upstream and its route, as soon as the replica takes writes.
pub(crate) async fn write(admin: &Connection, upstream: SocketAddr, within: Duration) -> Result<(), Error> {
    let replica = Replica::connect(admin).await?;
    let deadline = Instant::now() + within;
    let mut nodes = serde_json::Map::new();
    nodes.insert(upstream.to_string(), json!(1));
    let upstream = json!({ "desc": "the demo upstream of headwater dev", "nodes": nodes });
    let route = json!({ "uri": "/hello*", "upstream_id": "demo" });
    let writes = [("upstreams/demo", upstream), ("routes/demo", route)];
    let writes: Vec<Write> = writes
        .into_iter()
        .map(|(key, value)| Write {
            key: key.to_owned(),
            value: Some(value.to_string().into_bytes()),
            ..<_>::default()
        })
        .collect();
    loop {
        let request = ApplyRequest { writes: writes.clone(), ..<_>::default() };
        match replica.resources().apply(request).await {
            Ok(_) => return Ok(()),
            Err(status) if not_yet(&status) && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(status) => return Err(status.into()),
        }
    }
}

fn not_yet(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::FailedPrecondition)
}

/// What is printed once everything runs.
pub(crate) fn welcome(store: &str, replica: &ReplicaAddresses, node: &NodeAddresses) -> String {
    let gateway = node.http.first().map_or_else(String::new, ToString::to_string);
    let program = program();
    let server = match replica.admin.port() {
        9180 => String::new(),
        _ => format!(" --server {}", replica.admin),
    };
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "Headwater runs on {store}.

  gateway        http://{gateway}
  admin          {admin} (gRPC, plain text, loopback only)
  node status    http://{status}/status/config

Try, in another terminal:

  curl -i http://{gateway}/hello
  {program} --insecure{server} put routes/mine '{{\"uri\": \"/mine\", \"upstream_id\": \"demo\"}}' --wait
  {program} --insecure{server} nodes

Ctrl-C ends it.
",
        admin = replica.admin,
        status = node.health,
    );
    text
}

/// How the reader can call this program: by its name when that is on the path, else by where it is.
fn program() -> String {
    let on_path = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join("headwater").is_file()));
    if on_path {
        return "headwater".to_owned();
    }
    let Ok(program) = std::env::current_exe() else { return "headwater".to_owned() };
    let here = std::env::current_dir().ok();
    let relative = here.and_then(|here| program.strip_prefix(here).ok().map(Path::to_path_buf));
    relative.unwrap_or(program).display().to_string()
}
