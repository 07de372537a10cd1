//! What a simulated drive holds: what reads see, and what would be left after a power cut.

use std::collections::BTreeMap;
use std::sync::Arc;
use stdx::Prng;
use stdx::num::{align_down, u64_of, usize64};

/// Bytes of a page of the image: only pages ever written take memory.
const PAGE: u64 = 4096;

/// What is written whole or not at all when power fails, in bytes.
pub const SECTOR: u64 = 512;

/// Shared by an image and its copies until one of them writes to it.
type Page = Arc<[u8; 4096]>;

/// What reads see of a drive, by page.
pub(super) type Pages = BTreeMap<u64, Page>;

/// A write whose fate at a power cut is open, or that must be repeated over one of those.
struct Cached {
    number: u64,
    offset: u64,
    len: u64,
    /// `None` for zeroes.
    data: Option<Box<[u8]>>,
    /// Durable already.
    certain: bool,
}

/// A page as a power cut that loses all of the cache leaves it.
struct Durable {
    /// The first write since.
    since: u64,
    contents: Option<Page>,
}

/// How a power cut treats the cache.
#[derive(Clone, Copy)]
enum Loss {
    Nothing,
    Everything,
    /// Some writes, and some of the rest torn.
    Writes,
    /// Some sectors of each write.
    Sectors,
}

pub(super) struct Image {
    /// What reads see. A page that is missing is zeroes.
    pages: Pages,
    /// What is durable, for pages with writes in `cached`.
    durable: BTreeMap<u64, Durable>,
    cached: Vec<Cached>,
    written: u64,
}

/// The parts of a range that lie within one page each: page number, offset in it, offset in the
/// range, length.
fn parts(offset: u64, len: u64) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let page = at / PAGE;
            let n = ((page + 1) * PAGE).min(end) - at;
            let part = (page, usize64(at % PAGE), usize64(at - offset), usize64(n));
            at += n;
            part
        })
    })
}

fn zeroes() -> Page {
    Arc::new([0; 4096])
}

impl Image {
    pub const fn new() -> Self {
        Self { pages: BTreeMap::new(), durable: BTreeMap::new(), cached: Vec::new(), written: 0 }
    }

    /// One that holds this, all of it durable.
    pub fn of(pages: Pages) -> Self {
        Self { pages, ..Self::new() }
    }

    /// Bytes of memory its pages take.
    pub fn resident(&self) -> u64 {
        u64_of(self.pages.len() + self.durable.len()) * PAGE
    }

    /// The numbers of pages ever written, for faults that should hit something.
    pub fn nth_page(&self, n: usize) -> Option<u64> {
        self.pages.keys().nth(n).map(|page| page * PAGE)
    }

    /// Whether all of a range was ever written.
    pub fn has(&self, offset: u64, len: u64) -> bool {
        parts(offset, len).all(|(page, ..)| self.pages.contains_key(&page))
    }

    /// Where every page ever written begins.
    pub fn offsets(&self) -> Vec<u64> {
        self.pages.keys().map(|page| page * PAGE).collect()
    }

    pub fn contents(&self) -> Pages {
        self.pages.clone()
    }

    /// Holds this, all of it durable.
    pub fn restore(&mut self, contents: Pages) {
        *self = Self { pages: contents, written: self.written, ..Self::new() };
    }

    /// Where it first holds something else than that.
    pub fn difference(&self, other: &Pages) -> Option<u64> {
        let hole = [0; 4096];
        let differs = |page: &&u64| match (self.pages.get(page), other.get(page)) {
            (Some(one), Some(other)) => !Arc::ptr_eq(one, other) && one != other,
            (Some(one), None) | (None, Some(one)) => **one != hole,
            (None, None) => false,
        };
        let mut all = self.pages.keys().chain(other.keys());
        all.find(differs).map(|page| page * PAGE)
    }

    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    pub fn read(&self, offset: u64, out: &mut [u8]) {
        for (page, at, from, n) in parts(offset, u64_of(out.len())) {
            match self.pages.get(&page) {
                Some(page) => out[from..from + n].copy_from_slice(&page[at..at + n]),
                None => out[from..from + n].fill(0),
            }
        }
    }

    /// The pages a write changes. Zeroes leave pages that were never written alone, so that zeroing
    /// a large range costs what is in it.
    fn touched(&self, offset: u64, len: u64, zeroes: bool) -> Vec<u64> {
        if len == 0 {
            return Vec::new();
        }
        let range = offset / PAGE..=(offset + len - 1) / PAGE;
        if !zeroes {
            return range.collect();
        }
        let mut pages: Vec<u64> = self.pages.range(range.clone()).map(|(&p, _)| p).collect();
        pages.extend(self.durable.range(range).map(|(&p, _)| p));
        pages.sort_unstable();
        pages.dedup();
        pages
    }

    /// Stores `data` (`None`: zeroes). Until a flush its fate at a power cut is open, unless it is
    /// `certain`.
    pub fn write(&mut self, offset: u64, len: u64, data: Option<Box<[u8]>>, certain: bool) {
        let touched = self.touched(offset, len, data.is_none());
        // Over pages with an open fate, even a certain write must be repeated after them.
        let keep = !certain || touched.iter().any(|page| self.durable.contains_key(page));
        if keep {
            for &page in &touched {
                let now = self.pages.get(&page);
                let since = self.written;
                let whole = || Durable { since, contents: now.cloned() };
                self.durable.entry(page).or_insert_with(whole);
            }
        }
        let write = Cached { number: self.written, offset, len, data, certain };
        for page in touched {
            let target = self.pages.entry(page).or_insert_with(zeroes);
            write.apply(page, target, |_| true);
        }
        self.written += 1;
        if keep {
            self.cached.push(write);
        }
    }

    /// What a flush that begins now covers.
    pub const fn mark(&self) -> u64 {
        self.written
    }

    /// Makes durable what was written before `mark`.
    pub fn flush(&mut self, mark: u64) {
        let open = self.cached.partition_point(|write| write.number < mark);
        let flushed: Vec<Cached> = self.cached.drain(..open).collect();
        if self.cached.is_empty() {
            self.durable.clear();
            return;
        }
        for write in flushed {
            self.settle(&write, |_| true);
        }
        let open = &self.cached;
        self.durable.retain(|&page, durable| open.iter().any(|write| write.open(page, durable)));
    }

    /// Applies what `keep` says of a write to the durable side.
    fn settle(&mut self, write: &Cached, mut keep: impl FnMut(u64) -> bool) {
        let range = write.offset / PAGE..=(write.offset + write.len) / PAGE;
        for (&page, target) in self.durable.range_mut(range) {
            if write.open(page, target) {
                write.apply(page, target.contents.get_or_insert_with(zeroes), &mut keep);
            }
        }
    }

    /// Power fails: of what was not flushed, some subset of sectors is left, in any combination.
    pub fn power_cut(&mut self, prng: &mut Prng) {
        let loss = match prng.below(6) {
            0 => Loss::Nothing,
            1 => Loss::Everything,
            2 | 3 => Loss::Writes,
            _ => Loss::Sectors,
        };
        for write in std::mem::take(&mut self.cached) {
            let whole = match loss {
                _ if write.certain => Some(true),
                Loss::Nothing => Some(true),
                Loss::Everything => Some(false),
                Loss::Writes if prng.below(4) > 0 => Some(prng.below(2) == 0),
                Loss::Writes | Loss::Sectors => None,
            };
            match whole {
                Some(false) => {}
                Some(true) => self.settle(&write, |_| true),
                None => self.settle(&write, |_| prng.below(2) == 0),
            }
        }
        for (page, durable) in std::mem::take(&mut self.durable) {
            match durable.contents {
                Some(contents) => self.pages.insert(page, contents),
                None => self.pages.remove(&page),
            };
        }
    }

    /// Flips one bit, in what reads see and in what is durable.
    pub fn flip(&mut self, offset: u64, bit: u32) {
        let (page, at) = (offset / PAGE, usize64(offset % PAGE));
        let mask = 1u8 << (bit % 8);
        Arc::make_mut(self.pages.entry(page).or_insert_with(zeroes))[at] ^= mask;
        if let Some(durable) = self.durable.get_mut(&page) {
            Arc::make_mut(durable.contents.get_or_insert_with(zeroes))[at] ^= mask;
        }
    }
}

impl Cached {
    /// Whether it wrote to `page` and is not in `durable`. Zeroes that met no page wrote to none,
    /// and must not be repeated over what came later.
    const fn open(&self, page: u64, durable: &Durable) -> bool {
        self.number >= durable.since
            && self.len > 0
            && self.offset < (page + 1) * PAGE
            && page * PAGE < self.offset + self.len
    }

    /// Copies into `page` what of the write lies there, sector by sector as `keep` says.
    fn apply(&self, page: u64, target: &mut Page, mut keep: impl FnMut(u64) -> bool) {
        let begin = self.offset.max(page * PAGE);
        let end = (self.offset + self.len).min((page + 1) * PAGE);
        let target = Arc::make_mut(target);
        let mut at = begin;
        while at < end {
            let next = (align_down(at, SECTOR) + SECTOR).min(end);
            if keep(at / SECTOR) {
                let to = &mut target[usize64(at - page * PAGE)..usize64(next - page * PAGE)];
                match &self.data {
                    Some(data) => {
                        let from = usize64(at - self.offset)..usize64(next - self.offset);
                        to.copy_from_slice(&data[from]);
                    }
                    None => to.fill(0),
                }
            }
            at = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stdx::num::low8;

    const LEN: u64 = 64 * 1024;

    #[derive(Clone, Debug)]
    enum Op {
        Write(u64, u64, bool),
        Zero(u64, u64, bool),
        Mark,
        Flush,
        Cut(u64),
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let range = || (0..LEN - 20_000, 0u64..20_000);
        let sectors = || (0..LEN / SECTOR - 20, 0u64..20);
        let op = prop_oneof![
            4 => (range(), any::<bool>()).prop_map(|((o, l), c)| Op::Write(o, l, c)),
            4 => (sectors(), any::<bool>())
                .prop_map(|((o, l), c)| Op::Write(o * SECTOR, l * SECTOR, c)),
            2 => (range(), any::<bool>()).prop_map(|((o, l), c)| Op::Zero(o, l, c)),
            2 => Just(Op::Mark),
            2 => Just(Op::Flush),
            1 => any::<u64>().prop_map(Op::Cut),
        ];
        proptest::collection::vec(op, 1..60)
    }

    /// For each byte, what it may hold after a cut, newest last; what reads see is the newest.
    type Model = Vec<Vec<(u64, u8)>>;

    fn put(model: &mut Model, offset: u64, len: u64, number: u64, byte: u8, certain: bool) {
        for at in &mut model[usize64(offset)..usize64(offset + len)] {
            if certain {
                at.clear();
            }
            at.push((number, byte));
        }
    }

    proptest! {
        #[test]
        fn a_cut_leaves_one_of_the_open_versions_of_each_sector(ops in ops()) {
            let mut image = Image::new();
            let mut model: Model = vec![vec![(0, 0)]; usize64(LEN)];
            let mut mark = 0;
            for (n, op) in ops.into_iter().enumerate() {
                let byte = low8(u64_of(n)) | 1;
                let number = image.mark() + 1;
                match op {
                    Op::Write(o, l, c) => {
                        image.write(o, l, Some(vec![byte; usize64(l)].into()), c);
                        put(&mut model, o, l, number, byte, c);
                    }
                    Op::Zero(o, l, c) => {
                        image.write(o, l, None, c);
                        put(&mut model, o, l, number, 0, c);
                    }
                    Op::Mark => mark = image.mark(),
                    Op::Flush => {
                        image.flush(mark);
                        for at in &mut model {
                            let newest = at.iter().rposition(|(number, _)| *number <= mark);
                            at.drain(..newest.unwrap_or(0));
                        }
                    }
                    Op::Cut(seed) => {
                        image.power_cut(&mut Prng::new(seed));
                        let mut left = vec![0; usize64(LEN)];
                        image.read(0, &mut left);
                        for (at, &left) in model.iter_mut().zip(&left) {
                            prop_assert!(at.iter().any(|(_, b)| *b == left));
                            *at = vec![(0, left)];
                        }
                    }
                }
                let mut seen = vec![0; usize64(LEN)];
                image.read(0, &mut seen);
                prop_assert!(model.iter().zip(&seen).all(|(at, b)| at.last().unwrap().1 == *b));
            }
            image.flush(image.mark());
            prop_assert!(image.durable.is_empty() && image.cached.is_empty());
        }
    }

    /// Zeroes over pages never written were repeated at the cut, over what was durable by then.
    #[test]
    fn zeroes_that_met_nothing_do_not_undo_later_writes() {
        let mut image = Image::new();
        image.write(0, 8192, None, false);
        image.write(0, 4096, Some(vec![1; 4096].into()), true);
        image.write(0, 512, Some(vec![2; 512].into()), false);
        for seed in 0..50 {
            image.power_cut(&mut Prng::new(seed));
            let mut left = [0; 4096];
            image.read(0, &mut left);
            assert!(left.iter().all(|b| *b != 0), "seed {seed}");
            image.write(0, 512, Some(vec![2; 512].into()), false);
        }
    }

    #[test]
    fn cuts_tear_writes_at_sectors() {
        let mut torn = 0;
        for seed in 0..100 {
            let mut image = Image::new();
            image.write(0, 8192, Some(vec![1; 8192].into()), false);
            image.power_cut(&mut Prng::new(seed));
            let mut left = vec![0; 8192];
            image.read(0, &mut left);
            let sectors: Vec<u8> = left.chunks(512).map(|s| s[0]).collect();
            assert!(left.chunks(512).all(|s| s.iter().all(|b| *b == s[0])));
            torn += u32::from(sectors.contains(&0) && sectors.contains(&1));
        }
        assert!(torn > 20, "{torn}");
    }
}
