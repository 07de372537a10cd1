//! Every command and every refusal, on memory and on a file, through a host that is a test double.

mod double;
mod io;
mod model;
mod reservations;
