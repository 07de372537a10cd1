//! The node: composes the floors below, owns configuration, listeners, events and metrics.
