//! The members of a modelled cluster, and what they refuse: one history, told by each under an id of its own.

use std::time::Duration;

use headwater_control_plane::backend::etcd::tracker::{
    Failure, Fault, Header, Input, Proof, ProofQuestion, Testimony,
};

use super::etcd::Origin;
use super::replica::MEMBERS;
use super::shell::{Call, tracker_header};
use super::world::World;

/// More keys than this are too large a message while messages must be small.
const FEW: usize = 3;

/// What etcd refuses, and until when.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Every call of the user.
    pub denied: Duration,
    /// Messages of more than a few keys.
    pub small: Duration,
    /// This member tells of another history.
    pub astray: (Duration, u64),
}

// === impl World ===

impl World {
    /// Which member a connection leads to. A cluster of one has no other.
    fn member_of(&self, origin: Origin) -> u64 {
        let one = self.replicas[origin.replica].settings.members == 1;
        if one { 0 } else { origin.connection % MEMBERS }
    }

    /// The id of the member that a connection leads to.
    pub(super) fn member_id(&self, origin: Origin) -> u64 {
        id(self.etcd.mvcc.identity().member_id, self.member_of(origin))
    }

    /// What a member says in a header. One that is astray has gone back, as far as it says.
    pub(super) fn header_at(&self, origin: Origin, call: &Call) -> Header {
        let mut header = tracker_header(self.etcd.mvcc.header());
        if matches!(call, Call::Page { .. }) {
            return header;
        }
        header.member_id = self.member_id(origin);
        let (until, astray) = self.limits.astray;
        let several = self.replicas[origin.replica].settings.members > 1;
        if several
            && self.schedule.now() < until
            && self.member_of(origin) == astray
            && matches!(call, Call::Header)
        {
            header.revision.0 /= 2;
        }
        header
    }

    /// What the members that are not followed say, each for itself: one at least answers.
    pub(super) fn others(&mut self, origin: Origin, question: &ProofQuestion) -> Vec<Testimony> {
        let (followed, base) = (self.member_of(origin), self.etcd.mvcc.identity().member_id);
        let all = self.random.one_in(2);
        let answering = (0..MEMBERS).filter(|member| *member != followed).take(if all { 2 } else { 1 });
        let members: Vec<u64> = answering.collect();
        members.into_iter().map(|member| self.testimony(id(base, member), question)).collect()
    }

    fn testimony(&self, member_id: u64, question: &ProofQuestion) -> Testimony {
        let header = Header { member_id, ..tracker_header(self.etcd.mvcc.header()) };
        let proof = self.prove(question).ok().and_then(|proof| {
            let newest = if question.key.is_some() { self.prove_key(question).ok()? } else { None };
            Some(Proof { header, newest, ..proof })
        });
        Testimony { endpoint: format!("member {member_id:x}"), header, proof }
    }

    /// The answer to a user who may not, while that is so.
    pub(super) fn denial(&mut self, origin: Origin, call: &Call) -> Option<Input> {
        let asks = !matches!(call, Call::Progress | Call::Close);
        if !asks || self.schedule.now() >= self.limits.denied {
            return None;
        }
        self.coverage.reached("answer/denied");
        let failure = if self.random.one_in(2) {
            Failure::new(Fault::Token, "etcdserver: invalid auth token")
        } else {
            Failure::new(Fault::Denied, "etcdserver: permission denied")
        };
        let attempt = origin.attempt;
        Some(match call {
            Call::Open { .. } => Input::WatchEnded { attempt, failure },
            _ => Input::CallFailed { attempt, failure },
        })
    }

    /// Whether a message of so many keys is above the limit now.
    pub(super) fn is_too_large(&self, keys: usize) -> bool {
        self.schedule.now() < self.limits.small && keys > FEW
    }
}

const fn id(base: u64, member: u64) -> u64 {
    base + (member << 32)
}
