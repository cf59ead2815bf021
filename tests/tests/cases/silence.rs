//! C01, C05, C06: a watch, a host, a process that say nothing more, and close nothing.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use headwater_tests::case::{either, times};
use headwater_tests::etcd::{Options, dependable};
use headwater_tests::eventually::eventually;
use headwater_tests::h2_proxy::{H2Proxy, Reach};
use headwater_tests::history::Record;
use headwater_tests::keys::route;
use headwater_tests::planes::{LIMIT, LIVENESS, Replica, WATCH};
use headwater_tests::site::Site;
use headwater_tests::tcp_proxy::{Direction, Fault};
use serde_json::Value;

/// After so long without a frame a replica holds its watch for dead.
fn liveness() -> Duration {
    either(LIVENESS, Duration::from_secs(15))
}

/// What a change may take beyond that: another connection, the proof, the watch, and the second hop.
const REST: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c01_a_watch_that_goes_silent_loses_nothing() {
    if !dependable("c01_a_watch_that_goes_silent_loses_nothing") {
        return;
    }
    let site = Site::start().await;
    let proxy = H2Proxy::start(site.etcd.address()).await;
    let rounds: usize = either(2, 5);
    site.routes(0..20).await;
    let replica = site.replica_at("r1", &[format!("http://{}", proxy.address)], times());
    let nodes = ["n1", "n2"].map(|id| site.node(id, &replica));
    let record = Record::start(&site.etcd, &nodes).await;
    // The watch answers; only then is it silenced.
    let mut last = site.keys.put("routes/live", &route("/live", "1")).await;
    for round in 0..rounds {
        for node in &nodes {
            node.reaches(last).await;
        }
        let before = proxy.seen(WATCH);
        proxy.swallow(WATCH, Reach::OpenNow);
        let began = Instant::now();
        for id in 0..19 {
            let uri = format!("/{id}-{round}");
            last = site.keys.put(&format!("routes/{id}"), &route(&uri, "1")).await;
        }
        last = last.max(site.keys.delete("routes/19").await);
        for node in &nodes {
            node.equals(&site.keys, (liveness() + REST).saturating_sub(began.elapsed())).await;
            node.answers(&format!("/0-{round}"), 200, "origin", LIMIT).await;
        }
        println!("c01: 20 changes reached both nodes {:?} after the watch fell silent", began.elapsed());
        last = last.max(site.routes(19..20).await);
        let after = proxy.seen(WATCH);
        assert!(after.swallowed > before.swallowed, "nothing was swallowed, so nothing is shown: {after:?}");
        assert!(after.opened > before.opened, "no other watch was opened: {before:?} {after:?}");
    }
    shown_by_the_recorder(&replica, rounds).await;
    record.kept().await;
}

/// The same for the bytes of the whole connection: they flow again before anybody noticed, or after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c01_a_connection_that_goes_silent_loses_nothing() {
    if !dependable("c01_a_connection_that_goes_silent_loses_nothing") {
        return;
    }
    let site = Site::start().await;
    let (proxies, endpoints) = site.proxies().await;
    site.routes(0..20).await;
    let replica = site.replica_at("r1", &endpoints, times());
    let nodes = ["n1", "n2"].map(|id| site.node(id, &replica));
    for (round, silence) in [liveness() / 2, liveness() + Duration::from_secs(2)].into_iter().enumerate() {
        site.equals(&[&nodes[0], &nodes[1]]).await;
        replica.live(LIMIT).await;
        proxies[0].set(Direction::Down, Fault { freeze: true, ..Fault::default() });
        for id in 0..20 {
            let uri = format!("/{id}-{round}");
            site.keys.put(&format!("routes/{id}"), &route(&uri, "1")).await;
        }
        // The silence itself.
        tokio::time::sleep(silence).await;
        proxies[0].heal();
        let began = Instant::now();
        for node in &nodes {
            node.equals(&site.keys, REST.saturating_sub(began.elapsed())).await;
        }
        println!("c01: after {silence:?} of silence, 20 changes reached both nodes in {:?}", began.elapsed());
    }
}

/// W32: afterwards it is to be seen what the watch answered, and that silence certified nothing.
async fn shown_by_the_recorder(replica: &Replica, rounds: usize) {
    let (status, text) = replica.command(&["source", "recorder", "--last", "0", "-o", "json"]).await;
    assert!(status.success(), "{text}");
    let shown: Value = serde_json::from_str(&text).unwrap();
    let records = shown["records"].as_array().unwrap();
    let kinds = |kind: &str| records.iter().filter(|record| record["kind"] == kind).count();
    for kind in ["opening", "created", "events"] {
        assert!(kinds(kind) > rounds, "{kind}: {text}");
    }
    assert!(kinds("ended") >= rounds, "{text}");
    let mut safe = 0;
    for record in records {
        let now = record["safe_revision"].as_u64().unwrap_or_default();
        let certified = match record["kind"].as_str().unwrap() {
            "events" => record["last_revision"].as_u64().unwrap(),
            "progress" => record["header_revision"].as_u64().unwrap(),
            // The full read and what was buffered meanwhile are no responses, and come with the first one.
            _ if safe == 0 => now,
            _ => safe,
        };
        assert!(safe <= now && now <= certified.max(safe), "{record} after {safe}");
        safe = now;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c05_a_host_that_is_gone_without_a_word_is_left_for_another_member() {
    if !dependable("c05_a_host_that_is_gone_without_a_word_is_left_for_another_member") {
        return;
    }
    let site = Site::start_with(Options { members: 3, ..Options::default() }).await;
    let (proxies, endpoints) = site.proxies().await;
    let replica = site.replica_at("r1", &endpoints, times());
    let node = site.node("n1", &replica);
    site.equals(&[&node]).await;
    let member = replica.live(LIMIT).await;
    let proof = replica.metric("headwater_source_proof_timestamp_seconds").await;
    assert!(now() - proof <= 2.0 + either(1.0, 5.0), "live without proof");

    let of_member = endpoints.iter().position(|endpoint| *endpoint == member).unwrap();
    proxies[of_member].freeze();
    let began = Instant::now();
    // Not a moment longer than the limit of silence; what else it takes is the clock of the test.
    let noticed = liveness() + Duration::from_secs(3);
    let shown = replica.shows("that it is not live", noticed, |it| it["source"]["stage"] != "live").await;
    println!("c05: {:?} after {member} was gone: {}", began.elapsed(), shown["source"]);
    let proof = replica.metric("headwater_source_proof_timestamp_seconds").await;
    assert!(now() - proof + 1.0 >= liveness().as_secs_f64() / 2.0, "the metric hides the gap");
    let next = replica.live(LIMIT).await;
    assert_ne!(next, member);
    let revision = site.keys.put("routes/new", &route("/new", "1")).await;
    node.reaches(revision).await;
    println!("c05: at {next} and with a new change on the node after {:?}", began.elapsed());

    // The others too: nothing is invented, and everybody says since when.
    proxies.iter().for_each(headwater_tests::tcp_proxy::TcpProxy::freeze);
    let shown = replica.shows("that it is not live", noticed, |it| it["source"]["stage"] != "live").await;
    assert!(shown["degraded"].as_str().unwrap().contains("last proven alive"), "{shown}");
    node.shows("that it may be behind", |it| it["proof"]["stale_since_unix"].as_u64() > Some(0)).await;
    node.answers("/new", 200, "origin", LIMIT).await;
    let age = |it: &Value| it["source"]["proof_age_ms"].as_u64() > Some(5_000);
    replica.shows("the age of its proof", LIMIT, age).await;
    proxies.iter().for_each(headwater_tests::tcp_proxy::TcpProxy::heal);
    let revision = site.keys.delete("routes/new").await;
    node.reaches(revision).await;
    site.equals(&[&node]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c06_a_frozen_etcd_is_called_stale_and_followed_when_it_thaws() {
    if !dependable("c06_a_frozen_etcd_is_called_stale_and_followed_when_it_thaws") {
        return;
    }
    let site = Site::start().await;
    let replica = site.replica("r1", times());
    let node = site.node("n1", &replica);
    site.equals(&[&node]).await;
    replica.live(LIMIT).await;
    let (frozen, began) = (either(Duration::from_secs(5), Duration::from_secs(60)), Instant::now());
    site.etcd.pause();
    let noticed = liveness() + Duration::from_secs(3);
    let shown = replica.shows("that it is stale", noticed, |it| it["source"]["stage"] != "live").await;
    println!("c06: {:?} into the stop: {}", began.elapsed(), shown["degraded"]);
    assert!(shown["degraded"].as_str().unwrap().contains("last proven alive"), "{shown}");
    node.shows("since when it may be behind", |it| it["proof"]["stale_since_unix"].as_u64() > Some(0)).await;
    // Its own queue: these wait in its sockets until it goes on.
    tokio::time::sleep(frozen.saturating_sub(began.elapsed() + Duration::from_secs(2))).await;
    let writes: Vec<_> = (0..10)
        .map(|id| {
            let keys = site.keys.clone();
            async move { keys.put(&format!("routes/{id}"), &route(&format!("/{id}"), "1")).await }
        })
        .collect();
    let thaw = async {
        tokio::time::sleep(frozen.saturating_sub(began.elapsed())).await;
        site.etcd.resume();
        Instant::now()
    };
    let (_, thawed) = tokio::join!(futures_util::future::join_all(writes), thaw);
    node.equals(&site.keys, REST.saturating_sub(thawed.elapsed())).await;
    println!("c06: equal {:?} after {frozen:?} of standstill ended", thawed.elapsed());
    eventually("the node is live again", LIMIT, || async {
        let status = node.status().await.map_err(|error| format!("{error:#}"))?;
        if status["proof"]["stale_since_unix"].is_null() { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    let loads = replica.metric("headwater_source_loads_total").await;
    assert_eq!(loads, 1.0, "resumed, not read again");
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}
