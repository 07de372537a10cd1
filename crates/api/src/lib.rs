//! The management API's documents, versioned.
