//! Every command and every refusal, on memory and on a file, through a host that is a test double.

mod atomic;
pub mod by_drive;
pub mod double;
mod io;
mod model;
mod reservations;
mod waiting;
