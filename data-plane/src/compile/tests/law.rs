//! Table::full(all) == fold(apply, changes), by everything that a table holds.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::*;

const SEQUENCES: u64 = 200;
const STEPS: usize = 12;

/// What is served and what is refused, kept in the plainest way.
#[derive(Default)]
struct World {
    served: BTreeMap<Key, Served>,
    refused: BTreeMap<Key, String>,
}

// === impl World ===

impl World {
    fn apply(&mut self, changes: &EffectiveChanges) {
        for key in &changes.deletes {
            self.served.remove(key);
            self.refused.remove(key);
        }
        for (key, reason) in &changes.refused {
            self.served.remove(key);
            self.refused.insert(key.clone(), reason.clone());
        }
        for served in &changes.puts {
            self.refused.remove(served.resource.key());
            self.served.insert(served.resource.key().clone(), served.clone());
        }
    }

    fn full(&self) -> Table<Live> {
        Table::full(self.served.values().cloned(), self.refused.clone(), &Plain).0
    }

    /// A change of some keys; in half of the cases a value is retained with what it refers to at the moment.
    fn step(&self, rng: &mut StdRng, certificates: &[String]) -> EffectiveChanges {
        let mut changes = EffectiveChanges::default();
        for key in keys() {
            if !rng.random_bool(0.3) {
                continue;
            }
            match rng.random_range(0..6) {
                0 => changes.deletes.push(Key::new(key)),
                1 => changes.refused.push((Key::new(key), pick(rng, &["one", "two"]))),
                _ => changes.puts.push(self.value(rng, key, certificates)),
            }
        }
        if rng.random_bool(0.2) {
            self.rename(&mut changes);
        }
        changes
    }

    fn value(&self, rng: &mut StdRng, key: &str, certificates: &[String]) -> Served {
        let json = match key.split('/').next().unwrap() {
            "routes" => route(rng),
            "services" => service(rng),
            "upstreams" => format!(r#"{{"nodes":{{"n{}:1":1}}}}"#, rng.random_range(0..2)),
            "ssls" => pick(rng, certificates),
            _ => pick(rng, &[r#"{"plugins":{}}"#, r#"{"plugins":{"a":{}}}"#]),
        };
        let value = served(key, &json);
        let keeps = matches!(value.typed, Typed::Route(_) | Typed::Service(_)) && rng.random_bool(0.5);
        if !keeps {
            return value;
        }
        let references: BTreeMap<_, _> = self
            .served
            .iter()
            .filter(|(_, served)| matches!(served.typed, Typed::Service(_) | Typed::Upstream(_)))
            .filter(|_| rng.random_bool(0.7))
            .map(|(key, served)| (key.clone(), served.clone()))
            .collect();
        Served { kept: Some(Arc::new(Kept { references })), ..value }
    }

    /// An upstream gets another key, and its route is pointed there in the same change.
    fn rename(&self, changes: &mut EffectiveChanges) {
        changes.puts.retain(|served| !matches!(served.resource.key().as_str(), "routes/1" | "upstreams/2"));
        changes
            .refused
            .retain(|(key, _)| !matches!(key.as_str(), "routes/1" | "upstreams/1" | "upstreams/2"));
        changes.puts.retain(|served| served.resource.key().as_str() != "upstreams/1");
        changes.deletes.push(Key::new("upstreams/1"));
        changes.puts.push(served("upstreams/2", NODES));
        changes.puts.push(served("routes/1", r#"{"uri":"/a","upstream_id":2}"#));
    }
}

fn keys() -> impl Iterator<Item = &'static str> {
    [
        "routes/1",
        "routes/2",
        "routes/3",
        "routes/4",
        "services/1",
        "services/2",
        "upstreams/1",
        "upstreams/2",
        "ssls/1",
        "ssls/2",
        "global_rules/1",
    ]
    .into_iter()
}

fn pick<T: ToString>(rng: &mut StdRng, of: &[T]) -> String {
    of.choose(rng).unwrap().to_string()
}

fn route(rng: &mut StdRng) -> String {
    let uri = pick(rng, &["/a", "/a*", "/*", "/b/*/c"]);
    let host = pick(rng, &["", "", r#""host":"a.com","#, r#""hosts":["*.a.com","b.com"],"#]);
    let target = pick(
        rng,
        &[
            r#""service_id":1"#,
            r#""service_id":2"#,
            r#""service_id":1,"upstream_id":1"#,
            r#""upstream_id":2"#,
            r#""upstream":{"nodes":{"i:1":1}}"#,
            r#""service_id":2,"upstream":{"nodes":[]}"#,
        ],
    );
    let priority = rng.random_range(0..2);
    format!(
        r#"{{"uri":"{uri}",{host}"priority":{priority},"status":{},{target}}}"#,
        rng.random_range(0..5).min(1)
    )
}

fn service(rng: &mut StdRng) -> String {
    let hosts = pick(rng, &["", r#","hosts":["a.com"]"#, r#","hosts":["*.a.com","c.com"]"#]);
    let desc = pick(rng, &["x", "y"]);
    let target = pick(rng, &["", r#","upstream_id":1"#, r#","upstream":{"nodes":{"s:1":1}}"#]);
    format!(r#"{{"desc":"{desc}"{hosts}{target}}}"#)
}

#[test]
fn a_whole_table_equals_the_fold_of_its_changes() {
    let certificates = [
        names::ssl(r#""sni":"a.com""#),
        names::ssl(r#""snis":["*.a.com","b.com"]"#),
        names::ssl(r#""sni":"*","status":0"#),
    ];
    for seed in 0..SEQUENCES {
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut world, mut table) = (World::default(), Table::empty());
        for step in 0..STEPS {
            let changes = world.step(&mut rng, &certificates);
            world.apply(&changes);
            table = after(&table, &changes);
            let (folded, full) = (format!("{table:#?}"), format!("{:#?}", world.full()));
            let difference = folded.lines().zip(full.lines()).find(|(left, right)| left != right);
            assert!(folded == full, "seed {seed} step {step}: {difference:?} first, after {changes:#?}");
        }
    }
}
