//! Tokens and permissions that end while everything else goes on.

use headwater_control_plane::backend::etcd::EtcdConfig;
use headwater_control_plane::backend::{Continuity, Stage};
use headwater_process::settings::Secret;
use headwater_tests::fake_etcd::{Deviation, FakeEtcd, config};
use headwater_tests::follower::Follower;

use super::{follow_with, live, says};

/// An etcd that asks for a token, and a live follower with one.
async fn authenticated() -> (FakeEtcd, Follower) {
    let fake = FakeEtcd::start().await;
    fake.require_auth("headwater", "secret");
    fake.fill(10);
    let settings = EtcdConfig {
        user: Some("headwater".to_owned()),
        password: Some(Secret::new("secret".to_owned())),
        ..config(&[&fake])
    };
    let follower = follow_with(settings);
    fake.equals(&follower).await;
    live(&follower).await;
    (fake, follower)
}

#[tokio::test]
async fn w24_a_watch_created_and_cancelled_for_its_token_is_opened_again_with_another() {
    for reason in [
        "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token",
        "rpc error: code = InvalidArgument desc = etcdserver: revision of auth store is old",
    ] {
        let (fake, follower) = authenticated().await;
        let tokens = fake.seen().authenticated;
        // An end that is the stream's own: the connection stays, with its token.
        fake.deviate_times(1, Deviation::EndsAfter(0));
        fake.deviate_times(1, Deviation::WatchRefused(reason));
        fake.put("routes/00001", "{\"new\":1}");
        fake.has_played(&Deviation::EndsAfter(0)).await;
        fake.delete("routes/00002");
        let told = fake.equals(&follower).await;
        live(&follower).await;
        assert_eq!(fake.played(&Deviation::WatchRefused(reason)), 1);
        assert!(fake.seen().authenticated > tokens, "{reason}");
        assert!(told.states.iter().all(|state| state.stage != Stage::Refused), "{:?}", told.states);
        assert_eq!(told.loads, [Continuity::First]);
    }
}

#[tokio::test]
async fn w24_a_watch_created_and_cancelled_for_want_of_permission_says_so_and_keeps_what_is_held() {
    for reason in [
        "rpc error: code = PermissionDenied desc = etcdserver: permission denied",
        "rpc error: code = InvalidArgument desc = etcdserver: user name is empty",
    ] {
        let (fake, follower) = authenticated().await;
        let before = follower.told();
        fake.end_streams();
        fake.deviate(Deviation::WatchRefused(reason));
        fake.delete("routes/00002");
        says(&follower, Stage::Refused, "check the user, its password and that it may read the whole prefix")
            .await;
        let told = fake.checked(&follower);
        assert_eq!((told.keys, told.safe), (before.keys, before.safe));
        fake.behave();
        let told = fake.equals(&follower).await;
        live(&follower).await;
        assert_eq!(told.loads, [Continuity::First]);
    }
}

#[tokio::test]
async fn w24_a_token_that_expires_between_check_and_watch_is_renewed() {
    let (fake, follower) = authenticated().await;
    // An open watch goes on: tokens are looked at only as it is created.
    fake.expire_tokens();
    fake.put("routes/00001", "{\"new\":1}");
    fake.equals(&follower).await;
    fake.end_streams();
    fake.deviate_times(2, Deviation::TokensExpireAtWatch);
    fake.delete("routes/00002");
    let told = fake.equals(&follower).await;
    live(&follower).await;
    assert_eq!(fake.played(&Deviation::TokensExpireAtWatch), 2);
    assert_eq!(told.loads, [Continuity::First]);
}

#[tokio::test]
async fn w24_a_change_of_roles_makes_tokens_old_and_leads_to_another() {
    let (fake, follower) = authenticated().await;
    let tokens = fake.seen().authenticated;
    fake.change_roles();
    // An end that is the stream's own: the connection stays, with its token.
    fake.deviate_times(1, Deviation::EndsAfter(0));
    fake.put("routes/00001", "{\"new\":1}");
    fake.has_played(&Deviation::EndsAfter(0)).await;
    fake.delete("routes/00002");
    let told = fake.equals(&follower).await;
    live(&follower).await;
    assert!(fake.seen().authenticated > tokens);
    assert_eq!(told.loads, [Continuity::First]);
}
