//! The discovery log of a discovery controller (section 5.1.12.3.1).

use nvme::discovery::{AddressFamily, Entry, Header, SubsystemType, TransportType};
use nvme::log::lid;
use nvme::nqn::DISCOVERY;
use stdx::num::u32_of;
use zerocopy::FromBytes;

use crate::Error;
use crate::address::RDMA;
use crate::controller::Controller;
use crate::limits::{ADMIN_PAGE_BYTES, DISCOVERY_RECORDS_MAX, DISCOVERY_TRIES};
use crate::remote::Remote;

/// A discovery log, read while its generation counter stood still.
#[derive(Clone, Debug, Default)]
pub struct DiscoveryLog {
    /// Generation counter.
    pub generation: u64,
    /// The records.
    pub entries: Vec<Entry>,
}

const HEADER_BYTES: u32 = 1024;
const ENTRY_BYTES: u32 = 1024;
const _: () = assert!(size_of::<Header>() == 1024 && size_of::<Entry>() == 1024);

/// Entries read with one command.
const ENTRIES_A_READ: u64 = ADMIN_PAGE_BYTES as u64 / 1024;

impl Remote {
    /// The same subsystem at every address of this remote's transport that the discovery service at this remote's address
    /// has for it. Who asks by TCP may have no RDMA, and the other way round: addresses of the other transport are for who
    /// names them.
    ///
    /// # Errors
    /// As [`Controller::connect`] and [`Controller::discovery_log`].
    pub async fn paths(&self) -> Result<Vec<Self>, Error> {
        let discovery = Self { subnqn: DISCOVERY.to_owned(), ..self.briefly() };
        let controller = discovery.connect().await?;
        let log = controller.discovery_log().await?;
        // Nothing is lost by a controller that is not shut down: it notices by itself.
        let _ = controller.shut_down().await;
        Ok(self.found(&log.entries))
    }

    /// Those of the entries that are of this subsystem, by this transport, and an address of the Internet's.
    fn found(&self, entries: &[Entry]) -> Vec<Self> {
        let (trtype, prefix) = match self.is_rdma() {
            true => (TransportType::Rdma, RDMA),
            false => (TransportType::Tcp, ""),
        };
        let families = [AddressFamily::Ipv4.raw(), AddressFamily::Ipv6.raw()];
        let is_meant = |entry: &&Entry| {
            entry.subtype == SubsystemType::Nvm.raw()
                && entry.trtype == trtype.raw()
                && families.contains(&entry.adrfam)
                && entry.subnqn() == self.subnqn
        };
        let at = |entry: &Entry| {
            let trsvcid = entry.trsvcid().parse().ok()?;
            let traddr = format!("{prefix}{}", entry.traddr());
            Some(Self { traddr, trsvcid, ..self.clone() })
        };
        entries.iter().filter(is_meant).filter_map(at).collect()
    }
}

impl Controller {
    /// Reads the discovery log. As it may change between two reads, the generation counter is read again after
    /// the last record, and everything anew when it moved.
    ///
    /// # Errors
    /// [`Error::Answer`] when the counter moves each time or the log makes no sense; as
    /// [`Controller::execute`].
    pub async fn discovery_log(&self) -> Result<DiscoveryLog, Error> {
        for _ in 0..DISCOVERY_TRIES {
            let (generation, records) = self.discovery_header().await?;
            let mut entries = Vec::new();
            let mut next = 0;
            while next < records {
                let count = ENTRIES_A_READ.min(records - next);
                let offset = u64::from(HEADER_BYTES) + next * u64::from(ENTRY_BYTES);
                let length = stdx::num::low32(count) * ENTRY_BYTES;
                let bytes = self.log_page(lid::DISCOVERY, offset, length).await?;
                let read = <[Entry]>::ref_from_bytes(bytes.bytes());
                entries.extend_from_slice(read.map_err(|_| Error::Answer("a torn discovery log"))?);
                next += count;
            }
            if records == 0 || self.discovery_header().await?.0 == generation {
                return Ok(DiscoveryLog { generation, entries });
            }
        }
        Err(Error::Answer("the discovery log's generation counter never stands still"))
    }

    /// Generation counter and number of records.
    async fn discovery_header(&self) -> Result<(u64, u64), Error> {
        let bytes = self.log_page(lid::DISCOVERY, 0, u32_of(size_of::<Header>())).await?;
        let header = Header::ref_from_bytes(bytes.bytes())
            .map_err(|_| Error::Answer("a torn discovery log header"))?;
        if header.recfmt.get() != 0 {
            return Err(Error::Answer("a discovery log of an unknown record format"));
        }
        let records = header.numrec.get();
        if records > DISCOVERY_RECORDS_MAX {
            return Err(Error::Answer("a discovery log of too many records"));
        }
        Ok((header.genctr.get(), records))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::association::Options;
    use crate::host::HostIdentity;
    use nvme::nqn::Nqn;

    #[test]
    fn paths_are_those_of_the_transport_that_was_asked_by() {
        let subnqn = "nqn.2026-11.io.flashloom:a";
        let entry = |trtype, family, traddr: &str| {
            let nqn = Nqn::new(subnqn).unwrap();
            let mut entry = Entry::new(trtype, SubsystemType::Nvm, family, &nqn);
            entry.set_address(traddr, "4420");
            entry
        };
        let entries = [
            entry(TransportType::Tcp, AddressFamily::Ipv4, "192.0.2.1"),
            entry(TransportType::Rdma, AddressFamily::Ipv4, "192.0.2.2"),
            entry(TransportType::Rdma, AddressFamily::Ipv6, "fd00::2"),
            entry(TransportType::Rdma, AddressFamily::InfiniBand, "fe80::1"),
        ];
        let found = |traddr: &str| -> Vec<String> {
            let remote = Remote {
                traddr: traddr.to_owned(),
                trsvcid: 8009,
                subnqn: subnqn.to_owned(),
                host: HostIdentity::named("nqn.2026-11.io.x:a"),
                options: Options::default(),
            };
            let paths = remote.found(&entries);
            assert!(paths.iter().all(|path| path.trsvcid == 4420));
            paths.into_iter().map(|path| path.traddr).collect()
        };
        assert_eq!(found("192.0.2.9"), ["192.0.2.1"]);
        assert_eq!(found("rdma://192.0.2.9"), ["rdma://192.0.2.2", "rdma://fd00::2"]);
    }
}
