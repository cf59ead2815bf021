//! The calls that are answered once.

use std::time::Duration;

use etcd_client::proto::{
    PbAuthenticateResponse, PbRangeResponse, PbStatusResponse, PbTxnRequest, PbTxnResponse,
};
use headwater_control_plane::backend::embedded::mvcc::{Header, RangeRequest as Wanted};
use headwater_model::Revision;
use tonic::{Request, Status};

use super::wire::{AuthenticateRequest, RangeRequest, StatusRequest};
use super::{Deviation, Shared, State, lock, wire};

/// A range that was read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) answer: PbRangeResponse,
    /// It is to be answered as a message that no decode limit lets pass.
    pub(super) above_all_limits: bool,
    /// It is to be answered so much later.
    pub(super) delay: Duration,
}

/// `KV.Range`, linearizable.
pub(super) fn range(state: &Shared, request: Request<RangeRequest>) -> Result<Read, Status> {
    let mut state = lock(state);
    state.check(&request)?;
    let request = request.into_inner();
    if request.serializable {
        return Err(Status::invalid_argument("nothing of this project may read what may be stale"));
    }
    if state.script.plays(&Deviation::Leaderless) {
        return Err(Status::unavailable("etcdserver: request timed out"));
    }
    let is_page = !request.count_only && !request.keys_only;
    if is_page && state.script.plays(&Deviation::PageCompacted) {
        return Err(Status::out_of_range("etcdserver: mvcc: required revision has been compacted"));
    }
    let wanted = Wanted {
        revision: wire::revision(request.revision),
        limit: usize::try_from(request.limit).unwrap_or(0),
        keys_only: request.keys_only,
        count_only: request.count_only,
        ..Wanted::of(wire::interval(request.key, request.range_end))
    };
    let mut read = state.mvcc.range(&wanted).map_err(|error| wire::refusal(&error))?;
    let keys = read.entries.len();
    let is_head = wanted.count_only;
    if is_head
        && let Some(behind) = state.script.play(|deviation| match deviation {
            Deviation::StaleHead(behind) => Some(*behind),
            _ => None,
        })
    {
        read.header.revision = Revision(read.header.revision.0.saturating_sub(behind));
    }
    let large = is_page
        && state
            .script
            .play(|deviation| matches!(deviation, Deviation::PagesAbove(most) if keys > *most).then_some(()))
            .is_some();
    state.seen.pages += u32::from(is_page && !large);
    if is_page && read.more && !large && state.script.plays(&Deviation::CompactedAfterPage) {
        state.write_elsewhere();
        let head = state.mvcc.revision();
        state.mvcc.compact(head).map_err(|error| wire::refusal(&error))?;
    }
    let slow = state.script.play(|deviation| match deviation {
        Deviation::SlowPages(delay) if is_page => Some(*delay),
        _ => None,
    });
    read.header = state.shown(read.header);
    Ok(Read { answer: wire::range(read), above_all_limits: large, delay: slow.unwrap_or_default() })
}

/// `KV.Txn`.
pub(super) fn txn(state: &Shared, request: Request<PbTxnRequest>) -> Result<PbTxnResponse, Status> {
    let mut state = lock(state);
    state.check(&request)?;
    if state.script.plays(&Deviation::NoSpace) {
        return Err(Status::resource_exhausted("etcdserver: mvcc: database space exceeded"));
    }
    let txn = wire::txn(request.into_inner())?;
    let mut answer = state.commit(&txn).map_err(|error| wire::refusal(&error))?;
    answer.header = state.shown(answer.header);
    Ok(wire::txn_answer(answer))
}

/// An alarm as Status words it.
const NO_SPACE: &str = "memberID:1 alarm:NOSPACE ";

/// `Maintenance.Status`: answered locally, also without a leader.
pub(super) fn status(state: &Shared, _: Request<StatusRequest>) -> Result<PbStatusResponse, Status> {
    let mut state = lock(state);
    if state.script.plays(&Deviation::StatusDenied) {
        return Err(Status::permission_denied("etcdserver: permission denied"));
    }
    let header = state.mvcc.header();
    let leaderless = state.script.holds(&Deviation::Leaderless);
    Ok(PbStatusResponse {
        header: Some(wire::header(state.shown(header))),
        version: state.version.to_owned(),
        leader: if leaderless { 0 } else { header.member_id },
        raft_term: header.raft_term,
        is_learner: state.script.plays(&Deviation::Learner),
        errors: if state.script.holds(&Deviation::NoSpace) { vec![NO_SPACE.to_owned()] } else { vec![] },
        ..PbStatusResponse::default()
    })
}

/// `Auth.Authenticate`.
pub(super) fn authenticate(
    state: &Shared,
    request: Request<AuthenticateRequest>,
) -> Result<PbAuthenticateResponse, Status> {
    let mut state = lock(state);
    let AuthenticateRequest { name, password } = request.into_inner();
    if state.auth.as_ref().is_none_or(|(user, secret)| (user, secret) != (&name, &password)) {
        return Err(Status::invalid_argument(
            "etcdserver: authentication failed, invalid user ID or password",
        ));
    }
    state.seen.authenticated += 1;
    let token = format!("fake.{}", state.seen.authenticated);
    state.tokens.insert(token.clone());
    let header = state.mvcc.header();
    Ok(PbAuthenticateResponse { header: Some(wire::header(header)), token })
}

// === impl State ===

impl State {
    fn check<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let token = request.metadata().get("token").and_then(|token| token.to_str().ok());
        self.refuses(token).map_or(Ok(()), Err)
    }

    /// The header as it is shown.
    pub(super) fn shown(&mut self, header: Header) -> Header {
        if self.script.plays(&Deviation::NoClusterId) { Header { cluster_id: 0, ..header } } else { header }
    }
}
