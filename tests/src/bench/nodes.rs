//! The process of simulated nodes.

use anyhow::Result;

use super::child::{Answer, Order, Parent};
use super::crowd::Crowd;
use super::options::Nodes;

/// Runs the nodes until the parent is done.
///
/// # Errors
/// When the parent cannot be talked to.
pub async fn run(options: Nodes) -> Result<()> {
    let crowd = Crowd::start(&options.replica, options.count)?;
    crowd.reached(0).await;
    let mut parent = Parent::new();
    parent.tell(&Answer::Ready).await?;
    while let Some(order) = parent.order().await? {
        let answer = match order {
            Order::Settle(revision) => {
                crowd.reached(revision).await;
                crowd.figures().map(|figures| Answer::Settled(figures, crowd.lost()))
            }
            Order::Compare => {
                let compared = crowd.compare(&options.etcd).await;
                compared.map(|(resources, differences)| Answer::Compared(resources, differences))
            }
            Order::Send { .. } | Order::Read => Err(anyhow::anyhow!("nodes only hold and compare")),
        };
        parent.tell(&answer.unwrap_or_else(|error| Answer::Failed(format!("{error:#}")))).await?;
    }
    Ok(())
}
