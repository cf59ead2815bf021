//! What a member may do wrong: each deviation is one that real releases, proxies or clusters showed.

use std::time::Duration;

/// One way in which the fake is not a correct etcd. The issue numbers are those of etcd's tracker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deviation {
    /// Progress is answered at once with the store's revision, and events go out so much later (#15220).
    ProgressAhead(Duration),
    /// Neither progress requests nor progress unasked are ever answered: `etcd grpc-proxy` (#19710), #17507.
    ProgressUnanswered,
    /// Progress requests are not answered, and progress comes unasked this often (#17507 on a quiet watch).
    ProgressUnasked(Duration),
    /// Progress of the store's revision goes out before the created response, and events below it follow.
    ProgressBeforeCreated,
    /// Progress is answered with a revision so far below the store's (#20221, a member that lags).
    ProgressLow(u64),
    /// Deletions are missing from what a watch catches up with (#18089, #19179, and worse: those lose only the one
    /// at the compact revision).
    DeletionsLost,
    /// Events vanish and nothing is said, as when the cancel of a compacted watcher is lost (#17529).
    EventsLost,
    /// Each response with events is sent a second time (#15271).
    EventsReplayed,
    /// One revision with several events goes out as two whole responses.
    RevisionSplit,
    /// Watchers that are behind get no batch.
    NoCatchUp,
    /// After the created response nothing comes for so long.
    SlowFirstFrame(Duration),
    /// Nothing comes on any stream, though the connection lives: a stuck apply loop.
    Silent,
    /// Created goes out after the data that queued up, which is then not split, however large it is.
    CreatedLast,
    /// A stream ends after this many responses with events.
    EndsAfter(u32),
    /// A stream ends in the middle of a split response.
    EndsInFragment,
    /// A response with more events than this is above every decode limit.
    BatchesAbove(usize),
    /// A page with more keys than this is above every decode limit.
    PagesAbove(usize),
    /// A watch is created and cancelled in one response with this reason.
    WatchRefused(&'static str),
    /// A watcher is cancelled without a reason, a revision or anything.
    BareCancel,
    /// The watch id asked for is ignored (#12819).
    WatchIdIgnored,
    /// Cluster and member id are zero in answers to watches, as a proxy makes them up.
    NoIdentityInWatch,
    /// The cluster id is zero in every answer.
    NoClusterId,
    /// Watch responses name this member.
    WatchFromMember(u64),
    /// The watch names this cluster.
    WatchFromCluster(u64),
    /// A linearizable read of the head is so many revisions too low (#20418).
    StaleHead(u64),
    /// After a page that is not the last the store is compacted to its head.
    CompactedAfterPage,
    /// A page is answered so much later than it was read.
    SlowPages(Duration),
    /// A read of pages is refused as compacted.
    PageCompacted,
    /// The member is a learner.
    Learner,
    /// The member knows no leader; the streams it has go on, with progress.
    Leaderless,
    /// Status says that there is a leader, and a watch that requires one is refused.
    LeaderLostAtWatch,
    /// Status is denied.
    StatusDenied,
    /// Writes are refused for want of space.
    NoSpace,
    /// All tokens expire as a watch is created.
    TokensExpireAtWatch,
}

/// The deviations of a member, each for ever or a number of times.
#[derive(Debug, Default)]
pub(super) struct Script {
    active: Vec<(Deviation, Option<u32>)>,
    played: Vec<Deviation>,
}

// === impl Script ===

impl Script {
    /// Adds a deviation, for so many times or for ever.
    pub(super) fn add(&mut self, deviation: Deviation, times: Option<u32>) {
        self.active.push((deviation, times));
    }

    /// No deviation any more.
    pub(super) fn clear(&mut self) {
        self.active.clear();
    }

    /// How often a deviation was played.
    pub(super) fn played(&self, deviation: &Deviation) -> usize {
        self.played.iter().filter(|played| *played == deviation).count()
    }

    /// Plays the first active deviation that `choose` answers for, and gives the answer.
    pub(super) fn play<T>(&mut self, choose: impl Fn(&Deviation) -> Option<T>) -> Option<T> {
        let found = self.active.iter().position(|(deviation, _)| choose(deviation).is_some())?;
        let (deviation, left) = &mut self.active[found];
        let answer = choose(deviation);
        self.played.push(deviation.clone());
        if let Some(left) = left {
            *left -= 1;
            if *left == 0 {
                self.active.remove(found);
            }
        }
        answer
    }

    /// Plays a deviation that has no parameter, if it is active.
    pub(super) fn plays(&mut self, wanted: &Deviation) -> bool {
        self.play(|deviation| (deviation == wanted).then_some(())).is_some()
    }

    /// Whether it is active; does not count as played.
    pub(super) fn holds(&self, wanted: &Deviation) -> bool {
        self.active.iter().any(|(deviation, _)| deviation == wanted)
    }
}
