//! A controller seen from its admin queue.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::time::Duration;

use fabric::TransportAddress;
use nvme::admin::{Abort, async_event_request_sqe, keep_alive_sqe};
use nvme::cqe::Cqe;
use nvme::event::Event;
use nvme::fabrics::{PropertyGet, PropertySet, PropertySize};
use nvme::feature::{HostBehavior, NumberOfQueues, SetFeatures, fid};
use nvme::identify::{
    Cns, Identify, IdentifyController, IdentifyNamespace, IndependentNamespace, NamespaceList, bits,
};
use nvme::limits::IDENTIFY_BYTES;
use nvme::log::{GetLogPage, LogOffset};
use nvme::property::{
    Cap, Cc, CommandSetSelected, Csts, ShutdownNotification, ShutdownStatus, offset,
};
use nvme::sqe::Sqe;
use stdx::num::u32_of;
use zerocopy::{FromBytes, IntoBytes};

use crate::Error;
use crate::address::RDMA;
use crate::association::{Association, Options};
use crate::channel::{Channel, Manner, Outcome};
use crate::host::HostIdentity;
use crate::limits::{ADMIN_PAGE_BYTES, STATUS_POLL_MS};
use crate::queue::{Data, Memory};

/// An enabled controller, of an NVM or a discovery subsystem, and its admin queue.
pub struct Controller {
    admin: Channel,
    association: Association,
    identity: Box<IdentifyController>,
}

/// The first address `traddr` (an IP address or a name, of RDMA with `rdma://` before it) and `trsvcid` stand for. Names
/// are looked up on a helper thread: that may take seconds, in which the reactor has other things to do.
async fn resolve(traddr: &str, trsvcid: u16) -> Result<TransportAddress, Error> {
    let (place, of): (&str, fn(SocketAddr) -> TransportAddress) = match traddr.strip_prefix(RDMA) {
        Some(place) => (place, TransportAddress::Rdma),
        None => (traddr, TransportAddress::Tcp),
    };
    // Brackets around an IPv6 address are what a URL would have.
    let bare = place.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(place);
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok(of(SocketAddr::new(ip, trsvcid)));
    }
    let name = bare.to_owned();
    let look_up = move || {
        let mut addresses = (name.as_str(), trsvcid).to_socket_addrs()?;
        addresses.next().ok_or_else(|| std::io::ErrorKind::NotFound.into())
    };
    let found = reactor::blocking(look_up).await;
    found.map(of).map_err(|source| Error::Resolve { traddr: traddr.to_owned(), source })
}

/// In-capsule data that goes to a controller at `address`, bytes.
fn in_capsule(identity: &IdentifyController, address: TransportAddress) -> u32 {
    // IOCCSZ counts 16 bytes and includes the submission queue entry.
    let capsule = identity.ioccsz.get().saturating_mul(16);
    let data = capsule.saturating_sub(u32_of(size_of::<Sqe>()));
    let is_rdma = matches!(address, TransportAddress::Rdma(_));
    // Right behind the entry, and by a descriptor of an offset: other places are not asked for.
    let is_behind = identity.icdoff.get() == 0 && identity.sgls.get() & bits::SGLS_OFFSET != 0;
    if is_rdma && !is_behind { 0 } else { data.min(address.in_capsule_most()) }
}

impl Controller {
    /// Connects the admin queue, enables the controller (section 3.5.1: CAP, CC.EN, CSTS.RDY) and identifies it.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn connect(
        traddr: &str,
        trsvcid: u16,
        subnqn: &str,
        host: &HostIdentity,
        options: &Options,
    ) -> Result<Self, Error> {
        let address = resolve(traddr, trsvcid).await?;
        Self::establish(Association::new(address, subnqn, host, options)?).await
    }

    async fn establish(mut association: Association) -> Result<Self, Error> {
        let (admin, cntlid) = association.connect_admin().await?;
        association.cntlid = cntlid;
        let admin = Channel::new(admin, Manner::default(), Rc::default());
        let identity = Box::default();
        let mut controller = Self { admin, association, identity };
        let cap = Cap(controller.property(offset::CAP, PropertySize::Eight).await?);
        controller.association.entries_max = u32::from(cap.mqes()) + 1;
        controller.enable(cap).await?;
        controller.identity = controller.identify(Identify::new(Cns::Controller, 0)).await?;
        // MDTS counts in the smallest memory page, 2^(12 + MPSMIN) bytes; 0 is no limit.
        let mdts = u32::from(controller.identity.mdts);
        if mdts != 0 {
            let page = 12 + u32::from(cap.mpsmin());
            controller.association.transfer_max = 1u64.checked_shl(mdts + page).unwrap_or(u64::MAX);
        }
        let address = controller.association.address;
        let most = &mut controller.association.transfer_max;
        *most = (*most).min(address.transfer_most());
        if matches!(address, TransportAddress::Rdma(_))
            && controller.identity.sgls.get() & bits::SGLS_KEYED == 0
        {
            let what = "the controller takes no keyed SGL data block descriptors (SGLS)";
            return Err(Error::Unsupported(what.to_owned()));
        }
        controller.association.in_capsule = in_capsule(&controller.identity, address);
        controller.ask_for_retry_delays().await?;
        Ok(controller)
    }

    /// Has a controller that knows delays between attempts (CRDT) say in its completions which is to be kept: Host Behavior
    /// Support, Advanced Command Retry Enable. One that does not take that goes on without.
    async fn ask_for_retry_delays(&self) -> Result<(), Error> {
        let IdentifyController { crdt1, crdt2, crdt3, .. } = &*self.identity;
        if [crdt1, crdt2, crdt3].iter().all(|delay| delay.get() == 0) {
            return Ok(());
        }
        let behavior = HostBehavior { acre: 1, ..HostBehavior::default() };
        let set = SetFeatures {
            fid: fid::HOST_BEHAVIOR,
            save: false,
            nsid: 0,
            cdw11: 0,
            cdw12: 0,
            uuid_index: 0,
        };
        let length = u32_of(size_of::<HostBehavior>());
        let data = Data::Send { memory: Memory::Shared(behavior.as_bytes().into()), length };
        match self.execute("Set Features (Host Behavior Support)", set.to_sqe(0), data).await {
            Ok(_) | Err(Error::Command { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn enable(&self, cap: Cap) -> Result<(), Error> {
        let css = if cap.has(Cap::CSS_IOCSS) {
            CommandSetSelected::All
        } else if cap.has(Cap::CSS_NVM) {
            CommandSetSelected::Nvm
        } else {
            CommandSetSelected::AdminOnly
        };
        self.set_property(offset::CC, PropertySize::Four, Cc::enable(css).0.into()).await?;
        // CAP.TO counts half seconds; 0 would be no time at all.
        let patience = Duration::from_millis(500 * u64::from(cap.to().max(1)));
        self.until("CC.EN", patience, Csts::ready).await
    }

    /// Looks at CSTS until it is as wanted.
    async fn until(
        &self,
        command: &'static str,
        after: Duration,
        wanted: impl Fn(Csts) -> bool,
    ) -> Result<(), Error> {
        let look = async {
            while !wanted(self.status().await?) {
                reactor::sleep(Duration::from_millis(STATUS_POLL_MS)).await;
            }
            Ok(())
        };
        match reactor::timeout(after, look).await {
            Ok(result) => result,
            Err(reactor::Elapsed) => Err(Error::Timeout { command, after }),
        }
    }

    /// CSTS; a controller with a fatal error is an error.
    async fn status(&self) -> Result<Csts, Error> {
        let raw = self.property(offset::CSTS, PropertySize::Four).await?;
        let csts = Csts(stdx::num::low32(raw));
        if csts.fatal() { Err(Error::Fatal) } else { Ok(csts) }
    }

    /// What I/O queues are connected by.
    #[must_use]
    pub fn association(&self) -> &Association {
        &self.association
    }

    /// Identify Controller as read when the controller was connected.
    #[must_use]
    pub fn identity(&self) -> &IdentifyController {
        &self.identity
    }

    /// Runs an admin command; a status other than success is an error.
    ///
    /// # Errors
    /// [`Error::Command`], [`Error::Transport`], [`Error::Timeout`].
    pub async fn execute(
        &self,
        command: &'static str,
        sqe: Sqe,
        data: Data,
    ) -> Result<(Cqe, Data), Error> {
        let patience = self.association.options.timeout;
        let (cqe, data) = self.admin.execute(command, sqe, data, patience).await?;
        let status = cqe.status();
        if status.is_success() { Ok((cqe, data)) } else { Err(Error::Command { command, status }) }
    }

    /// Property Get.
    ///
    /// # Errors
    /// As [`Controller::execute`].
    pub async fn property(&self, offset: u32, size: PropertySize) -> Result<u64, Error> {
        let sqe = PropertyGet { offset, size }.to_sqe(0);
        Ok(self.execute("Property Get", sqe, Data::None).await?.0.result())
    }

    /// Property Set.
    ///
    /// # Errors
    /// As [`Controller::execute`].
    pub async fn set_property(
        &self,
        offset: u32,
        size: PropertySize,
        value: u64,
    ) -> Result<(), Error> {
        let sqe = PropertySet { offset, size, value }.to_sqe(0);
        self.execute("Property Set", sqe, Data::None).await?;
        Ok(())
    }

    async fn identify<T: FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + Clone>(
        &self,
        what: Identify,
    ) -> Result<Box<T>, Error> {
        let page = Data::page(u32_of(IDENTIFY_BYTES));
        let (_, page) = self.execute("Identify", what.to_sqe(0), page).await?;
        let read = T::read_from_bytes(page.bytes());
        Ok(Box::new(read.map_err(|_| Error::Answer("an Identify page of the wrong size"))?))
    }

    /// Identify Namespace (CNS 00h) of an active namespace.
    ///
    /// # Errors
    /// As [`Controller::execute`]; [`Error::Unsupported`] when there is no such active namespace.
    pub async fn namespace(&self, nsid: u32) -> Result<Box<IdentifyNamespace>, Error> {
        let namespace: Box<IdentifyNamespace> =
            self.identify(Identify::new(Cns::Namespace, nsid)).await?;
        // An inactive namespace identifies as zeroes (section 3.2.1.4).
        if namespace.nsze.get() == 0 {
            return Err(Error::Unsupported(format!("namespace {nsid} is not active")));
        }
        Ok(namespace)
    }

    /// I/O Command Set Independent Identify Namespace (CNS 08h); `None` for a controller from before that.
    ///
    /// # Errors
    /// Why the admin queue ended, or did not answer.
    pub async fn independent_namespace(
        &self,
        nsid: u32,
    ) -> Result<Option<Box<IndependentNamespace>>, Error> {
        match self.identify(Identify::new(Cns::IndependentNamespace, nsid)).await {
            Ok(page) => Ok(Some(page)),
            Err(Error::Command { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Identifiers of the active namespaces above `after`, ascending, 1024 at most.
    ///
    /// # Errors
    /// As [`Controller::execute`].
    pub async fn active_namespaces(&self, after: u32) -> Result<Vec<u32>, Error> {
        let list: Box<NamespaceList> =
            self.identify(Identify::new(Cns::ActiveNamespaces, after)).await?;
        Ok(list.iter().collect())
    }

    /// Asks for `count` I/O queues (Set Features, Number of Queues) and returns how many may be connected.
    ///
    /// # Errors
    /// As [`Controller::execute`].
    pub async fn set_queue_count(&self, count: u16) -> Result<u16, Error> {
        let wanted = count.max(1) - 1;
        let ask = NumberOfQueues { submission: wanted, completion: wanted };
        let sqe = SetFeatures {
            fid: fid::NUMBER_OF_QUEUES,
            save: false,
            nsid: 0,
            cdw11: ask.raw(),
            cdw12: 0,
            uuid_index: 0,
        }
        .to_sqe(0);
        let (cqe, _) = self.execute("Set Features (Number of Queues)", sqe, Data::None).await?;
        let granted = NumberOfQueues::from_raw(cqe.dw0.get());
        let lesser = granted.submission.min(granted.completion);
        Ok(lesser.saturating_add(1).min(count))
    }

    /// Keep Alive; unanswered within KATO, the association is as good as lost.
    ///
    /// # Errors
    /// As [`Controller::execute`].
    pub async fn keep_alive(&self) -> Result<(), Error> {
        let Options { keep_alive, timeout, .. } = self.association.options;
        let patience = if keep_alive.is_zero() { timeout } else { timeout.min(keep_alive) };
        let command = "Keep Alive";
        let (cqe, _) = self.admin.execute(command, keep_alive_sqe(0), Data::None, patience).await?;
        let status = cqe.status();
        if status.is_success() { Ok(()) } else { Err(Error::Command { command, status }) }
    }

    /// The interval at which to send Keep Alive: half of KATO; `None` when KATO is 0.
    #[must_use]
    pub fn keep_alive_interval(&self) -> Option<Duration> {
        let kato = self.association.options.keep_alive;
        (!kato.is_zero()).then(|| kato / 2)
    }

    /// Has the controller tell of changes to attached namespaces and of the access to them by
    /// [`Controller::event`], as far as it can.
    ///
    /// # Errors
    /// As [`Controller::execute`].
    pub async fn ask_for_events(&self) -> Result<(), Error> {
        let known = bits::OAES_NAMESPACE_ATTRIBUTE | bits::OAES_ANA_CHANGE;
        let offered = self.identity.oaes.get() & known;
        if offered == 0 {
            return Ok(());
        }
        let sqe = SetFeatures {
            fid: fid::ASYNC_EVENT,
            save: false,
            nsid: 0,
            // The bits of the feature are those of OAES.
            cdw11: offered,
            cdw12: 0,
            uuid_index: 0,
        }
        .to_sqe(0);
        self.execute("Set Features (Asynchronous Event)", sqe, Data::None).await?;
        Ok(())
    }

    /// Waits for the next asynchronous event, however long it takes; `None` for one without a name.
    ///
    /// # Errors
    /// [`Error::Command`], and why the admin queue ended.
    pub async fn event(&self) -> Result<Option<Event>, Error> {
        match self.admin.run(async_event_request_sqe(0), Data::None).await {
            Outcome::Answered(cqe, _) if cqe.status().is_success() => {
                Ok(Event::from_dw0(cqe.dw0.get()))
            }
            Outcome::Answered(cqe, _) => {
                Err(Error::Command { command: "Asynchronous Event Request", status: cqe.status() })
            }
            Outcome::Lost(_) | Outcome::Unsent(_) => Err(Error::Ended(self.admin.why())),
        }
    }

    /// Asks to abort command `cid` of queue `qid`. What becomes of it is for its own completion to say.
    ///
    /// # Errors
    /// As [`Controller::execute`].
    pub async fn abort(&self, qid: u16, cid: u16) -> Result<(), Error> {
        self.execute("Abort", Abort { sqid: qid, cid }.to_sqe(0), Data::None).await?;
        Ok(())
    }

    /// Resets the controller (CC.EN to 0, section 3.7.2): when CSTS.RDY is 0, no command of its queues executes
    /// any more. The association is of no use then.
    ///
    /// # Errors
    /// As [`Controller::execute`].
    pub async fn reset(&self) -> Result<(), Error> {
        let cc = Cc(stdx::num::low32(self.property(offset::CC, PropertySize::Four).await?));
        self.set_property(offset::CC, PropertySize::Four, cc.disabled().0.into()).await?;
        self.until("CC.EN", self.association.options.timeout, |csts| !csts.ready()).await
    }

    /// How long after the loss of its connections the controller may still execute commands: it notices by its
    /// Keep Alive Timer, after twice KATO with command based keep alive and three times with traffic based, and
    /// takes CQT to quiesce (Base 2.1, section 9.6); one that reports none is given what [`Options::cqt`] says. It may
    /// have rounded KATO up to a multiple of KAS. Says nothing when KATO is 0.
    #[must_use]
    pub fn quiesce_time(&self) -> Duration {
        let traffic_based = self.identity.ctratt.get() & bits::CTRATT_TBKAS != 0;
        let times = if traffic_based { 3 } else { 2 };
        let cqt = match self.identity.cqt.get() {
            0 => self.association.options.cqt,
            reported => Duration::from_millis(reported.into()),
        };
        rounded_up(self.association.options.keep_alive, self.identity.kas.get()) * times + cqt
    }

    /// Reads `length` bytes from byte `offset` of a log page. `length` is a multiple of 4, at most
    /// [`ADMIN_PAGE_BYTES`].
    ///
    /// # Errors
    /// As [`Controller::execute`].
    pub async fn log_page(&self, lid: u8, offset: u64, length: u32) -> Result<Data, Error> {
        if length == 0 || length > ADMIN_PAGE_BYTES || !length.is_multiple_of(4) {
            return Err(Error::Unsupported(format!("a log page read of {length} bytes")));
        }
        let ask = GetLogPage {
            offset: LogOffset::Bytes(offset),
            ..GetLogPage::new(lid, 0, u64::from(length))
        };
        let sqe = ask.to_sqe(0);
        Ok(self.execute("Get Log Page", sqe, Data::page(length)).await?.1)
    }

    /// Shuts the controller down in order (CC.SHN normal, section 3.6.1) . I/O queues are gone with it.
    ///
    /// # Errors
    /// As [`Controller::execute`].
    pub async fn shut_down(&self) -> Result<(), Error> {
        let cc = Cc(stdx::num::low32(self.property(offset::CC, PropertySize::Four).await?));
        let cc = cc.with_shn(ShutdownNotification::Normal);
        self.set_property(offset::CC, PropertySize::Four, cc.0.into()).await?;
        let complete = |csts: Csts| csts.shst() == Some(ShutdownStatus::Complete);
        self.until("CC.SHN", self.association.options.timeout, complete).await
    }
}

/// The Keep Alive Timeout that a controller with this granularity (KAS, in 100 ms; 0 where there is none) may go by.
fn rounded_up(kato: Duration, kas: u16) -> Duration {
    let step = u64::from(kas.max(1)) * 100;
    let millis = u64::try_from(kato.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX / 4);
    Duration::from_millis(millis.div_ceil(step).saturating_mul(step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_may_round_the_keep_alive_timeout_up() {
        let rounded = |kato, kas| rounded_up(Duration::from_millis(kato), kas).as_millis();
        let seen = [(5000, 0), (5000, 10), (5000, 100), (10_001, 100), (0, 100)]
            .map(|(kato, kas)| rounded(kato, kas));
        assert_eq!(seen, [5000, 5000, 10_000, 20_000, 0]);
    }
}
