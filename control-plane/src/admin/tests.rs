//! The use cases against a store in memory: a map with revisions as the backend, and the real store as the view.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use headwater_model::resources::Context;
use headwater_model::{Generation, Key, Revision};
use headwater_process::Supervisor;
use tokio::sync::watch;

use super::writing::{Done, Write, Written};
use super::*;
use crate::backend::{
    Batch, Commit, CommitError, Committed, Compare, Continuity, Entry, Head, KeyEvent, Load, Operation,
    ReadError, Reader, SourceState, Stage, Transaction,
};
use crate::fleet::Fleet;
use crate::store::Store;

const CLUSTER: u64 = 7;
const UPSTREAM: &str = r#"{"type":"roundrobin","nodes":{"127.0.0.1:80":1}}"#;
const ROUTE: &str = r#"{"uri":"/a","upstream_id":"1"}"#;

/// The backend and the view of one environment.
struct World {
    name: Arc<str>,
    inner: Mutex<Inner>,
    changed: watch::Sender<u64>,
}

struct Inner {
    revision: u64,
    keys: BTreeMap<Bytes, Entry>,
    store: Store,
    stage: Stage,
    /// What the next commits answer in place of the truth; `true` carries them out all the same.
    faults: Vec<(CommitError, bool)>,
    /// Written by somebody else just before the next commit.
    interference: Option<(&'static str, &'static str)>,
}

impl World {
    fn new() -> Arc<Self> {
        let mut store = Store::new("/apisix".into());
        let load = Load {
            cluster_id: CLUSTER,
            revision: Revision(1),
            entries: vec![],
            continuity: Continuity::First,
            generation: Generation(0),
        };
        store.load(&load);
        let inner = Inner {
            revision: 1,
            keys: BTreeMap::new(),
            store,
            stage: Stage::Live,
            faults: vec![],
            interference: None,
        };
        Arc::new(Self { name: "default".into(), inner: Mutex::new(inner), changed: watch::Sender::new(1) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }
}

impl Inner {
    fn holds(&self, compare: &Compare) -> bool {
        match compare {
            Compare::ModRevision { key, is } => {
                self.keys.get(key).map_or(Revision::ZERO, |entry| entry.mod_revision) == *is
            }
            Compare::Exists { key } => self.keys.contains_key(key),
            Compare::NoneWrittenSince { directory, revision } => self
                .keys
                .values()
                .filter(|entry| entry.key.starts_with(directory))
                .all(|entry| entry.mod_revision <= *revision),
        }
    }

    fn carry_out(&mut self, operations: &[Operation]) -> Committed {
        self.revision += 1;
        let revision = Revision(self.revision);
        let mut events = Vec::new();
        let mut existed = Vec::new();
        for operation in operations {
            match operation {
                Operation::Put { key, value } => {
                    let old = self.keys.get(key);
                    existed.push(old.is_some());
                    let entry = Entry {
                        key: key.clone(),
                        value: value.clone(),
                        create_revision: old.map_or(revision, |old| old.create_revision),
                        mod_revision: revision,
                    };
                    self.keys.insert(key.clone(), entry.clone());
                    events.push(KeyEvent::Put(entry));
                }
                Operation::Delete { key } => {
                    existed.push(self.keys.remove(key).is_some());
                    events.push(KeyEvent::Delete { key: key.clone(), revision });
                }
            }
        }
        self.store.apply(&Batch::new(revision, events));
        Committed { cluster_id: CLUSTER, revision, existed }
    }
}

impl World {
    fn head(&self) -> Head {
        Head { cluster_id: CLUSTER, revision: Revision(self.lock().revision) }
    }
}

#[async_trait]
impl Reader for World {
    async fn heads(&self) -> Vec<Head> {
        vec![self.head()]
    }
    async fn get_at(&self, _: &[u8], revision: Revision) -> Result<Option<Entry>, ReadError> {
        Err(ReadError::Compacted { revision, oldest: Revision(self.lock().revision) })
    }
    async fn get(&self, key: &[u8]) -> Result<(Option<Entry>, Head), ReadError> {
        let head = self.head();
        Ok((self.lock().keys.get(key).cloned(), head))
    }
    async fn list(&self, directory: &[u8]) -> Result<(Vec<Entry>, Head), ReadError> {
        let head = self.head();
        let inner = self.lock();
        Ok((inner.keys.values().filter(|entry| entry.key.starts_with(directory)).cloned().collect(), head))
    }
    async fn state_at(&self, revision: Revision) -> Result<Vec<Entry>, ReadError> {
        Err(ReadError::Compacted { revision, oldest: Revision(self.lock().revision) })
    }
}

#[async_trait]
impl Commit for World {
    async fn commit(&self, transaction: Transaction) -> Result<Committed, CommitError> {
        let mut inner = self.lock();
        if let Some((key, value)) = inner.interference.take() {
            inner.carry_out(&[Operation::Put { key: key.into(), value: value.into() }]);
        }
        let fault = inner.faults.pop();
        if let Some((error, false)) = fault {
            return Err(error);
        }
        if !transaction.compares.iter().all(|compare| inner.holds(compare)) {
            return Err(CommitError::Conflict);
        }
        let committed = inner.carry_out(&transaction.operations);
        self.changed.send_replace(committed.revision.0);
        fault.map_or(Ok(committed), |(error, _)| Err(error))
    }
}

#[async_trait]
impl EnvironmentView for World {
    fn name(&self) -> &Arc<str> {
        &self.name
    }
    fn state(&self) -> EnvironmentState {
        let inner = self.lock();
        EnvironmentState {
            complete: inner.store.is_complete(),
            world: inner.store.snapshot().clone(),
            served: inner.store.snapshot().version().clone(),
            source: SourceState { stage: inner.stage, member: "m1".into(), server_version: None, note: None },
            proof_age: Some(Duration::from_secs(30)),
            hold: None,
            approvals: vec![],
            ignored: BTreeMap::new(),
        }
    }
    fn wakes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
    async fn reject_hold(&self) -> bool {
        false
    }
}

fn environment(world: &Arc<World>) -> Environment {
    Environment::new(world.clone(), world.clone(), world.clone(), Context::default())
}

fn put(key: &str, value: &str) -> Write {
    Write { key: Key::new(key), value: Some(Bytes::from(value.to_owned())), if_mod_revision: None }
}

fn delete(key: &str) -> Write {
    Write { key: Key::new(key), value: None, if_mod_revision: None }
}

fn done(written: &Written) -> Vec<(String, Done)> {
    written.committed.iter().flat_map(|at| &at.keys).map(|(key, done)| (key.to_string(), *done)).collect()
}

async fn with_route() -> (Arc<World>, Environment) {
    let world = World::new();
    let environment = environment(&world);
    let written =
        environment.write(vec![put("routes/1", ROUTE), put("upstreams/1", UPSTREAM)], false).await.unwrap();
    assert_eq!(written.committed.len(), 1);
    (world, environment)
}

#[tokio::test]
async fn a_write_is_one_transaction_in_apisix_form_and_names_its_version() {
    let (world, environment) = with_route().await;
    let read = environment.get(&Key::new("routes/1"), Role::Admin).await.unwrap();
    let value: serde_json::Value = serde_json::from_slice(&read.answer.value).unwrap();
    assert_eq!(value["id"], "1");
    assert!(value["create_time"].is_u64());
    let written =
        environment.write(vec![put("routes/1", r#"{"uri":"/b","upstream_id":"1"}"#)], false).await.unwrap();
    assert_eq!(done(&written), [("routes/1".to_owned(), Done::Replaced)]);
    let version = &written.committed[0].version;
    assert_eq!((version.revision.0, version.lineage.cluster_id), (world.lock().revision, CLUSTER));
}

#[tokio::test]
async fn the_same_value_is_not_written_again() {
    let (world, environment) = with_route().await;
    let before = world.lock().revision;
    let written =
        environment.write(vec![put("routes/1", ROUTE), put("upstreams/1", UPSTREAM)], false).await.unwrap();
    assert_eq!((written.committed.len(), written.unchanged.len()), (0, 2));
    assert_eq!(world.lock().revision, before);
}

#[tokio::test]
async fn all_faults_are_told_at_once_and_nothing_is_written() {
    let world = World::new();
    let bad = vec![put("routes/1", r#"{"uri":1}"#), put("routes/2", "{"), put("upstreams/1", UPSTREAM)];
    let refusal = environment(&world).write(bad, false).await.unwrap_err();
    let Refusal::Invalid(faults) = &refusal else { panic!("{refusal}") };
    assert_eq!(faults.iter().map(|fault| fault.key.as_str()).collect::<Vec<_>>(), ["routes/1", "routes/2"]);
    assert_eq!(world.lock().revision, 1);
}

#[tokio::test]
async fn a_reference_that_leads_nowhere_is_refused() {
    let refusal = environment(&World::new()).write(vec![put("routes/1", ROUTE)], false).await.unwrap_err();
    assert!(refusal.to_string().contains("names upstreams/1, which does not exist"), "{refusal}");
}

#[tokio::test]
async fn what_is_in_use_is_not_deleted() {
    let (_, environment) = with_route().await;
    let refusal = environment.write(vec![delete("upstreams/1")], false).await.unwrap_err();
    assert_eq!(refusal.word(), "in_use");
    assert!(refusal.to_string().contains("routes/1"), "{refusal}");
    let both = environment.write(vec![delete("upstreams/1"), delete("routes/1")], false).await.unwrap();
    assert_eq!(done(&both).len(), 2);
    assert_eq!(environment.write(vec![delete("routes/1")], false).await.unwrap_err().word(), "not_found");
}

#[tokio::test(start_paused = true)]
async fn a_reference_written_between_check_and_commit_stops_the_deletion() {
    let (world, environment) = with_route().await;
    environment.write(vec![delete("routes/1")], false).await.unwrap();
    world.lock().interference = Some(("routes/9", ROUTE));
    let refusal = environment.write(vec![delete("upstreams/1")], false).await.unwrap_err();
    assert_eq!(refusal.word(), "in_use", "{refusal}");
    assert!(world.lock().keys.contains_key(&b"upstreams/1"[..]));
}

#[tokio::test]
async fn a_mod_revision_that_was_given_must_hold() {
    let (_, environment) = with_route().await;
    let at = environment.get(&Key::new("routes/1"), Role::Admin).await.unwrap().answer.mod_revision;
    let changed = r#"{"uri":"/b","upstream_id":"1"}"#;
    let write = |is| Write { if_mod_revision: Some(Revision(is)), ..put("routes/1", changed) };
    let refusal = environment.write(vec![write(0)], false).await.unwrap_err();
    assert!(refusal.to_string().contains("exists already"), "{refusal}");
    assert_eq!(environment.write(vec![write(at + 5)], false).await.unwrap_err().word(), "conflict");
    assert!(environment.write(vec![write(at)], false).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_looked_up() {
    let (world, environment) = with_route().await;
    let lost = || CommitError::Unknown("the stream was reset".into());
    let changed = r#"{"uri":"/b","upstream_id":"1"}"#;

    world.lock().faults.push((lost(), true));
    let written = environment.write(vec![put("routes/1", changed)], false).await.unwrap();
    assert_eq!(written.committed[0].version.revision.0, world.lock().revision);
    assert!(written.notes[0].contains("looked up"), "{:?}", written.notes);

    world.lock().faults.push((lost(), false));
    let refusal = environment.write(vec![put("routes/1", ROUTE)], false).await.unwrap_err();
    assert_eq!(refusal.word(), "outcome_unknown");
    assert!(refusal.to_string().contains("does not show it"), "{refusal}");

    world.lock().faults.push((lost(), true));
    let refusal = environment.write(vec![delete("routes/1")], false).await.unwrap_err();
    assert!(refusal.to_string().contains("by this request or by another"), "{refusal}");
}

#[tokio::test]
async fn a_degraded_replica_and_a_read_only_store_refuse_distinctly() {
    let (world, environment) = with_route().await;
    let changed = r#"{"uri":"/b","upstream_id":"1"}"#;
    world.lock().faults.push((CommitError::ReadOnly("NOSPACE".into()), false));
    let write = vec![put("routes/1", changed)];
    assert_eq!(environment.write(write.clone(), false).await.unwrap_err().word(), "read_only");
    world.lock().stage = Stage::BackingOff;
    let refusal = environment.write(write, false).await.unwrap_err();
    assert_eq!(refusal.word(), "degraded");
    assert!(refusal.to_string().contains("last proven alive 30 s ago"), "{refusal}");
    let listed = environment.list(None, None, 0, Role::Viewer).await.unwrap();
    assert!(listed.stale.is_some() && listed.answer.total == 2);
}

#[tokio::test]
async fn batches_are_atomic_by_themselves_and_say_how_far_they_came() {
    let world = World::new();
    let environment = environment(&world);
    let mut writes: Vec<Write> = (0..150).map(|id| put(&format!("routes/{id}"), ROUTE)).collect();
    writes.push(put("upstreams/1", UPSTREAM));
    assert_eq!(environment.write(writes.clone(), false).await.unwrap_err().word(), "too_large");
    world
        .lock()
        .faults
        .extend([(CommitError::ReadOnly("NOSPACE".into()), false), (CommitError::Conflict, false)]);
    let written = environment.write(writes.clone(), true).await;
    assert_eq!(written.unwrap_err().word(), "read_only", "the conflict was tried again");
    let written = environment.write(writes, true).await.unwrap();
    assert!(written.failed.is_none() && written.committed.len() >= 2, "{written:?}");
    assert_eq!(world.lock().keys.len(), 151);
}

#[tokio::test]
async fn validation_says_what_a_write_would_and_writes_nothing() {
    let (world, environment) = with_route().await;
    let before = world.lock().revision;
    let writes = [put("routes/2", r#"{"uri":"/a","upstream_id":"9"}"#), put("routes/3", ROUTE)];
    let (faults, _) = environment.check(&writes).await.unwrap();
    assert_eq!(faults.len(), 1);
    assert!(faults[0].to_string().starts_with("routes/2: names upstreams/9"), "{}", faults[0]);
    let (faults, _) = environment.check(&[delete("upstreams/1")]).await.unwrap();
    assert!(faults[0].to_string().contains("in use by routes/1"), "{}", faults[0]);
    assert_eq!(world.lock().revision, before);
}

#[tokio::test]
async fn lists_are_paged_and_viewers_see_no_private_keys() {
    let (_, environment) = with_route().await;
    let first = environment.list(None, None, 1, Role::Viewer).await.unwrap().answer;
    assert_eq!((first.resources.len(), first.total), (1, 2));
    let after = first.next.unwrap();
    let second = environment.list(None, Some(after.as_str()), 1, Role::Viewer).await.unwrap().answer;
    assert_eq!((second.resources[0].key.as_str(), second.next), ("upstreams/1", None));
}

fn admin(world: &Arc<World>, peers: Vec<String>, supervisor: &Supervisor) -> Arc<Admin> {
    let fleet = Fleet::start("r1", Duration::from_secs(3600), [], supervisor);
    let replica = ReplicaInfo {
        id: "r1".into(),
        started_unix: 0,
        heartbeat: Duration::from_secs(1),
        approval_retention: Duration::from_secs(60),
        peers,
    };
    Arc::new(Admin::new([environment(world)], fleet, replica))
}

#[tokio::test(start_paused = true)]
async fn a_wait_tells_each_answer_and_ends_with_its_limit() {
    let world = World::new();
    let supervisor = Supervisor::new("test");
    let admin = admin(&world, vec![], &supervisor);
    let environment = admin.environment("").unwrap().clone();
    let question = crate::fleet::wait::Wait {
        environment: "default".into(),
        cluster_id: None,
        generation: headwater_model::Generation(0),
        revision: Revision(1),
        keys: vec![],
        durable: false,
    };
    let (told, mut answers) = tokio::sync::mpsc::channel(16);
    let started = tokio::time::Instant::now();
    admin.wait(environment, question, Duration::from_secs(5), told).await;
    assert_eq!(started.elapsed(), Duration::from_secs(5));
    let mut words = vec![];
    while let Some(answer) = answers.recv().await {
        words.push((answer.answer.outcome.label(), answer.last));
    }
    assert_eq!(words, [("cannot_say_yet", false), ("no_nodes", false), ("no_nodes", true)]);
}

#[tokio::test(start_paused = true)]
async fn with_peers_configured_a_wait_is_refused_and_says_why() {
    let supervisor = Supervisor::new("test");
    let admin = admin(&World::new(), vec!["cp2:9180".into()], &supervisor);
    let refusal = admin.check_wait().unwrap_err();
    assert!(refusal.to_string().contains("cp2:9180"), "{refusal}");
}

#[tokio::test(start_paused = true)]
async fn environments_are_found_by_name_or_alone() {
    let supervisor = Supervisor::new("test");
    let admin = admin(&World::new(), vec![], &supervisor);
    assert!(admin.environment("").is_ok() && admin.environment("default").is_ok());
    let refusal = admin.environment("staging").unwrap_err();
    assert!(refusal.to_string().contains("default"), "{refusal}");
    let none = admin.approve(admin.environment("").unwrap(), "x", 0).await.unwrap_err();
    assert_eq!(none.word(), "no_such_hold");
}
