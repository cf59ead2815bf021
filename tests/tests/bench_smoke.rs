//! The benchmark runs, measures, and compares: small, so that every test run shows it.

use std::time::Duration;

use headwater_tests::etcd::dependable;
use headwater_tests::process::Program;
use serde_json::Value;

/// The fields that readers of the line rely on.
const FIELDS: [&str; 29] = [
    "received_p50_ms",
    "received_p95_ms",
    "received_p99_ms",
    "all_p50_ms",
    "all_p99_ms",
    "acked_all_p99_ms",
    "control_plane_cpu_us_per_delivery",
    "control_plane_rss_kib_per_node",
    "bytes_per_delivery",
    "etcd_put_p50_ms",
    "direct_received_p50_ms",
    "direct_received_p95_ms",
    "direct_received_p99_ms",
    "direct_cpu_us_per_delivery",
    "direct_rss_kib_per_node",
    "json_received_p95_ms",
    "grpc_proxy_received_p95_ms",
    "grpc_proxy_cpu_us_per_delivery",
    "floor_p50_ms",
    "floor_cpu_us_per_delivery",
    "bare_tonic_cpu_us_per_delivery",
    "bare_tonic_rss_kib_per_node",
    "control_plane_rss_kib_per_idle_node",
    "control_plane_idle_cpu_percent",
    "nodes",
    "resources",
    "etcd_watchers",
    "etcd_watch_streams",
    "etcd_connections",
];

#[tokio::test]
async fn a_small_fleet_is_fed_measured_and_compared() {
    if !dependable("a_small_fleet_is_fed_measured_and_compared") {
        return;
    }
    let program = Program::new(env!("CARGO_BIN_EXE_bench")).args([
        "fleet",
        "--nodes=20",
        "--updates=20",
        "--rate=50",
        "--resources=30",
        "--value-bytes=512",
        "--heartbeat=1",
        "--idle=1",
        "--against=direct,json,grpc-proxy,floor,bare-tonic",
        "--json",
    ]);
    let (status, lines) = program.run(Duration::from_secs(600)).await;
    assert!(status.success(), "{lines:#?}");
    let line = lines.iter().find(|line| line.starts_with('{')).expect("a line of JSON");
    let report: Value = serde_json::from_str(line).expect("valid JSON");
    for field in FIELDS {
        assert!(report[field].is_number(), "{field} in {line}");
    }
    let count = |field: &str| report[field].as_u64();
    assert_eq!((count("nodes"), count("resources")), (Some(20), Some(30)), "{line}");
    assert_eq!((count("deliveries"), count("complete")), (Some(400), Some(20)), "{line}");
    assert_eq!((count("etcd_watchers"), count("etcd_watch_streams")), (Some(1), Some(1)), "{line}");
    assert_eq!((count("lost_connections"), count("compared_nodes")), (Some(0), Some(20)), "{line}");
    assert!(report["bytes_per_delivery"].as_f64() > Some(512.0), "{line}");
    assert!(report["received_p50_ms"].as_f64() > Some(0.0), "{line}");
}
