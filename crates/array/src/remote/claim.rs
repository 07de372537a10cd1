//! Taking the namespace for an incarnation, by its reservation (NVMe Base 2.1, section 8.1.22).
//!
//! A write that was given up may be executed late, over a newer one. What keeps it from that is that each incarnation
//! is another host: before it reads or writes, it takes the reservation from the one before by Preempt and Abort, which
//! ends when the commands of that one have ended, and refuses those that come later. All of an incarnation's reactors
//! are one host, so that one of them claims and the others look whether their host holds it.
//!
//! The reservation is Write Exclusive: other hosts that are registered may not write, but who looks for the contents
//! may read.

use initiator::{Error, Namespace, Registrant};
use media::Kind;
use nvme::reservation::Type;

use super::error::{Fault, Why};
use super::incarnation::Incarnation;
use super::is_held_here;
use super::key::{Key, Takes, is_claiming};
use crate::limits::{REMOTE_LEAVE, REMOTE_STEP};

const KIND: Type = Type::WriteExclusive;

/// What there is to do, as the registrants tell.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    /// Who holds it and loses it.
    from: Option<u64>,
    /// Who is registered, and did not end in order.
    stale: Vec<u64>,
}

/// Takes the namespace.
///
/// # Errors
/// When another has it, and what goes wrong.
pub(super) async fn claim(namespace: &Namespace, incarnation: &Incarnation) -> Result<(), Why> {
    let found = within("Reservation Report", namespace.registrants()).await?;
    let key = incarnation.key;
    let plan = plan(&found, key, incarnation.takes)?;
    within("Reservation Register", namespace.register(key.claiming())).await?;
    let taken = take(namespace, key, &plan).await;
    if taken.as_ref().is_err_and(|why| why.kind == Kind::Busy) {
        // Somebody was faster. One that cannot be told keeps a registration by which it holds nothing.
        let _ = reactor::timeout(REMOTE_LEAVE, namespace.unregister(key.claiming())).await;
    }
    taken
}

async fn take(namespace: &Namespace, key: Key, plan: &Plan) -> Result<(), Why> {
    // First, as Linux lets who holds the reservation preempt nobody.
    for &stale in &plan.stale {
        let preempted = namespace.preempt(key.claiming(), stale, KIND);
        match within("Reservation Acquire", preempted).await {
            // It left meanwhile.
            Err(why) if why.kind == Kind::Busy => {}
            done => done?,
        }
    }
    match plan.from {
        // However long it takes: as long as the association lives, what was in flight has not ended.
        Some(victim) => {
            namespace.preempt(key.claiming(), victim, KIND).await.map_err(|error| why(&error))?;
        }
        None => {
            within("Reservation Acquire", namespace.acquire(key.claiming(), KIND)).await?;
        }
    }
    if plan.from.iter().chain(&plan.stale).any(|&key| is_claiming(key)) {
        // Nobody saw that what it preempted has ended: its controller has to notice by its Keep Alive Timer.
        namespace.outlive().await;
    }
    within("Reservation Register", namespace.register(key.settled())).await
}

/// Decides from the registrants.
fn plan(found: &[Registrant], key: Key, takes: Takes) -> Result<Plan, Why> {
    for holder in found.iter().filter(|one| one.holds) {
        if !key.is_of_node(holder.key) && takes != Takes::Anybodys {
            let words =
                format!("another node uses the namespace: reservation key {:#018x}", holder.key);
            return Err(Why::new(Kind::Busy, words));
        }
        if key.is_of_node(holder.key) && !key.is_of_drive(holder.key) && is_held_here(holder.key) {
            let words = "this daemon uses the namespace already, by another address or for another log: each copy of \
                         a log has a namespace of its own";
            return Err(Why::new(Kind::Busy, words));
        }
        if takes == Takes::Own && !key.is_of_drive(holder.key) {
            let words = format!(
                "another process of this node has taken the namespace: reservation key {:#018x}",
                holder.key
            );
            return Err(Why::new(Kind::Busy, words));
        }
    }
    let all = takes == Takes::Anybodys;
    let own = || found.iter().filter(|one| key.is_of_node(one.key) || all && one.holds);
    let from = own().find(|one| one.holds).map(|one| one.key);
    let mut stale: Vec<_> = own().map(|one| one.key).filter(|&stale| Some(stale) != from).collect();
    // A report has an entry for each controller of a host.
    stale.sort_unstable();
    stale.dedup();
    Ok(Plan { from, stale })
}

/// Looks whether the incarnation holds the namespace: a controller that was started again may have forgotten.
///
/// # Errors
/// When it does not, and what goes wrong.
pub(super) async fn verify(namespace: &Namespace, incarnation: &Incarnation) -> Result<(), Why> {
    let found = within("Reservation Report", namespace.registrants()).await?;
    let key = incarnation.key.settled();
    let holds = |one: &Registrant| one.holds && one.key == key && one.host == incarnation.host.id;
    if found.iter().any(holds) {
        return Ok(());
    }
    Err(Why::new(Kind::Busy, "the reservation of the namespace was lost or taken"))
}

/// Leaves it to others.
pub(super) async fn leave(namespace: &Namespace, incarnation: &Incarnation) {
    let key = incarnation.key.settled();
    // One that cannot be told keeps it for this node, which takes it again when it next comes.
    let _ = reactor::timeout(REMOTE_LEAVE, namespace.unregister(key)).await;
}

/// Why a command ended.
pub(super) fn why(error: &Error) -> Why {
    Fault::from(error).why
}

async fn within<T>(command: &str, step: impl Future<Output = Result<T, Error>>) -> Result<T, Why> {
    match reactor::timeout(REMOTE_STEP, step).await {
        Ok(done) => done.map_err(|error| why(&error)),
        Err(_) => {
            let words = format!("{command} was not answered within {} s", REMOTE_STEP.as_secs());
            Err(Why::gone(words))
        }
    }
}

#[cfg(test)]
mod tests;
