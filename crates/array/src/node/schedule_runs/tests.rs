//! Schedules of a node of its own, by a clock of its own.
