//! What an append to the commit log costs, against the copy of its data that no log can do without.

use engine::address::{BLOCK, Key, View};
use engine::log::{Append, Area, Device, Log};
use media::Pmem;
use reactor::{Config, now_exact, run as run_reactor};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use stdx::Prng;
use stdx::num::{u32_of, u64_of, usize64};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Far more than a processor's cache holds: a log's next record is never in there.
const BYTES: u64 = 256 << 20;
/// Blocks appended in a row, and measured together.
const ROW: usize = 8192;
const ROWS: usize = 12;
/// Rows before, that touch all of the ring once.
const WARM: usize = usize64(BYTES) / (ROW * BLOCK) + 1;
/// Sources in turn: as what was just received, they are in the cache.
const SOURCES: usize = 8;

fn nanos_each(begun: u64, count: usize) -> f64 {
    let span = std::time::Duration::from_nanos(now_exact() - begun);
    span.as_secs_f64() * 1e9 / f64::from(u32_of(count))
}

fn median(mut list: Vec<f64>) -> f64 {
    list.sort_by(f64::total_cmp);
    list[list.len() / 2]
}

/// Sources of `blocks` blocks each.
fn sources(blocks: usize) -> Vec<Vec<u8>> {
    let mut prng = Prng::new(1);
    let mut source = || {
        let mut bytes = vec![0; blocks * BLOCK];
        prng.fill(&mut bytes);
        bytes
    };
    (0..SOURCES).map(|_| source()).collect()
}

/// Copies into memory as long as the log.
fn copies(blocks: usize) -> f64 {
    let sources = sources(blocks);
    let mut ring = vec![1u8; usize64(BYTES)];
    let (mut list, mut at) = (Vec::new(), 0);
    for _ in 0..ROWS {
        let begun = now_exact();
        for n in 0..ROW / blocks {
            let source = &sources[n % SOURCES];
            if at + source.len() > ring.len() {
                at = 0;
            }
            ring[at..at + source.len()].copy_from_slice(source);
            at += source.len();
        }
        list.push(nanos_each(begun, ROW / blocks));
    }
    std::hint::black_box(ring[at / 2]);
    median(list)
}

/// Nanoseconds of an append, and of handing out and trimming its record.
async fn appends(pmem: Pmem, blocks: usize) -> engine::Result<(f64, f64)> {
    let area = Area { pmem: Arc::new(pmem), offset: 0 };
    let log = Log::create(Device::Memory(vec![area]), BYTES, 1).await?;
    let sources = sources(blocks);
    let mut prng = Prng::new(2);
    let (mut appended, mut drained) = (Vec::new(), Vec::new());
    let mut items = Vec::new();
    for row in 0..WARM + ROWS {
        let keys: Vec<_> = (0..ROW / blocks)
            .map(|_| Key::new(View::new(1), prng.below(1 << 22) * u64_of(blocks)))
            .collect();
        let begun = now_exact();
        for (n, key) in keys.iter().enumerate() {
            log.append(Append::Write { key: *key, data: &[&sources[n % SOURCES]] }).await?;
        }
        let append = nanos_each(begun, keys.len());
        let begun = now_exact();
        while log.pending() > 0 {
            items.clear();
            log.next_batch(ROW, &mut items)?;
        }
        log.trim(log.status().handed, 0).await?;
        if row >= WARM {
            appended.push(append);
            drained.push(nanos_each(begun, keys.len()));
        }
    }
    Ok((median(appended), median(drained)))
}

fn measure(pmem: Pmem, blocks: usize) -> Result<(f64, f64)> {
    Ok(run_reactor(Config::default(), async move { appends(pmem, blocks).await })??)
}

pub fn run(folder: &Path, dax: Option<&Path>, rounds: usize) -> Result<()> {
    for _ in 0..rounds {
        for blocks in [1, 32] {
            let copy = copies(blocks);
            println!("{blocks:>3} blocks: copy {copy:.0} ns");
            let file = folder.join(format!("flashloom-bench-log-{}", std::process::id()));
            let shared = Pmem::shared(&file, Some(BYTES))?;
            std::fs::remove_file(&file)?;
            show("bbu", measure(shared, blocks)?, copy);
            show("memory", measure(Pmem::anonymous(BYTES)?, blocks)?, copy);
            if let Some(dax) = dax {
                show("pmem", measure(Pmem::dax(dax, Some(BYTES))?, blocks)?, copy);
            }
        }
    }
    Ok(())
}

fn show(name: &str, (append, drain): (f64, f64), copy: f64) {
    let (of, out) = (append / copy, drain / copy);
    println!(
        "{name:>8}: append {append:.0} ns, {of:.2} copies; hand out and trim {drain:.0} ns, {out:.2} copies"
    );
}
