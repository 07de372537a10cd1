//! REST server, metrics endpoint and client of the management API.
