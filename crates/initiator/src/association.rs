//! A host's association with a controller: what every queue of it has to say in Connect.

use std::time::Duration;

use fabric::TransportAddress;
use fabric::host::{self, Connection, RdmaOptions, TcpOptions};
use nvme::fabrics::ConnectResponse;
use nvme::fabrics::{CNTLID_DYNAMIC, Connect, ConnectAttributes, ConnectData, ConnectInvalid};
use nvme::nqn::Nqn;
use nvme::sqe::Sqe;
use nvme::status::Status;
use zerocopy::IntoBytes;

use crate::Error;
use crate::host::HostIdentity;
use crate::limits::{ADMIN_QUEUE_ENTRIES, QUEUE_SIZE, UNREPORTED_QUIESCE};
use crate::optimizations::{Optimization, Optimizations};
use crate::queue::{Data, Queue};

/// How a host connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Ask for header digests.
    pub header_digest: bool,
    /// Ask for data digests.
    pub data_digest: bool,
    /// Keep Alive Timeout; zero is none.
    pub keep_alive: Duration,
    /// How long a connection or an admin command may take.
    pub timeout: Duration,
    /// Type of service, or traffic class, of what the connections send.
    pub tos: Option<u8>,
    /// `SO_PRIORITY` of the connections, by which network cards choose the outbound queue; above 6 it takes
    /// CAP_NET_ADMIN.
    pub priority: Option<i32>,
    /// How long an I/O command may go unanswered: an Abort is sent then, and after as long again the controller
    /// is reset. Zero is for ever.
    pub io_timeout: Duration,
    /// Between attempts to connect again; the first one is made at once.
    pub reconnect_delay: Duration,
    /// How long it is tried to connect again; `None` is for ever. Zero ends a namespace with its association.
    pub ctrl_loss: Option<Duration>,
    /// After this long without a controller commands fail, although it is still tried to connect again; `None`
    /// has them wait as long as that is tried.
    pub fast_io_fail: Option<Duration>,
    /// When commands that change something may go to a new association after the old one was lost.
    pub fencing: Fencing,
    /// Command Quiesce Time (CQT) of a controller that reports none: half a minute unless told otherwise, in which most
    /// systems end what a drive has of theirs.
    pub cqt: Duration,
    /// I/O queues of a namespace in use: for everything, or for reads when there are write queues. At least 1.
    pub io_queues: u16,
    /// I/O queues beside them for whatever is no read, so that reads never wait behind large writes.
    pub write_queues: u16,
    /// I/O queues beside them for polled commands.
    pub poll_queues: u16,
    /// What makes it fast, switch by switch.
    pub optimizations: Optimizations,
    /// Commands outstanding on each I/O queue, as far as the controller takes that many.
    pub queue_size: u16,
}

/// When commands that change something may be sent again, or sent at all, after an association was lost with
/// such commands in flight: an old copy that the controller still executes must not come after a newer write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fencing {
    /// When the old association is known to execute nothing any more: its controller has been reset, or it has
    /// had the time that the specification gives it (Base 2.1, section 9.6), and [`Options::cqt`] more where it does not
    /// say how long it takes to quiesce (CQT 0).
    Proven,
    /// At once: the target is trusted to execute nothing of an association whose connections are closed.
    Trusted,
}

impl Default for Options {
    /// No digests, KATO of 5 seconds as the Linux host's default, 10 seconds for each answer, one I/O queue of 128;
    /// I/O timeout of 30 seconds, a reconnect delay of 10, controller loss after 600 as nvme-cli has them.
    fn default() -> Self {
        Self {
            header_digest: false,
            data_digest: false,
            keep_alive: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
            tos: None,
            priority: None,
            io_timeout: Duration::from_secs(30),
            reconnect_delay: Duration::from_secs(10),
            ctrl_loss: Some(Duration::from_secs(600)),
            fast_io_fail: None,
            fencing: Fencing::Proven,
            cqt: UNREPORTED_QUIESCE,
            io_queues: 1,
            write_queues: 0,
            poll_queues: 0,
            optimizations: Optimizations::default(),
            queue_size: QUEUE_SIZE,
        }
    }
}

impl Options {
    /// I/O queues to ask the controller for.
    #[must_use]
    pub fn queues(&self) -> u16 {
        let beside = self.write_queues.saturating_add(self.poll_queues);
        self.io_queues.max(1).saturating_add(beside)
    }

    /// How many of `granted` queues are in the map of everything (or of what is no read), of reads, and of polled
    /// commands. A class that gets none goes with everything; a single queue is everybody's.
    pub(crate) fn share(&self, granted: usize) -> [usize; 3] {
        if !self.optimizations.has(Optimization::Maps) {
            return [granted, 0, 0];
        }
        let io = usize::from(self.io_queues.max(1));
        let writes = usize::from(self.write_queues).min(granted.saturating_sub(1));
        let rest = granted - writes;
        let (io, poll) = (io.min(rest), rest.saturating_sub(io));
        if writes == 0 { [io, 0, poll] } else { [writes, io, poll] }
    }
}

/// All it takes to connect further queues to a controller, from any reactor.
#[derive(Clone, Debug)]
pub struct Association {
    pub(crate) address: TransportAddress,
    pub(crate) subnqn: Nqn,
    pub(crate) hostnqn: Nqn,
    pub(crate) hostid: [u8; 16],
    pub(crate) options: Options,
    /// Controller identifier; [`CNTLID_DYNAMIC`] until the admin queue is connected.
    pub(crate) cntlid: u16,
    /// In-capsule data an I/O queue takes, bytes.
    pub(crate) in_capsule: u32,
    /// Most entries of a queue.
    pub(crate) entries_max: u32,
    /// Largest transfer of one command, bytes.
    pub(crate) transfer_max: u64,
}

impl Association {
    pub(crate) fn new(
        address: TransportAddress,
        subnqn: &str,
        host: &HostIdentity,
        options: &Options,
    ) -> Result<Self, Error> {
        let nqn = |name: &str| {
            Nqn::new(name).map_err(|source| Error::Nqn { name: name.to_owned(), source })
        };
        Ok(Self {
            address,
            subnqn: nqn(subnqn)?,
            hostnqn: nqn(&host.nqn)?,
            hostid: host.id,
            options: options.clone(),
            cntlid: CNTLID_DYNAMIC,
            in_capsule: 0,
            entries_max: u32::from(ADMIN_QUEUE_ENTRIES),
            transfer_max: u64::MAX,
        })
    }

    /// Identifier of the controller.
    #[must_use]
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// Commands that can be outstanding on an I/O queue: with SQ flow control off, as many as it has entries.
    #[must_use]
    pub fn depth_max(&self) -> u16 {
        u16::try_from(self.entries_max).unwrap_or(u16::MAX)
    }

    /// Largest transfer of one command, bytes (MDTS); `u64::MAX` when the controller states none.
    #[must_use]
    pub fn transfer_max(&self) -> u64 {
        self.transfer_max
    }

    /// In-capsule data an I/O queue takes, bytes (IOCCSZ).
    #[must_use]
    pub fn in_capsule(&self) -> u32 {
        self.in_capsule
    }

    /// Connects I/O queue `qid` (1 and up) with room for `depth` outstanding commands.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the queue is deeper than the controller takes, [`Error::Refused`],
    /// [`Error::Transport`], [`Error::Timeout`].
    pub async fn connect_queue(&self, qid: u16, depth: u16) -> Result<Queue, Error> {
        if depth > self.depth_max() {
            return Err(Error::Unsupported(format!(
                "a queue of {depth} commands is deeper than the controller's {}",
                self.depth_max()
            )));
        }
        let (mut queue, _) = self.connect(qid, depth, self.in_capsule).await?;
        let optimizations = &self.options.optimizations;
        queue.set_spin(optimizations.has(Optimization::Polled).then_some(optimizations.spin));
        Ok(queue)
    }

    /// Connects the admin queue; gives the controller's identifier.
    pub(crate) async fn connect_admin(&self) -> Result<(Queue, u16), Error> {
        self.connect(0, ADMIN_QUEUE_ENTRIES, self.address.admin_in_capsule()).await
    }

    async fn connect(&self, qid: u16, depth: u16, in_capsule: u32) -> Result<(Queue, u16), Error> {
        let optimizations = &self.options.optimizations;
        let options = host::Options {
            commands: depth,
            timeout: self.options.timeout,
            tcp: TcpOptions {
                header_digest: self.options.header_digest,
                data_digest: self.options.data_digest,
                tos: self.options.tos,
                priority: self.options.priority,
                hints: optimizations.has(Optimization::Hints),
                busy_poll: optimizations
                    .has(Optimization::BusyPoll)
                    .then_some(optimizations.busy_poll),
                grouped: qid > 0 && optimizations.has(Optimization::Groups),
            },
            rdma: RdmaOptions { qid, cntlid: if qid == 0 { 0 } else { self.cntlid }, in_capsule },
        };
        let connection = Connection::open(self.address, &options).await?;
        // Over TCP Connect always goes in the capsule (section 6.3), whatever IOCCSZ says of I/O commands.
        let fits = in_capsule.max(self.address.admin_in_capsule());
        let mut queue = Queue::new(connection, depth, fits);
        let data = ConnectData::new(self.hostid, self.cntlid, &self.subnqn, &self.hostnqn);
        let data = Data::copy_of(data.as_bytes());
        let entry = self.entry(qid, depth);
        let (cqe, _) = queue.execute("Connect", entry, data, self.options.timeout).await?;
        let status = cqe.status();
        if !status.is_success() {
            let invalid = status
                .is(Status::CONNECT_INVALID_PARAMETERS)
                .then(|| ConnectInvalid::from_dw0(cqe.dw0.get()));
            return Err(Error::Refused { qid, status, invalid });
        }
        queue.set_in_capsule(in_capsule);
        // SQHD FFFFh says that flow control is off. With it a queue is full with one entry less (Base 2.1, section 3.3.1.5).
        if cqe.sqhd.get() != u16::MAX && depth > 1 {
            queue.shorten();
        }
        let response = ConnectResponse::from_dw0(cqe.dw0.get());
        if response.authreq != 0 {
            return Err(Error::Unsupported("the controller requires authentication".to_owned()));
        }
        Ok((queue, response.cntlid))
    }

    /// The Connect entry. SQ flow control is off, so that reads may complete by the SUCCESS flag of their data.
    fn entry(&self, qid: u16, depth: u16) -> Sqe {
        let kato = u32::try_from(self.options.keep_alive.as_millis()).unwrap_or(u32::MAX);
        Connect {
            recfmt: 0,
            qid,
            // 0's based, and a queue has two entries at least.
            sqsize: depth.max(2) - 1,
            attributes: ConnectAttributes(ConnectAttributes::DISABLE_SQ_FLOW_CONTROL),
            kato: if qid == 0 { kato } else { 0 },
        }
        .to_sqe(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_shared_out_as_asked_and_none_is_left_over() {
        let asked = |io_queues, write_queues, poll_queues| Options {
            io_queues,
            write_queues,
            poll_queues,
            ..Options::default()
        };
        assert_eq!(asked(4, 2, 1).queues(), 7);
        for (options, granted, wanted) in [
            (asked(4, 2, 1), 7, [2, 4, 1]),
            (asked(4, 0, 0), 4, [4, 0, 0]),
            (asked(4, 0, 2), 6, [4, 0, 2]),
            (asked(4, 2, 1), 3, [2, 1, 0]),
            (asked(4, 2, 1), 2, [1, 1, 0]),
            (asked(4, 2, 1), 1, [1, 0, 0]),
            (asked(0, 0, 0), 1, [1, 0, 0]),
        ] {
            assert_eq!(options.share(granted), wanted, "{options:?}");
            let optimizations = options.optimizations.without(Optimization::Maps);
            assert_eq!(Options { optimizations, ..options }.share(granted), [granted, 0, 0]);
        }
    }
}
