use headwater_model::{Generation, Lineage};

use super::*;
use crate::backend::{Batch, Load};
use crate::hold::approval_for;

fn entry(key: &str, revision: u64, value: &[u8]) -> Entry {
    Entry {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value),
        create_revision: Revision(revision),
        mod_revision: Revision(revision),
    }
}

fn routes(count: u64) -> Vec<Entry> {
    (0..count).map(|id| entry(&format!("routes/{id:03}"), 1 + id, b"{}")).collect()
}

fn loaded(revision: u64, entries: Vec<Entry>, continuity: Continuity) -> SourceEvent {
    SourceEvent::Loaded(Load {
        cluster_id: 7,
        revision: Revision(revision),
        entries,
        continuity,
        generation: Generation(0),
    })
}

fn live() -> SourceEvent {
    SourceEvent::State(SourceState {
        stage: Stage::Live,
        member: "m".to_owned(),
        server_version: None,
        note: None,
    })
}

fn core() -> Core {
    let mut core = Core::new("/apisix".into(), 1);
    let effects = core.on_event(loaded(100, routes(10), Continuity::First), Duration::from_secs(1), 1);
    assert!(effects.wake);
    core.on_event(live(), Duration::from_secs(1), 1);
    core
}

#[test]
fn it_is_degraded_until_its_source_is_live() {
    let mut core = Core::new("/apisix".into(), 5);
    assert!(!core.publication().is_live());
    core.on_event(loaded(100, routes(10), Continuity::First), Duration::from_secs(1), 6);
    assert_eq!(core.publication().degraded_since, Some(5));
    assert!(core.on_event(live(), Duration::from_secs(2), 7).wake);
    assert!(core.publication().is_live());
}

#[test]
fn an_unchanged_reload_wakes_nobody() {
    let mut core = core();
    let before = core.publication();
    let effects = core.on_event(loaded(500, routes(10), Continuity::Unproven), Duration::from_secs(9), 9);
    assert!(!effects.wake);
    assert_eq!(effects.outcome.map(|outcome| outcome.kept), Some(10));
    assert_eq!(core.publication().target().digest, before.target().digest);
    assert_eq!(core.publication().target().revision, Revision(500));
}

#[test]
fn a_held_jump_serves_what_was_and_an_approval_read_from_the_source_ends_it() {
    let mut core = core();
    let rewound = Continuity::Rewound { evidence: "x".to_owned() };
    let effects = core.on_event(loaded(50, routes(1), rewound), Duration::from_secs(9), 9);
    assert!(matches!(effects.judged, Some(Judged::Began(_))));
    let publication = core.publication();
    assert_eq!((publication.serving.content().len(), publication.world.content().len()), (10, 1));
    assert_eq!(publication.hold.map(|hold| hold.since_unix), Some(9));
    let to = Lineage { ..publication.world.lineage().clone() };
    let approval = approval_for("a".into(), publication.serving.version(), &to, 1_000);
    let put = Entry { key: approval::key("a"), value: approval::encode(&approval), ..entry("", 51, b"") };
    let batch = Batch::new(Revision(51), vec![KeyEvent::Put(put)]);
    let effects = core.on_event(SourceEvent::Batch(batch), Duration::from_secs(10), 10);
    assert_eq!(effects.judged, Some(Judged::Approved("a".into())));
    assert_eq!(effects.keep, Keep::Everything);
    let publication = core.publication();
    assert_eq!(publication.serving.content().len(), 1);
    assert!(publication.approval(&Version { ..before_rewind(&publication) }, 10).is_some());
}

fn before_rewind(publication: &Publication) -> Version {
    let mut version = publication.world.version().clone();
    version.lineage.generation = Generation(0);
    version.revision = Revision(100);
    version
}

#[test]
fn the_resume_point_holds_every_key_content_or_not() {
    let mut core = core();
    let events = vec![
        KeyEvent::Put(entry("gen_id", 101, b"1")),
        KeyEvent::Put(entry("data_plane/server_info/u", 102, b"{}")),
        KeyEvent::Delete { key: Bytes::from_static(b"routes/000"), revision: Revision(103) },
    ];
    core.on_event(SourceEvent::Batch(Batch::new(Revision(103), events)), Duration::from_secs(2), 2);
    let resume = core.resume_point().unwrap();
    assert_eq!((resume.cluster_id, resume.revision, resume.keys.len()), (7, Revision(103), 11));
    assert!(resume.keys.is_sorted_by(|a, b| a.key < b.key));
}

#[test]
fn an_unreadable_approval_covers_nothing_and_is_shown() {
    let mut core = core();
    let put = Entry { key: approval::key("bad"), ..entry("", 101, b"not json") };
    let batch = Batch::new(Revision(101), vec![KeyEvent::Put(put)]);
    core.on_event(SourceEvent::Batch(batch), Duration::from_secs(2), 2);
    assert_eq!(core.unreadable_approvals().len(), 1);
    assert!(core.hold().approvals().is_empty());
}

#[test]
fn idle_for_a_week_nothing_is_published() {
    let mut core = core();
    for hour in 1..=(7 * 24) {
        let now = Duration::from_secs(3600 * hour);
        assert!(!core.on_event(SourceEvent::Progress(Revision(100)), now, 3600 * hour).wake);
        assert!(core.publication().is_live());
    }
}
