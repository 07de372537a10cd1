use super::*;
use crate::Drive;
use reactor::{Order, buffer, random, simulate, simulate_in, spawn};

const MIB: u64 = 1 << 20;

fn options(seed: u64) -> SimulatedOptions {
    SimulatedOptions { capacity: 16 * MIB, seed, ..SimulatedOptions::default() }
}

fn drive(seed: u64) -> (Arc<Simulated>, Drive) {
    let simulated = Simulated::new(options(seed));
    (Arc::clone(&simulated), Drive::Simulated(simulated))
}

async fn filled(len: usize, with: u8) -> Buffer {
    let mut buffer = buffer::alloc(len).await;
    buffer.fill(with);
    buffer
}

fn everything() -> SimulatedFaults {
    SimulatedFaults {
        read_error_ppm: 20_000,
        write_error_ppm: 20_000,
        flush_error_ppm: 1_000,
        latent_ppm: 20_000,
        rot_ppm: 20_000,
        lost_ppm: 20_000,
        misdirected_ppm: 20_000,
        slow_ppm: 20_000,
    }
}

#[test]
fn an_old_copy_is_told_from_what_there_is() {
    let (drive, _) = drive(1);
    drive.poke(8192, &[1; 4096]);
    let old = drive.contents();
    assert_eq!(drive.difference(&old), None);
    // Zeroes that were written are what was never written.
    drive.poke(4096, &[0; 4096]);
    assert_eq!(drive.difference(&old), None);
    drive.poke(8192 + 4095, &[2]);
    assert_eq!(drive.difference(&old), Some(8192));
    drive.restore(&old);
    assert_eq!(drive.difference(&old), None);
    let mut found = [0; 1];
    drive.peek(8192 + 4095, &mut found);
    assert_eq!(found, [1]);
}

/// What one run of a seed does to a drive, as told by every answer with its time, what was left
/// after a power cut, and the counters.
fn story(seed: u64) -> (Vec<(u64, u64, String)>, Vec<u8>, SimulatedCounters) {
    let (simulated, drive) = drive(seed);
    simulated.set_faults(everything());
    let drive = Arc::new(drive);
    let told = simulate_in(seed, Order::Shuffled, async move {
        let told = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let tasks: Vec<_> = (0..8u64)
            .map(|task| {
                let (drive, told) = (Arc::clone(&drive), std::rc::Rc::clone(&told));
                spawn(async move {
                    for _ in 0..50 {
                        let at = random() % (MIB / 512) * 512;
                        let answer = match random() % 6 {
                            0 => {
                                format!("{:?}", drive.read(at, 8192).await.map(|b| b[..].to_vec()))
                            }
                            1 => format!("{:?}", drive.flush().await),
                            2 => format!("{:?}", drive.deallocate(at, 10_000).await),
                            _ => {
                                let byte = stdx::num::low8(random());
                                format!(
                                    "{:?}",
                                    drive.write(at, filled(8192, byte).await, byte < 20).await
                                )
                            }
                        };
                        told.borrow_mut().push((now(), task, answer));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        told.take()
    });
    simulated.power_cut(&mut Prng::new(seed));
    let mut left = vec![0; usize64(2 * MIB)];
    simulated.peek(0, &mut left);
    (told, left, simulated.counters())
}

#[test]
fn a_seed_replays_bit_for_bit() {
    let (told, left, counters) = story(5);
    assert!(story(5) == (told.clone(), left, counters));
    assert!(story(6).0 != told);
    assert!(counters.errors > 0 && counters.writes > 0 && counters.reads > 0);
}

#[test]
fn what_was_flushed_survives_and_what_is_under_way_is_open() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..60 {
        let (simulated, drive) = drive(seed);
        let cut = Arc::clone(&simulated);
        simulate(seed, async move {
            drive.write(0, filled(4096, 1).await, false).await.unwrap();
            drive.flush().await.unwrap();
            drive.write(4096, filled(4096, 2).await, true).await.unwrap();
            drive.write(8192, filled(4096, 3).await, false).await.unwrap();
            let under_way = spawn(async move {
                let _ = drive.write(12288, filled(4096, 4).await, true).await;
                unreachable!("the power was cut");
            });
            reactor::yield_now().await;
            cut.power_cut(&mut Prng::new(seed));
            let late = reactor::timeout(Duration::from_secs(9), under_way).await;
            assert!(late.is_err());
        });
        simulated.power_on();
        let mut left = [0; 16384];
        simulated.peek(0, &mut left);
        assert!(left[..4096].iter().all(|b| *b == 1));
        assert!(left[4096..8192].iter().all(|b| *b == 2));
        outcomes.insert((left[8192], left[8192 + 512], left[12288]));
    }
    assert!(outcomes.len() > 4, "{outcomes:?}");
    let seen = |f: fn(&(u8, u8, u8)) -> bool| outcomes.iter().any(f);
    assert!(seen(|o| o.0 == 3) && seen(|o| o.0 == 0) && seen(|o| o.2 == 4) && seen(|o| o.2 == 0));
}

#[test]
fn without_a_volatile_cache_nothing_acknowledged_is_lost() {
    for seed in 0..20 {
        let simulated = Simulated::new(SimulatedOptions { volatile_cache: false, ..options(seed) });
        let drive = Drive::Simulated(Arc::clone(&simulated));
        simulate(seed, async move {
            drive.write(100, filled(9000, 1).await, false).await.unwrap();
        });
        simulated.power_cut(&mut Prng::new(seed));
        let mut left = [0; 9000];
        simulated.peek(100, &mut left);
        assert!(left.iter().all(|b| *b == 1));
    }
}

#[test]
fn a_write_dropped_early_may_or_may_not_have_happened() {
    let happened: Vec<u8> = (0..40)
        .map(|seed| {
            let (simulated, drive) = drive(seed);
            simulate(seed, async move {
                let write = spawn(async move {
                    let _ = drive.write(0, filled(512, 1).await, false).await;
                });
                reactor::yield_now().await;
                write.abort();
            });
            let mut byte = [0];
            simulated.peek(0, &mut byte);
            byte[0]
        })
        .collect();
    assert!(happened.contains(&0) && happened.contains(&1));
}

#[test]
fn latent_errors_last_until_written_and_rot_is_silent() {
    let (simulated, drive) = drive(1);
    simulate(1, async move {
        drive.write(0, filled(8192, 1).await, false).await.unwrap();
        simulated.damage(4096, 512);
        assert_eq!(drive.read(4000, 100).await.unwrap_err().kind, Kind::Medium);
        drive.read(0, 4096).await.unwrap();
        drive.write(4096, filled(512, 1).await, false).await.unwrap();
        drive.read(0, 8192).await.unwrap();
        let at = simulated.rot().unwrap();
        let read = drive.read(0, 8192).await.unwrap();
        let wrong: Vec<_> = (0..8192).filter(|&i| read[usize64(i)] != 1).collect();
        assert_eq!(wrong, [at]);
        assert_eq!((simulated.counters().latent, simulated.counters().rotten), (1, 1));
    });
}

#[test]
fn lost_and_misdirected_writes_are_acknowledged() {
    let (simulated, drive) = drive(1);
    simulate(1, async move {
        drive.write(0, filled(4096, 1).await, false).await.unwrap();
        simulated.set_faults(SimulatedFaults { lost_ppm: 1_000_000, ..Default::default() });
        drive.write(0, filled(4096, 2).await, false).await.unwrap();
        assert_eq!(drive.read(0, 4096).await.unwrap()[0], 1);
        simulated.set_faults(SimulatedFaults { misdirected_ppm: 1_000_000, ..Default::default() });
        drive.write(8192, filled(4096, 3).await, false).await.unwrap();
        assert_eq!(drive.read(0, 4096).await.unwrap()[0], 3);
        assert_eq!(drive.read(8192, 4096).await.unwrap()[0], 0);
        assert_eq!((simulated.counters().lost, simulated.counters().misdirected), (1, 1));
    });
}

#[test]
fn a_stalled_drive_goes_on_and_a_failed_one_does_not() {
    let (simulated, drive) = drive(1);
    simulate(1, async move {
        simulated.stall(Duration::from_secs(5));
        let begun = now();
        drive.write(0, filled(512, 1).await, false).await.unwrap();
        assert!(now() - begun >= 5_000_000_000);
        simulated.fail();
        assert_eq!(drive.read(0, 512).await.unwrap_err().kind, Kind::Gone);
        assert_eq!(drive.write(0, filled(512, 2).await, true).await.unwrap_err().kind, Kind::Gone);
        assert_eq!(drive.flush().await.unwrap_err().kind, Kind::Gone);
        assert_eq!(drive.failure(), Some(Kind::Gone));
        simulated.revive();
        assert_eq!(drive.read(0, 512).await.unwrap()[0], 1);
    });
}

#[test]
fn a_failed_flush_latches() {
    let (simulated, drive) = drive(1);
    simulate(1, async move {
        simulated.set_faults(SimulatedFaults { flush_error_ppm: 1_000_000, ..Default::default() });
        assert_eq!(drive.flush().await.unwrap_err().kind, Kind::Medium);
        let write = drive.write(0, filled(512, 1).await, false).await;
        assert_eq!(write.unwrap_err().kind, Kind::Latched);
        assert_eq!(drive.failure(), Some(Kind::Medium));
    });
}

#[test]
fn large_drives_are_cheap() {
    let (simulated, _) = drive(1);
    let large = Simulated::new(SimulatedOptions { capacity: 64 << 40, ..options(1) });
    let drive = Drive::Simulated(Arc::clone(&large));
    simulate(1, async move {
        drive.write(60 << 40, filled(65536, 1).await, false).await.unwrap();
        drive.deallocate(0, 64 << 40).await.unwrap();
        drive.flush().await.unwrap();
        assert_eq!(drive.read(60 << 40, 65536).await.unwrap()[0], 0);
    });
    assert!(large.resident() <= 65536 + simulated.resident());
}

#[test]
fn what_shares_power_loses_it_at_once() {
    let power = Arc::new(Power::default());
    let new =
        |seed| Simulated::new(SimulatedOptions { power: Arc::clone(&power), ..options(seed) });
    let (a, b) = (new(1), new(2));
    let (of_a, of_b) = (Drive::Simulated(Arc::clone(&a)), Drive::Simulated(Arc::clone(&b)));
    let switch = Arc::clone(&power);
    simulate(1, async move {
        of_a.write(0, filled(512, 1).await, true).await.unwrap();
        switch.cut();
        let late = async {
            let _ = of_a.write(0, filled(512, 2).await, true).await;
            let _ = of_b.write(0, filled(512, 2).await, true).await;
        };
        assert!(reactor::timeout(Duration::from_secs(1), late).await.is_err());
    });
    for (drive, holds) in [(a, 1), (b, 0)] {
        drive.power_cut(&mut Prng::new(1));
        let mut left = [9];
        drive.peek(0, &mut left);
        assert_eq!(left, [holds]);
    }
}

/// Memory that was short for a moment, or a signal, was a verdict on the drive.
#[test]
fn what_passes_is_tried_again_until_it_has_passed() {
    simulate(1, async {
        let (simulated, drive) = drive(1);
        simulated.refuse(Refusal::all(Kind::Passing, 5));
        drive.write(0, filled(8192, 7).await, false).await.unwrap();
        simulated.refuse(Refusal::all(Kind::Passing, 5));
        assert!(drive.read(0, 8192).await.unwrap().iter().all(|b| *b == 7));
        simulated.refuse(Refusal::all(Kind::Passing, 5));
        drive.flush().await.unwrap();
        simulated.refuse(Refusal::all(Kind::Passing, 5));
        drive.deallocate(0, 4096).await.unwrap();
        assert_eq!(simulated.counters().errors, 20);
        // What does not pass is told, as what it is, and what was to be written is not lost.
        simulated.refuse(Refusal { times: None, ..Refusal::all(Kind::Passing, 0) });
        let begun = now();
        let refused = drive.write_or_return(0, filled(8192, 9).await, false).await.unwrap_err();
        assert_eq!(refused.error.kind, Kind::Passing);
        assert!(refused.data.unwrap().iter().all(|b| *b == 9));
        let waited = Duration::from_nanos(now() - begun);
        assert!((5..6).contains(&waited.as_secs()), "{waited:?}");
        assert_eq!(drive.read(0, 8192).await.unwrap_err().kind, Kind::Passing);
        assert_eq!(drive.flush().await.unwrap_err().kind, Kind::Passing);
        simulated.refuse_nothing();
        assert_eq!(drive.failure(), None);
        drive.flush().await.unwrap();
    });
}

/// Nothing ever asked how long it had been waiting.
#[test]
fn a_drive_that_hangs_ends_every_operation_in_time() {
    simulate(2, async {
        let (simulated, drive) = drive(2);
        simulated.set_hanging(true);
        let begun = now();
        let drive = Arc::new(drive);
        let kinds = [0, 1, 2, 3].map(|which| {
            let drive = Arc::clone(&drive);
            spawn(async move {
                match which {
                    0 => drive.read(0, 4096).await.map(|_| ()),
                    1 => drive.write(0, filled(4096, 1).await, false).await,
                    2 => drive.flush().await,
                    _ => drive.deallocate(0, 4096).await,
                }
                .unwrap_err()
                .kind
            })
        });
        for kind in kinds {
            assert_eq!(kind.await.unwrap(), Kind::Timeout);
        }
        let waited = Duration::from_nanos(now() - begun);
        assert!((30..31).contains(&waited.as_secs()), "{waited:?}");
        simulated.set_hanging(false);
        drive.write(0, filled(4096, 1).await, false).await.unwrap();
    });
}

fn outlived(seed: u64, in_flight: InFlight) -> (Arc<Simulated>, Drive) {
    let simulated = Simulated::new(SimulatedOptions { in_flight, ..options(seed) });
    (Arc::clone(&simulated), Drive::Simulated(simulated))
}

/// Begins some writes of a process, and gives when it ended.
fn die_while_writing(drive: Drive) -> Nanos {
    let drive = Arc::new(drive);
    simulate(1, async move {
        for n in 0..16 {
            let drive = Arc::clone(&drive);
            let data = filled(4096, 7).await;
            drop(spawn(async move { drive.write(n * 4096, data, false).await }));
        }
        reactor::yield_now().await;
        now()
    })
}

fn sevens(simulated: &Simulated) -> usize {
    (0..16u64)
        .filter(|n| {
            let mut block = [0; 4096];
            simulated.peek(n * 4096, &mut block);
            block == [7; 4096]
        })
        .count()
}

/// Writes of a process that was killed came over what the next one wrote, and the simulator had them end with it.
#[test]
fn what_a_kernel_has_outlives_the_process() {
    let (simulated, drive) = outlived(3, InFlight::Kernel);
    let ended = die_while_writing(drive);
    simulated.end_process(ended, || Duration::from_secs(1));
    // What will be there is told already.
    let will = simulated.contents();
    let whole = sevens(&simulated);
    assert!((2..14).contains(&whole), "{whole}");
    let looked = Arc::clone(&simulated);
    simulate(2, async move {
        let drive = Drive::Simulated(Arc::clone(&looked));
        assert!(!drive.is_alone() && !drive.has_late_changes());
        assert!(drive.read(0, 16 * 4096).await.unwrap().iter().all(|byte| *byte == 0));
        drive.write(0, filled(16 * 4096, 9).await, false).await.unwrap();
        reactor::sleep(Duration::from_secs(2)).await;
        assert!(drive.is_alone() && !drive.has_late_changes());
    });
    // They came over what was written meanwhile.
    assert_eq!(sevens(&simulated), whole);
    assert_eq!(looked_at(&simulated, 9) + whole, 16 - torn(&simulated));
    assert!(simulated.difference(&will).is_some(), "what was written between them stays");
    assert!(simulated.counters().left > 0);
}

fn looked_at(simulated: &Simulated, byte: u8) -> usize {
    blocks(simulated, |block| block.iter().all(|b| *b == byte))
}

/// Blocks with some of each.
fn torn(simulated: &Simulated) -> usize {
    blocks(simulated, |block| block.iter().any(|b| *b != block[0]))
}

fn blocks(simulated: &Simulated, is: impl Fn(&[u8]) -> bool) -> usize {
    (0..16u64)
        .filter(|n| {
            let mut block = [0; 4096];
            simulated.peek(n * 4096, &mut block);
            is(&block)
        })
        .count()
}

#[test]
fn what_is_late_keeps_other_changes_off() {
    let (simulated, drive) = outlived(5, InFlight::Kernel);
    simulate(1, async move {
        simulated.set_hanging(true);
        let error = drive.write(0, filled(4096, 1).await, false).await.unwrap_err();
        assert_eq!(error.kind, Kind::Timeout);
        assert!(drive.has_late_changes() && drive.is_alone());
        // At once: it is not even tried.
        let begun = now();
        let error = drive.write(0, filled(4096, 2).await, false).await.unwrap_err();
        assert_eq!(
            (error.kind, drive.flush().await.unwrap_err().kind),
            (Kind::Timeout, Kind::Timeout)
        );
        assert_eq!(now(), begun);
        simulated.set_hanging(false);
        let begun = now();
        while drive.has_late_changes() {
            assert_eq!(drive.flush().await.unwrap_err().kind, Kind::Timeout);
            reactor::sleep(Duration::from_millis(1)).await;
        }
        assert!(now() - begun < 5_000_000_000);
        drive.write(0, filled(4096, 2).await, false).await.unwrap();
        reactor::sleep(Duration::from_secs(9)).await;
        assert_eq!(drive.read(0, 1).await.unwrap()[0], 2);
    });
}

/// Has a write be given up that the drive holds up in this way, and asks for another one once that is over; gives what is
/// there in the end.
fn held_up(seed: u64, hold: fn(&Simulated), go_on: fn(&Simulated)) -> u8 {
    let (simulated, drive) = outlived(seed, InFlight::Kernel);
    simulate(seed, async move {
        hold(&simulated);
        let drive = Arc::new(drive);
        let (first, data) = (Arc::clone(&drive), filled(4096, 1).await);
        let first = spawn(async move { first.write(0, data, false).await });
        reactor::sleep(Duration::from_millis(1)).await;
        first.abort();
        reactor::sleep(Duration::from_secs(1)).await;
        go_on(&simulated);
        drive.write(0, filled(4096, 2).await, false).await.unwrap();
        while drive.has_changes() {
            reactor::sleep(Duration::from_micros(100)).await;
        }
        let there = drive.read(0, 1).await.unwrap()[0];
        reactor::sleep(Duration::from_secs(60)).await;
        assert_eq!(drive.read(0, 1).await.unwrap()[0], there, "nothing comes once all has ended");
        there
    })
}

/// What a drive had held up came before anything new, as no kernel promises.
#[test]
fn what_was_held_up_comes_before_or_after_what_is_asked_for_later() {
    let all =
        |hold, go_on| (0..40).map(|seed| held_up(seed, hold, go_on)).collect::<BTreeSet<u8>>();
    let hangs = all(|drive| drive.set_hanging(true), |drive| drive.set_hanging(false));
    assert_eq!(hangs, BTreeSet::from([1, 2]));
    // It is over by then.
    let stalls = all(|drive| drive.stall(Duration::from_millis(900)), |_| {});
    assert_eq!(stalls, BTreeSet::from([1, 2]));
}

/// What was late of a process that is gone kept the next one from changing anything, and was told of as its own.
#[test]
fn who_takes_a_drive_has_nothing_late_there() {
    let (simulated, drive) = outlived(7, InFlight::Kernel);
    let ended = simulate(1, {
        let simulated = Arc::clone(&simulated);
        async move {
            simulated.set_hanging(true);
            drive.write(0, filled(4096, 1).await, false).await.unwrap_err();
            assert!(drive.has_late_changes());
            now()
        }
    });
    simulated.end_process(ended, || Duration::ZERO);
    simulate(2, async move {
        let drive = Drive::Simulated(Arc::clone(&simulated));
        assert!(!drive.is_alone() && simulated.has_left_changes());
        assert!(!drive.has_late_changes() && !drive.has_changes());
        simulated.set_hanging(false);
        // A bug of the next one: it does not wait.
        drive.write(8192, filled(4096, 2).await, false).await.unwrap();
        while !drive.is_alone() {
            reactor::sleep(Duration::from_millis(1)).await;
        }
        assert!(!simulated.has_left_changes());
    });
}

/// What was under way when a drive went was nowhere there when it came back.
#[test]
fn what_ends_as_the_drive_goes_may_have_been_done() {
    let left = (0..40).map(|seed| {
        let (simulated, drive) = outlived(seed, InFlight::Kernel);
        simulate(seed, async move {
            let (data, drive) = (filled(4096, 1).await, Arc::new(drive));
            let of_write = Arc::clone(&drive);
            let write = spawn(async move { of_write.write(0, data, false).await });
            reactor::yield_now().await;
            simulated.fail();
            assert_eq!(write.await.unwrap().unwrap_err().kind, Kind::Gone);
            let data = filled(4096, 2).await;
            assert_eq!(drive.write(0, data, false).await.unwrap_err().kind, Kind::Gone);
            simulated.revive();
            let read = drive.read(0, 4096).await.unwrap();
            (read.contains(&1), read.contains(&0), read.contains(&2))
        })
    });
    let whole_torn_not: BTreeSet<_> = left.collect();
    let all = [(true, false, false), (true, true, false), (false, true, false)];
    assert_eq!(whole_torn_not, BTreeSet::from(all));
}

/// Zeroes came as a whole, or not at all.
#[test]
fn zeroes_are_torn_as_writes_are() {
    let torn = |end: fn(&Simulated, u64, Nanos)| {
        let seeds = (0..40).filter(|&seed| {
            let (simulated, drive) = outlived(seed, InFlight::Kernel);
            simulated.poke(0, &[7; 64 * 1024]);
            let ended = simulate(seed, async move {
                drop(spawn(async move { drive.deallocate(0, 64 * 1024).await }));
                reactor::yield_now().await;
                now()
            });
            end(&simulated, seed, ended);
            let mut left = vec![0; 64 * 1024];
            simulated.peek(0, &mut left);
            let sector = usize64(SECTOR);
            assert!(left.chunks(sector).all(|sector| sector.iter().all(|b| *b == sector[0])));
            left.contains(&0) && left.contains(&7)
        });
        seeds.count()
    };
    let killed = torn(|simulated, _, ended| simulated.end_process(ended, || Duration::ZERO));
    assert!((5..35).contains(&killed), "{killed}");
    let powerless = torn(|simulated, seed, _| simulated.power_cut(&mut Prng::new(seed)));
    assert!(powerless > 5, "{powerless}");
}

/// Commands that were on their way to another machine when the connection was lost are executed when they are; who comes
/// next has to wait for that.
#[test]
fn another_machine_is_used_anew_once_what_was_on_its_way_has_ended() {
    let runs = |in_flight| {
        let over = (0..40).filter(|&seed| {
            let (simulated, drive) = outlived(seed, in_flight);
            simulate(seed, async move {
                let drive = Arc::new(drive);
                let (first, data) = (Arc::clone(&drive), filled(4096, 1).await);
                let first = spawn(async move { first.write(0, data, false).await });
                reactor::yield_now().await;
                let was = simulated.connection();
                simulated.fail();
                simulated.revive();
                assert_ne!(simulated.connection(), was);
                drive.write(0, filled(4096, 2).await, false).await.unwrap();
                assert_eq!(first.await.unwrap().unwrap_err().kind, Kind::Gone);
                reactor::sleep(Duration::from_secs(2)).await;
                drive.read(0, 1).await.unwrap()[0] == 1
            })
        });
        over.count()
    };
    assert_eq!(runs(InFlight::Fenced), 0);
    let over = runs(InFlight::Unfenced);
    assert!(over > 5, "{over}");
}
