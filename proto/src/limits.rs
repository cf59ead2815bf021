//! Numbers that both sides of the second hop rely on.

use std::time::Duration;

/// The protocol's number; a peer with another one is refused by name.
pub const PROTOCOL: u32 = 1;

/// The largest frame either side accepts, in bytes. Above a single value's limit in etcd (1.5 MiB) with room for
/// its key and envelope.
pub const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// How many bytes of a transfer go into one part, and so to the transport at a time (a single larger value goes
/// alone).
pub const PART_BYTES: usize = 64 << 10;

/// How often a replica sends progress and a node answers.
pub const HEARTBEAT: Duration = Duration::from_secs(10);

/// How many heartbeats of silence make a peer dead, on both sides.
pub const SILENT_HEARTBEATS: u32 = 3;

/// After how long without a byte taken a transfer is ended.
pub const TRANSFER_TIMEOUT: Duration = Duration::from_secs(60);

/// How many fallback requests of a node may wait for their answer: it asks for no more, and a replica takes no more.
pub const MAX_FALLBACKS: usize = 64;

/// How many labels a node may send, and how long a name, id, label key or value may be in bytes.
pub const MAX_LABELS: usize = 64;

/// The longest identifier, label key or label value, in bytes.
pub const MAX_NAME_BYTES: usize = 256;

/// The longest reason text of a reject, in bytes; longer ones are cut.
pub const MAX_REASON_BYTES: usize = 1024;

/// The longest key of content, in bytes.
pub const MAX_KEY_BYTES: usize = 4096;
