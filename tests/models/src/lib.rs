//! Structures that cores share, of the crates above `reactor` (which tries its own): each is one file, that is compiled here
//! once more by itself, or with another one that it is made of, on loom's locks and atomic values in place of the standard
//! library's. loom tries every order that threads can take their steps in, in which none is held up more than three times,
//! which is what mistakes take.
#![cfg(test)]

mod concurrent;

#[path = "../../../crates/target/src/command/fence.rs"]
#[allow(dead_code, reason = "not all of it is tried")]
mod fence;
#[path = "../../../crates/target/src/command/lines.rs"]
#[allow(dead_code, reason = "not all of it is tried")]
mod lines;
#[path = "../../../crates/media/src/pmem/marks.rs"]
mod marks;
#[path = "../../../crates/engine/src/drives/occupants.rs"]
#[allow(dead_code, reason = "not all of it is tried")]
mod occupants;
#[path = "../../../crates/target/src/reservation/published.rs"]
mod published;
#[path = "../../../crates/engine/src/remote/reception.rs"]
mod reception;
#[path = "../../../crates/engine/src/log/tenancy.rs"]
#[allow(dead_code, reason = "not all of it is tried")]
mod tenancy;

mod devices;
mod drives;
mod holds;
mod limits;
mod mapping;
mod queues;
mod reservations;

/// Has loom try the orders.
fn explore(threads: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(threads);
}
