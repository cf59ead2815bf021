//! The histories of a scenario's nodes, from its start to its end: written down by the way, judged at the end.

use std::time::Duration;

use super::{Checker, EtcdLog, Recorder};
use crate::etcd::Etcd;
use crate::eventually::eventually;
use crate::planes::{LIMIT, Node};

/// Between two looks at a node's version; and as dumps of a scenario are small, at its content.
const LOOK: Duration = Duration::from_millis(10);
const LOOK_INSIDE: Duration = Duration::from_millis(50);

/// What is recorded. Started by one line, judged by [`Record::kept`].
#[derive(Debug)]
pub struct Record {
    log: EtcdLog,
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
        let (mut recorders, mut health) = (Vec::new(), Vec::new());
        for (number, node) in nodes.into_iter().enumerate() {
            let name = format!("node {number}");
            recorders.push((Recorder::of_versions(node, LOOK), Checker::new(name.clone())));
            recorders
                .push((Recorder::of_contents(node, LOOK_INSIDE), Checker::new(format!("{name}, inside"))));
            health.push(node.health.clone());
        }
        Self { log, recorders, health }
    }

    /// Gives every node the time to reach etcd's head, and fails if one of etcd's guarantees was not kept for one.
    ///
    /// # Panics
    /// When a guarantee was not kept, a node does not get there, or etcd cannot be asked.
    pub async fn kept(mut self) {
        let head = self.log.settle(LIMIT).await.expect("etcd can be asked");
        for address in &self.health {
            eventually(&format!("a node reaches revision {head}"), LIMIT, || async {
                let page = crate::http::get(address, "/status/config").await;
                let (_, body) = page.map_err(|error| format!("{error:#}"))?;
                let status: serde_json::Value = serde_json::from_str(&body).map_err(|it| it.to_string())?;
                if status["applied"]["revision"].as_u64() >= Some(head) { Ok(()) } else { Err(body) }
            })
            .await;
        }
        tokio::time::sleep(4 * LOOK_INSIDE).await;
        for (recorder, checker) in &mut self.recorders {
            let sightings = recorder.take();
            self.log.look(|history| {
                sightings.iter().for_each(|sighting| checker.see(sighting, history));
                checker.end(history);
            });
            let breaches: Vec<String> = checker.breaches().iter().map(ToString::to_string).collect();
            assert!(breaches.is_empty(), "{} breaches:\n{}", checker.violations(), breaches.join("\n"));
        }
        let looks: u64 = self.recorders.iter().flat_map(|(_, checker)| checker.checks().values()).sum();
        println!("guarantees: {looks} checks over {} revisions", self.log.look(super::History::changes));
    }
}
