//! What single devices hold, whatever the others do: for recovery, and for whoever looks at a log as it lies.

use super::{CONTROL_BYTES, Control, Error, Kind, Member, MemberId, PAGE, Place, Result, SLOT};
use super::{Rc, Store, TRANSFER_MAX, Zone, commit_len, u64_of, usize64};

impl Store {
    /// Bytes of the ring as the `n`th device has them, zeroes where its medium does not give them;
    /// `None` when it does not answer.
    pub async fn read_copy(&self, n: usize, at: u64, len: usize) -> Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; len];
        let place = &self.member(n)?.place;
        let mut done = 0;
        while done < len {
            // With what is read around it, no more than a transfer.
            let part = (len - done).min(TRANSFER_MAX - 2 * usize64(PAGE));
            let out = &mut bytes[done..done + part];
            if matches!(read_part(place, at + u64_of(done), out).await, Read::Nothing) {
                self.note_silent(n);
                return Ok(None);
            }
            done += part;
        }
        Ok(Some(bytes))
    }

    /// Looks whether each device of memory has the log: one whose file was cut short, or emptied, tells of it when it is
    /// used, and not before.
    pub fn look_at_memory(&self, ring_bytes: u64) {
        for (member, area) in self.current_areas(&*self.members()) {
            let has = |at, out: &mut [u8]| area.pmem.read(area.offset + at, out).is_ok();
            let is_control = |slot| {
                let mut bytes = [0; SLOT];
                has(slot * PAGE, &mut bytes) && Control::decode(&bytes).is_ok()
            };
            let has_end = has(CONTROL_BYTES + ring_bytes - 1, &mut [0]);
            if !has_end || !(0..2).any(is_control) {
                self.report(member);
            }
        }
    }

    /// Whether every device has these bytes of the ring as the image has them.
    pub async fn is_everywhere(&self, at: u64, len: usize) -> Result<bool> {
        // Memory's image is its first device.
        let first = usize::from(self.is_memory());
        for n in first..self.devices() {
            let same = match self.read_copy(n, at, len).await? {
                Some(copy) => self.with(at, len, |image| image == copy)?,
                None => false,
            };
            if !same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Copies a part of the ring from the `n`th device into the image, if all of it can be read.
    pub async fn load_from(&self, n: usize, at: u64, len: usize) -> Result<()> {
        let Some(image) = self.image() else { return Ok(()) };
        // What is read around it included, no more than a transfer.
        let mut bytes = vec![0; len.min(TRANSFER_MAX - 2 * usize64(PAGE))];
        if matches!(read_part(&self.member(n)?.place, at, &mut bytes).await, Read::All) {
            image.ring.write(at, &bytes)?;
        }
        Ok(())
    }

    /// Fills the image from the devices: from the first, and where it cannot be read from the second.
    /// What neither has is left as it is: no record will be found there.
    pub async fn load(&self, ring_bytes: u64) -> Result<()> {
        let Some(image) = self.image() else { return Ok(()) };
        let members: Vec<Rc<Member>> = self.members().iter().flatten().cloned().collect();
        let mut at = 0;
        while at < ring_bytes {
            let len = commit_len(at, ring_bytes - at, ring_bytes);
            for (n, member) in members.iter().enumerate() {
                let mut bytes = vec![0; len];
                // Pages the next member may have. Without it, a sector that cannot be read must not
                // hide the records around it.
                let read = read_part(&member.place, at, &mut bytes).await;
                match read {
                    Read::Nothing => self.note_silent(n),
                    Read::All | Read::Some => image.ring.write(at, &bytes)?,
                }
                if matches!(read, Read::All) {
                    break;
                }
            }
            at += u64_of(len);
        }
        Ok(())
    }

    /// The `n`th device did not answer.
    fn note_silent(&self, n: usize) {
        self.silent.set(self.silent.get() | 1 << n);
    }

    /// Whether what was found may be less than there is: no device answered to the end, or what is `lost` may be on
    /// one that did not.
    pub fn is_in_doubt(&self, lost: bool) -> bool {
        let silent = usize64(u64::from(self.silent.get().count_ones()));
        !self.direct.get() && silent > 0 && (lost || silent >= self.devices())
    }

    /// What the `n`th device has in a control slot.
    pub async fn read_slot(&self, n: usize, slot: u64) -> Result<[u8; SLOT]> {
        read_slot(&self.member(n)?.place, slot).await
    }

    /// The control slots found, newest first, and what was wrong with one that was not whole.
    pub async fn read_controls(&self) -> (Vec<Control>, Option<Error>) {
        let mut found = Vec::new();
        let mut wrong = None;
        let members: Vec<Rc<Member>> = self.members().iter().flatten().cloned().collect();
        for slot in 0..2 {
            for (n, member) in members.iter().enumerate() {
                let bytes = read_slot(&member.place, slot).await;
                if bytes.as_ref().is_err_and(|error| !error.is_of_medium()) {
                    self.note_silent(n);
                }
                note(bytes, member.id, &mut found, &mut wrong);
            }
        }
        found.sort_by_key(|c: &Control| std::cmp::Reverse(c.generation));
        (found, wrong)
    }
}

/// What lies in a control slot of a place.
pub(in crate::log) async fn read_slot(place: &Place, slot: u64) -> Result<[u8; SLOT]> {
    let offset = slot * PAGE;
    match place {
        Place::Memory(area) => {
            let mut bytes = [0; SLOT];
            area.pmem.read(area.offset + offset, &mut bytes)?;
            Ok(bytes)
        }
        Place::Zone(zone) => {
            let page = zone.read(offset, usize64(PAGE)).await?;
            Ok(std::array::from_fn(|n| page[n]))
        }
    }
}

/// How much of a range was read.
enum Read {
    All,
    /// Pages that the medium does not give are zeroes: they must not hide the records around them.
    Some,
    /// The device does not answer.
    Nothing,
}

/// Reads bytes of the ring, at most a transfer.
async fn read_part(place: &Place, at: u64, out: &mut [u8]) -> Read {
    match place {
        Place::Memory(area) => {
            let from = area.offset + CONTROL_BYTES + at;
            if area.pmem.read(from, out).is_ok() {
                return Read::All;
            }
            for (offset, out) in pages(from, out) {
                if area.pmem.read(offset, out).is_err() {
                    out.fill(0);
                }
            }
        }
        Place::Zone(zone) => {
            let from = CONTROL_BYTES + at;
            match read_whole_pages(zone, from, out).await {
                Ok(()) => return Read::All,
                Err(error) if error.kind == media::Kind::Medium => {}
                Err(_) => return Read::Nothing,
            }
            for (at, out) in pages(from, out) {
                if read_whole_pages(zone, at, out).await.is_err() {
                    out.fill(0);
                }
            }
        }
    }
    Read::Some
}

/// Reads what lies from `offset` of a zone on: whole pages, for another target's namespace gives no parts of blocks.
async fn read_whole_pages(
    zone: &Zone,
    offset: u64,
    out: &mut [u8],
) -> std::result::Result<(), media::Error> {
    let begins = offset / PAGE * PAGE;
    let skipped = usize64(offset - begins);
    let whole = (skipped + out.len()).next_multiple_of(usize64(PAGE));
    let read = zone.read(begins, whole).await?;
    out.copy_from_slice(&read[skipped..skipped + out.len()]);
    Ok(())
}

/// What lies from `offset` on, cut at the borders of pages.
fn pages(offset: u64, out: &mut [u8]) -> impl Iterator<Item = (u64, &mut [u8])> {
    let head = usize64((PAGE - offset % PAGE) % PAGE).min(out.len());
    let (head, rest) = out.split_at_mut(head);
    let from = offset + u64_of(head.len());
    let rest = (from..).step_by(usize64(PAGE)).zip(rest.chunks_mut(usize64(PAGE)));
    std::iter::once((offset, head)).filter(|(_, head)| !head.is_empty()).chain(rest)
}

fn note(
    bytes: Result<[u8; SLOT]>,
    member: MemberId,
    found: &mut Vec<Control>,
    wrong: &mut Option<Error>,
) {
    let control = bytes.and_then(|bytes| {
        let missing = |bad| Error::caused(Kind::Missing, "commit log control block", bad);
        let (control, holder) = Control::decode(&bytes).map_err(missing)?;
        if holder.member != member {
            let context = "what is there of a commit log is another one's, or an old copy";
            return Err(Error::new(Kind::Missing, context));
        }
        Ok(control)
    });
    match control {
        Ok(control) => found.push(control),
        // A slot that was read says more of what there is than one that was not.
        Err(error) if wrong.as_ref().is_none_or(|w| w.kind != Kind::Missing) => {
            *wrong = Some(error);
        }
        Err(_) => {}
    }
}
