//! Window Receive and Window End (`docs/anof.md`, "Negotiation").

use std::sync::Arc;

use nvme::discovery::TransportType;
use nvme::sqe::Sqe;
use nvme::status::Status;
use nvme::window::{Fabric, GRANT_BYTES, WindowEnd, WindowReceive};
use stdx::num::u32_of;
use window::{RING_BYTES_MAX, RING_BYTES_MIN};

use super::{Fault, Outcome, prepare};
use crate::controller::Controller;
use crate::namespace::{Backend, Namespace};
use crate::queue::AFTER_SHORTLY;
use crate::reservation::CommandGroup;
use crate::windows::{Asker, Refused, Wanted};

const _: () = assert!(GRANT_BYTES == window::grant::GRANT_BYTES);

impl From<Refused> for Fault {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Never => Status::NO_WINDOW.with_dnr().into(),
            Refused::Busy => Status::WINDOW_BUSY.with_retry_delay(AFTER_SHORTLY).into(),
            Refused::RingBytes => Self::field(12, 0),
            Refused::Failed => Status::INTERNAL_ERROR.into(),
        }
    }
}

impl Controller {
    pub(super) fn window_receive(&self, sqe: &Sqe, out: &mut Vec<u8>) -> Result<Outcome, Fault> {
        let asked = WindowReceive::parse(sqe)?;
        let fits = |bytes: u64| (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&bytes);
        if !asked.ring_bytes.is_none_or(fits) {
            return Err(Refused::RingBytes.into());
        }
        // Who did not come by RDMA has no address for it.
        if asked.fabric == Fabric::Rdma && self.path().local.trtype() != TransportType::Rdma {
            return Err(Fault::field(11, 0));
        }
        prepare(sqe, u32_of(GRANT_BYTES), out)?;
        self.may_have_window(asked.nsid)?;
        // What it is comes later.
        out.clear();
        Ok(Outcome::GrantWindow(asked))
    }

    pub(super) fn window_end(&self, sqe: &Sqe) -> Result<Outcome, Fault> {
        let asked = WindowEnd::parse(sqe);
        self.attached(asked.nsid)?;
        Ok(Outcome::EndWindow(asked))
    }

    /// Grants what was asked for.
    pub(super) async fn grant_window(&self, asked: WindowReceive) -> Result<Vec<u8>, Fault> {
        let (namespace, volume) = self.may_have_window(asked.nsid)?;
        let target = self.target().ok_or(Fault::from(Status::INTERNAL_ERROR))?;
        let windows = target.windows().ok_or(Fault::at(Status::INVALID_OPCODE, 0, 0))?;
        let flushes = match self.path().local {
            fabric::TransportAddress::Rdma(local) if asked.flushes => {
                let asked = fabric::ring::can_be_flushed(local.ip()).await;
                asked.map_err(|_| Fault::from(Refused::Busy))?
            }
            _ => false,
        };
        let (fabric, ring_bytes) = (asked.fabric, asked.ring_bytes);
        let wanted = Wanted { fabric, ring_bytes, flushes };
        let asker = Asker { who: self.who(), windows: Arc::clone(windows), volume, wanted };
        let check = || {
            let (now, volume_now) = self.may_have_window(asked.nsid)?;
            let is_same = Arc::ptr_eq(&now.window, &namespace.window) && volume_now == volume;
            is_same.then_some(()).ok_or(Fault::from(Refused::Busy))
        };
        let mut grant = namespace.window.grant(asker, check).await?;
        // One that is being made smaller is so before its volume is.
        grant.volume_bytes = grant.volume_bytes.min(namespace.bytes());
        Ok(grant.encode().to_vec())
    }

    /// Ends what was granted.
    pub(super) async fn end_window(&self, asked: WindowEnd) -> Result<(), Fault> {
        let namespace = self.attached(asked.nsid)?;
        Ok(namespace.window.give_back(&self.who(), asked.number).await?)
    }

    /// Whether this host may have a window of a namespace now; which one, and of which volume.
    fn may_have_window(&self, nsid: u32) -> Result<(Arc<Namespace>, [u8; 16]), Fault> {
        let namespace = self.attached(nsid)?;
        self.permit_namespace(&namespace)?;
        let access = namespace.reservation.with(|state| state.access(self.host_id()));
        if !access.allows(CommandGroup::Write) {
            return Err(Status::RESERVATION_CONFLICT.with_dnr().into());
        }
        if namespace.write_protected() {
            return Err(Status::NAMESPACE_IS_WRITE_PROTECTED.with_dnr().into());
        }
        let Backend::Volume(volume) = &namespace.backend else {
            return Err(Refused::Never.into());
        };
        let volume = volume.id();
        Ok((namespace, volume))
    }

    fn attached(&self, nsid: u32) -> Result<Arc<Namespace>, Fault> {
        let view = self.view();
        match view.get(nsid) {
            Some(namespace) => Ok(Arc::clone(namespace)),
            None if view.is_valid(nsid) => Err(Fault::field(1, 0)),
            None => Err(Fault::at(Status::INVALID_NAMESPACE_OR_FORMAT, 1, 0)),
        }
    }
}
