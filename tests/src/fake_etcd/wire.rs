//! etcd's messages as the fake needs them. Answers are the client crate's own; it hides its requests, so those are
//! written down here, by the numbers of `rpc.proto`, with the fields that this project's client may set.

use bytes::Bytes;
use etcd_client::proto::{
    PbCompare, PbDeleteResponse, PbEvent, PbKeyValue, PbPutResponse, PbRangeResponse, PbResponseHeader,
    PbResponseOp, PbTargetUnion, PbTxnOpRequest, PbTxnOpResponse, PbTxnRequest, PbTxnRequestOp,
    PbTxnResponse, PbWatchResponse,
};
use headwater_control_plane::backend::embedded::mvcc;
use headwater_control_plane::backend::embedded::mvcc::{
    Comparison, Event, EventKind, Header, Interval, KeyValue, Op, OpAnswer, RangeResponse, Relation, Target,
    Txn, TxnResponse, WatchResponse,
};
use headwater_model::Revision;
use tonic::Status;

/// `etcdserverpb.RangeRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct RangeRequest {
    /// The first key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The first key outside.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    /// At most so many keys.
    #[prost(int64, tag = "3")]
    pub limit: i64,
    /// Zero: now.
    #[prost(int64, tag = "4")]
    pub revision: i64,
    /// Not linearizable: the fake refuses it, as nothing here may ask so.
    #[prost(bool, tag = "7")]
    pub serializable: bool,
    /// No values.
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
    /// No keys.
    #[prost(bool, tag = "9")]
    pub count_only: bool,
}

/// `etcdserverpb.WatchRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct WatchRequest {
    /// What is asked.
    #[prost(oneof = "WatchUnion", tags = "1, 2, 3")]
    pub union: Option<WatchUnion>,
}

/// What a client asks on a watch stream.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub(super) enum WatchUnion {
    /// A watcher.
    #[prost(message, tag = "1")]
    Create(WatchCreate),
    /// The end of one.
    #[prost(message, tag = "2")]
    Cancel(WatchCancel),
    /// How far the stream is.
    #[prost(message, tag = "3")]
    Progress(WatchProgress),
}

/// `etcdserverpb.WatchCreateRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WatchCreate {
    /// The first key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The first key outside.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    /// The first revision wanted.
    #[prost(int64, tag = "3")]
    pub start_revision: i64,
    /// Progress also unasked.
    #[prost(bool, tag = "4")]
    pub progress_notify: bool,
    /// Kinds of events not wanted.
    #[prost(int32, repeated, tag = "5")]
    pub filters: Vec<i32>,
    /// Former values too.
    #[prost(bool, tag = "6")]
    pub prev_kv: bool,
    /// The id wanted.
    #[prost(int64, tag = "7")]
    pub watch_id: i64,
    /// Split large responses.
    #[prost(bool, tag = "8")]
    pub fragment: bool,
}

/// `etcdserverpb.WatchCancelRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct WatchCancel {
    /// Which.
    #[prost(int64, tag = "1")]
    pub watch_id: i64,
}

/// `etcdserverpb.WatchProgressRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct WatchProgress {}

/// `etcdserverpb.AuthenticateRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct AuthenticateRequest {
    /// The user.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The password.
    #[prost(string, tag = "2")]
    pub password: String,
}

/// `etcdserverpb.StatusRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct StatusRequest {}

/// A header.
pub(super) fn header(header: Header) -> PbResponseHeader {
    PbResponseHeader {
        cluster_id: header.cluster_id,
        member_id: header.member_id,
        revision: signed(header.revision),
        raft_term: header.raft_term,
    }
}

/// The answer of a range read.
pub(super) fn range(answer: RangeResponse) -> PbRangeResponse {
    PbRangeResponse {
        header: Some(header(answer.header)),
        kvs: answer.entries.iter().map(key_value).collect(),
        more: answer.more,
        count: i64::try_from(answer.count).expect("a test has few keys"),
    }
}

/// A response of a watch stream.
pub(super) fn watch(response: WatchResponse) -> PbWatchResponse {
    PbWatchResponse {
        header: Some(header(response.header)),
        watch_id: response.watch_id,
        created: response.created,
        canceled: response.cancelled,
        compact_revision: signed(response.compact_revision),
        cancel_reason: response.cancel_reason,
        fragment: response.fragment,
        events: response.events.iter().map(event).collect(),
    }
}

/// A transaction of puts and deletions under comparisons: what this project's client writes.
pub(super) fn txn(request: PbTxnRequest) -> Result<Txn, Status> {
    Ok(Txn {
        compares: request.compare.into_iter().map(comparison).collect::<Result<_, _>>()?,
        success: request.success.into_iter().map(operation).collect::<Result<_, _>>()?,
        failure: request.failure.into_iter().map(operation).collect::<Result<_, _>>()?,
    })
}

/// The answer of a transaction.
pub(super) fn txn_answer(answer: TxnResponse) -> PbTxnResponse {
    let own = Some(header(answer.header));
    let responses = answer.answers.into_iter().map(|answer| {
        let response = match answer {
            OpAnswer::Put { previous } => PbTxnOpResponse::ResponsePut(PbPutResponse {
                header: own,
                prev_kv: previous.as_ref().map(key_value),
            }),
            OpAnswer::Deleted { previous } => PbTxnOpResponse::ResponseDeleteRange(PbDeleteResponse {
                header: own,
                deleted: i64::try_from(previous.len()).expect("a test has few keys"),
                prev_kvs: Vec::new(),
            }),
            OpAnswer::Range(answer) => PbTxnOpResponse::ResponseRange(range(answer)),
        };
        PbResponseOp { response: Some(response) }
    });
    PbTxnResponse { header: own, succeeded: answer.succeeded, responses: responses.collect() }
}

/// How a refusal of the model looks on the wire: compaction has the code of a message that is too large.
pub(super) fn refusal(error: &mvcc::MvccError) -> Status {
    let text = error.to_string();
    match error {
        mvcc::MvccError::Compacted { .. } | mvcc::MvccError::Future { .. } => Status::out_of_range(text),
        _ => Status::invalid_argument(text),
    }
}

/// A revision from the wire; what is negative counts as zero.
pub(super) fn revision(signed: i64) -> Revision {
    Revision(u64::try_from(signed).unwrap_or(0))
}

fn signed(revision: Revision) -> i64 {
    i64::try_from(revision.0).expect("a test writes little")
}

fn key_value(entry: &KeyValue) -> PbKeyValue {
    PbKeyValue {
        key: entry.key.to_vec(),
        create_revision: signed(entry.create_revision),
        mod_revision: signed(entry.mod_revision),
        version: i64::try_from(entry.version).expect("a test writes little"),
        value: entry.value.to_vec(),
        lease: 0,
    }
}

fn event(event: &Event) -> PbEvent {
    let r#type = i32::from(event.kind == EventKind::Delete);
    PbEvent { r#type, kv: Some(key_value(&event.kv)), prev_kv: None }
}

fn comparison(compare: PbCompare) -> Result<Comparison, Status> {
    let target = match compare.target_union {
        Some(PbTargetUnion::Version(version)) => Target::Version(revision(version).0),
        Some(PbTargetUnion::CreateRevision(create)) => Target::Create(revision(create)),
        Some(PbTargetUnion::ModRevision(modified)) => Target::Mod(revision(modified)),
        Some(PbTargetUnion::Value(value)) => Target::Value(value.into()),
        _ => return Err(Status::unimplemented("the fake compares no leases")),
    };
    let relation = match compare.result {
        0 => Relation::Equal,
        1 => Relation::Greater,
        2 => Relation::Less,
        _ => Relation::NotEqual,
    };
    Ok(Comparison { interval: interval(compare.key, compare.range_end), target, relation })
}

fn operation(operation: PbTxnRequestOp) -> Result<Op, Status> {
    match operation.request {
        Some(PbTxnOpRequest::RequestPut(put)) => Ok(Op::Put { key: put.key.into(), value: put.value.into() }),
        Some(PbTxnOpRequest::RequestDeleteRange(delete)) => {
            Ok(Op::DeleteRange(interval(delete.key, delete.range_end)))
        }
        _ => Err(Status::unimplemented("the fake takes puts and deletions in a transaction")),
    }
}

/// Keys as requests name them.
pub(super) fn interval(key: Vec<u8>, range_end: Vec<u8>) -> Interval {
    Interval::from_request(Bytes::from(key), Bytes::from(range_end))
}
