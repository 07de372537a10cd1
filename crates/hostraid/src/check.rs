//! Whether parity and copies say what the data does.

use std::ops::Range;
use std::rc::Rc;

use initiator::Fua;
use reactor::{join_all, now_exact};
use stdx::num::usize32;

use crate::Error;
use crate::inner::Inner;
use crate::layout::Level;
use crate::limits::SWEEP_STRIPES;
use crate::rebuild::hold_back;
use crate::set::Set;
use crate::work::to_its_end;

/// What a check found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Stripes looked at.
    pub stripes: u64,
    /// Stripes whose parity or copies were not what the data says.
    pub mismatched: u64,
    /// Stripes with a member missing: nothing can be compared there.
    pub degraded: u64,
}

impl Set {
    /// Reads everything and compares it, `rate` bytes a second at most. What a medium does not give is written
    /// again from the others; with `repair`, parity and copies are made to say what the data does.
    ///
    /// # Errors
    /// When something can be neither read nor computed.
    pub async fn check(
        &self,
        repair: bool,
        rate: Option<u64>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Checked, Error> {
        let inner = &self.inner;
        let stripes = inner.layout.stripes;
        let _one = inner.sweep.hold(1).await;
        let mut found = Checked::default();
        let mut from = 0;
        while from < stripes {
            let begin = now_exact();
            let to = (from + SWEEP_STRIPES).min(stripes);
            let these = Rc::clone(inner);
            let some =
                to_its_end(async move { these.check_some(from..to, repair).await }).await??;
            found.stripes += some.stripes;
            found.mismatched += some.mismatched;
            found.degraded += some.degraded;
            from = to;
            progress(to, stripes);
            hold_back(rate, SWEEP_STRIPES * inner.layout.stripe_bytes(), begin).await;
        }
        Ok(found)
    }
}

impl Inner {
    /// Checks some stripes, which nobody else uses meanwhile.
    async fn check_some(&self, stripes: Range<u64>, repair: bool) -> Result<Checked, Error> {
        let mut found = Checked::default();
        let _held = self.locks.lock(stripes.clone(), true).await;
        self.settle().await?;
        for one in join_all(stripes.map(|stripe| self.check_one(stripe, repair))).await {
            let one = one?;
            found.stripes += 1;
            found.mismatched += one.mismatched;
            found.degraded += one.degraded;
        }
        self.settle().await?;
        Ok(found)
    }

    async fn check_one(&self, stripe: u64, repair: bool) -> Result<Checked, Error> {
        let (data, width, chunk) = (self.layout.data(), self.layout.width(), self.layout.chunk);
        let room = usize32(chunk);
        let permit = self.work.permit(width + self.layout.parity(), room).await;
        let live = self.live_units(stripe);
        let mut units = self.fetch(&permit, stripe, (0, chunk), live, room).await?;
        if live.count() < width || self.layout.level == Level::Stripe {
            let degraded = u64::from(live.count() < width);
            return Ok(Checked { degraded, ..Checked::default() });
        }
        let (data_units, parity) = units.split_at_mut(data);
        let data_units: Vec<&[u8]> = data_units.iter().flatten().map(|unit| &unit[..]).collect();
        let mut right = Vec::new();
        for _ in 0..self.layout.parity() {
            right.push(permit.buffer(room).await);
        }
        let mut slices: Vec<&mut [u8]> = right.iter_mut().map(|unit| &mut unit[..]).collect();
        raid::parity::encode(&data_units, &mut slices);
        let mut mismatched = false;
        for (n, (have, right)) in parity.iter_mut().flatten().zip(&mut right).enumerate() {
            if have[..] == right[..] {
                continue;
            }
            mismatched = true;
            tracing::warn!("stripe {stripe} of {}: parity {n} is wrong", self.name);
            let slot = self.layout.slot(stripe, data + n);
            if let (true, Some(member)) = (repair, self.member(slot)) {
                let at = self.layout.member_at(stripe, 0);
                if let Err(error) = member.write(at, chunk, right, Fua::Yes).await {
                    self.lose(slot, &error);
                }
            }
        }
        Ok(Checked { mismatched: mismatched.into(), ..Checked::default() })
    }
}
