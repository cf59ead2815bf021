//! What operators and others do to etcd.

use bytes::Bytes;
use headwater_control_plane::backend::embedded::mvcc::{Interval, Op, Txn};

use super::etcd::PREFIX;
use super::random::Random;

/// Draws transactions; every value is written once.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    values: u64,
}

// === impl Workload ===

impl Workload {
    /// The next transaction.
    pub fn next(&mut self, random: &mut Random) -> Txn {
        match random.below(20) {
            // Nobody's business here, but it moves the revision.
            0..5 => self.put("/elsewhere/1".to_owned()),
            // As the nodes of today write beside their configuration.
            5 => self.put(format!("{PREFIX}data_plane/server_info/1")),
            6 => Txn::all([Op::DeleteRange(Interval::prefix(format!("{PREFIX}routes/").into()))]),
            7 => Txn::delete("/elsewhere/nothing"),
            8..11 => self.several(random),
            11..14 => Txn::delete(key(random)),
            _ => self.put(key(random)),
        }
    }

    fn put(&mut self, key: String) -> Txn {
        Txn::all([self.write(key.into())])
    }

    /// Several keys at one revision.
    fn several(&mut self, random: &mut Random) -> Txn {
        let mut keys: Vec<String> = (0..random.between(2, 8)).map(|_| key(random)).collect();
        keys.sort();
        keys.dedup();
        Txn::all(keys.into_iter().map(|key| {
            let interval = Interval::single(Bytes::copy_from_slice(key.as_bytes()));
            if random.one_in(4) { Op::DeleteRange(interval) } else { self.write(key.into()) }
        }))
    }

    fn write(&mut self, key: Bytes) -> Op {
        self.values += 1;
        Op::Put { key, value: format!("value {}", self.values).into() }
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
