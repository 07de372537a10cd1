//! Fabrics commands (Base 2.1 section 6): Connect, Property Get and Set, Disconnect.

mod connect;
mod refusal;
#[cfg(test)]
mod tests;

pub use connect::{ConnectParams, Connected, connect};
pub use refusal::{Refusal, Why};

use nvme::fabrics::Command;
use nvme::sqe::Sqe;
use nvme::status::Status;
use stdx::num::low32;

use crate::admin::{Fault, Outcome};
use crate::controller::Controller;

impl Controller {
    /// Executes a Fabrics command (opcode 7Fh) that arrived on the connected queue `qid`.
    pub fn execute_fabrics(&self, qid: u16, sqe: &Sqe) -> Outcome {
        match self.fabrics(qid, sqe) {
            Ok(outcome) => outcome,
            Err(fault) => Outcome::Failed(fault.status),
        }
    }

    pub(crate) fn fabrics(&self, qid: u16, sqe: &Sqe) -> Result<Outcome, Fault> {
        let command = Command::parse(sqe)?;
        match command {
            // One Connect a queue (section 6.3): a further one is out of sequence.
            Command::Connect(_) => Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr().into()),
            Command::PropertyGet(get) if qid == 0 => {
                let value = self.property_get(get)?;
                Ok(Outcome::Complete { dw0: low32(value), dw1: low32(value >> 32) })
            }
            Command::PropertySet(set) if qid == 0 => {
                self.property_set(set)?;
                Ok(Outcome::DONE)
            }
            // Properties are reached through the admin queue only (section 6.5, 6.6).
            Command::PropertyGet(_) | Command::PropertySet(_) => {
                Err(Status::INVALID_FIELD.with_dnr().into())
            }
            // Section 6.4: Disconnect is for I/O queues.
            Command::Disconnect if qid == 0 => {
                Err(Status::DISCONNECT_INVALID_QUEUE_TYPE.with_dnr().into())
            }
            Command::Disconnect => Ok(Outcome::Disconnect),
            // No authentication was required (AUTHREQ 0 in Connect): none can be in progress.
            Command::AuthenticationSend(_) | Command::AuthenticationReceive(_) => {
                Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr().into())
            }
        }
    }
}
