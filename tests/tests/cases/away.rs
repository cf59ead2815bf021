//! C25: etcd is away for long.

use std::time::{Duration, Instant};

use headwater_tests::bench::system::cpu_microseconds;
use headwater_tests::case::{either, is_full};
use headwater_tests::etcd::dependable;
use headwater_tests::planes::{LIMIT, Replica};
use headwater_tests::site::Site;
use headwater_tests::tcp_proxy::TcpProxy;

/// When somebody tried to connect, for a while.
async fn tries(proxy: &TcpProxy, during: Duration) -> Vec<Instant> {
    let (began, mut tries, mut seen) = (Instant::now(), Vec::new(), proxy.accepted());
    while began.elapsed() < during {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = proxy.accepted();
        tries.extend((seen..now).map(|_| Instant::now()));
        seen = now;
    }
    tries
}

/// How long an operator waits for a list.
async fn listed(replica: &Replica) -> Duration {
    let began = Instant::now();
    let (status, said) = replica.command(&["list", "routes"]).await;
    assert!(status.success() && said.contains("routes/3"), "{said}");
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c25_an_etcd_that_is_away_costs_next_to_nothing() {
    if !dependable("c25_an_etcd_that_is_away_costs_next_to_nothing") {
        return;
    }
    let mut site = Site::start().await;
    let (proxies, endpoints) = site.proxies().await;
    let revision = site.routes(0..5).await;
    let replica = site.replica_at("r1", &endpoints, &[]);
    let node = site.node("n1", &replica);
    node.reaches(revision).await;
    replica.live(LIMIT).await;
    let normal = listed(&replica).await;

    site.etcd.kill();
    let away = either(Duration::from_secs(10), Duration::from_secs(300));
    let before = cpu_microseconds(replica.process.id()).unwrap();
    let tries = tries(&proxies[0], away).await;
    let cpu = cpu_microseconds(replica.process.id()).unwrap() - before;
    let share = cpu as f64 / away.as_micros() as f64;
    println!("c25: {away:?} away: {:.2} % of a core, {} tries", share * 100.0, tries.len());
    assert!(share < 0.05, "{cpu} us of {away:?}");
    assert!(!tries.is_empty() && tries.len() as u64 <= away.as_secs(), "{} tries", tries.len());
    if is_full() {
        let gaps: Vec<Duration> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let late = &gaps[gaps.len() / 2..];
        let spread = *late.iter().max().unwrap() - *late.iter().min().unwrap();
        assert!(spread > Duration::from_millis(500), "no jitter: {late:?}");
    }
    let meanwhile = listed(&replica).await;
    println!("c25: a list took {normal:?} before and {meanwhile:?} meanwhile");
    let empty = site.node("empty", &replica);
    empty.answers("/3", 200, "origin", LIMIT).await;
    node.answers("/3", 200, "origin", LIMIT).await;

    site.etcd.restart().await;
    replica.live(LIMIT).await;
    site.routes(5..6).await;
    site.equals(&[&node, &empty]).await;
    assert_eq!(replica.metric("headwater_source_loads_total").await, 1.0, "resumed, not read again");
}
