//! `Fleet`: nodes, forgetting them, and waiting for them.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use headwater_model::{Generation, Revision};
use headwater_process::Policy;
use headwater_proto::admin as wire;
use headwater_proto::admin::fleet_server::Fleet;
use headwater_proto::config::{Refused, Reject};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::{Shared, bad_request, convert, status};
use crate::admin::access::Role;
use crate::admin::refusal::Refusal;
use crate::admin::waiting::{DEFAULT_LIMIT, Told};
use crate::fleet::registry::ForgetError;
use crate::fleet::wait::{Expectation, NodeAnswer, Outcome, Standing, Wait};
use crate::fleet::{NotForgotten, Registry, Row, RowId, RowState};

/// Nodes named by an answer that is not the last.
const NAMED: usize = 20;
/// Answers that may wait for a slow caller; the wait waits with them.
const QUEUE: usize = 4;

#[tonic::async_trait]
impl Fleet for Shared {
    async fn list(
        &self,
        request: Request<wire::ListNodesRequest>,
    ) -> Result<Response<wire::ListNodesResponse>, Status> {
        self.admit(&request, Role::Viewer)?;
        let name = request.into_inner().environment;
        self.admin.environments(&name).map_err(|refusal| status(&refusal))?;
        let registry = self.admin.fleet().registry();
        let rows = registry.rows().filter(|row| name.is_empty() || *row.about.environment == *name);
        Ok(Response::new(wire::ListNodesResponse {
            nodes: rows.map(|row| node(&registry, row)).collect(),
            replica: registry.replica().to_string(),
            now_unix: registry.unix(self.admin.fleet().now()),
        }))
    }

    async fn forget(
        &self,
        request: Request<wire::ForgetRequest>,
    ) -> Result<Response<wire::ForgetResponse>, Status> {
        self.admit(&request, Role::Admin)?;
        let wire::ForgetRequest { node_id, instance } = request.into_inner();
        let of_node = |row: &&Arc<Row>| *row.id.node_id == *node_id && row.state != RowState::Live;
        let registry = self.admin.fleet().registry();
        let rows: Vec<RowId> = if instance.is_empty() {
            registry.rows().filter(of_node).map(|row| row.id.clone()).collect()
        } else {
            vec![RowId { node_id: node_id.as_str().into(), instance: instance.into() }]
        };
        if rows.is_empty() {
            let unknown = RowId { node_id: node_id.into(), instance: "(any that is lost)".into() };
            let refusal = Refusal::Node(NotForgotten::Refused(ForgetError::Unknown(unknown)));
            return Err(status(&refusal));
        }
        let mut forgotten_instances = Vec::new();
        for row in rows {
            let instance = row.instance.to_string();
            self.admin.fleet().forget(row).await.map_err(|error| status(&error.into()))?;
            forgotten_instances.push(instance);
        }
        Ok(Response::new(wire::ForgetResponse { forgotten_instances }))
    }

    type WaitStream = Pin<Box<dyn Stream<Item = Result<wire::WaitAnswer, Status>> + Send>>;

    async fn wait(&self, request: Request<wire::WaitRequest>) -> Result<Response<Self::WaitStream>, Status> {
        self.admit(&request, Role::Viewer)?;
        let request = request.into_inner();
        let environment = self.environment(&request.environment)?.clone();
        self.admin.check_wait().map_err(|refusal| status(&refusal))?;
        let limit = match request.timeout_ms {
            0 => DEFAULT_LIMIT,
            limit => Duration::from_millis(limit),
        };
        let question = question(environment.name().clone(), request)?;
        let (told, answers) = mpsc::channel(QUEUE);
        let admin = self.admin.clone();
        let replica = admin.replica().id.to_string();
        let policy = Policy::best_effort().dropped_on_cancel();
        self.supervisor.spawn("wait", policy, async move {
            admin.wait(environment, question, limit, told).await;
        });
        let answers = ReceiverStream::new(answers).map(move |told| Ok(answer(told, &replica)));
        Ok(Response::new(Box::pin(answers)))
    }
}

fn question(environment: Arc<str>, request: wire::WaitRequest) -> Result<Wait, Status> {
    let version = request.version.ok_or_else(|| {
        bad_request("the version to wait for is missing: give its generation and revision".into())
    })?;
    let keys = request.keys.into_iter().map(|wanted| {
        let expectation = match wanted.done() {
            wire::Done::Created | wire::Done::Replaced => Expectation::Put,
            wire::Done::Deleted => Expectation::Delete,
            wire::Done::Unspecified => Expectation::Either,
        };
        Ok((convert::key(&wanted.key)?, expectation))
    });
    Ok(Wait {
        environment,
        cluster_id: Some(version.cluster_id).filter(|id| *id != 0),
        generation: Generation(version.generation),
        revision: Revision(version.revision),
        keys: keys.collect::<Result<_, Status>>()?,
        durable: request.durable,
    })
}

fn answer(told: Told, replica: &str) -> wire::WaitAnswer {
    let Told { last, answer } = told;
    let expected = answer.nodes.len() as u64;
    let is_open = |node: &&NodeAnswer| node.standing != Standing::Applied;
    let open = answer.nodes.iter().filter(is_open).count() as u64;
    let nodes: Vec<wire::WaitNode> = if last {
        answer.nodes.iter().map(wait_node).collect()
    } else {
        answer.nodes.iter().filter(is_open).take(NAMED).map(wait_node).collect()
    };
    wire::WaitAnswer {
        r#final: last,
        outcome: answer.outcome.label().to_owned(),
        sentence: sentence(last, answer.outcome, answer.sentence),
        expected,
        applied: expected - open,
        nodes,
        notes: answer.notes,
        replicas: vec![replica.to_owned()],
    }
}

fn sentence(last: bool, outcome: Outcome, sentence: String) -> String {
    if last && !outcome.is_final() { format!("not within the time: {sentence}") } else { sentence }
}

fn wait_node(node: &NodeAnswer) -> wire::WaitNode {
    let (standing, key, reason) = match &node.standing {
        Standing::Applied => ("applied", String::new(), String::new()),
        Standing::Refused { key, reason } => ("refused", key.to_string(), reason.to_string()),
        Standing::Behind => ("behind", String::new(), String::new()),
        Standing::NotDurable => ("not_durable", String::new(), String::new()),
        Standing::RejectsUnknown => ("rejects_unknown", String::new(), String::new()),
        Standing::NotHeardFrom { lost_for, reason } => {
            ("not_heard_from", String::new(), format!("for {} s: {reason}", lost_for.as_secs()))
        }
        Standing::Held { detail } => ("held", String::new(), detail.to_string()),
    };
    wire::WaitNode {
        node_id: node.row.node_id.to_string(),
        instance: node.row.instance.to_string(),
        duplicate: node.duplicate,
        standing: standing.to_owned(),
        key,
        reason,
        applied: node.applied.as_ref().map(convert::version),
    }
}

fn node(registry: &Registry, row: &Row) -> wire::Node {
    let (state, reason) = match &row.state {
        RowState::Live => ("live", String::new()),
        RowState::Lost { reason, .. } => ("lost", reason.to_string()),
        RowState::Left { .. } => ("left", String::new()),
    };
    let about = &row.about;
    wire::Node {
        node_id: row.id.node_id.to_string(),
        instance: row.id.instance.to_string(),
        environment: about.environment.to_string(),
        identity: about.identity.as_deref().unwrap_or_default().to_owned(),
        labels: about.labels.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        build: about.build.to_string(),
        peer: about.peer.to_string(),
        replica: about.replica.to_string(),
        connection: row.connection,
        state: state.to_owned(),
        reason,
        joined_unix: about.joined_unix,
        heard_unix: registry.unix(row.heard),
        applied: row.applied.as_ref().map(convert::version),
        durable: row.durable.as_ref().map(convert::version),
        in_flight: row.in_flight.as_ref().map(|(target, _)| convert::version(target)),
        in_flight_reason: row.in_flight.as_ref().map(|(_, why)| why.label().to_owned()).unwrap_or_default(),
        rejects: row.rejects.values().map(rejected).collect(),
        rejects_known: row.rejects_known,
        refused: row.refused.as_ref().map(refused),
        held_ahead: row.held_ahead,
        degraded: row.degraded,
        duplicate: registry.is_duplicate(row),
    }
}

fn rejected(reject: &Reject) -> wire::RejectedKey {
    wire::RejectedKey {
        key: reject.key.to_string(),
        mod_revision: reject.mod_revision.0,
        reason: reject.reason.to_string(),
        served_mod_revision: reject.served.map(|served| served.0),
        since_unix: reject.since_unix,
        governs: reject.governs,
    }
}

fn refused(refused: &Refused) -> wire::RefusedTransfer {
    wire::RefusedTransfer {
        why: refused.why.label().to_owned(),
        detail: refused.detail.to_string(),
        target: Some(convert::version(&refused.target)),
        held: refused.held.as_ref().map(convert::version),
        held_resources: refused.held_resources,
        removed_resources: refused.removed_resources,
    }
}
