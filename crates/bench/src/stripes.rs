//! The way of data from memory through stripes to drives, against a copy of it into one drive, in
//! the same run. The drives are memory.

use engine::address::{BLOCK, Key, SegmentId, Version, View};
use engine::drives::{DriveSet, DriveSlot};
use engine::segment::{Member, Owner, SegmentInfo, Segments, Stream};
use media::Drive;
use media::memory::RegionOptions;
use raid::{Geometry, Shape};
use reactor::now_exact;
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;
use stdx::Prng;
use stdx::crc32c;
use stdx::num::{u16_of, u32_of, u64_of, usize32};

const AU: u64 = 4 << 20;
/// User data of one round, less what stripe headers take.
const BYTES: u64 = 256 << 20;
/// Blocks given to a stripe at once: a command of 128 KiB.
const RUN: u32 = 32;

fn memory(len: u64) -> Result<Drive, Box<dyn Error>> {
    let options = RegionOptions { block_size: 4096, ..RegionOptions::default() };
    Ok(Drive::memory(len, options)?)
}

struct Rig {
    segments: Segments,
    geometry: Geometry,
    /// What is written: like a log, larger than caches.
    source: Vec<u8>,
    crcs: Vec<u32>,
    plain: Drive,
}

/// Nanoseconds spent in each part of a round.
#[derive(Clone, Copy, Default)]
struct Parts {
    copy: u64,
    fill: u64,
    seal: u64,
    write: u64,
    read: u64,
    degraded: u64,
}

impl Rig {
    fn new(shape: Shape) -> Result<Self, Box<dyn Error>> {
        let geometry = Geometry::for_au(shape, u32_of(usize32(1024)))?;
        let aus = 2 + BYTES / (AU * u64::from(shape.data));
        let capacity = (aus + 1) * (AU + u64_of(BLOCK));
        let drives = (0..shape.width()).map(|_| {
            Ok(DriveSlot {
                vacant: false,
                drive: Some(Arc::new(memory(capacity)?)),
                failed: false,
                begins: 0,
                au_count: DriveSet::au_count(capacity, 0, AU),
            })
        });
        let drives = drives.collect::<Result<Vec<_>, Box<dyn Error>>>()?;
        let mut source = vec![0; 64 << 20];
        Prng::new(5).fill(&mut source);
        let crcs = source.chunks_exact(BLOCK).map(crc32c).collect();
        Ok(Self {
            segments: Segments::new(
                Arc::new(DriveSet::new(drives, AU, geometry.parity())),
                [1; 16],
                geometry,
            )?,
            geometry,
            source,
            crcs,
            plain: memory(BYTES)?,
        })
    }

    fn segment(&self, number: u32) -> Rc<SegmentInfo> {
        let columns = 0..u16_of(self.geometry.width());
        Rc::new(SegmentInfo {
            id: SegmentId::new(number),
            generation: 1,
            members: columns.map(|drive| Member { drive, au: number }).collect(),
            stream: Stream::User,
            shard: 0,
            geometry: self.geometry,
        })
    }

    /// Copies as much as stripes will take into one drive.
    fn copy(&self) -> Result<u64, Box<dyn Error>> {
        let Drive::Memory(region) = &self.plain else { return Err("memory drives".into()) };
        let run = usize32(RUN) * BLOCK;
        let begun = now_exact();
        let mut at = 0;
        while at + u64_of(run) <= BYTES {
            let from = stdx::num::usize64(at) % self.source.len();
            region.copy_in(at, &self.source[from..from + run])?;
            at += u64_of(run);
        }
        Ok(now_exact() - begun)
    }

    /// Writes all segments, and reads blocks of them at random with all drives and with two lost.
    async fn round(&self) -> Result<Parts, Box<dyn Error>> {
        let mut parts = Parts { copy: self.copy()?, ..Parts::default() };
        let segment_blocks = u64::from(self.geometry.slots());
        let mut block = 0;
        for number in 0..u32::try_from(BYTES / u64_of(BLOCK) / segment_blocks)? {
            let info = self.segment(number);
            for stripe in 0..self.geometry.stripes() {
                block = self.stripe(&info, stripe, block, &mut parts).await?;
            }
        }
        Ok(parts)
    }

    async fn stripe(
        &self,
        info: &Rc<SegmentInfo>,
        stripe: u32,
        from: usize,
        parts: &mut Parts,
    ) -> Result<usize, Box<dyn Error>> {
        let mut builder = self.segments.begin(Rc::clone(info), stripe).await;
        let begun = now_exact();
        let mut block = from;
        while builder.room() > 0 {
            let count = usize32(builder.room().min(RUN)).min(self.crcs.len() - block);
            let blocks = block..block + count;
            let owner = Owner::Write { key: Key::new(View::new(1), u64_of(block)) };
            let data = &self.source[blocks.start * BLOCK..blocks.end * BLOCK];
            let pushed = builder.push(owner, Version::FIRST, &self.crcs[blocks], data);
            pushed.ok_or("there is room")?;
            block = (block + count) % self.crcs.len();
        }
        let filled = now_exact();
        let sealed = builder.seal(1).await;
        let ready = now_exact();
        self.segments.write(sealed).await?;
        parts.fill += filled - begun;
        parts.seal += ready - filled;
        parts.write += now_exact() - ready;
        Ok(block)
    }

    /// Nanoseconds of a random read of one block, given where data begins in each stripe.
    async fn read(&self, prng: &mut Prng) -> Result<u64, Box<dyn Error>> {
        const READS: u32 = 20_000;
        let info = self.segment(0);
        let room = info.room();
        let first = self.geometry.stripe_blocks() - room;
        let mut out = vec![0; BLOCK];
        let begun = now_exact();
        for _ in 0..READS {
            let stripe = stdx::num::low32(prng.below(self.geometry.stripes().into()));
            let n = stdx::num::low32(prng.below(room.into()));
            let slot = self.geometry.stripe_slot(stripe) + first + n;
            let crc = self.crcs[usize32(stripe * room + n) % self.crcs.len()];
            self.segments.read(&info, slot, &[crc], &mut out).await?;
        }
        Ok((now_exact() - begun) / u64::from(READS))
    }
}

fn median(mut figures: Vec<u64>) -> u64 {
    figures.sort_unstable();
    figures[figures.len() / 2]
}

async fn measure(shape: Shape, rounds: usize) -> Result<(), Box<dyn Error>> {
    let mut all = Vec::new();
    for _ in 0..=rounds {
        let rig = Rig::new(shape)?;
        // Once to touch all memory, once to measure.
        rig.round().await?;
        let mut parts = rig.round().await?;
        let mut prng = Prng::new(3);
        parts.read = rig.read(&mut prng).await?;
        for drive in 0..u16::from(shape.parity) {
            rig.segments.drives().fail(drive, engine::drives::Cause::Operator);
        }
        parts.degraded = rig.read(&mut prng).await?;
        all.push(parts);
    }
    let of = |part: fn(&Parts) -> u64| median(all.iter().map(part).collect());
    let copy = of(|p| p.copy);
    let thousandths = |part: u64| part * 1000 / copy;
    println!(
        "{}+{}: times of a copy: {} (fill {}, seal {}, write {}) thousandths; \
         read {} ns, with {} drives lost {} ns",
        shape.data,
        shape.parity,
        thousandths(of(|p| p.fill + p.seal + p.write)),
        thousandths(of(|p| p.fill)),
        thousandths(of(|p| p.seal)),
        thousandths(of(|p| p.write)),
        of(|p| p.read),
        shape.parity,
        of(|p| p.degraded),
    );
    Ok(())
}

/// Prints what writing through stripes takes, in thousandths of what copying the data into one
/// drive takes, and what reading a block takes.
pub fn run(rounds: usize) -> Result<(), Box<dyn Error>> {
    let outcome = reactor::run(reactor::Config::default(), async move {
        for (data, parity) in [(8, 2), (4, 2), (4, 1), (1, 1)] {
            measure(Shape { data, parity }, rounds).await.map_err(|e| e.to_string())?;
        }
        Ok::<(), String>(())
    });
    outcome?.map_err(Into::into)
}
