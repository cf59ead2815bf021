//! `Holds`: what the mass-deletion guard stopped, and the operator's word on it.

use headwater_proto::admin as wire;
use headwater_proto::admin::holds_server::Holds;
use headwater_proto::config::Approval;
use tonic::{Request, Response, Status};

use super::{Shared, convert, status};
use crate::admin::access::Role;
use crate::admin::holds::Hold;

#[tonic::async_trait]
impl Holds for Shared {
    async fn show(
        &self,
        request: Request<wire::ShowHoldsRequest>,
    ) -> Result<Response<wire::ShowHoldsResponse>, Status> {
        self.admit(&request, Role::Viewer)?;
        let name = request.into_inner().environment;
        let mut response = wire::ShowHoldsResponse::default();
        for environment in self.admin.environments(&name).map_err(|refusal| status(&refusal))? {
            let name = environment.name();
            let approvals = environment.view().state().approvals;
            response.holds.extend(self.admin.holds(environment).into_iter().map(|held| hold(name, held)));
            response.approvals.extend(approvals.iter().map(|approved| approval(name, approved)));
        }
        Ok(Response::new(response))
    }

    async fn approve(
        &self,
        request: Request<wire::ApproveHoldRequest>,
    ) -> Result<Response<wire::ApproveHoldResponse>, Status> {
        let caller = self.admit(&request, Role::Admin)?;
        let wire::ApproveHoldRequest { environment, id, valid_seconds } = request.into_inner();
        let environment = self.environment(&environment)?;
        let approved = self.admin.approve(environment, &id, valid_seconds).await;
        let (approved, version) = approved.map_err(|refusal| status(&refusal))?;
        tracing::info!(caller = %caller.name, approval = %approved.id, "approved");
        Ok(Response::new(wire::ApproveHoldResponse {
            approval: Some(approval(environment.name(), &approved)),
            committed: Some(convert::version(&version)),
        }))
    }

    async fn reject(
        &self,
        request: Request<wire::RejectHoldRequest>,
    ) -> Result<Response<wire::RejectHoldResponse>, Status> {
        let caller = self.admit(&request, Role::Admin)?;
        let wire::RejectHoldRequest { environment, id } = request.into_inner();
        let environment = self.environment(&environment)?;
        self.admin.reject(environment, &id).await.map_err(|refusal| status(&refusal))?;
        tracing::info!(caller = %caller.name, hold = %id, "rejected");
        Ok(Response::new(wire::RejectHoldResponse {}))
    }
}

fn hold(environment: &str, hold: Hold) -> wire::Hold {
    wire::Hold {
        id: hold.id,
        environment: environment.to_owned(),
        at_replica: hold.at_replica,
        nodes: hold.nodes.iter().map(ToString::to_string).collect(),
        from: Some(convert::version(&hold.from)),
        to: Some(convert::version(&hold.to)),
        since_unix: hold.since_unix,
        detail: hold.detail,
        rejected: hold.rejected,
    }
}

fn approval(environment: &str, approval: &Approval) -> wire::Approval {
    let place = |lineage: &headwater_model::Lineage, revision| wire::Version {
        cluster_id: lineage.cluster_id,
        prefix: lineage.prefix.to_string(),
        generation: lineage.generation.0,
        revision,
        digest: String::new(),
    };
    wire::Approval {
        id: approval.id.to_string(),
        environment: environment.to_owned(),
        from: Some(place(&approval.from, approval.base_at_most.0)),
        to: Some(place(&approval.to, 0)),
        expires_unix: approval.expires_unix,
    }
}
