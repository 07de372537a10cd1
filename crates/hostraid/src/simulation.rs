//! Sets from a seed: a workload over simulated members, whose host or power fails at any moment, which are lost,
//! come back and have sectors that cannot be read. Against a model of what each sector may hold.
//!
//! A seed decides everything and replays bit for bit. `FLASHLOOM_SEEDS` says how many are run, `FLASHLOOM_SEED`
//! where they begin.

mod life;
mod model;
mod work;
mod world;

use std::hash::Hasher;
use std::ops::Range;
use std::rc::Rc;

use reactor::{Order, simulate_in};
use stdx::num::u64_of;

use crate::Set;
use crate::canary::Canary;
use life::{ending, one_life};
use model::SECTOR;
use world::{Counts, new_world};

type Outcome = Result<(), String>;

/// Runs a seed: what happened and a digest of every step, or what was violated.
fn run(seed: u64, canary: Option<Canary>) -> Result<(Counts, u64), String> {
    let (world, create) = new_world(seed, canary);
    let in_it = Rc::clone(&world);
    simulate_in(seed, Order::Shuffled, async move {
        let members = (0..in_it.members.len()).map(|slot| in_it.member(slot)).collect();
        let set = Set::create(members, create).await.map_err(|e| e.to_string())?;
        assert_eq!(set.layout().size(), in_it.model.borrow().sectors() * u64_of(SECTOR));
        Ok::<_, String>(())
    })?;
    for life in 0..6 {
        let ending = ending(&world, life == 5);
        one_life(&world, seed.wrapping_mul(31).wrapping_add(life), ending)
            .map_err(|what| format!("{:?}, life {life} ({ending:?}): {what}", world.level))?;
    }
    let digest = world.trace.borrow().finish();
    Ok((world.counts.get(), digest))
}

fn seeds() -> Range<u64> {
    let of = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = of("FLASHLOOM_SEED").unwrap_or(0);
    first..first + of("FLASHLOOM_SEEDS").unwrap_or(200)
}

#[test]
fn what_was_acknowledged_is_there_after_every_crash() {
    let mut all = Counts::default();
    for seed in seeds() {
        let (c, _) = run(seed, None).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        all.writes += c.writes;
        all.reads += c.reads;
        all.crashes += c.crashes;
        all.degraded += c.degraded;
        all.partial += c.partial;
        all.whole += c.whole;
        all.damaged += c.damaged;
        all.checks += c.checks;
        all.broken += c.broken;
    }
    println!("{all:?}");
    let rare = [all.writes, all.crashes, all.degraded, all.partial, all.damaged, all.checks];
    assert!(seeds().end - seeds().start < 100 || rare.iter().all(|&n| n > 10), "{all:?}");
}

#[test]
fn a_seed_replays_bit_for_bit() {
    for seed in [1, 2, 3, 4] {
        let (first, second) = (run(seed, None), run(seed, None));
        assert_eq!(first.map(|(_, digest)| digest), second.map(|(_, digest)| digest), "{seed}");
    }
}

fn is_caught(canary: Canary) {
    let caught = (0..400).find_map(|seed| run(seed, Some(canary)).err().map(|what| (seed, what)));
    let (seed, what) = caught.unwrap_or_else(|| panic!("{canary:?} was not noticed"));
    println!("{canary:?}: seed {seed}: {what}");
}

#[test]
fn a_skipped_journal_is_caught() {
    is_caught(Canary::SkipJournal);
}

#[test]
fn an_acknowledgement_before_the_event_count_is_caught() {
    is_caught(Canary::EarlyAcknowledgement);
}

#[test]
fn forgotten_parity_is_caught() {
    is_caught(Canary::ForgetParity);
}

#[test]
fn forgotten_bits_are_caught() {
    is_caught(Canary::ForgetBits);
}

#[test]
fn a_skipped_resync_is_caught() {
    is_caught(Canary::SkipResync);
}

#[test]
fn a_change_before_its_intent_is_durable_is_caught() {
    is_caught(Canary::EarlyChange);
}

#[test]
fn an_intent_forgotten_while_it_counts_is_caught() {
    is_caught(Canary::EarlyClear);
}

#[test]
fn a_rebuild_ahead_of_its_medium_is_caught() {
    is_caught(Canary::EarlyFrontier);
}

#[test]
fn a_stopped_set_that_writes_superblocks_is_caught() {
    is_caught(Canary::StoreStopped);
}

#[test]
fn trust_in_what_a_cache_holds_is_caught() {
    is_caught(Canary::TrustCaches);
}
