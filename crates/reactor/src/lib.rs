//! One core: ring, timers, tasks, buffers, mailboxes, poll policy.
