//! What the map costs: the engine's own, over counted memory, and the alternative it was chosen over.
//!
//! A space larger than `entries` blocks is sampled: blocks, memtable, cache and filters are all taken
//! one in `scale`, and locations are spread over the whole pool. That changes no figure, because
//! each depends on ratios only: of levels to each other and to the memtable (bytes written), of
//! cached pages and filters to blocks (reads), and of the keys in a page to the key space (bits of a
//! key). Only the bits of a location depend on the pool's size, and they are those of the whole one.

mod media;
mod tree;

use engine::address::{Encoding, Entry, Key, Version, View};
use engine::map::{Extents, Map, MapLimits};
use media::{Counted, Pool, Shared, now};
use reactor::now_exact;
use std::error::Error;
use std::rc::Rc;
use stdx::Prng;
use stdx::num::{low32, u64_of, usize64};

/// Blocks inserted between looks at what maintenance is due.
const BATCH: usize = 256;

/// Lookups of each kind.
const LOOKUPS: u64 = 100_000;

/// Blocks whose lookups are warm: few enough that every page they need is cached.
const WARM: u64 = 32;

/// Pages of a piece of a count, as shards have it.
const COUNT_PAGES: usize = 1024;

const VIEW: View = View::new(1);

/// Views that lie over the first, as each snapshot's would if views were chained, and one in so many blocks that each has.
const OVERLAYS: u32 = 16;
const SPARSE: u64 = 50;

/// What to measure.
pub struct Options {
    /// Bytes of address space, each measured in turn.
    pub spaces: Vec<u64>,
    /// Bytes of memory for each TiB of it.
    pub memory: u64,
    /// Blocks simulated at most.
    pub entries: u64,
    /// In place of the engine's own choices.
    pub runs: Option<usize>,
    pub ratio: Option<u64>,
    pub ratio_last: Option<u64>,
}

struct Bench {
    map: Map<Shared>,
    pages: Rc<Counted>,
    pool: Pool,
    blocks: u64,
    random: Prng,
    flushes: u64,
}

/// The quotient of two counts.
#[allow(clippy::cast_precision_loss, reason = "shown to a few digits")]
fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b.max(1) as f64
}

/// `limits` for one in `scale` of the blocks.
fn scaled(limits: MapLimits, scale: u64) -> MapLimits {
    let part = |bytes: usize| bytes / usize64(scale);
    MapLimits {
        memtable: part(limits.memtable),
        cache: part(limits.cache),
        filters: part(limits.filters),
        ..limits
    }
}

impl Bench {
    /// Puts a block at the pool's next place.
    fn put(&mut self, key: u64) -> Result<(), engine::Error> {
        let entry: Entry = self.pool.next(&mut self.random);
        let (key, since) = (Key::new(VIEW, key), Version::FIRST);
        self.map.insert(key, since, entry.location, Encoding::PLAIN, &[entry.crc]);
        Ok(())
    }

    fn maintain(&mut self) -> Result<(), engine::Error> {
        if self.map.room() < BATCH {
            now(self.map.flush())?;
            self.flushes += 1;
        }
        while now(self.map.maintain())? {}
        Ok(())
    }

    /// Writes every block once, each to a random place: what a volume looks like after long use.
    fn fill(&mut self) -> Result<(), engine::Error> {
        for key in 0..self.blocks {
            if key.is_multiple_of(u64_of(BATCH)) {
                self.maintain()?;
            }
            self.put(key)?;
        }
        Ok(())
    }

    fn overwrite(&mut self, count: u64) -> Result<(), engine::Error> {
        for n in 0..count {
            if n.is_multiple_of(u64_of(BATCH)) {
                self.maintain()?;
            }
            let key = self.random.below(self.blocks);
            self.put(key)?;
        }
        Ok(())
    }

    /// Mean nanoseconds and media reads of lookups of keys below `keys`, spread by `stride`.
    fn lookups(&mut self, keys: u64, stride: u64) -> Result<(f64, f64), engine::Error> {
        let mut out = Extents::default();
        let before = self.map.status().reads;
        let begun = now_exact();
        for _ in 0..LOOKUPS {
            let key = self.random.below(keys) * stride;
            now(self.map.lookup(VIEW, key, 1, &mut out))?;
        }
        let nanos = ratio(now_exact() - begun, LOOKUPS);
        Ok((nanos, ratio(self.map.status().reads - before, LOOKUPS)))
    }
}

fn log_structured(space: u64, o: &Options) -> Result<(), Box<dyn Error>> {
    let (whole, scale) = (space / 4096, (space / 4096).div_ceil(o.entries).max(1));
    let memory = (u128::from(o.memory) * u128::from(space)) >> 40;
    let memory = u64::try_from(memory)?;
    let full = MapLimits::for_memory(usize64(memory));
    let limits = MapLimits {
        runs: o.runs.unwrap_or(full.runs),
        ratio: o.ratio.unwrap_or(full.ratio),
        ratio_last: o.ratio_last.unwrap_or(full.ratio_last),
        ..scaled(full, scale)
    };
    let pages = Rc::new(Counted::default());
    let mut bench = Bench {
        map: Map::new(Shared(Rc::clone(&pages)), limits),
        pages: Rc::clone(&pages),
        pool: Pool::new(whole + whole / 4, scale),
        blocks: whole / scale,
        random: Prng::new(7),
        flushes: 0,
    };
    println!("log-structured merge, 1 in {scale} of the blocks");
    bench.fill()?;
    measure_count(&bench, "written in their order")?;
    // Long enough for every level to fill, then to be merged down twice over.
    bench.overwrite(bench.blocks / 3)?;
    let (written, read, flushes) = (pages.appended.get(), pages.read.get(), bench.flushes);
    let window = bench.blocks / 3;
    let begun = now_exact();
    bench.overwrite(window)?;
    let nanos = ratio(now_exact() - begun, window);
    let status = bench.map.status();
    let manifest = u64_of(bench.map.manifest().len()) * (bench.flushes - flushes).max(1);
    let bytes = ratio((pages.appended.get() - written) * 4096, window);
    println!(
        "  memory {} of {} allowed, {} of it filters; {} runs, {} tables, leaves {:?}, {:.2} bytes a block",
        stdx::size::show(status.memory * scale),
        stdx::size::show(memory),
        stdx::size::show(status.filters * scale),
        status.runs,
        status.tables,
        status.levels,
        ratio(status.leaves * 4096, bench.blocks),
    );
    println!(
        "  a random 4 KiB overwrite: {bytes:.0} bytes of pages and {:.1} of manifest written, {:.0} read, {nanos:.0} ns",
        ratio(manifest, window),
        ratio((pages.read.get() - read) * 4096, window),
    );
    measure_lookups(&mut bench)?;
    measure_count(&bench, "overwritten at random")?;
    measure_open(&mut bench, limits, scale)?;
    measure_chain(&mut bench)
}

fn measure_lookups(bench: &mut Bench) -> Result<(), Box<dyn Error>> {
    let blocks = bench.blocks;
    bench.lookups(blocks, 1)?;
    let (nanos, reads) = bench.lookups(blocks, 1)?;
    println!("  a random lookup: {reads:.3} media reads, {nanos:.0} ns of CPU");
    bench.lookups(WARM, blocks / WARM)?;
    let (warm, reads) = bench.lookups(WARM, blocks / WARM)?;
    println!("  a warm lookup (cached pages): {reads:.3} media reads, {warm:.0} ns");
    for n in 0..WARM {
        bench.put(n * (blocks / WARM))?;
    }
    let (memtable, reads) = bench.lookups(WARM, blocks / WARM)?;
    println!("  a warm lookup (memtable): {reads:.3} media reads, {memtable:.0} ns");
    Ok(())
}

/// What it would cost to look through views that lack a block before the one that has it.
fn measure_chain(bench: &mut Bench) -> Result<(), Box<dyn Error>> {
    let overlays = || (2..2 + OVERLAYS).map(View::new);
    for view in overlays() {
        for n in 0..bench.blocks / SPARSE {
            if n.is_multiple_of(u64_of(BATCH)) {
                bench.maintain()?;
            }
            let entry: Entry = bench.pool.next(&mut bench.random);
            let key = Key::new(view, bench.random.below(bench.blocks));
            let (at, crcs) = (entry.location, [entry.crc]);
            bench.map.insert(key, Version::FIRST, at, Encoding::PLAIN, &crcs);
        }
    }
    bench.maintain()?;
    let (mut out, mut passed) = (Extents::default(), 0);
    let (reads, begun) = (bench.map.status().reads, cpu_time()?);
    for _ in 0..LOOKUPS / u64::from(OVERLAYS) {
        let block = bench.random.below(bench.blocks);
        for view in overlays() {
            now(bench.map.lookup(view, block, 1, &mut out))?;
            passed += 1;
        }
    }
    println!(
        "  looking through a view that has 1 in {SPARSE} of the blocks, {OVERLAYS} of them: {:.0} ns of CPU and {:.3} media reads each",
        ratio(cpu_time()? - begun, passed),
        ratio(bench.map.status().reads - reads, passed),
    );
    Ok(())
}

/// What a thread has had of a core, in nanoseconds, whoever else wants it.
fn cpu_time() -> Result<u64, Box<dyn Error>> {
    let all = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let first = all.split_whitespace().next().ok_or("no figures in schedstat")?;
    Ok(first.parse()?)
}

fn measure_count(bench: &Bench, what: &str) -> Result<(), Box<dyn Error>> {
    let (read, begun) = (bench.pages.read.get(), cpu_time()?);
    let (mut at, end) = (Key::new(VIEW, 0), Key::new(View::new(VIEW.get() + 1), 0));
    let (mut counted, mut pieces) = (0, 0_u32);
    while at < end {
        let found = |_, blocks| counted += blocks;
        at = now(bench.map.count(at..end, &[], COUNT_PAGES, || false, found))?;
        pieces += 1;
    }
    let (nanos, read) = (cpu_time()? - begun, bench.pages.read.get() - read);
    println!(
        "  a count of {counted} blocks, {what}: {:.0} ms of CPU, {read} pages read in {pieces} pieces, {:.1} ns a block",
        ratio(nanos, 1_000_000),
        ratio(nanos, counted),
    );
    Ok(())
}

fn measure_open(bench: &mut Bench, limits: MapLimits, scale: u64) -> Result<(), Box<dyn Error>> {
    now(bench.map.flush())?;
    let manifest = bench.map.manifest();
    let begun = now_exact();
    let map = Map::open(&manifest, Shared(Rc::clone(&bench.pages)), limits)?;
    let opened = now_exact() - begun;
    let mut out = Extents::default();
    now(map.lookup(VIEW, bench.blocks / 2, 1, &mut out))?;
    let first = map.status().reads;
    let read = bench.pages.read.get();
    let begun = now_exact();
    while map.status().filters_missing {
        now(map.maintain())?;
    }
    println!(
        "  open: manifest of {}, {:.2} ms; the first lookup reads {first} pages; filters follow in the background: {} pages, {:.0} ms of CPU",
        stdx::size::show(u64_of(manifest.len()) * scale),
        ratio(opened * scale, 1_000_000),
        (bench.pages.read.get() - read) * scale,
        ratio((now_exact() - begun) * scale, 1_000_000),
    );
    Ok(())
}

pub fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    for &space in &options.spaces {
        println!("{} of 4 KiB blocks", stdx::size::show(space));
        log_structured(space, options)?;
        tree::run(space, options.memory, options.entries);
        println!();
    }
    Ok(())
}

/// A checksum nobody checks.
fn any_crc(random: &mut Prng) -> u32 {
    low32(random.next_u64())
}
