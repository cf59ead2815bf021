//! etcd in the simulation: the MVCC model, its snapshots, the streams it serves and what is wrong with it.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use headwater_control_plane::backend::embedded::mvcc::{
    CreateWatch, Identity, Interval, Limits, Mvcc, Restore, Snapshot, StreamId, Txn, WatchRequest,
};
use headwater_control_plane::backend::etcd::tracker::Attempt;
use headwater_model::Revision;

use super::random::Random;
use super::truth::{Epoch, Truth};

/// The environment's prefix, with its slash.
pub const PREFIX: &str = "/apisix/";

/// How often etcd looks after watchers that are not in sync.
pub const PASS: Duration = Duration::from_millis(100);

/// Where a call or a stream comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The replica.
    pub replica: usize,
    /// Which life of it.
    pub incarnation: u64,
    /// Which of its watch connections.
    pub connection: u64,
    /// Which attempt of its tracker.
    pub attempt: Attempt,
}

/// A stream that is served.
#[derive(Clone, Debug)]
pub struct Served {
    /// Whose it is.
    pub origin: Origin,
    /// The history it was opened in.
    pub epoch: Epoch,
    /// Its sender does nothing before this.
    pub lazy_until: Duration,
    /// Responses on their way.
    pub in_flight: usize,
    /// Whether its created response went out.
    pub created: bool,
    /// Its responses are lost on the way, for good: a stream that lost some never carries later ones.
    pub swallowed: bool,
}

/// The server.
#[derive(Debug)]
pub struct Etcd {
    /// The model.
    pub mvcc: Mvcc,
    /// What really happened.
    pub truth: Truth,
    /// Whether it can be reached.
    pub up: bool,
    /// Until when watchers that are behind stay so.
    pub no_catch_up: Duration,
    /// Until when progress requests are not answered.
    pub no_progress: Duration,
    /// Until when new streams get a sender that waits.
    pub lazy_sender: Duration,
    /// The streams it serves.
    pub streams: BTreeMap<StreamId, Served>,
    snapshots: Vec<(Snapshot, Epoch)>,
    identities: u64,
}

// === impl Etcd ===

impl Etcd {
    /// An empty one, with limits small enough for a short run to meet them.
    pub fn new(random: &mut Random, bulky: bool) -> Self {
        let fragment_bytes = *random.pick(&[160, 400, 2 << 20]);
        let limits = Limits {
            // Values of a bulky world do not fit the small ones.
            fragment_bytes: if bulky { 2 << 20 } else { fragment_bytes },
            revisions_per_pass: *random.pick(&[1, 3, 1000]),
            stream_responses: *random.pick(&[2, 8, 128]),
            ..Limits::ETCD
        };
        let identity = Identity { cluster_id: 0xc0, member_id: 0xa0, raft_term: 2 };
        Self {
            mvcc: Mvcc::new(identity, limits),
            truth: Truth::new(Bytes::from_static(PREFIX.as_bytes()), identity.cluster_id),
            up: true,
            no_catch_up: Duration::ZERO,
            no_progress: Duration::ZERO,
            lazy_sender: Duration::ZERO,
            streams: BTreeMap::new(),
            snapshots: Vec::new(),
            identities: 0,
        }
    }

    /// Commits, and tells the observer.
    pub fn commit(&mut self, txn: &Txn) {
        let before = self.mvcc.revision();
        self.mvcc.txn(txn).expect("the workload stays within etcd's limits");
        for (revision, events) in self.mvcc.events_from(before.next()) {
            self.truth.committed(revision.0, events);
        }
    }

    /// Takes a snapshot for a later restore.
    pub fn snapshot(&mut self) {
        self.snapshots.push((self.mvcc.snapshot(), self.truth.epoch()));
    }

    /// Compacts to a revision close to the head.
    pub fn compact(&mut self, back: u64) {
        let to = Revision(self.mvcc.revision().0.saturating_sub(back));
        // Compacted further before: nothing to do.
        let _ = self.mvcc.compact(to);
    }

    /// The process ends and comes back as it was. All streams are gone.
    pub fn restart(&mut self) {
        let snapshot = self.mvcc.snapshot();
        self.mvcc.restore(&snapshot, Restore::default());
        self.mvcc.raise_term();
        self.streams.clear();
    }

    /// Goes back to a snapshot, if one was taken. `bump` moves the revision up and marks the rest compacted.
    pub fn restore(&mut self, random: &mut Random, other_ids: bool, bump: Option<u64>) -> bool {
        if self.snapshots.is_empty() {
            return false;
        }
        let (snapshot, epoch) = random.pick(&self.snapshots).clone();
        self.identities += u64::from(other_ids);
        let identity = other_ids.then(|| Identity {
            cluster_id: 0xc0 + self.identities,
            member_id: 0xa0 + self.identities,
            raft_term: 2,
        });
        self.mvcc.restore(&snapshot, Restore { identity, bump });
        let cluster_id = self.mvcc.identity().cluster_id;
        self.truth.restored(epoch, snapshot.revision().0, cluster_id, bump.unwrap_or(0));
        self.streams.clear();
        // A snapshot of a history that is no more cannot be told from one of this history by its number.
        self.snapshots.retain(|(_, other)| *other == epoch);
        true
    }

    /// Opens a watch over the prefix.
    pub fn open(&mut self, origin: Origin, start: Revision, watch_id: i64, lazy_until: Duration) {
        let stream = self.mvcc.open_stream();
        let create = CreateWatch {
            interval: Interval::prefix(Bytes::from_static(PREFIX.as_bytes())),
            start,
            watch_id,
            fragment: true,
            progress_notify: true,
        };
        self.mvcc.request(stream, WatchRequest::Create(create));
        let epoch = self.truth.epoch();
        self.streams.insert(
            stream,
            Served { origin, epoch, lazy_until, in_flight: 0, created: false, swallowed: false },
        );
    }

    /// A progress request for the stream of an attempt.
    pub fn progress(&mut self, origin: Origin) {
        let streams = self.streams.iter().filter(|(_, served)| served.origin == origin);
        for stream in streams.map(|(stream, _)| *stream).collect::<Vec<_>>() {
            self.mvcc.request(stream, WatchRequest::Progress);
        }
    }

    /// Closes the streams that a condition holds for.
    pub fn close(&mut self, gone: impl Fn(&Origin) -> bool) {
        let mvcc = &mut self.mvcc;
        self.streams.retain(|stream, served| {
            let keep = !gone(&served.origin);
            if !keep {
                mvcc.close_stream(*stream);
            }
            keep
        });
    }
}
