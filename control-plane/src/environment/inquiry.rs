//! What etcd says of a version that a node claims and this replica has not: is it of the history that etcd holds, and
//! which generation follows from that (DESIGN section 5). Pure; [`conduct`] asks the questions.
//!
//! A node may be ahead for two reasons. In this replica's own generation it holds a higher revision: the replica lags,
//! or the history went back. Or its generation is higher: another replica has seen the history replaced. Nothing here
//! changes a store: a higher generation is taken with a full read that begins after the answer, so that no event of a
//! history that is gone, still on its way to the writer, can ever be told under the new generation.

pub mod conduct;

use std::time::Duration;

use headwater_model::mutant::planted;
use headwater_model::shape::{Shape, classify};
use headwater_model::{Content, Digest, Generation, Resource, Revision, Version};

use crate::backend::{Entry, Head};

/// How far apart two reads are: one late answer of a lagging member must not count twice.
pub const BETWEEN_READS: Duration = Duration::from_secs(1);

/// One version under question.
#[derive(Clone, Debug)]
pub struct Inquiry {
    claimed: Version,
    /// The claimed generation is above the replica's own.
    higher: bool,
    /// The claim is of another cluster than the replica follows.
    foreign: bool,
    /// The first of two reads has spoken against the version.
    doubted: bool,
}

/// What to ask etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// The head, of every member that answers.
    Heads,
    /// The digest of the content at a revision.
    DigestAt(Revision),
}

/// What etcd answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Of those members that answered.
    Heads(Vec<Head>),
    /// The content's digest at the revision asked for.
    Digest(Digest),
    /// The revision is not kept any more.
    Compacted,
    /// The revision has not been written yet.
    Future,
    /// No answer.
    Nothing,
}

/// How it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask this, after a while.
    Ask(Question, Duration),
    /// Nothing is proven: the replica may be behind, or etcd away. The claim comes again.
    Open,
    /// This generation is to be taken, for this reason.
    Take(Generation, String),
}

// === impl Inquiry ===

impl Inquiry {
    /// Looks into what a node claims to hold, from where the replica stands; nothing when it claims no more than that.
    #[must_use]
    pub fn into(claimed: &Version, own: &Version) -> Option<Self> {
        let (theirs, ours) = (&claimed.lineage, &own.lineage);
        let higher = theirs.generation > ours.generation;
        let ahead = theirs == ours && claimed.revision > own.revision;
        let foreign = theirs.cluster_id != ours.cluster_id || theirs.prefix != ours.prefix;
        (higher || ahead).then(|| Self { claimed: claimed.clone(), higher, foreign, doubted: false })
    }

    /// What to do first.
    #[must_use]
    pub fn begin(&self) -> Step {
        if self.higher && self.foreign {
            return self.beyond("it is of another cluster, whose history cannot be looked into");
        }
        Step::Ask(self.question(), Duration::ZERO)
    }

    /// What follows from an answer to the question last asked.
    #[must_use]
    pub fn answered(&mut self, answer: &Answer) -> Step {
        match answer {
            Answer::Heads(heads) if self.lies_above(heads) => self.against("etcd's head lies below it"),
            Answer::Digest(digest) if *digest == self.claimed.digest => {
                Step::Take(self.claimed.lineage.generation, "etcd holds that very content there".to_owned())
            }
            Answer::Digest(_) => self.against("etcd holds another content at its revision"),
            Answer::Compacted => self.beyond("its revision is compacted, so that nobody can compare it"),
            // The head decides then: a member may lag, and the head be there already.
            Answer::Future => Step::Ask(Question::Heads, Duration::ZERO),
            Answer::Heads(_) | Answer::Nothing => Step::Open,
        }
    }

    fn question(&self) -> Question {
        if self.higher { Question::DigestAt(self.claimed.revision) } else { Question::Heads }
    }

    /// Every member that answered has a head below the claim, and one did at least.
    fn lies_above(&self, heads: &[Head]) -> bool {
        let mut heads = heads.iter();
        let below = |head: &Head| head.revision < self.claimed.revision;
        heads.next().is_some_and(below) && heads.all(below)
    }

    /// Two reads must speak against it.
    fn against(&mut self, why: &str) -> Step {
        if std::mem::replace(&mut self.doubted, true) {
            if planted("denied-claim-taken-as-it-is") {
                return Step::Take(self.claimed.lineage.generation, why.to_owned());
            }
            return self.beyond(why);
        }
        Step::Ask(self.question(), BETWEEN_READS)
    }

    /// The history of the claim is gone, or cannot be told from one that is: what follows is another generation.
    fn beyond(&self, why: &str) -> Step {
        Step::Take(self.claimed.lineage.generation.next(), why.to_owned())
    }
}

/// The digest of a state's content.
#[must_use]
pub fn digest(entries: impl IntoIterator<Item = Entry>) -> Digest {
    let content: Content = entries
        .into_iter()
        .filter_map(|Entry { key, value, create_revision, mod_revision }| match classify(&key) {
            Shape::Content(key) => Some(Resource::new(key, value, create_revision, mod_revision)),
            Shape::Ignored(_) => None,
        })
        .collect();
    content.digest()
}

#[cfg(test)]
mod tests {
    use headwater_model::Lineage;

    use super::*;

    fn version(generation: u64, revision: u64) -> Version {
        let lineage = Lineage { cluster_id: 1, prefix: "/apisix".into(), generation: Generation(generation) };
        Version { lineage, revision: Revision(revision), digest: Digest::EMPTY }
    }

    fn heads(revisions: &[u64]) -> Answer {
        let head = |revision: &u64| Head { cluster_id: 1, revision: Revision(*revision) };
        Answer::Heads(revisions.iter().map(head).collect())
    }

    fn other() -> Answer {
        let entry = Entry {
            key: "routes/1".into(),
            value: "{}".into(),
            create_revision: Revision(1),
            mod_revision: Revision(1),
        };
        Answer::Digest(digest([entry]))
    }

    fn taken(step: Step) -> Option<u64> {
        match step {
            Step::Take(generation, _) => Some(generation.0),
            Step::Ask(..) | Step::Open => None,
        }
    }

    #[test]
    fn a_version_that_claims_no_more_is_no_question() {
        assert!(Inquiry::into(&version(0, 5), &version(0, 5)).is_none());
        assert!(Inquiry::into(&version(0, 9), &version(1, 5)).is_none());
    }

    #[test]
    fn a_node_ahead_raises_the_generation_only_when_every_member_lies_below_twice() {
        let mut inquiry = Inquiry::into(&version(0, 9), &version(0, 5)).unwrap();
        assert_eq!(inquiry.begin(), Step::Ask(Question::Heads, Duration::ZERO));
        assert_eq!(inquiry.answered(&heads(&[8, 5])), Step::Ask(Question::Heads, BETWEEN_READS));
        assert_eq!(taken(inquiry.answered(&heads(&[8, 5]))), Some(1));
        for denied in [heads(&[8, 9]), heads(&[]), Answer::Nothing] {
            let mut inquiry = Inquiry::into(&version(0, 9), &version(0, 5)).unwrap();
            assert_eq!(inquiry.answered(&heads(&[8])), Step::Ask(Question::Heads, BETWEEN_READS));
            assert_eq!(inquiry.answered(&denied), Step::Open, "{denied:?}");
        }
    }

    #[test]
    fn a_higher_generation_is_taken_when_etcd_holds_its_content() {
        let mut inquiry = Inquiry::into(&version(3, 9), &version(0, 20)).unwrap();
        assert_eq!(inquiry.begin(), Step::Ask(Question::DigestAt(Revision(9)), Duration::ZERO));
        assert_eq!(taken(inquiry.answered(&Answer::Digest(Digest::EMPTY))), Some(3));
    }

    #[test]
    fn a_generation_that_etcd_contradicts_or_nobody_can_check_is_passed() {
        let question = Question::DigestAt(Revision(9));
        let mut inquiry = Inquiry::into(&version(3, 9), &version(0, 20)).unwrap();
        assert_eq!(inquiry.answered(&other()), Step::Ask(question, BETWEEN_READS));
        assert_eq!(taken(inquiry.answered(&other())), Some(4));
        let mut inquiry = Inquiry::into(&version(3, 9), &version(0, 20)).unwrap();
        assert_eq!(taken(inquiry.answered(&Answer::Compacted)), Some(4));
        let mut foreign = version(3, 9);
        foreign.lineage.cluster_id = 2;
        assert_eq!(taken(Inquiry::into(&foreign, &version(0, 20)).unwrap().begin()), Some(4));
    }

    #[test]
    fn a_claim_of_the_future_is_for_the_heads_to_decide() {
        let mut inquiry = Inquiry::into(&version(3, 9), &version(0, 5)).unwrap();
        assert_eq!(inquiry.answered(&Answer::Future), Step::Ask(Question::Heads, Duration::ZERO));
        let again = Step::Ask(Question::DigestAt(Revision(9)), BETWEEN_READS);
        assert_eq!(inquiry.answered(&heads(&[5])), again);
        assert_eq!(inquiry.answered(&Answer::Future), Step::Ask(Question::Heads, Duration::ZERO));
        assert_eq!(taken(inquiry.answered(&heads(&[6]))), Some(4));
        let mut inquiry = Inquiry::into(&version(3, 9), &version(0, 5)).unwrap();
        assert_eq!(inquiry.answered(&heads(&[9])), Step::Open);
    }
}
