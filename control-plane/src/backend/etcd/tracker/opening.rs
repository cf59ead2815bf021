//! From a connection to an open watch: release, header check, content proof, load.

use std::time::Duration;

use headwater_model::Revision;
use headwater_model::mutant::planted;

use super::held::{Held, Verdict};
use super::input::{Action, Blame, Failure, Fault, Header, Member, MemberVersion, Page, Proof, Testimony};
use super::loading::Loading;
use super::stream::Stream;
use super::{Phase, Tracker};
use crate::backend::etcd::version_gate;
use crate::backend::{Continuity, Load, SourceEvent, Stage};

/// Added to the attempt's number, so that the watch id is one that nobody would pick by himself (W29).
const WATCH_ID_BASE: i64 = 0x4857_0000;

impl Tracker {
    pub(super) fn connect(&mut self, now: Duration) {
        self.attempt.0 += 1;
        self.phase = Phase::Connecting { until: now + self.settings.connect_timeout };
        self.out.push(Action::Connect { attempt: self.attempt });
        self.stage(Stage::Connecting, None);
    }

    pub(super) fn on_connected(&mut self, now: Duration, member: Member) {
        if !matches!(self.phase, Phase::Connecting { .. }) {
            return;
        }
        // W23: the release is looked at on every connect, per member.
        let assumed = self.settings.assume_version.as_deref();
        let judged = version_gate::judge(&member.version, assumed, self.settings.allow_unsafe_etcd);
        let (learner, has_leader) = (member.learner, member.has_leader);
        self.member = Some(member);
        match judged {
            Ok(trust) => self.trust = trust,
            Err(refusal) => {
                self.trust = version_gate::Trust::NOTHING;
                return self.refuse(now, Blame::Member, refusal);
            }
        }
        // DESIGN 4.13: no learner, and none without a leader (W18: its progress would look fine).
        if learner {
            return self.fail(now, Blame::Member, "the member is a learner: it serves no watches");
        }
        if !has_leader {
            return self.fail(now, Blame::Member, "the member knows no leader");
        }
        self.check(now, false);
    }

    /// W6: before each create a linearizable read on the member of the watch.
    fn check(&mut self, now: Duration, for_load: bool) {
        let until = now + self.settings.check_timeout;
        self.phase = if for_load { Phase::CheckingLoad { until } } else { Phase::Checking { until } };
        self.out.push(Action::CheckHeader { attempt: self.attempt });
        if !for_load {
            self.stage(Stage::Proving, None);
        }
    }

    /// The second of two reads.
    pub(super) fn check_again(&mut self, now: Duration) {
        self.check(now, false);
    }

    pub(super) fn on_header(&mut self, now: Duration, header: Header) {
        if !matches!(self.phase, Phase::Checking { .. } | Phase::CheckingLoad { .. })
            || !self.is_same_member(now, header)
        {
            return;
        }
        // W6 also looks at the raft term. A lower one is a hint only, and the content proof that follows at every
        // reconnect is stronger, so it decides alone.
        let for_load = matches!(self.phase, Phase::CheckingLoad { .. });
        let other_cluster = header.cluster_id != self.checked.cluster_id;
        self.checked = header;
        if for_load && other_cluster {
            return self.fail(now, Blame::Member, "the cluster changed while it was being read");
        }
        if for_load {
            return self.watch_load(now);
        }
        let Some(held) = &self.held else {
            return self.load(now, Continuity::First);
        };
        #[cfg(headwater_mutants)]
        if planted("advance-on-timeout") && std::mem::take(&mut self.timed_out) {
            return self.advance_to_sampled_head(now, header);
        }
        // DESIGN 4.7 and section 5: a different cluster, or a head below what was published.
        if header.cluster_id != held.cluster_id {
            let evidence = format!(
                "the cluster id is {:x}, what is held came from cluster {:x}",
                header.cluster_id, held.cluster_id
            );
            return self.suspect(now, evidence);
        }
        if header.revision < held.revision && !planted("rewind-not-looked-for") {
            let evidence =
                format!("etcd is at revision {}, revision {} was delivered", header.revision, held.revision);
            return self.suspect(now, evidence);
        }
        let question = held.question();
        self.phase = Phase::Proving { until: now + self.settings.proof_timeout };
        self.out.push(Action::Prove { attempt: self.attempt, question });
    }

    /// W4, W29: answers of the watch connection come from one member, and a proxy has no identity.
    fn is_same_member(&mut self, now: Duration, header: Header) -> bool {
        if header.cluster_id == 0 || header.member_id == 0 {
            self.refuse(now, Blame::Member, super::stream::PROXY.to_owned());
            return false;
        }
        let known = self.member.as_ref().map_or(0, |member| member.member_id);
        if known != 0 && known != header.member_id {
            let note = "one connection was answered by two members: is there a load balancer between?";
            self.fail(now, Blame::Member, note);
            return false;
        }
        if let Some(member) = &mut self.member {
            member.member_id = header.member_id;
            member.cluster_id = header.cluster_id;
        }
        true
    }

    /// DESIGN section 5: a rewind needs two reads, at least [`doubt`](super::Settings::doubt) apart, and the agreement
    /// of the other members.
    fn suspect(&mut self, now: Duration, evidence: String) {
        if self.doubt.take().is_some() {
            return self.ask_others(now, evidence);
        }
        self.phase = Phase::Doubting { until: now + self.settings.doubt };
        let note = format!("{evidence}: reading once more before the history counts as replaced");
        self.doubt = Some(evidence);
        self.stage(Stage::Proving, Some(note));
    }

    fn ask_others(&mut self, now: Duration, evidence: String) {
        let Some(held) = self.held.as_ref().filter(|_| self.settings.members > 1) else {
            return self.load(now, Continuity::Rewound { evidence });
        };
        let (question, within) = (held.question(), self.settings.others_timeout);
        // Whoever carries it out answers within the time with what it has; the rest is for when it does not.
        self.phase = Phase::Asking { until: now + within * 2 };
        self.out.push(Action::AskOthers { attempt: self.attempt, question, within });
        let note = format!("{evidence}: asking the other members before the history counts as replaced");
        self.doubt = Some(evidence);
        self.stage(Stage::Proving, Some(note));
    }

    /// One member that still has the history denies its end: then two members differ, which no client can settle.
    pub(super) fn on_others(&mut self, now: Duration, answers: &[Testimony]) {
        if !matches!(self.phase, Phase::Asking { .. }) {
            return;
        }
        let (Some(held), Some(evidence)) = (&self.held, self.doubt.take()) else { return };
        // The same member under another name has no say.
        let mut others = answers.iter().filter(|other| other.header.member_id != self.checked.member_id);
        let denial = |other: &&Testimony| held.is_kept_by(other) && !planted("denial-overheard");
        let Some(denier) = others.find(denial) else {
            return self.load(now, Continuity::Rewound { evidence });
        };
        let note = format!(
            "member_divergence: {evidence}, but {} still has what is held, so nothing is changed. Compare the members (etcdctl endpoint hashkv) and replace the one that is wrong",
            denier.endpoint
        );
        self.counters.member_divergences += 1;
        self.fail(now, Blame::Member, &note);
    }

    pub(super) fn on_proof(&mut self, now: Duration, proof: &Proof) {
        if !matches!(self.phase, Phase::Proving { .. }) || !self.is_same_member(now, proof.header) {
            return;
        }
        let Some(held) = &self.held else { return };
        match held.judge(proof) {
            Verdict::Different(evidence) if !planted("content-proof-not-judged") => {
                self.suspect(now, evidence);
            }
            Verdict::Same | Verdict::Different(_) => {
                self.doubt = None;
                self.go_on(now, held.revision);
            }
        }
    }

    /// The history is the same up to the safe revision: resume, or read everything all the same.
    fn go_on(&mut self, now: Duration, safe: Revision) {
        let ahead = self.checked.revision.0.saturating_sub(safe.0);
        // DESIGN 4.3: too far behind. W7: releases that may lose a deletion at a resume.
        if self.must_reload.is_some() || ahead > self.settings.resume_span || self.trust.relist_on_resume {
            self.load(now, Continuity::Proven);
        } else {
            self.open_watch(now, safe, ahead > 0);
        }
    }

    fn load(&mut self, now: Duration, continuity: Continuity) {
        self.loading = Some(Loading::new(continuity));
        self.phase = Phase::FirstPage { until: now + self.settings.page_timeout };
        self.out.push(Action::ReadPage {
            attempt: self.attempt,
            revision: None,
            after: None,
            limit: self.page_keys,
        });
        let note = self.must_reload.clone();
        self.stage(Stage::Loading, note);
    }

    pub(super) fn on_page(&mut self, now: Duration, page: Page) {
        let Some(loading) = &mut self.loading else { return };
        if page.header.cluster_id != self.checked.cluster_id {
            return self.fail(now, Blame::Stream, "a page was read from another cluster than is watched");
        }
        match self.phase {
            Phase::FirstPage { .. } => {
                if page.header.revision < self.checked.revision {
                    return self.fail(
                        now,
                        Blame::Stream,
                        "a linearizable read went back behind an earlier one",
                    );
                }
                let risen = self.held.as_ref().is_some_and(|held| {
                    self.checked.revision < held.revision && held.revision <= page.header.revision
                });
                if risen && matches!(loading.continuity, Continuity::Rewound { .. }) {
                    // A member that was behind has caught up, or a new history has grown past the old one: which of
                    // the two, the content tells.
                    let note = "etcd's head lay below what was delivered and does no longer: proving again";
                    return self.fail(now, Blame::Stream, note);
                }
                loading.take(page);
                self.check(now, true);
            }
            Phase::Watching if loading.page_until.is_some() => {
                loading.take(page);
                self.next_page(now);
            }
            _ => {}
        }
    }

    /// W28: the watch is opened at R before the pages after the first are read.
    fn watch_load(&mut self, now: Duration) {
        let Some(loading) = &self.loading else { return };
        let revision = loading.revision;
        // W6: the member of the watch has reached R, so that the watch is none of the future.
        if self.checked.revision < revision {
            return self.fail(now, Blame::Member, "the watched member answered a head behind the pages read");
        }
        self.open_watch(now, revision, false);
    }

    /// W5: never from "now". And from the safe revision itself, not the one after it: a watch whose start is still
    /// to come, be it the very next revision, is not answered any progress request, so on a quiet etcd it could not
    /// be told from a dead one. What comes again of the safe revision is dropped (W11).
    fn open_watch(&mut self, now: Duration, safe: Revision, behind: bool) {
        #[expect(clippy::cast_possible_wrap, reason = "attempts are counted one by one from zero")]
        let watch_id = WATCH_ID_BASE + self.attempt.0 as i64;
        self.phase = Phase::Watching;
        self.stream = Some(Stream::new(now, safe, watch_id, behind, &self.settings));
        let start = if planted("watch-from-the-head") { self.checked.revision.next() } else { safe };
        self.out.push(Action::OpenWatch { attempt: self.attempt, start, watch_id });
        if planted("progress-before-created") {
            self.out.push(Action::RequestProgress { attempt: self.attempt });
        }
    }

    /// Asks for the next page, or installs the load.
    pub(super) fn next_page(&mut self, now: Duration) {
        let Some(loading) = &mut self.loading else { return };
        if !loading.more || planted("load-installed-after-page-one") {
            return self.install();
        }
        loading.page_until = Some(now + self.settings.page_timeout);
        self.out.push(Action::ReadPage {
            attempt: self.attempt,
            revision: Some(loading.revision),
            after: loading.last_key(),
            limit: self.page_keys,
        });
    }

    /// W1 (i), W28: installed as a whole before any event; what the watch delivered meanwhile follows.
    fn install(&mut self) {
        let (Some(loading), Some(stream)) = (self.loading.take(), &self.stream) else { return };
        let (cluster_id, certified) = (self.checked.cluster_id, stream.safe);
        let mut held = Held::from_entries(self.held.take(), cluster_id, loading.revision, &loading.entries);
        let waited = !loading.meanwhile.is_empty() && !planted("events-during-a-load-lost");
        let batch = waited.then(|| loading.meanwhile.into_batch());
        self.counters.loads += 1;
        self.must_reload = None;
        self.load_restarts = 0;
        self.from_file = false;
        let generation = std::mem::take(&mut self.generation);
        self.emit(SourceEvent::Loaded(Load {
            cluster_id,
            revision: loading.revision,
            entries: loading.entries,
            continuity: loading.continuity,
            generation,
        }));
        let mut delivered = loading.revision;
        if let Some(batch) = batch {
            batch.events.iter().for_each(|event| held.apply(event));
            delivered = batch.revision;
            self.emit(SourceEvent::Batch(batch));
        }
        if certified > delivered {
            self.emit(SourceEvent::Progress(certified));
        }
        held.revision = certified;
        self.held = Some(held);
        self.announce_liveness();
    }

    pub(super) fn on_page_timeout(&mut self, now: Duration) {
        self.page_keys = (self.page_keys / 2).max(1);
        self.fail(now, Blame::Silence, "a page was not answered in time");
    }

    pub(super) fn on_call_failed(&mut self, now: Duration, failure: &Failure) {
        let paging = matches!(self.phase, Phase::FirstPage { .. })
            || self.loading.as_ref().is_some_and(|loading| loading.page_until.is_some());
        match failure.fault {
            // W7: the proof cannot be made any more.
            Fault::Compacted if matches!(self.phase, Phase::Proving { .. }) => {
                self.load(now, Continuity::Unproven);
            }
            // W28: compacted between two pages: start over, within a bound.
            Fault::Compacted => self.restart_load(now, "the revision being read was compacted"),
            Fault::TooLarge if paging && self.page_keys > 1 => self.halve_page(now),
            Fault::Timeout if paging => self.on_page_timeout(now),
            _ => self.fail_by(now, failure),
        }
    }

    /// DESIGN 4.6: a page that is too big is asked for again with half as many keys.
    fn halve_page(&mut self, now: Duration) {
        self.page_keys /= 2;
        match self.loading.take() {
            Some(loading) if matches!(self.phase, Phase::FirstPage { .. }) => {
                self.load(now, loading.continuity);
            }
            loading => {
                self.loading = loading;
                self.next_page(now);
            }
        }
    }

    /// Sorts a failure by what it means for stream, connection, member and token.
    pub(super) fn fail_by(&mut self, now: Duration, failure: &Failure) {
        match failure.fault {
            Fault::Transport | Fault::NoLeader => self.fail(now, Blame::Member, &failure.message),
            Fault::Timeout => self.fail(now, Blame::Silence, &failure.message),
            // W24: authenticate again and come back; what is held stays.
            Fault::Token => self.fail(now, Blame::Token, &failure.message),
            Fault::Denied => {
                let note = format!(
                    "{}: check the user, its password and that it may read the whole prefix",
                    failure.message
                );
                self.refuse(now, Blame::Token, note);
            }
            Fault::Compacted | Fault::Future | Fault::TooLarge | Fault::Other => {
                self.fail(now, Blame::Stream, &failure.message);
            }
        }
    }

    /// The mutant: a compacted watch goes on where it can, and what was deleted before stays.
    #[cfg(headwater_mutants)]
    pub(super) fn resume_at(&mut self, now: Duration, revision: Revision) {
        self.fail(now, Blame::Stream, "a mutant goes on at the compact revision");
        if let Some(held) = &mut self.held {
            held.revision = held.revision.max(revision);
            let safe = held.revision;
            self.emit(SourceEvent::Progress(safe));
        }
    }

    /// The mutant: the head that was sampled after the timeout passes for what was delivered.
    #[cfg(headwater_mutants)]
    fn advance_to_sampled_head(&mut self, now: Duration, header: Header) {
        if let Some(held) = &mut self.held {
            held.revision = held.revision.max(header.revision);
            let safe = held.revision;
            self.open_watch(now, safe, false);
            self.emit(SourceEvent::Progress(safe));
        }
    }
}

impl Member {
    /// The release, where it is known.
    pub(super) fn version(&self) -> Option<String> {
        match &self.version {
            MemberVersion::Known(version) => Some(version.clone()),
            MemberVersion::Denied(_) => None,
        }
    }
}
