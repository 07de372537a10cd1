//! Admin commands whose fields are in the entry alone (section 5.1); those with more to them have
//! modules of their own: [`crate::identify`], [`crate::log`], [`crate::feature`].

use stdx::num::low16;

use crate::feature::{GetFeatures, SetFeatures};
use crate::identify::Identify;
use crate::log::GetLogPage;
use crate::opcode::admin;
use crate::refusal::{Reason, Refusal};
use crate::sqe::Sqe;
use crate::window::{WindowEnd, WindowReceive};

/// An Admin command that a controller over Fabrics has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Identify(Identify),
    GetLogPage(GetLogPage),
    GetFeatures(GetFeatures),
    SetFeatures(SetFeatures),
    Abort(Abort),
    AsyncEventRequest,
    KeepAlive,
    WindowEnd(WindowEnd),
    WindowReceive(WindowReceive),
}

/// Abort (section 5.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort {
    /// Submission Queue Identifier of the command to abort.
    pub sqid: u16,
    /// Command Identifier of the command to abort.
    pub cid: u16,
}

impl Command {
    /// Reads an entry of the Admin Queue; Fabrics commands are [`crate::fabrics::Command`]s.
    pub fn parse(sqe: &Sqe) -> Result<Self, Refusal> {
        if admin::known(sqe.opcode).is_none() {
            return Err(Refusal::at(Reason::Opcode, 0, 0));
        }
        sqe.check_flags_unfused()?;
        match sqe.opcode {
            admin::IDENTIFY => Identify::parse(sqe).map(Self::Identify),
            admin::GET_LOG_PAGE => GetLogPage::parse(sqe).map(Self::GetLogPage),
            admin::GET_FEATURES => GetFeatures::parse(sqe).map(Self::GetFeatures),
            admin::SET_FEATURES => SetFeatures::parse(sqe).map(Self::SetFeatures),
            admin::ABORT => Ok(Self::Abort(Abort::parse(sqe))),
            admin::ASYNC_EVENT_REQUEST => Ok(Self::AsyncEventRequest),
            admin::KEEP_ALIVE => Ok(Self::KeepAlive),
            admin::WINDOW_END => Ok(Self::WindowEnd(WindowEnd::parse(sqe))),
            admin::WINDOW_RECEIVE => WindowReceive::parse(sqe).map(Self::WindowReceive),
            _ => Err(Refusal::at(Reason::Opcode, 0, 0)),
        }
    }
}

impl Abort {
    /// Reads the fields of an Abort: every value is one.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Self {
        let cdw10 = u64::from(sqe.cdw10.get());
        Self { sqid: low16(cdw10), cid: low16(cdw10 >> 16) }
    }

    /// The entry a host sends.
    #[must_use]
    pub fn to_sqe(self, cid: u16) -> Sqe {
        let mut sqe = Sqe::new(admin::ABORT, cid, 0);
        sqe.cdw10 = (u32::from(self.cid) << 16 | u32::from(self.sqid)).into();
        sqe
    }
}

/// DW0 bit 0 of an Abort's completion: set when the command was not aborted.
pub const NOT_ABORTED: u32 = 1;

/// The Asynchronous Event Request a host sends.
#[must_use]
pub fn async_event_request_sqe(cid: u16) -> Sqe {
    Sqe::new(admin::ASYNC_EVENT_REQUEST, cid, 0)
}

/// The Keep Alive a host sends.
#[must_use]
pub fn keep_alive_sqe(cid: u16) -> Sqe {
    Sqe::new(admin::KEEP_ALIVE, cid, 0)
}
