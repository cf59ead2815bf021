//! `Source`: what the replica and its environments are doing.

use headwater_proto::admin as wire;
use headwater_proto::admin::source_server::Source;
use tonic::{Request, Response, Status};

use super::{Shared, convert};
use crate::admin::access::Role;
use crate::admin::status::{EnvironmentStatus, RejectSummary, Status as Whole};
use crate::admin::unix_now_ms;
use crate::backend::etcd::recorder::{Record, Response as Recorded, What};

#[tonic::async_trait]
impl Source for Shared {
    async fn status(
        &self,
        request: Request<wire::StatusRequest>,
    ) -> Result<Response<wire::StatusResponse>, Status> {
        self.admit(&request, Role::Viewer)?;
        Ok(Response::new(response(self.admin.status())))
    }

    async fn recorder(
        &self,
        request: Request<wire::RecorderRequest>,
    ) -> Result<Response<wire::RecorderResponse>, Status> {
        self.admit(&request, Role::Viewer)?;
        let wire::RecorderRequest { environment, last } = request.into_inner();
        let limit = if last == 0 { usize::MAX } else { last as usize };
        let recorded = self.environment(&environment)?.recorded(limit);
        let (records, written) = recorded.map_err(|refusal| super::status(&refusal))?;
        let records = records.into_iter().map(record).collect();
        Ok(Response::new(wire::RecorderResponse { records, written, now_unix_ms: unix_now_ms() }))
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

fn record(record: Record) -> wire::WatchRecord {
    let shown = wire::WatchRecord {
        number: record.number,
        unix_ms: record.unix_ms,
        attempt: record.attempt.0,
        kind: record.what.label().to_owned(),
        safe_revision: record.safe.map(|safe| safe.0),
        ..wire::WatchRecord::default()
    };
    match record.what {
        What::Opening { start, watch_id } => wire::WatchRecord { start_revision: start.0, watch_id, ..shown },
        What::Ended { why } => wire::WatchRecord { reason: why, ..shown },
        What::Response(response) => answered(shown, response),
    }
}

fn answered(shown: wire::WatchRecord, response: Recorded) -> wire::WatchRecord {
    let (first, last) = response.revisions.map_or((0, 0), |(first, last)| (first.0, last.0));
    wire::WatchRecord {
        cluster_id: response.header.cluster_id,
        member_id: response.header.member_id,
        header_revision: response.header.revision.0,
        raft_term: response.header.raft_term,
        watch_id: response.watch_id,
        compact_revision: response.compact_revision.0,
        first_revision: first,
        last_revision: last,
        puts: response.puts as u64,
        deletes: response.deletes as u64,
        bytes: response.bytes as u64,
        fragment: response.fragment,
        reason: response.reason,
        ..shown
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
