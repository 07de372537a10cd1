//! Flush (Base 2.1, section 7.2): what was acknowledged becomes durable.

use nvme::status::Status;

use super::{Attached, Reply};
use crate::reservation::CommandGroup;

pub async fn flush(at: &Attached) -> Result<Reply, Status> {
    at.permit_access()?;
    at.permit(CommandGroup::Write)?;
    at.make_durable().await?;
    Ok(Reply::SUCCESS)
}

/// A Flush of every namespace attached to the controller (NSID FFFFFFFFh). All are tried; the
/// first failure is reported.
pub async fn flush_all(namespaces: impl Iterator<Item = &Attached>) -> Reply {
    let mut outcome = Ok(Reply::SUCCESS);
    for at in namespaces {
        let one = flush(at).await;
        outcome = outcome.and(one);
    }
    outcome.unwrap_or_else(Reply::failed)
}
