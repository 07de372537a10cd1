//! Reading the headers of stripes back.

use super::around::Got;
use super::recover::{Cause, Target, Unrecoverable};
use super::{SegmentInfo, Segments};
use crate::address::BLOCK;
use crate::error::{Error, Kind, Result};
use crate::format::stripe::StripeHeader;
use crate::limits::SALVAGE_ATTEMPTS;
use stdx::num::usize32;

impl Segments {
    /// The header of a stripe, if the stripe was written in the segment's present life: for rolling
    /// forward and for dumps. Says nothing of whether all of the stripe was written.
    ///
    /// # Errors
    /// `Failed` when nothing can be said, because too many members are lost.
    pub async fn read_header(
        &self,
        info: &SegmentInfo,
        stripe: u32,
    ) -> Result<Option<StripeHeader>> {
        let parse = |bytes: &[u8]| {
            let header = StripeHeader::read(bytes, self.pool, info.geometry).ok();
            header.filter(|header| info.has_header(header, stripe))
        };
        let len = usize32(info.header_blocks()) * BLOCK;
        let mut bytes = vec![0; len];
        let target = Target { info, stripe, unit: 0, block: 0 };
        let fits = |bytes: &[u8]| parse(bytes).is_some();
        let (mut read, mut attempts) = (false, 0);
        let why = loop {
            attempts += 1;
            // One that is late is waited for where the others do not give it: that is no word that there is none.
            let make = async || {
                let made = self.recover(target, Cause::Late, &mut bytes, &fits).await;
                made.map_err(|_| Error::new(Kind::Corrupt, "no header is made of the others"))
            };
            match self.read_or_make(target, len, &self.memory.reads, make).await {
                Ok(Got::Made) => return Ok(parse(&bytes)),
                Ok(Got::Read(found)) if found.len() == len => {
                    read = true;
                    bytes.copy_from_slice(&found);
                    if let Some(header) = parse(&bytes) {
                        return Ok(Some(header));
                    }
                }
                Ok(Got::Read(_)) | Err(_) => {}
            }
            match self.recover(target, Cause::Damage, &mut bytes, &fits).await {
                Ok(()) => return Ok(parse(&bytes)),
                // A read may fail once and not again, and a header that was there once is relied on: nothing is said of
                // it by a copy that its stripe's tear left as it was.
                Err(why) if attempts == SALVAGE_ATTEMPTS => break why,
                Err(Unrecoverable::NoneFits) if read => return Ok(None),
                Err(_) => {}
            }
        };
        match why {
            Unrecoverable::NoneFits => Ok(None),
            // What lies there was read and is of no stripe of this life: past the last one that is
            // what to expect, however many members are lost.
            Unrecoverable::TooFew(_) if read => Ok(None),
            Unrecoverable::TooFew(error) => {
                let what = format!("header of stripe {stripe}, segment {}", info.id.get());
                Err(Error::caused(Kind::Failed, what, error))
            }
        }
    }
}
