//! What operators and others do to etcd.

use bytes::Bytes;
use headwater_control_plane::backend::embedded::mvcc::{Interval, Op, Txn};
use headwater_model::{Key, Kind};

use super::etcd::PREFIX;
use super::random::Random;

/// Draws transactions; every value is written once.
#[derive(Clone, Debug)]
pub struct Workload {
    values: u64,
    bulky: bool,
}

/// What a value that no node can use says.
const BAD: &str = "bad";

/// Blanks behind a value of a bulky world: it is sent alone, and several make a long transfer.
const BULK: usize = 66 << 10;

/// Whether a node must reject a value.
#[must_use]
pub fn is_bad(key: &Key, value: &[u8]) -> bool {
    let head = &value[..value.len().min(64)];
    key.kind() == Kind::Ssls || head.windows(BAD.len()).any(|window| window == BAD.as_bytes())
}

// === impl Workload ===

impl Workload {
    /// Of a world whose values are large, or small.
    #[must_use]
    pub const fn new(bulky: bool) -> Self {
        Self { values: 0, bulky }
    }

    /// The next transaction.
    pub fn next(&mut self, random: &mut Random) -> Txn {
        match random.below(20) {
            // Nobody's business here, but it moves the revision.
            0..5 => self.put("/elsewhere/1".to_owned(), random),
            // As the nodes of today write beside their configuration.
            5 => self.put(format!("{PREFIX}data_plane/server_info/1"), random),
            6 => Txn::all([Op::DeleteRange(Interval::prefix(format!("{PREFIX}routes/").into()))]),
            7 => Txn::delete("/elsewhere/nothing"),
            8..11 => self.several(random),
            11..14 => Txn::delete(key(random)),
            _ => {
                let key = key(random);
                self.put(key, random)
            }
        }
    }

    fn put(&mut self, key: String, random: &mut Random) -> Txn {
        Txn::all([self.write(key, random)])
    }

    /// Several keys at one revision.
    fn several(&mut self, random: &mut Random) -> Txn {
        let mut keys: Vec<String> = (0..random.between(2, 8)).map(|_| key(random)).collect();
        keys.sort();
        keys.dedup();
        Txn::all(keys.into_iter().map(|key| {
            let interval = Interval::single(Bytes::copy_from_slice(key.as_bytes()));
            if random.one_in(4) { Op::DeleteRange(interval) } else { self.write(key, random) }
        }))
    }

    fn write(&mut self, key: String, random: &mut Random) -> Op {
        self.values += 1;
        let value = value(&key, self.values, random);
        let bulk = if self.bulky && random.one_in(3) { BULK } else { 0 };
        Op::Put { key: key.into(), value: (value + &" ".repeat(bulk)).into() }
    }
}

/// A value that a node can use, or now and then not: no JSON, a wrong type, a field that cannot be honoured.
fn value(key: &str, number: u64, random: &mut Random) -> String {
    let nodes = r#""type":"roundrobin","nodes":{"127.0.0.1:80":1}"#;
    match random.below(24) {
        0 => return format!(r#"{{"desc":"bad {number}","#),
        1 => return format!(r#"{{"desc":"bad {number}","uri":7,"type":7}}"#),
        2 => return format!(r#"{{"desc":"bad {number}","plugins":{{"nobody-knows":{{}}}},"retries":"x"}}"#),
        _ => {}
    }
    let reference = random.below(4);
    if key.starts_with(&format!("{PREFIX}upstreams/")) {
        format!(r#"{{"desc":"value {number}",{nodes}}}"#)
    } else if random.one_in(2) {
        format!(r#"{{"desc":"value {number}","uri":"/{number}","upstream_id":"{reference}"}}"#)
    } else {
        format!(r#"{{"desc":"value {number}","uri":"/{number}","upstream":{{{nodes}}}}}"#)
    }
}

fn key(random: &mut Random) -> String {
    match random.below(8) {
        0..4 => format!("{PREFIX}routes/{}", random.below(8)),
        4..6 => format!("{PREFIX}upstreams/{}", random.below(4)),
        6 => format!("{PREFIX}ssls/{}", random.below(2)),
        // What a standard prefix holds beside resources.
        _ => format!("{PREFIX}{}", random.pick(&["routes/", "gen_id", "upstreams/"])),
    }
}
