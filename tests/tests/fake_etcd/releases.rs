//! Releases that lose, replay or overtake: refused by name, or followed under their conditions.

use std::sync::Arc;
use std::time::Duration;

use headwater_control_plane::backend::etcd::auditor::Pinned;
use headwater_control_plane::backend::etcd::{Auditor, EtcdCluster, EtcdConfig, EtcdReader, Metrics};
use headwater_control_plane::backend::{Continuity, Stage};
use headwater_model::{Content, Key, Resource, Revision};
use headwater_process::{Policy, Supervisor};
use headwater_tests::fake_etcd::{Deviation, FakeEtcd, PREFIX, config};
use headwater_tests::follower::Told;

use super::{begin, believed, follow, follow_with, live, says};

fn unsafe_allowed(fake: &FakeEtcd) -> EtcdConfig {
    EtcdConfig { allow_unsafe_etcd: true, ..config(&[fake]) }
}

#[tokio::test]
async fn w23_a_release_whose_progress_overtakes_events_or_that_skips_gaps_is_refused_by_name() {
    for (version, bug) in [("3.5.1", "#15220"), ("3.5.10", "#17529"), ("3.6.0-rc.1", "no stable release")] {
        let fake = FakeEtcd::start().await;
        fake.release(version);
        fake.deviate(Deviation::ProgressAhead(Duration::from_millis(300)));
        fake.fill(10);
        let follower = follow(&fake);
        says(&follower, Stage::Refused, bug).await;
        says(&follower, Stage::Refused, version).await;
        let told = fake.checked(&follower);
        assert_eq!((told.safe, told.loads.len(), fake.seen().creates.len()), (0, 0, 0));
        // An upgrade is seen without a restart of ours.
        fake.release("3.6.16");
        fake.behave();
        fake.equals(&follower).await;
    }
}

#[tokio::test]
async fn w23_where_an_unsafe_release_is_allowed_its_progress_certifies_nothing() {
    let fake = FakeEtcd::start().await;
    fake.release("3.5.1");
    let ahead = Deviation::ProgressAhead(Duration::from_millis(300));
    fake.deviate(ahead.clone());
    fake.fill(10);
    let follower = follow_with(unsafe_allowed(&fake));
    fake.equals(&follower).await;
    live(&follower).await;
    for round in 0..5 {
        fake.put("routes/00001", format!("{{\"round\":{round}}}"));
        fake.delete(&format!("routes/{:05}", round + 2));
        // Time for progress to be asked for while events are on their way.
        tokio::time::sleep(Duration::from_millis(120)).await;
    }
    fake.equals(&follower).await;
    assert_eq!(believed(&follower), 0);
    assert!(fake.played(&ahead) > 10);
}

/// #17529: what is skipped is covered by the next event, and by all progress after it.
#[tokio::test]
async fn w31_under_an_unsafe_release_the_audit_finds_a_gap_that_events_cover_up() {
    let fake = FakeEtcd::start().await;
    fake.release("3.5.10");
    fake.fill(10);
    let settings = unsafe_allowed(&fake);
    let follower = Arc::new(follow_with(settings.clone()));
    fake.equals(&follower).await;
    live(&follower).await;
    fake.deviate(Deviation::EventsLost);
    fake.put("routes/00001", "{\"lost\":1}");
    fake.delete("routes/00002");
    follower.until("both are lost", |_| fake.played(&Deviation::EventsLost) == 2).await;
    fake.behave();
    let after = fake.put("routes/00003", "{\"after\":1}");
    follower.until("the gap is covered up", |told| told.safe >= after).await;
    let supervisor = Supervisor::new("audit");
    let reader = Arc::new(EtcdReader::new(EtcdCluster::new(settings.clone(), Metrics::default()), PREFIX));
    let held = Arc::clone(&follower);
    let pin = Arc::new(move || pinned(&held.told()));
    let auditor = Auditor::new("/apisix", reader, pin, &settings, Metrics::default());
    let findings = auditor.findings();
    let auditing = auditor.run(follower.commands(), supervisor.token());
    supervisor.spawn("audit", Policy::best_effort().dropped_on_cancel(), auditing);
    let broken = fake.heals(&follower).await;
    assert!(broken.iter().all(|breach| breach.contains("a batch certified")), "{broken:?}");
    let found = findings.load_full().expect("a finding");
    assert_eq!(found.keys, ["routes/00001", "routes/00002"]);
    supervisor.cancel();
}

fn pinned(told: &Told) -> Option<Pinned> {
    let mut content = Content::new();
    for (key, (value, create, modified)) in &told.keys {
        let key = Key::new(String::from_utf8_lossy(key).into_owned());
        let resource = Resource::new(key, value.clone().into(), Revision(*create), Revision(*modified));
        content.put(Arc::new(resource));
    }
    let live = told.states.last().is_some_and(|state| state.is_live());
    live.then(|| Pinned { revision: Revision(told.safe), content, others: Vec::new() })
}

/// #18089, #19179.
#[tokio::test]
async fn w7_a_release_that_may_lose_a_deletion_is_read_in_full_at_each_reconnect() {
    let fake = FakeEtcd::start().await;
    fake.release("3.5.15");
    let follower = begin(&fake).await;
    fake.end_streams();
    fake.deviate(Deviation::DeletionsLost);
    fake.delete("routes/00002");
    fake.put("routes/00001", "{\"new\":1}");
    let told = fake.equals(&follower).await;
    assert_eq!(told.loads, [Continuity::First, Continuity::Proven]);
    // The same at the compact revision.
    live(&follower).await;
    fake.end_streams();
    fake.delete("routes/00003");
    fake.compact();
    let told = fake.equals(&follower).await;
    assert_eq!(told.loads, [Continuity::First, Continuity::Proven, Continuity::Unproven]);
}

#[tokio::test]
async fn w23_a_denied_status_asks_for_an_override_and_is_not_old() {
    let fake = FakeEtcd::start().await;
    fake.deviate(Deviation::StatusDenied);
    fake.fill(10);
    let follower = follow(&fake);
    says(&follower, Stage::Refused, "set assume_version").await;
    assert_eq!(fake.checked(&follower).safe, 0);
    let assumed = EtcdConfig { assume_version: Some("3.6.16".to_owned()), ..config(&[&fake]) };
    let follower = follow_with(assumed);
    live(&follower).await;
    fake.equals(&follower).await;
}
