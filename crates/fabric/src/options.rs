//! What a host asks of a connection.

use core::time::Duration;

/// What a host asks of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Command identifiers used on it: 0 to `commands - 1`.
    pub commands: u16,
    /// How long it may take until commands can go.
    pub timeout: Duration,
    /// What only NVMe/TCP has.
    pub tcp: TcpOptions,
    /// What only NVMe/RDMA has.
    pub rdma: RdmaOptions,
}

/// What a host says, and needs to know, of a connection over RDMA before it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RdmaOptions {
    /// The queue that it is to be.
    pub qid: u16,
    /// Of which controller, if it is an I/O queue.
    pub cntlid: u16,
    /// The most data that goes in one capsule, bytes.
    pub in_capsule: u32,
}

/// What a host asks of a connection over TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpOptions {
    /// Ask for header digests.
    pub header_digest: bool,
    /// Ask for data digests.
    pub data_digest: bool,
    /// Type of service, or traffic class, of what is sent.
    pub tos: Option<u8>,
    /// `SO_PRIORITY`, by which network cards choose the outbound queue.
    pub priority: Option<i32>,
    /// Tell TCP with each send whether more is queued behind.
    pub hints: bool,
    /// How long the kernel polls the network card's queue for this connection.
    pub busy_poll: Option<Duration>,
    /// Have all connections of this core come by one queue of the network card, and no other core's.
    pub grouped: bool,
}
