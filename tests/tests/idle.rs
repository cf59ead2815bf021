//! Idle is ready: where nothing happens for a week, nobody reports unready and nobody reconnects.
//!
//! Both planes as they are, in this process, with real sockets and files on the embedded store; only the clock is
//! virtual. It moves by itself whenever there is nothing left to do, from one timer to the next, so that every
//! heartbeat takes place. (Idleness between a replica and etcd is the tracker's, in the simulation.)

#![expect(clippy::unwrap_used, reason = "a test ends at the first thing that is not as it should be")]

use std::path::Path;
use std::time::Duration;

use headwater_control_plane::app as control_plane;
use headwater_data_plane::app as data_plane;
use headwater_process::settings::{self, Sources};
use headwater_proto::admin::PutRequest;
use headwater_proto::admin::resources_client::ResourcesClient;
use headwater_tests::http;
use serde_json::Value;

const HOUR: Duration = Duration::from_secs(3600);

async fn replica(folder: &Path) -> control_plane::Bound {
    let text = format!(
        "replica_id: r1\nstate_dir: {0}/state\nembedded: {{directory: {0}/store}}\n\
         southbound: {{listen: '127.0.0.1:0', insecure: true}}\n\
         admin: {{listen: '127.0.0.1:0', insecure: true}}\nhealth: {{listen: '127.0.0.1:0'}}\n",
        folder.display()
    );
    control_plane::start(settings::load(Sources::new().text("replica", text)).unwrap()).await.unwrap()
}

async fn node(folder: &Path, replica: &control_plane::Bound) -> data_plane::Running {
    let text = format!(
        "node_id: n1\ndata_dir: {}/node\n\
         control_plane: {{addresses: ['{}'], insecure: true}}\n\
         proxy: {{http: ['127.0.0.1:0'], https: [], access_log: {{to: 'off'}}}}\n\
         listen: {{health: '127.0.0.1:0', control: '127.0.0.1:0'}}\n",
        folder.display(),
        replica.addresses.southbound
    );
    std::fs::create_dir_all(folder.join("node")).unwrap();
    let config = settings::load(Sources::new().text("node", text)).unwrap();
    data_plane::bind(&config).await.unwrap().start(config)
}

async fn status(address: &str) -> Value {
    let (code, body) = http::get(address, "/status/config").await.unwrap();
    assert_eq!(code, 200);
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn an_hour_and_a_week_without_an_event_leave_both_planes_ready_on_one_stream() {
    let folder = tempfile::tempdir().unwrap();
    let replica = replica(folder.path()).await;
    let node = node(folder.path(), &replica).await;
    let pages = [replica.addresses.health.to_string(), node.addresses.health.to_string()];
    while http::get(&pages[0], "/readyz").await.unwrap().0 != 200 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let admin = format!("http://{}", replica.addresses.admin);
    let value = br#"{"type":"roundrobin","nodes":{"127.0.0.1:80":1}}"#.to_vec();
    let put = PutRequest { key: "upstreams/1".into(), value, ..PutRequest::default() };
    ResourcesClient::connect(admin).await.unwrap().put(put).await.unwrap();
    while status(&pages[1]).await["resources"] != 1 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let before = status(&pages[1]).await;

    tokio::time::pause();
    for hours in [1, 7 * 24 - 1] {
        tokio::time::sleep(HOUR * hours).await;
        for page in &pages {
            let (code, body) = http::get(page, "/readyz").await.unwrap();
            assert_eq!(code, 200, "after {hours} h more: {body}");
        }
    }
    let after = status(&pages[1]).await;
    for unmoved in ["connection", "connections_lost", "transfers"] {
        assert_eq!(after["stream"][unmoved], before["stream"][unmoved], "{unmoved}: {after}");
    }
    assert!(after["proof"]["replica_age_seconds"].as_f64().unwrap() < 10.0, "{after}");
    drop(node.shutdown().await);
    replica.shutdown().await;
}
