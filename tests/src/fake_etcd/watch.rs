//! `Watch.Watch`: what the model has for a stream goes out, bent by the script.
//!
//! A stream needs no task: it is driven by whoever reads its body, that is the connection. As with a real member the
//! response's headers go out with its first message.

use std::collections::VecDeque;
use std::time::Duration;

use etcd_client::proto::PbWatchResponse;
use futures_util::stream::{self, BoxStream, StreamExt};
use headwater_control_plane::backend::embedded::mvcc::{
    CreateWatch, EventKind, First, Header, StreamId, WatchRequest as Asked, WatchResponse,
};
use headwater_model::Revision;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tonic::metadata::MetadataMap;
use tonic::{Response, Status, Streaming};

use super::wire::{WatchCreate, WatchRequest, WatchUnion};
use super::{Deviation, Shared, State, lock, wire};

/// How often a stream is looked at, and watchers that are behind get a batch (etcd: every 100 ms).
const PASS: Duration = Duration::from_millis(10);

/// The watch id of a response for the whole stream, and of a watcher that was refused.
const NO_WATCHER: i64 = -1;

/// Who asks.
#[derive(Debug)]
pub(super) struct Client {
    token: Option<String>,
    requires_leader: bool,
}

/// One stream.
struct Session {
    state: Shared,
    id: StreamId,
    token: Option<String>,
    requests: Streaming<WatchRequest>,
    /// Says that the next message is above every limit.
    declare: Option<oneshot::Sender<()>>,
    outgoing: VecDeque<Result<WatchResponse, Status>>,
    /// Responses that go out later, in order.
    later: VecDeque<(Instant, WatchResponse)>,
    /// When progress goes out unasked.
    next_unasked: Instant,
    /// Nothing goes out before this.
    not_before: Instant,
    /// Responses with events that went out.
    batches: u32,
    /// Of the store, when the stream was opened.
    cuts: u32,
    ended: bool,
}

// === impl Client ===

impl Client {
    pub(super) fn of(metadata: &MetadataMap) -> Self {
        let text = |name| metadata.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Self { token: text("token"), requires_leader: text("hasleader").as_deref() == Some("true") }
    }
}

/// Opens a stream and waits for its first message.
pub(super) async fn open(
    state: Shared,
    client: Client,
    requests: Streaming<WatchRequest>,
    declare: Option<oneshot::Sender<()>>,
) -> Result<Response<BoxStream<'static, Result<PbWatchResponse, Status>>>, Status> {
    let (id, cuts) = {
        let mut state = lock(&state);
        state.seen.leader_not_required += u32::from(!client.requires_leader);
        if state.script.plays(&Deviation::Learner) {
            return Err(Status::failed_precondition("etcdserver: rpc not supported for learner"));
        }
        let leaderless =
            state.script.plays(&Deviation::Leaderless) || state.script.plays(&Deviation::LeaderLostAtWatch);
        if client.requires_leader && leaderless {
            return Err(Status::unavailable("etcdserver: no leader"));
        }
        (state.mvcc.open_stream(), state.cuts)
    };
    let mut session = Session {
        state,
        id,
        token: client.token,
        requests,
        declare,
        outgoing: VecDeque::new(),
        later: VecDeque::new(),
        next_unasked: Instant::now(),
        not_before: Instant::now(),
        batches: 0,
        cuts,
        ended: false,
    };
    let first = session.next().await;
    let rest = stream::unfold(session, |mut session| async move {
        session.next().await.map(|message| (message, session))
    });
    Ok(Response::new(stream::iter(first).chain(rest).boxed()))
}

// === impl Session ===

impl Session {
    async fn next(&mut self) -> Option<Result<PbWatchResponse, Status>> {
        loop {
            if self.ended {
                return None;
            }
            if let Some(message) = self.outgoing.pop_front() {
                self.ended = message.is_err();
                return Some(message.map(wire::watch));
            }
            tokio::select! {
                request = self.requests.message() => match request {
                    Ok(Some(request)) => self.asked(request),
                    // The client has said all it wants to; a correct one closes the stream then.
                    Ok(None) | Err(_) => return None,
                },
                () = sleep(PASS) => {}
            }
            self.pass();
        }
    }

    fn asked(&mut self, request: WatchRequest) {
        let shared = self.state.clone();
        let mut state = lock(&shared);
        match request.union {
            Some(WatchUnion::Create(create)) => self.create(&mut state, create),
            Some(WatchUnion::Cancel(cancel)) => {
                state.mvcc.request(self.id, Asked::Cancel { watch_id: cancel.watch_id });
            }
            Some(WatchUnion::Progress(_)) => self.progress(&mut state),
            None => self.end(Status::invalid_argument("an empty request")),
        }
    }

    fn create(&mut self, state: &mut State, create: WatchCreate) {
        state.seen.creates.push(create.clone());
        if state.script.plays(&Deviation::TokensExpireAtWatch) {
            state.tokens.clear();
        }
        let refused = state.script.play(|deviation| match deviation {
            Deviation::WatchRefused(reason) => Some((*reason).to_owned()),
            _ => None,
        });
        let token = state.refuses(self.token.as_deref());
        let token = token.map(|status| {
            let code = if status.code() == tonic::Code::Unauthenticated {
                "Unauthenticated"
            } else {
                "InvalidArgument"
            };
            format!("rpc error: code = {code} desc = {}", status.message())
        });
        let header = state.mvcc.header();
        if let Some(cancel_reason) = refused.or(token) {
            let refusal = WatchResponse {
                header,
                watch_id: NO_WATCHER,
                created: true,
                cancelled: true,
                cancel_reason,
                ..WatchResponse::default()
            };
            return self.outgoing.push_back(Ok(refusal));
        }
        if state.script.plays(&Deviation::ProgressBeforeCreated) {
            self.outgoing.push_back(Ok(progress(header)));
        }
        let create = CreateWatch {
            interval: wire::interval(create.key, create.range_end),
            start: wire::revision(create.start_revision),
            watch_id: create.watch_id,
            fragment: create.fragment,
            progress_notify: create.progress_notify,
        };
        state.mvcc.request(self.id, Asked::Create(create));
        if let Some(slow) = state.script.play(|deviation| match deviation {
            Deviation::SlowFirstFrame(slow) => Some(*slow),
            _ => None,
        }) {
            let created = state.mvcc.poll(self.id, First::Control);
            self.outgoing.extend(created.map(Ok));
            self.not_before = Instant::now() + slow;
        }
        if state.script.plays(&Deviation::CreatedLast) {
            state.mvcc.catch_up();
        }
    }

    fn progress(&mut self, state: &mut State) {
        state.seen.progress += 1;
        let unanswered = [Deviation::ProgressUnanswered, Deviation::WatchIdIgnored, Deviation::Silent];
        if unanswered.iter().any(|deviation| state.script.plays(deviation)) {
            return;
        }
        if state.script.play(unasked).is_some() {
            return;
        }
        let header = state.mvcc.header();
        let ahead = state.script.play(|deviation| match deviation {
            Deviation::ProgressAhead(_) => Some(header.revision),
            _ => None,
        });
        match ahead {
            Some(revision) => self.outgoing.push_back(Ok(progress(Header { revision, ..header }))),
            None => state.mvcc.request(self.id, Asked::Progress),
        }
    }

    /// One pass of etcd's loops, and everything that is ready goes out.
    fn pass(&mut self) {
        let shared = self.state.clone();
        let mut state = lock(&shared);
        if state.cuts != self.cuts || !state.mvcc.is_open(self.id) {
            return self.end(Status::unavailable("etcdserver: server stopped"));
        }
        let now = Instant::now();
        if now < self.not_before || state.script.plays(&Deviation::Silent) {
            return;
        }
        if !state.script.plays(&Deviation::NoCatchUp) {
            state.mvcc.catch_up();
        }
        if now >= self.next_unasked
            && let Some(every) = state.script.play(unasked)
        {
            self.next_unasked = now + every;
            state.mvcc.progress_tick(self.id);
        }
        while self.later.front().is_some_and(|(due, _)| *due <= now) {
            self.outgoing.extend(self.later.pop_front().map(|(_, response)| Ok(response)));
        }
        let first = if state.script.holds(&Deviation::CreatedLast) { First::Data } else { First::Control };
        while let Some(response) = state.mvcc.poll(self.id, first) {
            self.bend(&mut state, now, response);
            // After an end, or a message that ends it at the other side, there is nothing more.
            if now < self.not_before || self.outgoing.back().is_some_and(Result::is_err) {
                return;
            }
        }
    }

    /// Sends a response of the model as the script has it.
    fn bend(&mut self, state: &mut State, now: Instant, mut response: WatchResponse) {
        self.bend_identity(state, &mut response);
        if response.created && !response.cancelled && state.script.plays(&Deviation::BareCancel) {
            let header = Header { revision: Revision::ZERO, ..response.header };
            let watch_id = response.watch_id;
            self.outgoing.push_back(Ok(response));
            let cancel = WatchResponse { header, watch_id, cancelled: true, ..WatchResponse::default() };
            return self.outgoing.push_back(Ok(cancel));
        }
        if response.is_progress()
            && let Some(by) = state.script.play(low)
        {
            response.header.revision = Revision(response.header.revision.0.saturating_sub(by));
        }
        if response.events.is_empty() {
            return self.send(state, now, response);
        }
        if state.script.plays(&Deviation::EventsLost) {
            return;
        }
        if response.events.iter().any(|event| event.kind == EventKind::Delete)
            && state.script.plays(&Deviation::DeletionsLost)
        {
            response.events.retain(|event| event.kind == EventKind::Put);
            if response.events.is_empty() {
                return;
            }
        }
        let events = response.events.len();
        let large = |deviation: &Deviation| {
            matches!(deviation, Deviation::BatchesAbove(most) if events > *most).then_some(())
        };
        if state.script.play(large).is_some() {
            if let Some(declare) = self.declare.take() {
                let _ = declare.send(());
            }
            self.not_before = now + Duration::from_secs(3600);
            return;
        }
        self.batch(state, now, response);
    }

    /// A response with events that does go out.
    fn batch(&mut self, state: &mut State, now: Instant, response: WatchResponse) {
        self.batches += 1;
        let batches = self.batches;
        let is_split = response.fragment;
        if response.events.len() > 1 && !is_split && state.script.plays(&Deviation::RevisionSplit) {
            let mut second = response.clone();
            let mut first = response;
            second.events = first.events.split_off(first.events.len() / 2);
            self.send(state, now, first);
            return self.send(state, now, second);
        }
        let again = state.script.plays(&Deviation::EventsReplayed).then(|| response.clone());
        self.send(state, now, response);
        if let Some(again) = again {
            self.send(state, now, again);
        }
        let ends = |deviation: &Deviation| {
            matches!(deviation, Deviation::EndsAfter(after) if batches >= *after).then_some(())
        };
        if state.script.play(ends).is_some() || (is_split && state.script.plays(&Deviation::EndsInFragment)) {
            self.end(Status::unknown("h2 protocol error: error reading a body from connection"));
        }
    }

    /// At once, or after what goes out later.
    fn send(&mut self, state: &mut State, now: Instant, response: WatchResponse) {
        let has_events = !response.events.is_empty();
        let delay = state.script.play(|deviation| match deviation {
            Deviation::ProgressAhead(delay) if has_events => Some(*delay),
            _ => None,
        });
        match delay {
            Some(delay) => self.later.push_back((now + delay, response)),
            None if self.later.is_empty() => self.outgoing.push_back(Ok(response)),
            None => self.later.push_back((now, response)),
        }
    }

    fn bend_identity(&self, state: &mut State, response: &mut WatchResponse) {
        response.header = state.shown(response.header);
        if state.script.plays(&Deviation::NoIdentityInWatch) {
            (response.header.cluster_id, response.header.member_id) = (0, 0);
        }
        if state.script.plays(&Deviation::WatchIdIgnored) {
            response.watch_id = 0;
        }
        let (cluster, member) = state
            .script
            .play(|deviation| match deviation {
                Deviation::WatchFromMember(member) => Some((None, Some(*member))),
                Deviation::WatchFromCluster(cluster) => Some((Some(*cluster), None)),
                _ => None,
            })
            .unwrap_or_default();
        response.header.cluster_id = cluster.unwrap_or(response.header.cluster_id);
        response.header.member_id = member.unwrap_or(response.header.member_id);
    }

    fn end(&mut self, why: Status) {
        self.declare = None;
        self.outgoing.push_back(Err(why));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        lock(&self.state).mvcc.close_stream(self.id);
    }
}

fn low(deviation: &Deviation) -> Option<u64> {
    match deviation {
        Deviation::ProgressLow(by) => Some(*by),
        _ => None,
    }
}

fn unasked(deviation: &Deviation) -> Option<Duration> {
    match deviation {
        Deviation::ProgressUnasked(every) => Some(*every),
        _ => None,
    }
}

/// A progress response for the whole stream.
fn progress(header: Header) -> WatchResponse {
    WatchResponse { header, watch_id: NO_WATCHER, ..WatchResponse::default() }
}
