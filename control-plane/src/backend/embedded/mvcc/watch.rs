//! Watch streams: watchers in sync, catching up, blocked and compacted, and the order of what a stream sends.
//!
//! As in etcd a stream has two queues: control (created, cancelled) and data (events, progress, cancels by
//! compaction). Data of a watcher waits until its created response is out; progress of the whole stream does not,
//! which is the hole that makes progress before created worth nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headwater_model::Revision;

use super::{Event, Header, Interval, Mvcc, wire};

/// The watch id of a response for the whole stream, and of a watcher that was refused.
const NO_WATCHER: i64 = -1;

/// Names one stream of one store. Never used again, also after a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u64);

/// What a client asks on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchRequest {
    /// A watcher.
    Create(CreateWatch),
    /// The end of a watcher.
    Cancel {
        /// Which.
        watch_id: i64,
    },
    /// Progress of the whole stream.
    Progress,
}

/// A watcher to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateWatch {
    /// What to watch.
    pub interval: Interval,
    /// The first revision wanted; zero for "from now on".
    pub start: Revision,
    /// Its id; zero lets the store choose.
    pub watch_id: i64,
    /// Split large responses.
    pub fragment: bool,
    /// Send progress also unasked, at each [`Mvcc::progress_tick`].
    pub progress_notify: bool,
}

/// A response of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchResponse {
    /// Certifies what the kind of response certifies, and no more.
    pub header: Header,
    /// The watcher, or −1.
    pub watch_id: i64,
    /// The watcher was registered, or refused when cancelled too.
    pub created: bool,
    /// The watcher is no more.
    pub cancelled: bool,
    /// Above zero: cancelled because of a compaction to this revision.
    pub compact_revision: Revision,
    /// Why, in words; empty for a compaction and a cancel that was asked for.
    pub cancel_reason: String,
    /// More parts of this response follow.
    pub fragment: bool,
    /// In revision order.
    pub events: Vec<Event>,
}

/// Which queue of a stream is looked at first: etcd takes either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// Created and cancelled responses.
    Control,
    /// Events and progress.
    Data,
}

/// One watch stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    watchers: BTreeMap<i64, Watcher>,
    next_id: i64,
    control: VecDeque<Control>,
    data: VecDeque<Data>,
    /// Watchers whose created response is out and not cancelled.
    announced: BTreeSet<i64>,
    /// Data of watchers whose created response is not out.
    pending: BTreeMap<i64, Vec<WatchResponse>>,
    /// What goes out next, before either queue.
    outgoing: VecDeque<WatchResponse>,
}

#[derive(Clone, Debug)]
struct Control {
    header: Header,
    watch_id: i64,
    created: bool,
    cancelled: bool,
    reason: &'static str,
}

#[derive(Clone, Debug)]
struct Data {
    watch_id: i64,
    revision: Revision,
    compact_revision: Revision,
    events: Vec<Event>,
}

#[derive(Clone, Debug)]
struct Watcher {
    interval: Interval,
    start: Revision,
    /// The next revision it needs.
    next: Revision,
    fragment: bool,
    progress_notify: bool,
    /// The next tick of unasked progress is for it: no event since the last one.
    due: bool,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    Synced,
    Unsynced,
    /// Its events did not fit into the queue; `more` is the next revision it needs if they were not all.
    Victim {
        events: Vec<Event>,
        more: Option<Revision>,
    },
    /// Cancelled by compaction, and in the stream's table until the client cancels it.
    Compacted,
}

// === impl WatchResponse ===

impl WatchResponse {
    /// Whether it is a progress response: the same test as etcd's own client makes.
    #[must_use]
    pub fn is_progress(&self) -> bool {
        self.events.is_empty()
            && !self.created
            && !self.cancelled
            && self.compact_revision == Revision::ZERO
            && self.header.revision != Revision::ZERO
    }

    /// Its length on the wire.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        wire::response(self)
    }
}

// === impl Mvcc ===

impl Mvcc {
    /// Opens a stream without watchers.
    pub fn open_stream(&mut self) -> StreamId {
        let id = StreamId(self.next_stream);
        self.next_stream += 1;
        self.streams.insert(id, Stream::default());
        id
    }

    /// Closes a stream with all its watchers; what was not polled is gone.
    pub fn close_stream(&mut self, id: StreamId) {
        self.streams.remove(&id);
    }

    /// Whether the stream is open: a restore closes all.
    #[must_use]
    pub fn is_open(&self, id: StreamId) -> bool {
        self.streams.contains_key(&id)
    }

    /// How many watchers all streams hold.
    #[must_use]
    pub fn watchers(&self) -> usize {
        self.streams.values().map(|stream| stream.watchers.len()).sum()
    }

    /// Takes a request of a client; on a closed stream it does nothing.
    pub fn request(&mut self, id: StreamId, request: WatchRequest) {
        let header = self.header();
        let Some(stream) = self.streams.get_mut(&id) else { return };
        match request {
            WatchRequest::Create(create) => stream.create(create, header),
            WatchRequest::Cancel { watch_id } => stream.cancel(watch_id, header),
            WatchRequest::Progress => stream.progress_all(self.revision, self.limits.stream_responses),
        }
    }

    /// etcd's ticker of unasked progress: each watcher that wants it, is in sync and had no event since the last
    /// tick is told of the current revision.
    pub fn progress_tick(&mut self, id: StreamId) {
        let (revision, room) = (self.revision, self.limits.stream_responses);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Stream { watchers, data, .. } = stream;
        for (watch_id, watcher) in watchers.iter_mut().filter(|(_, watcher)| watcher.progress_notify) {
            if watcher.due && watcher.may_progress(revision) && data.len() < room {
                data.push_back(Data::progress(*watch_id, revision));
            }
            watcher.due = true;
        }
    }

    /// One pass of etcd's loops for watchers that are not in sync (etcd makes one each 100 ms): blocked ones try
    /// again, compacted ones are cancelled, the others get their next batch. Gives how many are still not in sync.
    pub fn catch_up(&mut self) -> usize {
        let mut streams = std::mem::take(&mut self.streams);
        let behind = streams.values_mut().map(|stream| stream.catch_up(self)).sum();
        self.streams = streams;
        behind
    }

    /// The next response of the stream, looking at the queue `first` first.
    pub fn poll(&mut self, id: StreamId, first: First) -> Option<WatchResponse> {
        let header = self.header();
        let fragment_bytes = self.limits.fragment_bytes;
        let stream = self.streams.get_mut(&id)?;
        while stream.outgoing.is_empty() {
            let sent = match first {
                First::Control => stream.send_control() || stream.send_data(header, fragment_bytes),
                First::Data => stream.send_data(header, fragment_bytes) || stream.send_control(),
            };
            if !sent {
                return None;
            }
        }
        stream.outgoing.pop_front()
    }

    /// Tells the watchers in sync of a new revision, before it becomes the current one.
    pub(super) fn notify(&mut self, revision: Revision, events: &[Event]) {
        let room = self.limits.stream_responses;
        for stream in self.streams.values_mut() {
            let Stream { watchers, data, .. } = stream;
            for (watch_id, watcher) in watchers {
                if !matches!(watcher.place, Place::Synced) || watcher.next > revision {
                    continue;
                }
                let wanted: Vec<Event> =
                    events.iter().filter(|event| watcher.interval.contains(&event.kv.key)).cloned().collect();
                if wanted.is_empty() {
                    continue;
                }
                watcher.next = revision.next();
                if data.len() < room {
                    data.push_back(Data::events(*watch_id, revision, wanted));
                } else {
                    watcher.place = Place::Victim { events: wanted, more: None };
                }
            }
        }
    }

    /// The next batch of a watcher that catches up, and the revision that follows if there is more.
    fn batch_for(&self, watcher: &Watcher) -> (Vec<Event>, Option<Revision>) {
        let (mut events, mut revisions) = (Vec::new(), 0);
        for (revision, all) in self.log.range(watcher.next..) {
            let mut wanted = all.iter().filter(|event| watcher.interval.contains(&event.kv.key)).peekable();
            if wanted.peek().is_none() {
                continue;
            }
            if revisions == self.limits.revisions_per_pass {
                return (events, Some(*revision));
            }
            revisions += 1;
            events.extend(wanted.cloned());
        }
        (events, None)
    }
}

// === impl Stream ===

impl Stream {
    fn create(&mut self, create: CreateWatch, header: Header) {
        let refuse =
            |reason| Control { header, watch_id: NO_WATCHER, created: true, cancelled: true, reason };
        if create.interval.is_empty() {
            return self.control.push_back(refuse("mvcc: watcher range is empty"));
        }
        if create.watch_id != 0 && self.watchers.contains_key(&create.watch_id) {
            return self.control.push_back(refuse("mvcc: duplicate watch ID provided on the WatchStream"));
        }
        let watch_id = if create.watch_id == 0 { self.free_id() } else { create.watch_id };
        let current = header.revision;
        // A start that is still to come is taken without a word; it even counts as in sync.
        let synced = create.start > current || create.start == Revision::ZERO;
        let watcher = Watcher {
            interval: create.interval,
            start: create.start,
            next: if synced { create.start.max(current.next()) } else { create.start },
            fragment: create.fragment,
            progress_notify: create.progress_notify,
            due: true,
            place: if synced { Place::Synced } else { Place::Unsynced },
        };
        self.watchers.insert(watch_id, watcher);
        self.control.push_back(Control { header, watch_id, created: true, cancelled: false, reason: "" });
    }

    fn free_id(&mut self) -> i64 {
        while self.watchers.contains_key(&self.next_id) {
            self.next_id += 1;
        }
        self.next_id += 1;
        self.next_id - 1
    }

    fn cancel(&mut self, watch_id: i64, header: Header) {
        if self.watchers.remove(&watch_id).is_some() {
            self.control.push_back(Control { header, watch_id, created: false, cancelled: true, reason: "" });
        }
    }

    /// Nothing is said when any watcher of the stream is not in sync, or none is there, or the queue is full.
    fn progress_all(&mut self, revision: Revision, room: usize) {
        let all = self.watchers.values().all(|watcher| watcher.may_progress(revision));
        if all && !self.watchers.is_empty() && self.data.len() < room {
            self.data.push_back(Data::progress(NO_WATCHER, revision));
        }
    }

    fn catch_up(&mut self, store: &Mvcc) -> usize {
        let mut behind = 0;
        for (watch_id, watcher) in &mut self.watchers {
            watcher.catch_up(*watch_id, &mut self.data, store);
            behind += usize::from(matches!(watcher.place, Place::Unsynced | Place::Victim { .. }));
        }
        behind
    }

    fn send_control(&mut self) -> bool {
        let Some(Control { header, watch_id, created, cancelled, reason }) = self.control.pop_front() else {
            return false;
        };
        self.outgoing.push_back(WatchResponse {
            header,
            watch_id,
            created,
            cancelled,
            cancel_reason: reason.to_owned(),
            ..WatchResponse::default()
        });
        if cancelled {
            self.announced.remove(&watch_id);
        } else {
            self.announced.insert(watch_id);
            // What waited for the created response is never split.
            self.outgoing.extend(self.pending.remove(&watch_id).into_iter().flatten());
        }
        true
    }

    fn send_data(&mut self, header: Header, fragment_bytes: usize) -> bool {
        let Some(Data { watch_id, revision, compact_revision, events }) = self.data.pop_front() else {
            return false;
        };
        let happened = !events.is_empty();
        let response = WatchResponse {
            header: Header { revision, ..header },
            watch_id,
            cancelled: compact_revision > Revision::ZERO,
            compact_revision,
            events,
            ..WatchResponse::default()
        };
        if watch_id != NO_WATCHER && !self.announced.contains(&watch_id) {
            self.pending.entry(watch_id).or_default().push(response);
            return true;
        }
        let mut split = false;
        if let Some(watcher) = self.watchers.get_mut(&watch_id) {
            split = watcher.fragment;
            watcher.due &= !happened;
        }
        if split {
            self.send_fragments(response, fragment_bytes);
        } else {
            self.outgoing.push_back(response);
        }
        true
    }

    /// Splits between events, never one event; all parts carry the same header.
    fn send_fragments(&mut self, mut response: WatchResponse, fragment_bytes: usize) {
        if response.events.len() < 2 || response.encoded_len() < fragment_bytes {
            return self.outgoing.push_back(response);
        }
        let events = std::mem::take(&mut response.events);
        response.fragment = true;
        let empty = response.encoded_len();
        let (mut part, mut length) = (response.clone(), empty);
        for event in events {
            let added = wire::event_in_response(&event);
            if !part.events.is_empty() && length + added >= fragment_bytes {
                self.outgoing.push_back(std::mem::replace(&mut part, response.clone()));
                length = empty;
            }
            length += added;
            part.events.push(event);
        }
        part.fragment = false;
        self.outgoing.push_back(part);
    }
}

// === impl Watcher ===

impl Watcher {
    /// A start that is still to come, be it the very next revision, holds progress back.
    fn may_progress(&self, revision: Revision) -> bool {
        matches!(self.place, Place::Synced) && revision >= self.start
    }

    fn catch_up(&mut self, watch_id: i64, data: &mut VecDeque<Data>, store: &Mvcc) {
        let full = data.len() >= store.limits.stream_responses;
        match &mut self.place {
            Place::Synced | Place::Compacted => return,
            Place::Victim { .. } if full => return,
            Place::Victim { events, more } => {
                // What it has seen is everything below what it needs next.
                let seen = Revision(self.next.0 - 1);
                data.push_back(Data::events(watch_id, seen, std::mem::take(events)));
                self.next = more.unwrap_or(self.next);
                let synced = self.next > store.revision;
                self.place = if synced { Place::Synced } else { Place::Unsynced };
                return;
            }
            Place::Unsynced => {}
        }
        if self.next < store.compacted {
            if !full {
                data.push_back(Data::compacted(watch_id, store.compacted));
                self.place = Place::Compacted;
            }
            return;
        }
        let (events, more) = store.batch_for(self);
        self.next = more.unwrap_or_else(|| self.next.max(store.revision.next()));
        self.place = match more {
            _ if full && !events.is_empty() => {
                self.place = Place::Victim { events, more };
                return;
            }
            Some(_) => Place::Unsynced,
            None => Place::Synced,
        };
        if !events.is_empty() {
            data.push_back(Data::events(watch_id, store.revision, events));
        }
    }
}

// === impl Data ===

impl Data {
    const fn progress(watch_id: i64, revision: Revision) -> Self {
        Self::events(watch_id, revision, Vec::new())
    }

    const fn events(watch_id: i64, revision: Revision, events: Vec<Event>) -> Self {
        Self { watch_id, revision, compact_revision: Revision::ZERO, events }
    }

    const fn compacted(watch_id: i64, compact_revision: Revision) -> Self {
        Self { watch_id, revision: Revision::ZERO, compact_revision, events: Vec::new() }
    }
}
