//! The model against a naive one, and the rules of etcd's responses one by one.

mod laws;
mod store;
mod watching;

use bytes::Bytes;
use headwater_model::Revision;

use super::{CreateWatch, First, Identity, Interval, Limits, Mvcc, StreamId, WatchRequest, WatchResponse};

const IDENTITY: Identity = Identity { cluster_id: 7, member_id: 8, raft_term: 2 };

fn store() -> Mvcc {
    Mvcc::new(IDENTITY, Limits::ETCD)
}

fn everything() -> Interval {
    Interval::prefix(Bytes::from_static(b"/"))
}

fn watch(start: u64) -> WatchRequest {
    WatchRequest::Create(CreateWatch {
        interval: everything(),
        start: Revision(start),
        watch_id: 1,
        fragment: false,
        progress_notify: false,
    })
}

/// All that a stream has to say now.
fn drain(store: &mut Mvcc, stream: StreamId) -> Vec<WatchResponse> {
    std::iter::from_fn(|| store.poll(stream, First::Control)).collect()
}

/// A stream with one watcher whose created response was read.
fn watching(store: &mut Mvcc, start: u64) -> StreamId {
    let stream = store.open_stream();
    store.request(stream, watch(start));
    let created = store.poll(stream, First::Control).unwrap();
    assert!(created.created && !created.cancelled);
    stream
}

/// Until nobody is behind any more.
fn settle(store: &mut Mvcc) {
    while store.catch_up() > 0 {}
}
