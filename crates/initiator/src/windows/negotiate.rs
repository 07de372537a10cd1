//! The commands by which windows come and go.

use fabric::TransportAddress;
use nvme::window::{Fabric, GRANT_BYTES, MARK, WindowEnd, WindowReceive};
use stdx::num::u32_of;
use window::Grant;

use crate::Error;
use crate::controller::Controller;
use crate::queue::Data;

impl Controller {
    /// Whether it has direct write windows: others may know these opcodes as something else.
    #[must_use]
    pub fn has_windows(&self) -> bool {
        self.identity().vs.starts_with(&MARK)
    }

    /// Asks for a direct write window of a namespace, with rings of so many bytes each; 0 leaves that to the target. By RDMA
    /// this end says whether it can flush what it writes.
    ///
    /// # Errors
    /// As [`Controller::execute`]; [`Error::Answer`] for a grant that makes no sense, [`Error::Window`] when this end cannot
    /// tell whether it can flush.
    pub async fn ask_for_window(
        &self,
        nsid: u32,
        fabric: Fabric,
        ring_bytes: u64,
    ) -> Result<Grant, Error> {
        let ring_bytes = Some(ring_bytes).filter(|bytes| *bytes > 0);
        let flushes = match self.association().address {
            TransportAddress::Rdma(address) if fabric == Fabric::Rdma => {
                let asked = fabric::ring::can_flush(address).await;
                asked.map_err(|source| Error::Window { source })?
            }
            _ => false,
        };
        let sqe = WindowReceive { nsid, fabric, ring_bytes, flushes }.to_sqe(0);
        let page = Data::page(u32_of(GRANT_BYTES));
        let (_, page) = self.execute("Window Receive", sqe, page).await?;
        Grant::decode(page.bytes())
            .ok_or(Error::Answer("a direct write window that makes no sense"))
    }

    /// Gives a window back: it has ended when this returns.
    ///
    /// # Errors
    /// As [`Controller::execute`].
    pub async fn end_window(&self, nsid: u32, number: u32) -> Result<(), Error> {
        let sqe = WindowEnd { nsid, number }.to_sqe(0);
        self.execute("Window End", sqe, Data::None).await?;
        Ok(())
    }
}
