//! The host side in user space: connect, discover, queues, submit, poll.
