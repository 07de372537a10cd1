//! What a controller says of the access to its namespaces: the Asymmetric Namespace Access log page (section
//! 5.1.12.1.13).

use nvme::ana::{Group, GroupDescriptor, LogHeader, RETURN_GROUPS_ONLY, parse_page};
use nvme::identify::bits;
use nvme::log::{GetLogPage, lid};
use stdx::num::u32_of;

use crate::Error;
use crate::controller::Controller;
use crate::limits::ADMIN_PAGE_BYTES;
use crate::queue::Data;

impl Controller {
    /// Whether it reports Asymmetric Namespace Access (CMIC bit 3).
    #[must_use]
    pub fn reports_ana(&self) -> bool {
        self.identity().cmic & bits::CMIC_ANA != 0
    }

    /// Its ANA groups, without their namespaces.
    ///
    /// # Errors
    /// As [`Controller::execute`]; [`Error::Answer`] for a page that makes no sense, [`Error::Unsupported`] when
    /// it is larger than what is read at once.
    pub async fn ana_groups(&self) -> Result<Vec<Group>, Error> {
        let groups = self.identity().nanagrpid.get();
        let bytes = groups
            .checked_mul(u32_of(size_of::<GroupDescriptor>()))
            .and_then(|bytes| bytes.checked_add(u32_of(size_of::<LogHeader>())))
            .filter(|&bytes| bytes <= ADMIN_PAGE_BYTES)
            .ok_or_else(|| Error::Unsupported(format!("{groups} ANA groups")))?;
        let ask =
            GetLogPage { lsp: RETURN_GROUPS_ONLY, ..GetLogPage::new(lid::ANA, 0, bytes.into()) };
        let (_, page) = self.execute("Get Log Page", ask.to_sqe(0), Data::page(bytes)).await?;
        let (_, groups) =
            parse_page(page.bytes()).ok_or(Error::Answer("an ANA log page that makes no sense"))?;
        Ok(groups)
    }
}
