use std::time::Duration;

use bytes::Bytes;
use headwater_model::{Generation, Revision};
use headwater_process::Supervisor;
use headwater_proto::config::{Ack, Approval, Bye, Hello};

use super::*;
use crate::backend::{Batch, Continuity, Entry, Load, SourceEvent};
use crate::fleet::{FleetEvent, Happened};

fn entry(key: &str, create: u64, modified: u64) -> Entry {
    Entry {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::from(format!("{{\"at\":{modified}}}")),
        create_revision: Revision(create),
        mod_revision: Revision(modified),
    }
}

fn step(core: &mut Core, disk: &mut Disk, event: SourceEvent) {
    let effects = core.on_event(event, Duration::ZERO, 7);
    disk.write(&Job::new(effects.keep, core)).unwrap();
}

fn loaded(revision: u64, entries: Vec<Entry>, continuity: Continuity) -> SourceEvent {
    SourceEvent::Loaded(Load {
        cluster_id: 9,
        revision: Revision(revision),
        entries,
        continuity,
        generation: Generation(0),
    })
}

fn batch(revision: u64, events: Vec<KeyEvent>) -> SourceEvent {
    SourceEvent::Batch(Batch::new(Revision(revision), events))
}

fn reopened(path: &std::path::Path) -> Core {
    let (_, opened) = LastKnownGood::open(path, "/apisix", &Keys::default()).unwrap();
    assert_eq!(opened.faults, Vec::<String>::new());
    resume(opened.saved.unwrap(), &"default".into(), 8).0
}

fn assert_same(left: &Core, right: &Core) {
    let (a, b) = (left.store().snapshot(), right.store().snapshot());
    assert_eq!(a.version(), b.version());
    assert_eq!(a.content(), b.content());
    assert_eq!(a.deletions_known_since(), b.deletions_known_since());
    assert_eq!(a.gaps(), b.gaps());
    assert!(a.tombstones().eq(b.tombstones()));
    let changed = |core: &Core| -> Vec<_> {
        core.store()
            .snapshot()
            .all_held()
            .map(|held| (held.resource.key().clone(), held.changed_at))
            .collect()
    };
    assert_eq!(changed(left), changed(right));
    assert_eq!(left.resume_point(), right.resume_point());
    let frozen = |core: &Core| core.hold().standing().map(|hold| hold.frozen.version().clone());
    assert_eq!(frozen(left), frozen(right));
    assert_eq!(left.hold().approvals(), right.hold().approvals());
}

#[tokio::test]
async fn whatever_happens_the_file_goes_on_as_the_same_core() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("default.lkg");
    let supervisor = Supervisor::new("test");
    let fleet = Fleet::start("r", Duration::from_secs(60), [], &supervisor);
    let (file, opened) = LastKnownGood::open(&path, "/apisix", &Keys::default()).unwrap();
    assert!(opened.saved.is_none() && opened.writer);
    let mut disk = Disk::new(file, "default".into(), fleet);
    let mut core = Core::new("/apisix".into(), 0);
    let routes = |range: std::ops::Range<u64>| -> Vec<Entry> {
        range.map(|id| entry(&format!("routes/{id}"), 1 + id, 1 + id)).collect()
    };
    step(&mut core, &mut disk, loaded(10, routes(0..6), Continuity::First));
    assert_same(&core, &reopened_beside(&path));
    let delete = |key: &'static str, at| KeyEvent::Delete {
        key: Bytes::from_static(key.as_bytes()),
        revision: Revision(at),
    };
    step(
        &mut core,
        &mut disk,
        batch(12, vec![KeyEvent::Put(entry("routes/1", 2, 11)), delete("routes/2", 12)]),
    );
    step(&mut core, &mut disk, batch(13, vec![KeyEvent::Put(entry("gen_id", 13, 13))]));
    step(&mut core, &mut disk, SourceEvent::Progress(Revision(20)));
    assert_same(&core, &reopened_beside(&path));
    step(&mut core, &mut disk, loaded(30, routes(0..5), Continuity::Unproven));
    assert_same(&core, &reopened_beside(&path));
    step(&mut core, &mut disk, loaded(5, routes(0..1), Continuity::Rewound { evidence: "x".to_owned() }));
    assert!(core.hold().standing().is_some());
    assert_same(&core, &reopened_beside(&path));
    step(&mut core, &mut disk, batch(6, vec![KeyEvent::Put(entry("routes/9", 6, 6))]));
    // Nothing reads an approval again where the watch is resumed: a node that was away needs the file's.
    for (id, base_at_most) in [("one", 3), ("two", 4)] {
        let approved = Approval {
            id: id.into(),
            from: core.store().snapshot().lineage().clone(),
            base_at_most: Revision(base_at_most),
            to: core.store().snapshot().lineage().clone(),
            expires_unix: 9,
        };
        let put = Entry { key: approval::key(id), value: approval::encode(&approved), ..entry("x", 7, 7) };
        step(&mut core, &mut disk, batch(6 + base_at_most, vec![KeyEvent::Put(put)]));
    }
    assert_eq!(core.hold().approvals().len(), 2);
    assert_same(&core, &reopened_beside(&path));
    let withdrawn = KeyEvent::Delete { key: approval::key("one"), revision: Revision(11) };
    step(&mut core, &mut disk, batch(11, vec![withdrawn]));
    assert_eq!(core.hold().approvals().len(), 1);
    drop(disk);
    assert_same(&core, &reopened(&path));
}

/// Opens while the writer has the file: a second process reads what is whole in it.
fn reopened_beside(path: &std::path::Path) -> Core {
    let (_, opened) = LastKnownGood::open(path, "/apisix", &Keys::default()).unwrap();
    assert!(!opened.writer);
    resume(opened.saved.unwrap(), &"default".into(), 8).0
}

#[tokio::test(start_paused = true)]
async fn the_roster_is_written_as_nodes_come_and_go_and_else_once_a_minute() {
    let directory = tempfile::tempdir().unwrap();
    let supervisor = Supervisor::new("test");
    let fleet = Fleet::start("r", Duration::from_secs(3600), [], &supervisor);
    let (file, _) =
        LastKnownGood::open(&directory.path().join("default.lkg"), "/apisix", &Keys::default()).unwrap();
    let mut disk = Disk::new(file, "default".into(), fleet.clone());
    let mut core = Core::new("/apisix".into(), 0);
    step(&mut core, &mut disk, loaded(10, vec![entry("routes/1", 1, 1)], Continuity::First));
    let row = RowId { node_id: "n".into(), instance: "i".into() };
    let happened = async |happened| {
        fleet.tell(FleetEvent { row: row.clone(), connection: 1, happened }).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let hello = Hello {
        protocol: 1,
        node_id: "n".into(),
        instance: "i".into(),
        connection: 1,
        environment: "default".into(),
        labels: [].into(),
        build: "t".into(),
        digest_scheme: 1,
        held: None,
        accept_degraded: false,
        rejects_count: 0,
        rejects_hash: headwater_model::Digest::EMPTY,
    };
    happened(Happened::Joined { hello: Box::new(hello), identity: None, peer: String::new() }).await;
    step(&mut core, &mut disk, batch(11, vec![KeyEvent::Put(entry("routes/1", 1, 11))]));
    assert_eq!(disk.file.saved().roster.len(), 1);

    let applied = Some(core.store().snapshot().version().clone());
    happened(Happened::Acked(Ack { applied, durable: None })).await;
    assert_eq!(disk.roster_changes(), []);
    tokio::time::sleep(Duration::from_secs(61)).await;
    happened(Happened::Heard).await;
    assert_eq!(disk.roster_changes().len(), 1);
    assert_eq!(disk.roster_changes(), []);

    happened(Happened::Left { bye: Some(Bye::Leaving), reason: "bye".to_owned() }).await;
    assert!(disk.roster_changes().iter().any(|(_, row)| row.as_ref().is_some_and(|row| row.left)));
}
