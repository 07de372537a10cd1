//! The management API's documents, versioned.
//!
//! A document is what travels as JSON between a client and the daemon. Every version of the API
//! has a module of its own ([`v1`]); a released document only ever gains optional members.
//! Values that have a syntax of their own (sizes, NQNs, addresses, back ends) are types here, so
//! that the configuration file, the command line and the REST server refuse the same things with
//! the same words.

pub mod limits;
pub mod v1;
pub mod value;
