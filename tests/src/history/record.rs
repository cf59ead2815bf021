//! The histories of a scenario's nodes, from its start to its end: written down by the way, judged at the end.

use std::time::Duration;

use super::{Checker, EtcdLog, History, Recorder, Sighting};
use crate::etcd::Etcd;
use crate::eventually::eventually;
use crate::http;
use crate::planes::{LIMIT, Node};

/// Between two looks at a node's version.
const LOOK: Duration = Duration::from_millis(20);
/// Between two looks at all that it holds.
const LOOK_INSIDE: Duration = Duration::from_millis(50);

/// What is recorded. Started by one line, judged by [`Record::kept`].
#[derive(Debug)]
pub struct Record {
    /// What became of etcd after each restore; the last one is being written.
    logs: Vec<EtcdLog>,
    recorders: Vec<(Recorder, Checker)>,
    /// Where each node shows its status.
    health: Vec<String>,
}

// === impl Record ===

impl Record {
    /// Records these nodes and what happens in etcd.
    ///
    /// # Panics
    /// When etcd does not answer.
    pub async fn start<'a>(etcd: &Etcd, nodes: impl IntoIterator<Item = &'a Node>) -> Self {
        let log = EtcdLog::start(etcd.endpoints()).await.expect("etcd answers");
        let mut record = Self { logs: vec![log], recorders: Vec::new(), health: Vec::new() };
        nodes.into_iter().for_each(|node| record.add(node));
        record
    }

    /// Records one more node from now on.
    pub fn add(&mut self, node: &Node) {
        let name = format!("node {}", self.health.len());
        self.recorders.push((Recorder::of_versions(node, LOOK), Checker::new(name.clone())));
        let inside = Checker::new(format!("{name}, inside,"));
        self.recorders.push((Recorder::of_contents(node, LOOK_INSIDE), inside));
        self.health.push(node.health.clone());
    }

    /// Before etcd is restored: nothing that happened may be missing from the log.
    ///
    /// # Panics
    /// When etcd cannot be asked.
    pub async fn complete(&self) {
        self.log().settle(LIMIT).await.expect("etcd can be asked");
    }

    /// After it: another history begins.
    ///
    /// # Panics
    /// When etcd does not answer.
    pub async fn restored(&mut self, etcd: &Etcd) {
        self.logs.push(EtcdLog::start(etcd.endpoints()).await.expect("etcd answers"));
    }

    /// Gives every node the time to reach etcd's head, and fails if one of etcd's guarantees was not kept for one.
    ///
    /// # Panics
    /// When a guarantee was not kept, a node does not get there, or etcd cannot be asked.
    pub async fn kept(mut self) {
        let head = self.log().settle(LIMIT).await.expect("etcd can be asked");
        for address in &self.health {
            eventually(&format!("a node reaches revision {head}"), LIMIT, || async {
                let page = http::get(address, "/status/config").await;
                let (_, body) = page.map_err(|error| format!("{error:#}"))?;
                let status: serde_json::Value = serde_json::from_str(&body).map_err(|it| it.to_string())?;
                if status["applied"]["revision"].as_u64() >= Some(head) { Ok(()) } else { Err(body) }
            })
            .await;
        }
        for (recorder, _) in &self.recorders {
            let before = recorder.looks();
            eventually("the recorder looks once more", LIMIT, || async {
                if recorder.looks() >= before + 2 { Ok(()) } else { Err(recorder.looks()) }
            })
            .await;
        }
        let seen = self.seen();
        // What was seen of a scenario that still writes is known to the log only now.
        self.log().settle(LIMIT).await.expect("etcd can be asked");
        self.judge(&seen, true);
    }

    /// As [`Record::kept`] where etcd is gone for good: judges what was seen until now.
    ///
    /// # Panics
    /// When a guarantee was not kept.
    pub fn kept_so_far(mut self) {
        let seen = self.seen();
        self.judge(&seen, false);
    }

    fn seen(&self) -> Vec<Vec<Sighting>> {
        self.recorders.iter().map(|(recorder, _)| recorder.take()).collect()
    }

    fn judge(&mut self, seen: &[Vec<Sighting>], to_the_end: bool) {
        let histories: Vec<_> = self.logs.iter().map(EtcdLog::lock).collect();
        let histories: Vec<&History> = histories.iter().map(|log| log.history()).collect();
        for ((_, checker), seen) in self.recorders.iter_mut().zip(seen) {
            seen.iter().for_each(|sighting| checker.see(sighting, &histories));
            if let Some(last) = histories.last().filter(|_| to_the_end) {
                checker.end(last);
            }
            let breaches: Vec<String> = checker.breaches().iter().map(ToString::to_string).collect();
            assert!(breaches.is_empty(), "{} breaches:\n{}", checker.violations(), breaches.join("\n"));
        }
        let checks: u64 = self.recorders.iter().flat_map(|(_, checker)| checker.checks().values()).sum();
        assert!(checks > 0, "nothing was recorded");
        let revisions: usize = histories.iter().map(|history| history.changes()).sum();
        println!("etcd's guarantees: {checks} checks over {revisions} revisions");
    }

    fn log(&self) -> &EtcdLog {
        self.logs.last().expect("there is one from the start on")
    }
}
