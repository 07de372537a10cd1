use super::*;
use crate::mode::Era;
use crate::reference::Lie;
use crate::shape::LogShape;
use engine::canary::Canary;

const TRUTH: Subject = Subject::Reference(Lie::None);

#[test]
fn a_seed_replays_bit_for_bit() {
    for seed in 0..10 {
        let first = run(TRUTH, seed, false);
        assert_eq!(first, run(TRUTH, seed, false), "seed {seed}");
    }
    assert_ne!(run(TRUTH, 1, false).trace, run(TRUTH, 2, false).trace);
}

#[test]
fn the_truth_is_never_called_a_lie() {
    for seed in 0..40 {
        let report = run(TRUTH, seed, false);
        assert_eq!(report.failure, None, "seed {seed}");
    }
}

#[test]
fn every_lie_is_found_out() {
    for lie in [
        Lie::AcknowledgesEarly,
        Lie::ReplaysInWrongOrder,
        Lie::Misplaces,
        Lie::ForgetsZeroes,
        Lie::ForgetsDeletion,
        Lie::ReadsStale,
    ] {
        let found =
            (0..100).find(|&seed| run(Subject::Reference(lie), seed, false).failure.is_some());
        assert!(found.is_some(), "{lie:?}");
    }
}

/// Seeds of the engine in every run of the tests: what fits half a minute of a slow machine.
const SEEDS: u64 = 60;

/// Seeds within which each planted bug is found.
const CANARY_SEEDS: u64 = 150;

const ENGINE: Subject = Subject::Array(None);

#[test]
fn the_engine_keeps_its_promises() {
    keep(Mode::Plain, 0..SEEDS);
}

/// Seeds that found something once, whatever they mean by now.
///
/// 14: two tasks waited for one record of the log, and one of them was never woken.
/// 80: in a pool with little space no segment had a whole stripe to win, and nothing went on.
/// 121, 278: that the pool could not be opened because its drives were away was called damage.
/// 122: a write given up came to light when the pool was closed.
/// 1146, 1232: nobody carried on what became durable in a log on drives after its host had gone.
/// 772: a segment was emptied over and over while the log referred to what had long been moved.
/// 2635: shared blocks that a sweep left to the log were never looked at again.
/// 3239: a power cut meant for one life came in the next.
/// 3596: a write waited for room in the log, and nobody told destage.
/// 4221, 5424: what was damaged in the log, and on its way to the drives, was said to be lost.
/// 440, 539: tasks of a life that a power cut had ended appended to the log once power was back.
/// 601499, 603007: writers were told that a pool is full which held half of what it may.
/// 601634: a write waited for room in the log after too many drives had failed.
/// 802103: closing waited for records that a failed log could not make durable.
/// 902472: stripes that a life had written anew, before its first checkpoint, were there twice.
/// 912908: what a drive had forgotten to write over with a new log hid that on the other drive.
const FOUND: [u64; 21] = [
    14, 80, 121, 122, 278, 440, 539, 772, 1146, 1232, 2635, 3239, 3596, 4221, 5424, 601_499,
    601_634, 603_007, 802_103, 902_472, 912_908,
];

/// What a crash had counted twice was never found while others wrote: the pool said that it was full.
const FOUND_FULL: u64 = 2_501_633_055;
/// The same, with moves; and a write that waited was refused for what was given back meanwhile.
const MOVES_FOUND_FULL: [u64; 2] = [2_501_631_901, 189_772_342_633_026];

/// 237037650210160: metadata that was being written when the process was killed was damage to a scrub.
const MOVES_TORN: [u64; 1] = [237_037_650_210_160];

/// A page of the map, read for a host, told of a lost block: the read panicked.
const FOUND_LOST: u64 = 224_912_975_076_717;

/// A read that learnt where its blocks are from pages read one after another took checksums for each other's, and
/// failed.
const FOUND_MIXED_UP: u64 = 224_912_975_075_974;

/// A segment died while it was emptied, and its space was given to others: what was read there was called lost.
const FOUND_GONE: u64 = 224_912_975_076_554;

/// The dump called it an error that a block was about to be shared when power failed.
const FOUND_HALF_SHARED: u64 = 224_912_975_076_884;

#[test]
fn what_was_found_once_stays_mended() {
    keep_of(Era::Widened, Mode::Plain, [FOUND_LOST]);
    keep_of(Era::Widened, Mode::Returns, [FOUND_MIXED_UP]);
    keep_of(Era::Widened, Mode::Large, [FOUND_GONE, FOUND_HALF_SHARED]);
    keep_of(Era::Alone, Mode::Plain, FOUND.into_iter().chain([FOUND_FULL]));
}

/// Seeds whose volumes are changed while hosts work on them.
const BESIDE_SEEDS: u64 = 12;

/// Whoever changed a volume kept all hosts out of it: no write ever met a resize, a renaming or a deletion.
#[test]
fn volumes_are_changed_beside_what_hosts_do() {
    let mut missed = 0;
    for seed in 0..BESIDE_SEEDS {
        let plan = Plan { beside_percent: 100, ..Plan::new(seed) };
        let report = carry_out(ENGINE, plan, false);
        assert_eq!(report.failure, None, "seed {seed}");
        missed += report.counts.missed;
    }
    assert!(missed > 10, "{missed}");
}

#[test]
fn every_canary_is_found() {
    for canary in Canary::ALL {
        let elsewhere = [
            &LOSES_LOG_CANARIES[..],
            &ROUGH_CANARIES[..],
            &OPERATOR_CANARIES[..],
            &CROSSES_CANARIES[..],
            &WINDOWS_CANARIES[..],
            &RESERVES_CANARIES[..],
            &REMOTE_CANARIES[..],
            &STARTS_CANARIES[..],
            &QUOTAS_MISS[..],
            &[Canary::TakesEarly],
        ];
        let mut at_once = FOUND_AT_ONCE.iter().chain(&QUOTAS_FIND);
        let is_found_at_once = at_once.any(|(those, ..)| *those == canary)
            || DRIVES_FIND.iter().any(|(those, ..)| *those == canary);
        if is_found_at_once
            || MOVES_CANARIES.contains(&canary)
            || elsewhere.iter().any(|those| those.contains(&canary))
        {
            continue;
        }
        // Copies whose blocks are moved come with little space only.
        let matters = |seed: &u64| {
            let plan = Plan::new(*seed);
            canary != Canary::ForgetsReferences || plan.tiny && plan.copy_percent > 0
        };
        let fails = |&seed: &u64| run(Subject::Array(Some(canary)), seed, false).failure.is_some();
        let found = (0..CANARY_SEEDS).filter(matters).find(fails);
        assert!(found.is_some(), "{canary:?}");
    }
}

/// Seeds of the workload that moves things about, each of some seconds.
const MOVES_SEEDS: u64 = 4;

/// Those within which the bug that is planted for it is found: one in six finds it.
const MOVES_CANARY_SEEDS: u64 = 40;

#[test]
fn what_is_moved_about_stays() {
    keep(Mode::Moves, 0..MOVES_SEEDS);
    keep_of(Era::Scrubbed, Mode::Moves, MOVES_TORN);
    keep_of(Era::Alone, Mode::Moves, MOVES_FOUND_FULL);
}

/// Bugs of sweeps.
const MOVES_CANARIES: [Canary; 2] = [Canary::SweepsWhatLogRefersTo, Canary::PassesByReferences];

#[test]
fn the_canaries_of_moves_are_found() {
    for canary in MOVES_CANARIES {
        let subject = Subject::Array(Some(canary));
        let fails = |seed| carry_out(subject, Mode::Moves.plan(seed), false).failure.is_some();
        assert!((0..MOVES_CANARY_SEEDS).any(fails), "{canary:?}");
    }
}

/// Seeds during which the commit log is lost, or one of its two devices.
const LOSES_LOG_SEEDS: u64 = 24;

/// Those of them that found something once, whatever they mean by now.
///
/// 59: what a deleted volume had, and the lost log had taken away, was nobody's for ever.
/// 284, 349: what power left of a log half made was another pool's log from then on.
/// 556: two views that were holes as a whole were one on a page, which was never read again.
/// 1389: a sector of the lost log that could not be read kept the pool from opening.
/// 3487: a sweep that began while the map learnt a reference heard too early of it, and made a hole of
/// what it was to.
/// 800702, 800810: a torn stripe of which a drive was missing was taken for whole.
/// 801591: stripes that a life had written anew, before its first checkpoint, were there twice.
/// 900622, 901076: the parity of a stripe that counts was torn, and stayed so.
/// 950404: a control slot of the lost log that could not be read was called a failed drive.
/// 7001213: reclaim waited for a segment, and with it those that it alone could give back, in a pool that held more
/// than it may: what a crash had counted twice was room for writers from then on.
/// 189772342632490: a stripe that the opening relied on was missing once its header had not been read the first time.
/// 171344380629468: the same, where the only other copy of the header was the one that had been torn.
/// 189772342632823: a volume whose deletion had failed could be written, and not made larger.
/// 169331293824620: a drive went between the look at the stripes that a lost log relied on and their making whole.
/// 210982878481732: the same, between that look and the next, at what the stripes hold.
const LOSES_LOG_FOUND: [u64; 18] = [
    59,
    284,
    349,
    556,
    1389,
    3487,
    800_702,
    800_810,
    801_591,
    900_622,
    901_076,
    950_404,
    7_001_213,
    189_772_342_632_490,
    171_344_380_629_468,
    189_772_342_632_823,
    169_331_293_824_620,
    210_982_878_481_732,
];

/// 22651531791336: hosts waited for ever, since reclaim could read nothing of what had the space.
///
/// 227562968672550: a rule that asked too much: a part of a block was to be on the drives that was overwritten with the
/// other parts while it was in the log.
///
/// 172927214947558: a block was given up whose stripe had enough: a drive that was late was not asked once what another
/// gave turned out to be wrong.
const LOSES_LOG_SINCE: [u64; 3] = [22_651_531_791_336, 227_562_968_672_550, 172_927_214_947_558];

#[test]
fn without_its_log_a_pool_keeps_what_its_drives_were_known_to_have() {
    keep(Mode::LosesLog, 0..LOSES_LOG_SEEDS);
}

#[test]
fn what_was_found_once_without_the_log_stays_mended() {
    keep_of(Era::Widened, Mode::LosesLog, LOSES_LOG_SINCE);
    keep_of(Era::Alone, Mode::LosesLog, LOSES_LOG_FOUND);
}

/// Bugs of opening a pool without its log.
const LOSES_LOG_CANARIES: [Canary; 3] =
    [Canary::TrustsHeaders, Canary::ForgetsStripes, Canary::TakesDamagedForTorn];

#[test]
fn the_canaries_of_lost_logs_are_found() {
    find(Mode::LosesLog, LOSES_LOG_CANARIES, LOSES_LOG_FOUND);
}

/// Seeds of an operator who opens the pool with whatever is at hand.
const OPERATOR_SEEDS: u64 = 24;

/// Those of them, and of all workloads, that found something once.
///
/// 53, 57, 7000024, 7000060: a pool closed in order whose log was being made anew was called damaged.
/// 49: a change of volumes that an opening had shown was lost, for one drive alone had it.
const OPERATOR_FOUND: [u64; 5] = [49, 53, 57, 7_000_024, 7_000_060];

/// Those that found something once there were bytes of the log's memory that cannot be reached.
///
/// 33: a device that could not be read at all kept a pool closed, although another had everything.
/// 118: so did a line that could not be read, of what the other device had.
/// 371: a header of one device and what followed it on another were taken for a record: nobody had all of it, and the
/// next opening missed it.
/// 22651531791592: what a read had shown was on the one device alone that the next opening was not given.
/// 172836736935342: the model took a device for one without everything, which nobody had met what is unreachable of.
const OPERATOR_UNREACHABLE: [u64; 5] = [33, 118, 371, 22_651_531_791_592, 172_836_736_935_342];

/// Those that found something once drives were added and emptied.
///
/// 22651531791533: a shard failed whose checkpoint was being written while a drive left.
const OPERATOR_WIDENS: [u64; 1] = [22_651_531_791_533];

/// Those that found something once drives got slow and pools were scrubbed.
///
/// 78483215790131: a late header of a stripe was taken for none, where another drive had damage.
/// 78483215790143: what volumes use was counted no more.
/// 81911641163636: what a scrub had put right was in a drive's cache only, and lost with power.
const OPERATOR_SLOWS: [u64; 3] = [78_483_215_790_131, 78_483_215_790_143, 81_911_641_163_636];

/// And of all that there is: pools open with what a daemon finds, are refused, and go on in two places; drives get slow,
/// copies of the log move, and scrubs put right what was damaged.
#[test]
fn whatever_an_operator_opens_has_everything() {
    let (mut seen, mut forks) = (Seen::default(), 0);
    for seed in 0..OPERATOR_SEEDS {
        let report = kept(Mode::Operator, seed);
        forks += report.counts.forks;
        seen.starts += report.seen.starts;
        seen.no_starts += report.seen.no_starts;
        seen.slow += report.seen.slow;
        seen.log_copies += report.seen.log_copies;
        seen.exams += report.seen.exams;
        seen.mended += report.seen.mended;
    }
    let counts = [forks, seen.starts, seen.no_starts];
    assert!(counts.iter().all(|count| *count > 3), "{counts:?}");
    let counts = [seen.slow, seen.log_copies, seen.exams, seen.mended];
    assert!(counts.iter().all(|count| *count > 0), "{seen:?}");
}

#[test]
fn what_operators_found_once_stays_mended() {
    let found = OPERATOR_UNREACHABLE.into_iter().chain(OPERATOR_WIDENS);
    keep_of(Era::Scrubbed, Mode::Operator, OPERATOR_SLOWS);
    keep_of(Era::Widened, Mode::Operator, found);
    keep_of(Era::Alone, Mode::Operator, OPERATOR_FOUND);
}

/// Bugs of opening a pool with what there is.
const OPERATOR_CANARIES: [Canary; 3] =
    [Canary::WritesFirst, Canary::StaysClosed, Canary::KeepsUnreachable];

#[test]
fn the_canaries_of_openings_are_found() {
    find(Mode::Operator, OPERATOR_CANARIES, OPERATOR_FOUND);
}

/// Seeds in which several things go wrong at once.
const ROUGH_SEEDS: u64 = 20;

/// Those of them that found something once.
///
/// 50: as 53 and 57 of an operator.
/// 9019, 7000084, 7000166, 7000468: an old copy of a drive was taken for the drive, and what it lacked was lost.
/// 36, 7000057: a drive that was told to try again without end kept everybody waiting.
const ROUGH_FOUND: [u64; 7] = [36, 50, 9019, 7_000_057, 7_000_084, 7_000_166, 7_000_468];

/// A drive whose reads were to be tried again without end kept a pool from closing: reclaim read each header of a
/// segment, for a long time each.
const ROUGH_CLOSES: [u64; 1] = [240_739_640_580_877];

#[test]
fn several_things_that_go_wrong_at_once_cost_nothing() {
    keep(Mode::Rough, 0..ROUGH_SEEDS);
    keep_of(Era::Widened, Mode::Rough, ROUGH_CLOSES);
    keep_of(Era::Alone, Mode::Rough, ROUGH_FOUND);
}

/// Bugs in what is done about drives that misbehave.
const ROUGH_CANARIES: [Canary; 2] = [Canary::CondemnsPassing, Canary::TakesOldCopies];

#[test]
fn the_canaries_of_misbehaving_drives_are_found() {
    find(Mode::Rough, ROUGH_CANARIES, ROUGH_FOUND);
}

/// Seeds of a pool whose drives come and go while it is open, each of some seconds.
const RETURNS_SEEDS: u64 = 4;

/// 58666978677145, 189772342632900: an opening that was refused had called drives out that were only away.
/// 58666978676670: a copy of the log that was lost a second time was not made again.
const RETURNS_FOUND: [u64; 3] = [58_666_978_677_145, 189_772_342_632_900, 58_666_978_676_670];

/// 230654984826802: segments lay on a vacant place, whose drive had come back and failed before it was whole.
///
/// 227562968672866: what was free lay on the drive to be emptied, which was closed at once, and writers were told that
/// the pool was full.
///
/// 6248936476509: reclaim had begun to empty a segment while whoever empties drives kept its pace.
const RETURNS_SINCE: [u64; 3] = [230_654_984_826_802, 227_562_968_672_866, 6_248_936_476_509];

/// A sector that nothing gave kept drives out for good.
const RETURNS_SECTOR: [u64; 3] = [110_525_504_003_938, 110_525_504_003_950, 118_277_899_794_491];

#[test]
fn drives_that_come_and_go_cost_nothing() {
    keep(Mode::Returns, 0..RETURNS_SEEDS);
    keep_of(Era::Scrubbed, Mode::Returns, RETURNS_SECTOR);
    keep_of(Era::Widened, Mode::Returns, RETURNS_SINCE);
    keep_of(Era::Alone, Mode::Returns, RETURNS_FOUND);
}

/// Seeds with snapshots beside everything else.
const SNAPSHOTS_SEEDS: u64 = 16;

#[test]
fn snapshots_stay_what_they_were() {
    keep(Mode::Snapshots, 0..SNAPSHOTS_SEEDS);
}

/// Seeds of a pool on several reactors.
const CROSSES_SEEDS: u64 = 20;

#[test]
fn what_crosses_reactors_is_done_once_and_in_order() {
    keep(Mode::Crosses, 0..CROSSES_SEEDS);
}

/// Bugs on the way from one reactor to another. One seed in five finds this one.
const CROSSES_CANARIES: [Canary; 1] = [Canary::AttendsForgotten];

#[test]
fn the_canary_of_what_crosses_is_found() {
    find(Mode::Crosses, CROSSES_CANARIES, []);
}

/// Known seeds are of one reactor, and others have several in every workload.
#[test]
fn every_workload_has_several_reactors_in_some_seeds() {
    for mode in Mode::ALL {
        let several = (0..100).filter(|seed| mode.plan(*seed).reactors > 1).count();
        assert!(several >= 10, "{mode:?}: {several}");
        assert!((0..100).all(|seed| mode.plan_known(seed).reactors == 1), "{mode:?}");
    }
}

/// Seeds of a large pool, each of some seconds.
const LARGE_SEEDS: u64 = 2;

/// 230654984826672: labels that told of a new place went where the newest ones were, and power failed.
const LARGE_WIDENED: [u64; 1] = [230_654_984_826_672];

#[test]
fn a_large_pool_keeps_its_promises() {
    keep(Mode::Large, 0..LARGE_SEEDS);
    keep_of(Era::Widened, Mode::Large, LARGE_WIDENED);
}

/// Nothing goes wrong in these seeds.
fn keep(mode: Mode, seeds: impl IntoIterator<Item = u64>) {
    seeds.into_iter().for_each(|seed| drop(kept(mode, seed)));
}

/// Nothing goes wrong in this one. The first ones of some workloads are run twice: what they do is the same, bit for bit.
fn kept(mode: Mode, seed: u64) -> Report {
    let report = carry_out(ENGINE, mode.plan(seed), false);
    assert_eq!(report.failure, None, "replay: {}", mode.replay(seed));
    let replayed = match mode {
        Mode::Plain | Mode::Crosses => 4,
        Mode::Network | Mode::Remote | Mode::Windows => 2,
        _ => 0,
    };
    if seed < replayed {
        assert_eq!(report, carry_out(ENGINE, mode.plan(seed), false), "{mode:?}, seed {seed}");
    }
    report
}

/// Likewise of seeds that found something once, as they were then.
fn keep_of(era: Era, mode: Mode, seeds: impl IntoIterator<Item = u64>) {
    for seed in seeds {
        let failure = carry_out(ENGINE, mode.plan_of(seed, era), false).failure;
        assert_eq!(failure, None, "replay: {}", mode.replay_of(seed, era));
    }
}

/// Each of these bugs is found, by seeds that found something or by others.
fn find<const N: usize>(
    mode: Mode,
    canaries: [Canary; N],
    first: impl IntoIterator<Item = u64, IntoIter: Clone>,
) {
    let first = first.into_iter();
    for canary in canaries {
        let fails = |plan| carry_out(Subject::Array(Some(canary)), plan, false).failure.is_some();
        let mut first = first.clone().map(|seed| mode.plan_known(seed));
        let mut others = (0..CANARY_SEEDS).map(|seed| mode.plan(seed));
        assert!(first.any(fails) || others.any(fails), "{canary:?}");
    }
}

/// Bugs in what a daemon believes that nobody asks.
const STARTS_CANARIES: [Canary; 4] =
    [Canary::NamesLogsAlike, Canary::ForgetsTerm, Canary::AsksNoWitness, Canary::ForgetsLog];

#[test]
fn the_canaries_of_starts_are_found() {
    for canary in STARTS_CANARIES {
        let subject = Subject::Array(Some(canary));
        let fails = |seed| carry_out(subject, Mode::Operator.plan(seed), false).failure.is_some();
        assert!((0..CANARY_SEEDS).any(fails), "{canary:?}");
    }
}

/// Bugs in how space is had, moved and checked, and drives are taken back, each with the first seed that finds it: it does not take many others
/// where what that means has changed.
const FOUND_AT_ONCE: [(Canary, Mode, u64); 9] = [
    (Canary::CountsMovedEarly, Mode::Operator, 32),
    (Canary::BelievesVacated, Mode::Operator, 0),
    (Canary::WidensEarly, Mode::Operator, 0),
    (Canary::FreesEarly, Mode::Operator, 16),
    (Canary::ScrubSkips, Mode::Plain, 21),
    (Canary::UsesTwice, Mode::Returns, 0),
    (Canary::CountsReturned, Mode::Returns, 1),
    (Canary::KeepsIdentity, Mode::Returns, 23),
    (Canary::VacatesEarly, Mode::Returns, 1),
];

#[test]
fn the_canaries_of_places_returns_and_scrubs_are_found() {
    for (canary, mode, first) in FOUND_AT_ONCE {
        let subject = Subject::Array(Some(canary));
        let fails = |seed| carry_out(subject, mode.plan(seed), false).failure.is_some();
        assert!(std::iter::once(first).chain(0..CANARY_SEEDS).any(fails), "{canary:?}");
    }
}

/// Bugs in who is told that a pool is full, and in what is done about drives that hang, are slow or have no space
/// behind them, each with the first seed that finds it, and what that says.
const DRIVES_FIND: [(Canary, Mode, u64, &str); 4] = [
    (Canary::RefusesUnsearched, Mode::Moves, 1, ": full, with "),
    (Canary::WaitsForHung, Mode::Rough, 10, " is stuck"),
    (Canary::OpeningNeedsSpace, Mode::Rough, 2, "a refused opening changed "),
    (Canary::CondemnsSlow, Mode::Operator, 0, "are out of use, and nothing was wrong with them"),
];

#[test]
fn the_canaries_of_space_and_of_drives_that_hang_or_are_slow_are_found() {
    for (canary, mode, first, says) in DRIVES_FIND {
        let subject = Subject::Array(Some(canary));
        let finds = |seed| {
            let failure = carry_out(subject, mode.plan(seed), false).failure;
            failure.is_some_and(|(_, said)| said.contains(says))
        };
        assert!(std::iter::once(first).chain(0..CANARY_SEEDS).any(finds), "{canary:?}");
    }
}

/// Drives fail in part where several things go wrong at once, and more than one is bad where the log is on drives; not
/// where seeds mean what they did before.
#[test]
fn drives_fail_in_part_and_logs_bear_bad_ones_in_some_seeds() {
    let is_partly = |plan: &Plan| plan.rough.is_some_and(|rough| rough.partly);
    let has_bad =
        |plan: &Plan| plan.shape.log == LogShape::Drives && plan.shape.faults.drives.len() > 1;
    assert!((0..100).filter(|seed| is_partly(&Mode::Rough.plan(*seed))).count() > 50);
    assert!((0..200).filter(|seed| has_bad(&Mode::Plain.plan(*seed))).count() > 4);
    for mode in Mode::ALL {
        let plans = (0..100).map(|seed| mode.plan_outlived(seed));
        assert!(!plans.into_iter().any(|plan| is_partly(&plan) || has_bad(&plan)), "{mode:?}");
    }
}

/// Whoever leaves drives as fast as ever, or scrubs none, tests nothing of it.
#[test]
fn drives_get_slow_and_pools_are_scrubbed_in_some_seeds() {
    for mode in [Mode::Operator, Mode::Rough, Mode::Returns] {
        let slows = |seed: &u64| mode.plan(*seed).rough.is_some_and(|rough| rough.slows);
        assert!((30..70).contains(&(0..100).filter(slows).count()), "{mode:?}");
        assert!((0..100).all(|n| !mode.plan_widened(n).rough.is_some_and(|rough| rough.slows)));
    }
}

/// Seeds of hosts over the network in every run of the tests.
const NETWORK_SEEDS: u64 = 24;

#[test]
fn what_hosts_were_told_outlives_the_network() {
    keep(Mode::Network, 0..NETWORK_SEEDS);
    // In this one a controller ends between the Connect of its admin queue and that of the next.
    keep_of(Era::Scrubbed, Mode::Network, [208_537_093_051_332]);
}

/// Seeds in which what never came was written, and in which a late command of a host that was given up found its way: one in
/// some hundreds each.
const OUTLIVED: [u64; 7] = [267, 303, 396, 740, 742, 766, 841];

#[test]
fn the_canaries_of_the_target_are_found() {
    for canary in target::canary::Canary::ALL {
        let subject = Subject::Target(canary);
        let fails =
            |seed| carry_out(subject, Mode::Network.plan_of(seed, Era::Scrubbed), false).failure;
        // Found by what a block holds, not by anything else that fails with it.
        let finds = |seed| fails(seed).is_some_and(|(_, said)| said.contains("panicked: block"));
        assert!(OUTLIVED.into_iter().chain(0..CANARY_SEEDS).any(finds), "{canary:?}");
    }
}

/// Seeds in which hosts write by direct write windows.
const WINDOWS_SEEDS: u64 = 24;

/// And whatever windows are about comes to pass in some of them.
#[test]
fn what_hosts_wrote_by_windows_is_there() {
    let mut all = [0; 6];
    for seed in 0..WINDOWS_SEEDS {
        let report = kept(Mode::Windows, seed);
        let c = report.counts;
        let these = [c.windows, c.direct, c.direct_ends, c.survived, c.died, c.strayed];
        all.iter_mut().zip(these).for_each(|(all, count)| *all += count);
    }
    assert!(all.iter().all(|count| *count > 0), "{all:?}");
}

/// Seeds that find some of the bugs that are planted for it at once: it does not take many others where what they mean has
/// changed.
const WINDOWS_FIND: [u64; 9] = [16, 13, 0, 1, 22, 34, 61, 75, 78];

/// Bugs of the target's end of windows.
const WINDOWS_CANARIES: [Canary; 9] = [
    Canary::ReadsPastWindow,
    Canary::WritesPastWindow,
    Canary::ClearsPastWindow,
    Canary::CopiesPastWindow,
    Canary::SnapshotsPastWindow,
    Canary::DrainsBeforeEnd,
    Canary::CreditsEarly,
    Canary::ReleasesWindowEarly,
    Canary::ForgetsWindow,
];

#[test]
fn the_canaries_of_windows_are_found() {
    let hosts = initiator::canary::Canary::ALL.into_iter().map(Subject::Host);
    let targets = WINDOWS_CANARIES.into_iter().map(|canary| Subject::Array(Some(canary)));
    for subject in targets.chain(hosts) {
        let fails = |seed| carry_out(subject, Mode::Windows.plan(seed), false).failure.is_some();
        assert!(WINDOWS_FIND.into_iter().chain(0..CANARY_SEEDS).any(fails), "{subject:?}");
    }
}

/// Seeds in which volumes have reservations.
const RESERVES_SEEDS: u64 = 8;

/// Those in which a write was refused whose space was kept, as others held more than they were let in for; and, the last,
/// one of somebody else, for what was kept had just been counted.
const RESERVES_FOUND: [u64; 5] = [880_105, 880_124, 881_018, 881_130, 882_007];

/// Bugs in how space is kept. One seed in four finds each.
const RESERVES_CANARIES: [Canary; 3] =
    [Canary::OthersTakeReserved, Canary::SnapshotSkipsRoom, Canary::TrimForgetsReserved];

/// Seeds that find them at once.
const RESERVES_FIND: [u64; 4] = [10, 13, 14, 15];

#[test]
fn the_canaries_of_reservations_are_found() {
    for canary in RESERVES_CANARIES {
        let subject = Subject::Array(Some(canary));
        let fails = |seed| carry_out(subject, Mode::Reserves.plan(seed), false).failure.is_some();
        assert!(RESERVES_FIND.into_iter().chain(0..CANARY_SEEDS).any(fails), "{canary:?}");
    }
    keep(Mode::Reserves, RESERVES_FIND);
}

/// And pools get full.
#[test]
fn what_is_reserved_can_be_written() {
    let mut full = 0;
    for seed in 0..RESERVES_SEEDS {
        let report = kept(Mode::Reserves, seed);
        full += report.counts.refused_full;
    }
    assert!(full > 100, "{full}");
    keep_of(Era::Scrubbed, Mode::Reserves, RESERVES_FOUND);
}

/// Bugs in what quotas bound, each with a workload and the first seed of it that finds it: it does not take many others
/// where what that means has changed.
const QUOTAS_FIND: [(Canary, Mode, u64); 4] = [
    (Canary::QuotaLetsAllIn, Mode::Reserves, 33),
    (Canary::QuotaForgetsSnapshots, Mode::Reserves, 7),
    (Canary::QuotaKeepsCharge, Mode::Reserves, 0),
    (Canary::QuotaRefusesUncounted, Mode::Reserves, 1),
];

/// Two more, which no seed that was tried finds.
const QUOTAS_MISS: [Canary; 2] = [Canary::QuotaForgetsGroup, Canary::QuotaForgetsClones];

#[test]
fn the_canaries_of_quotas_are_found() {
    for (canary, mode, first) in QUOTAS_FIND {
        let subject = Subject::Array(Some(canary));
        let finds = |seed| carry_out(subject, mode.plan(seed), false).failure.is_some();
        assert!(std::iter::once(first).chain(0..CANARY_SEEDS).any(finds), "{canary:?}");
    }
    // The others are among those that are run anyway.
    keep(Mode::Snapshots, [16]);
}

/// Seeds in which a namespace of another target has the log.
const REMOTE_SEEDS: u64 = 24;

/// Bugs in what is relied upon there. One seed in five finds each of the first two, and one in thirty the last.
const REMOTE_CANARIES: [Canary; 6] = [
    Canary::KeepsSilent,
    Canary::BelievesReconnected,
    Canary::JoinsWithoutRing,
    Canary::WritesAhead,
    Canary::ClearsAhead,
    Canary::CopiesAhead,
];

/// Copies are given up and made again, go with a machine, and some openings are refused: all of that happens.
#[test]
fn either_copy_of_a_log_on_two_machines_has_all_of_it() {
    let mut seen = Seen::default();
    for seed in 0..REMOTE_SEEDS {
        let report = kept(Mode::Remote, seed);
        seen.log_copies += report.seen.log_copies;
        seen.buried += report.seen.buried;
        seen.refused += report.seen.refused;
        seen.doubles += report.seen.doubles;
        seen.singles += report.seen.singles;
    }
    let counts = [seen.log_copies, seen.buried, seen.refused, seen.doubles, seen.singles];
    assert!(counts.iter().all(|count| *count > 3), "{seen:?}");
}

#[test]
fn the_canaries_of_logs_on_two_machines_are_found() {
    find(Mode::Remote, REMOTE_CANARIES, []);
}

/// A seed that finds that a drive is taken while the kernel has writes for it of a process that is gone: one in some sixty
/// does.
const TAKES_EARLY: u64 = 99;

#[test]
fn the_canary_of_what_is_in_flight_is_found() {
    let subject = Subject::Array(Some(Canary::TakesEarly));
    let fails = |seed| carry_out(subject, Mode::Plain.plan(seed), false).failure.is_some();
    assert!(std::iter::once(TAKES_EARLY).chain(0..CANARY_SEEDS).any(fails));
    keep(Mode::Plain, [TAKES_EARLY]);
}

/// What is in flight ends with nobody waiting for it in all workloads, and not where seeds mean what they did before.
#[test]
fn what_is_in_flight_outlives_processes_in_most_seeds() {
    for mode in Mode::ALL {
        let outlives = (0..100).filter(|seed| mode.plan(*seed).outlives).count();
        assert!((50..85).contains(&outlives), "{mode:?}: {outlives}");
        assert!((0..100).all(|seed| !mode.plan_scrubbed(seed).outlives), "{mode:?}");
    }
}
