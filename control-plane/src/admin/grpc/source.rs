//! `Source`: what the replica and its environments are doing.

use headwater_proto::admin as wire;
use headwater_proto::admin::source_server::Source;
use tonic::{Request, Response, Status};

use super::{Shared, convert};
use crate::admin::access::Role;
use crate::admin::status::{EnvironmentStatus, RejectSummary, Status as Whole};

#[tonic::async_trait]
impl Source for Shared {
    async fn status(
        &self,
        request: Request<wire::StatusRequest>,
    ) -> Result<Response<wire::StatusResponse>, Status> {
        self.admit(&request, Role::Viewer)?;
        Ok(Response::new(response(self.admin.status())))
    }
}

fn response(status: Whole) -> wire::StatusResponse {
    wire::StatusResponse {
        replica: status.replica.id.to_string(),
        build: env!("CARGO_PKG_VERSION").to_owned(),
        started_unix: status.replica.started_unix,
        now_unix: status.now_unix,
        environments: status.environments.into_iter().map(environment).collect(),
        peers: status.replica.peers,
    }
}

fn environment(status: EnvironmentStatus) -> wire::EnvironmentStatus {
    let state = status.state;
    wire::EnvironmentStatus {
        name: status.name.to_string(),
        prefix: state.world.lineage().prefix.to_string(),
        complete: state.complete,
        version: Some(convert::version(state.world.version())),
        serving: Some(convert::version(&state.served)),
        resources: state.world.content().len() as u64,
        value_bytes: state.world.content().value_bytes(),
        kinds: status.kinds.into_iter().map(|(kind, count)| (kind.to_owned(), count)).collect(),
        ignored: state.ignored.iter().map(|(why, count)| ((*why).to_owned(), *count)).collect(),
        deletions_known_since: state.world.deletions_known_since().0,
        unproven_at: state.world.unproven_at().map_or(0, |at| at.0),
        held: state.held().unwrap_or_default(),
        degraded: state.degraded().unwrap_or_default(),
        nodes_live: status.live as u64,
        nodes_lost: status.lost as u64,
        nodes_current: status.current as u64,
        rejects: status.rejects.into_iter().map(rejects).collect(),
        source: Some(wire::SourceStatus {
            stage: state.source.stage.label().to_owned(),
            member: state.source.member,
            server_version: state.source.server_version.unwrap_or_default(),
            note: state.source.note.unwrap_or_default(),
            proof_age_ms: state.proof_age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        }),
    }
}

fn rejects(summary: RejectSummary) -> wire::RejectSummary {
    wire::RejectSummary {
        key: summary.key.to_string(),
        reason: summary.reason.to_string(),
        mod_revision: summary.mod_revision,
        nodes: summary.nodes,
        since_unix: summary.since_unix,
        retained: summary.retained,
    }
}
