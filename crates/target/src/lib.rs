//! The controller side: queues, commands, admin, subsystems, namespaces, discovery, reservations.
