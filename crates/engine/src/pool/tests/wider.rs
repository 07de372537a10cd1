//! A pool that gets wider while it is nearly full: all that it says it has room for is there to be written.

use std::time::Duration;

use super::rejoin::settled;
use super::*;
use crate::drives::DriveState;

const B: u64 = BLOCK as u64;

/// Blocks of a write.
const PIECE: u64 = 64;

/// A pool that is filled with what is all live, block by block of a volume.
struct Full {
    media: Vec<Arc<Simulated>>,
    drives: Vec<Arc<Drive>>,
    log: LogSpec,
    pool: Pool,
    v: Volume,
    /// Blocks written so far, from the first one on.
    written: u64,
}

/// Writes as much as is asked for, and waits five minutes of virtual time for each piece at most.
async fn write(v: &Volume, from: u64, to: u64) -> std::result::Result<(), String> {
    for first in (from..to).step_by(usize64(PIECE)) {
        let data =
            (first..to.min(first + PIECE)).map(|at| block(at, 1)).collect::<Vec<_>>().concat();
        match reactor::timeout(Duration::from_mins(5), v.write(first * B, &data)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(format!("block {first} of {from} to {to}: {error}")),
            Err(_) => return Err(format!("block {first} of {from} to {to} waits for ever")),
        }
    }
    Ok(())
}

impl Full {
    async fn made(scheme: raid::Scheme, sizes: &[u64], shards: u16) -> Self {
        let of = |(n, mib): (u64, &u64)| simulated(1, mib * MIB, 1000 + n);
        let (media, drives): (Vec<_>, Vec<_>) = (0..).zip(sizes).map(of).unzip();
        let (media, drives) = (media.concat(), drives.concat());
        let log = LogSpec::Bbu(vec![pmem(8 * MIB * u64::from(shards))]);
        let spec = PoolSpec { scheme, au_bytes: Some(MIB), ..spec(&drives, log.clone()) };
        let pool = Pool::create(PoolSpec { shards: Some(shards), ..spec }, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 1 << 40)).await.unwrap();
        let written = pool.status().await.unwrap().capacity / B / 100 * 95;
        write(&v, 0, written).await.unwrap();
        Self { media, drives, log, pool, v, written }
    }

    /// One drive more, which counts when this ends.
    async fn add(&mut self, mib: u64) {
        let number = stdx::num::u64_of(self.drives.len());
        let (mut media, mut drives) = simulated(1, mib * MIB, 2000 + number);
        let id = [u8::try_from(number).unwrap() + 10; 16];
        let index = self.pool.add_drive(Arc::clone(&drives[0]), id).await.unwrap();
        self.media.append(&mut media);
        self.drives.append(&mut drives);
        let (state, rejoin) = settled(&self.pool, usize::from(index)).await;
        assert_eq!(state, DriveState::Online, "{rejoin:?}");
    }

    async fn capacity(&self) -> u64 {
        self.pool.status().await.unwrap().capacity / B
    }

    /// Waits until nothing is left to be spread.
    async fn spread(&self) {
        let left = || async { self.pool.status().await.unwrap().spread };
        while left().await.is_some() {
            reactor::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn reopen(&mut self) {
        let (drives, log) = (self.drives.clone(), self.log.clone());
        self.pool = Pool::open(drives, log, OpenOptions::default(), &[]).await.unwrap();
        self.v = self.pool.volume("db").unwrap();
    }

    async fn write_more(&mut self, blocks: u64) {
        write(&self.v, self.written, self.written + blocks).await.unwrap();
        self.written += blocks;
    }

    async fn verify(&self) {
        let mut piece = vec![0; usize64(PIECE * B)];
        for first in (0..self.written).step_by(usize64(PIECE)) {
            let count = PIECE.min(self.written - first);
            let piece = &mut piece[..usize64(count * B)];
            self.v.read(first * B, piece).await.unwrap();
            for (at, got) in (first..).zip(piece.chunks_exact(BLOCK)) {
                assert!(got == block(at, 1), "block {at} of {}", self.written);
            }
        }
        let audit = self.pool.audit_space().await.unwrap();
        assert_eq!((audit.taken, audit.live), (audit.owned, self.written));
    }
}

/// Drives of so many MiB, and others that come when they are nearly full.
#[derive(Clone, Copy)]
struct Wider {
    scheme: raid::Scheme,
    drives: &'static [u64],
    added: &'static [u64],
    shards: u16,
}

impl Wider {
    /// What the pool says it has when nothing is left to be spread.
    async fn promise(self, full: &Full) -> u64 {
        let status = full.pool.status().await.unwrap();
        let spread = status.spread.map_or(status.capacity, |spread| spread.capacity);
        assert_eq!(spread, status.breakdown.capacity, "what its drives have room for");
        spread / B
    }

    async fn all_of_it_is_written(self, settles: bool) {
        let mut full = Full::made(self.scheme, self.drives, self.shards).await;
        let before = full.capacity().await;
        for mib in self.added {
            full.add(*mib).await;
        }
        let promised = self.promise(&full).await;
        let now = full.capacity().await;
        assert!(before <= now && now <= promised && before < promised, "{now} of {promised}");
        if settles {
            full.spread().await;
            assert_eq!(full.capacity().await, promised);
        }
        full.write_more(promised - before).await;
        full.verify().await;
        full.pool.clone().close().await.unwrap();
        full.reopen().await;
        full.verify().await;
        full.pool.clone().close().await.unwrap();
    }

    fn run(self) {
        for settles in [false, true] {
            reactor::simulate(1, self.all_of_it_is_written(settles));
        }
    }
}

#[test]
fn one_drive_more_gives_a_nearly_full_raid_6_what_it_says() {
    let (drives, added) = (&[128; 4], &[128]);
    Wider { scheme: raid::Scheme::Raid6, drives, added, shards: 1 }.run();
}

#[test]
fn one_drive_more_gives_a_nearly_full_raid_5_what_it_says() {
    let (drives, added) = (&[64; 5], &[64]);
    Wider { scheme: raid::Scheme::Raid5, drives, added, shards: 1 }.run();
}

/// Writers waited for ever: what was free on the new drives was of no use without space on the others, which nobody won.
#[test]
fn two_drives_more_of_different_size_give_what_the_pool_says() {
    let (drives, added) = (&[64; 4], &[96, 48]);
    Wider { scheme: raid::Scheme::Raid6, drives, added, shards: 1 }.run();
}

#[test]
fn a_drive_more_gives_a_pool_of_unequal_drives_and_two_shards_what_it_says() {
    let (drives, added) = (&[64, 48, 80, 64], &[100]);
    Wider { scheme: raid::Scheme::Raid5, drives, added, shards: 2 }.run();
}

/// A pool that one drive comes to when it is nearly full, which has begun to spread what it has, and loses its power then;
/// and how many segments it has to move in all.
async fn cut_short(round: u64) -> (Full, u64) {
    let mut full = Full::made(raid::Scheme::Raid5, &[64; 3], 1).await;
    full.add(64).await;
    let status = full.pool.status().await.unwrap();
    let spread = status.spread.unwrap();
    for _ in 0..round * 4 {
        reactor::sleep(Duration::from_millis(1)).await;
    }
    full.media.iter().for_each(|media| media.power_cut(&mut Prng::new(round)));
    full.media.iter().for_each(|media| media.power_on());
    (full, spread.bytes / status.segment_bytes)
}

/// It goes on with it by itself, and then stops: it moves what it has to, and nothing else.
#[test]
fn what_power_cuts_short_goes_on_and_comes_to_its_end() {
    let mut parts = 0;
    for round in 0..8 {
        let (mut full, all) = reactor::simulate(40 + round, cut_short(round));
        parts += reactor::simulate(50 + round, async move {
            full.reopen().await;
            let status = full.pool.status().await.unwrap();
            let left = status.spread.map_or(0, |spread| spread.bytes / status.segment_bytes);
            let soon = status.spread.map_or(status.capacity, |spread| spread.capacity);
            assert_eq!(status.capacity < soon, left > 0, "{status:?}");
            full.spread().await;
            let status = full.pool.status().await.unwrap();
            assert_eq!(status.capacity, status.breakdown.capacity);
            let most = all + 8;
            assert!(status.segments_reclaimed <= most, "{} of {all}", status.segments_reclaimed);
            let moved = status.moved;
            reactor::sleep(Duration::from_mins(10)).await;
            let status = full.pool.status().await.unwrap();
            assert_eq!((status.moved, status.spread), (moved, None), "there is nothing left to do");
            full.verify().await;
            full.media[0].fail();
            full.verify().await;
            u32::from((1..all).contains(&left))
        });
    }
    assert!(parts > 1, "it was cut short half-way in some");
}

/// Whoever has the space of what was moved before the map knows, for good, loses it.
#[test]
fn space_that_is_given_back_too_early_is_missed() {
    let ended = std::thread::spawn(|| {
        crate::canary::plant(Some(crate::canary::Canary::FreesEarly));
        what_power_cuts_short_goes_on_and_comes_to_its_end();
    });
    assert!(ended.join().is_err(), "nobody misses it");
}

/// What is kept for a volume is there: it was promised out of space that nobody could have.
#[test]
fn what_is_reserved_can_be_written_while_data_is_spread() {
    reactor::simulate(60, async {
        let mut full = Full::made(raid::Scheme::Raid5, &[64; 3], 1).await;
        full.add(64).await;
        let status = full.pool.status().await.unwrap();
        let soon = status.spread.unwrap().capacity;
        assert!(soon > status.capacity, "{soon}");
        let reserved = |bytes: u64| VolumeSpec {
            id: [2; 16],
            reservation: Some(crate::Reservation::Bytes(bytes)),
            ..volume("kept", bytes)
        };
        let growth = (soon - full.written * B) / MIB * MIB;
        let early = full.pool.create_volume(reserved(growth)).await;
        assert_eq!(early.unwrap_err().kind, Kind::Full, "not before it can be placed");
        // As much as there is now, while the rest comes.
        let now = full.capacity().await - full.written;
        let bytes = now * B / MIB / 2 * MIB;
        let kept = full.pool.create_volume(reserved(bytes)).await.unwrap();
        // Others take all that comes.
        full.write_more((soon - bytes) / B - full.written).await;
        write(&kept, 0, bytes / B).await.unwrap();
        let status = full.pool.status().await.unwrap();
        assert_eq!((status.spread, status.reservations.missing), (None, 0));
    });
}
