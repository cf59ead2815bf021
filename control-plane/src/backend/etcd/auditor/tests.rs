use async_trait::async_trait;
use headwater_model::Key;

use super::*;
use crate::backend::Head;
use crate::backend::etcd::EtcdConfig;

/// Answers one state, or that it is compacted.
struct Fixed(Option<Vec<Entry>>);

#[async_trait]
impl Reader for Fixed {
    async fn heads(&self) -> Vec<Head> {
        Vec::new()
    }

    async fn get_at(&self, _: &[u8], _: Revision) -> Result<Option<Entry>, ReadError> {
        Err(ReadError::Refused("not asked for in an audit".to_owned()))
    }

    async fn get(&self, _: &[u8]) -> Result<(Option<Entry>, Head), ReadError> {
        Err(ReadError::Refused("not asked for in an audit".to_owned()))
    }

    async fn list(&self, _: &[u8]) -> Result<(Vec<Entry>, Head), ReadError> {
        Err(ReadError::Refused("not asked for in an audit".to_owned()))
    }

    async fn state_at(&self, revision: Revision) -> Result<Vec<Entry>, ReadError> {
        self.0.clone().ok_or(ReadError::Compacted { revision, oldest: Revision::ZERO })
    }
}

fn entry(key: &'static str, value: &'static str, modified: u64) -> Entry {
    Entry {
        key: Bytes::from_static(key.as_bytes()),
        value: Bytes::from_static(value.as_bytes()),
        create_revision: Revision(2),
        mod_revision: Revision(modified),
    }
}

fn pinned() -> Pinned {
    let mut content = Content::new();
    for id in ["routes/1", "routes/2"] {
        content.put(Arc::new(Resource::new(
            Key::new(id),
            Bytes::from_static(b"{}"),
            Revision(2),
            Revision(5),
        )));
    }
    let gen_id = KeyRevisions {
        key: Bytes::from_static(b"gen_id"),
        create_revision: Revision(2),
        mod_revision: Revision(7),
        value: None,
    };
    Pinned { revision: Revision(9), content, others: vec![gen_id] }
}

fn etcd() -> Vec<Entry> {
    vec![entry("gen_id", "4", 7), entry("routes/1", "{}", 5), entry("routes/2", "{}", 5)]
}

#[test]
fn w31_equal_states_are_equal_and_each_difference_is_named() {
    assert_eq!(compare(&pinned(), etcd()), None);
    let changed = [
        (vec![entry("gen_id", "4", 7), entry("routes/1", "{}", 5)], "routes/2"),
        (vec![entry("gen_id", "4", 7), entry("routes/1", "{}", 5), entry("routes/2", "{} ", 5)], "routes/2"),
        (vec![entry("gen_id", "4", 8), entry("routes/1", "{}", 5), entry("routes/2", "{}", 5)], "gen_id"),
        ([etcd(), vec![entry("routes/3", "{}", 6)]].concat(), "routes/3"),
    ];
    for (entries, key) in changed {
        let finding = compare(&pinned(), entries).expect("a difference");
        assert_eq!((finding.keys.as_slice(), finding.count), ([key.to_owned()].as_slice(), 1));
    }
}

fn auditor(state: Option<Vec<Entry>>) -> Auditor {
    let pin: Pin = Arc::new(|| Some(pinned()));
    Auditor::new("/apisix", Arc::new(Fixed(state)), pin, &EtcdConfig::default(), Metrics::default())
}

#[tokio::test(start_paused = true)]
async fn a_difference_is_kept_and_asks_for_a_reload() {
    let auditor = auditor(Some(vec![]));
    let findings = auditor.findings();
    let (commands, mut asked) = mpsc::channel(1);
    let stop = CancellationToken::new();
    let audit = auditor.run(commands, stop.clone());
    let watch = async {
        let SourceCommand::Reload { reason, .. } = asked.recv().await.expect("asked");
        stop.cancel();
        reason
    };
    let ((), reason) = tokio::join!(audit, watch);
    assert!(reason.contains("3 keys"), "{reason}");
    assert_eq!(findings.load().as_ref().map(|finding| finding.count), Some(3));
}

#[tokio::test(start_paused = true)]
async fn a_compacted_audit_is_tried_again_sooner_and_changes_nothing() {
    let start = tokio::time::Instant::now();
    let (commands, mut asked) = mpsc::channel(1);
    let pins = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let stop = CancellationToken::new();
    let (counted, end) = (Arc::clone(&pins), stop.clone());
    let pin: Pin = Arc::new(move || {
        if counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 3 {
            end.cancel();
        }
        Some(pinned())
    });
    let config = EtcdConfig::default();
    Auditor::new("/apisix", Arc::new(Fixed(None)), pin, &config, Metrics::default())
        .run(commands, stop)
        .await;
    // One interval at most before the first, and a tenth of it before each of the others.
    assert!(start.elapsed() < config.audit_interval.mul_f64(1.31));
    assert!(asked.try_recv().is_err());
}
