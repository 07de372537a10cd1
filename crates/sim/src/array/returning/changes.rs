//! An operator who changes the drives of an open pool: adds some, has others emptied, takes them out, puts others in their
//! place, and has what is lost rebuilt on the rest.

use super::{Shelf, Stage};
use engine::{DriveState, Kind, PoolStatus};
use media::drive::SimulatedOptions;
use media::{Drive, Simulated};
use std::collections::BTreeSet;
use std::sync::Arc;
use stdx::num::u16_of;

impl Shelf {
    /// A place in which nothing lies is of no use to the redundancy, nor a loss.
    pub(super) fn look_for_vacant(&self, status: &PoolStatus) {
        let mut truth = self.truth.borrow_mut();
        for (n, drive) in status.drives.iter().enumerate() {
            if drive.state.is_written() {
                truth.vacant.remove(&n);
            } else if drive.vacant && drive.stays_out.is_some() && !self.coming.contains(&n) {
                truth.out.insert(n);
                truth.vacant.insert(n);
            } else if drive.vacant {
                truth.out.insert(n);
            }
        }
    }

    /// Does one thing, or begins it.
    pub(super) async fn change(&mut self, out: &BTreeSet<usize>, status: &PoolStatus) {
        let leaving = status.drives.iter().position(|drive| drive.leaving);
        let is_under_way = status.rebuild.as_ref().is_some_and(|rebuild| rebuild.is_under_way);
        match self.changes.below(8) {
            // As a node does that opens a pool.
            _ if leaving.is_some() && !is_under_way && self.changes.below(2) == 0 => {
                self.empty(leaving, status).await;
            }
            0..3 => self.add(status).await,
            3 | 4 => self.empty(None, status).await,
            5 | 6 => {
                let all: BTreeSet<usize> = (0..status.drives.len()).collect();
                let some = &all - out;
                let nth = self.changes.below(stdx::num::u64_of(some.len()).max(1));
                let one = some.iter().nth(stdx::num::usize64(nth)).copied();
                self.empty(one, status).await;
            }
            _ if self.changes.below(2) == 0 => {
                let limit = 1 << (20 + self.changes.below(8));
                let limited = self.pool.limit_rebuild(limit).is_ok();
                self.note(format!("{limit} bytes a second are moved at most: {limited}"));
            }
            _ => {
                let cancelled = self.pool.cancel_rebuild().await.map_err(|e| e.to_string());
                self.note(format!("nothing more is moved: {cancelled:?}"));
            }
        }
    }

    /// Has a drive emptied, or what is lost rebuilt on the others.
    async fn empty(&mut self, one: Option<usize>, status: &PoolStatus) {
        let limit = if self.changes.below(4) == 0 { 1 << (20 + self.changes.below(8)) } else { 0 };
        let is_online = |n: &usize| status.drives[*n].state == DriveState::Online;
        let (what, begun) = match one.filter(is_online) {
            Some(n) => (format!("drive {n} emptied"), self.pool.evacuate(u16_of(n), limit).await),
            None => ("the pool rebuilt".to_owned(), self.pool.rebuild(limit).await),
        };
        let begun = begun.map_err(|error| error.to_string());
        self.note(format!("an operator has {what}, {limit} bytes a second: {begun:?}"));
    }

    /// One more, which is blank, or was taken for the place before and did not come to have it.
    async fn add(&mut self, status: &PoolStatus) {
        let n = status.drives.len();
        let Some(drive) = self.drives.get(n).map(Arc::clone) else { return };
        if drive.has_left_changes() {
            return self.note(format!("drive {n} may still be written to"));
        }
        let id = self.put_in_place(n);
        let put = self.pool.add_drive(Arc::new(Drive::Simulated(drive)), id).await;
        self.note(format!("drive {n} is added: {put:?}"));
        if let Ok(index) = put {
            assert_eq!(usize::from(index), n, "drives have the places they are added to");
            self.coming.insert(n);
        }
    }

    /// From now on a drive may have a place, with an identity of its own, and be blank as yet.
    fn put_in_place(&mut self, n: usize) -> [u8; 16] {
        let mut truth = self.truth.borrow_mut();
        truth.out.insert(n);
        truth.replaced.insert(n);
        truth.fresh.insert(n);
        truth.vacant.remove(&n);
        self.identity += 1;
        self.identity.to_le_bytes()
    }

    pub(super) fn goes_out(&self, n: usize) {
        let mut truth = self.truth.borrow_mut();
        truth.out.insert(n);
        truth.sick.insert(n);
    }

    /// An operator takes a drive out that works, or has it emptied first.
    pub(super) async fn take_out(&mut self, n: usize) {
        // Whatever is answered, the labels may say so.
        self.goes_out(n);
        self.coming.remove(&n);
        let index = u16_of(n);
        if self.operator.below(2) == 0 {
            let begun = self.pool.evacuate(index, 0).await.map_err(|error| error.to_string());
            return self.note(format!("an operator has drive {n} emptied: {begun:?}"));
        }
        let taken = self.pool.fail_drive(index).await.map_err(|error| error.to_string());
        self.note(format!("an operator takes drive {n} out: {taken:?}"));
    }

    /// An operator puts a drive in the place of one that is out: a new one, or what is there as it is.
    pub(super) async fn replace(&mut self, n: usize, is_new: bool) {
        let drive = Arc::clone(&self.drives[n]);
        if !is_new && drive.has_left_changes() {
            return self.note(format!("drive {n} may still be written to"));
        }
        if is_new {
            let capacity = self.capacities[n];
            let options = SimulatedOptions { capacity, ..Default::default() };
            drive.restore(&Simulated::new(options).contents());
        }
        let (index, id) = (u16_of(n), self.put_in_place(n));
        let put = self.pool.replace_drive(index, Arc::new(Drive::Simulated(drive)), id).await;
        self.note(format!("drive {n} is replaced, by a new one: {is_new}: {put:?}"));
        match put {
            Ok(()) if self.power.is_on() => {
                if let Some(aside) = &mut self.truth.borrow_mut().aside {
                    aside.is_former |= aside.drive == n;
                }
                self.coming.insert(n);
            }
            Err(error) if error.kind == Kind::Full => self.stage.set(Stage::Worn),
            Ok(()) | Err(_) => {}
        }
    }
}
