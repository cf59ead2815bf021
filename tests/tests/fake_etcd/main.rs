//! What the source does when etcd, a proxy or a cluster does wrong: the real client over real sockets against a fake
//! that plays it. One theme a file; each test names the rules it is about (W1 to W32).
//!
//! Each ends alike: what the follower holds is what the fake holds, or it stays where it was and says why; and
//! nothing in between was certified that had not been delivered. Only where the fake lies although its release may
//! be believed is something broken on the way: then it is found out, and it heals.

use headwater_control_plane::backend::etcd::{EtcdCluster, EtcdConfig, Metrics};
use headwater_control_plane::backend::{SourceEvent, Stage};
use headwater_tests::fake_etcd::{FakeEtcd, PREFIX, config};
use headwater_tests::follower::Follower;

mod auth;
mod catch_up;
mod identity;
mod loading;
mod members;
mod progress;
mod releases;
mod sharing;
mod silence;
mod splitting;
mod storm;
mod writes;

/// Follows one member from nothing.
fn follow(fake: &FakeEtcd) -> Follower {
    follow_with(config(&[fake]))
}

/// The same with other settings.
fn follow_with(config: EtcdConfig) -> Follower {
    Follower::resume(&EtcdCluster::new(config, Metrics::default()), PREFIX, None)
}

/// A correct etcd with some keys, and a follower that holds them and is live.
async fn followed() -> (FakeEtcd, Follower) {
    let fake = FakeEtcd::start().await;
    let follower = begin(&fake).await;
    (fake, follower)
}

/// Writes some keys and follows them.
async fn begin(fake: &FakeEtcd) -> Follower {
    fake.fill(10);
    let follower = follow(fake);
    fake.equals(&follower).await;
    live(&follower).await;
    follower
}

/// Waits until the source is live.
async fn live(follower: &Follower) {
    follower
        .until("the source is live", |told| told.states.last().is_some_and(|state| state.is_live()))
        .await;
}

/// Waits until the source was at this stage with a note that contains a text.
async fn says(follower: &Follower, stage: Stage, text: &str) {
    follower
        .until(text, |told| {
            told.states.iter().any(|state| {
                state.stage == stage && state.note.as_ref().is_some_and(|note| note.contains(text))
            })
        })
        .await;
}

/// How many progress responses were believed.
fn believed(follower: &Follower) -> usize {
    let told = follower.told();
    told.record.iter().filter(|event| matches!(event.as_ref(), SourceEvent::Progress(_))).count()
}
