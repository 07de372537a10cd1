//! Every command and every refusal, on memory and on a file, through a host that is a test double.

mod atomic;
mod beyond;
pub mod by_drive;
pub mod double;
mod ended;
mod fence;
pub mod io;
mod lines;
mod model;
mod ranges;
mod reservations;
mod shares;
mod waiting;
mod woken;
