//! The array engine from a seed: a workload, faults and power cuts, against a model of what was
//! acknowledged.
//!
//! A seed decides everything: the shape of the pool, what its hosts do, when the power fails and what
//! the drives make of that. The engine's own code runs on a simulated reactor over simulated media,
//! one life after the other over what the last one left. After every crash everything is read: what
//! was acknowledged is there, and nothing else. A seed replays bit for bit.

pub mod array;
pub mod contents;
pub mod crew;
pub mod host;
pub mod life;
pub mod mode;
pub mod model;
pub mod mutate;
pub mod network;
pub mod plan;
pub mod reference;
pub mod rough;
pub mod run;
pub mod shape;
pub mod store;
pub mod trace;
pub mod windows;
pub mod world;
