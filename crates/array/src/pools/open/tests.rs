use media::{Kind as MediaKind, Operation, Refusal, Simulated};
use reactor::{Config, PollPolicy, Reactor};

use media::Drive;

use super::*;
use engine::LogSpec;
use media::drive::{InFlight, SimulatedOptions};

fn made_of(media: &[Arc<Simulated>]) -> MadeOf {
    let member = |(n, medium): (usize, &Arc<Simulated>)| Member {
        path: format!("/drives/{n}").into(),
        drive: Arc::new(Drive::Simulated(Arc::clone(medium))),
    };
    let drives = media.iter().enumerate().map(member).collect();
    let places = vec![LogPlace::Drives];
    MadeOf { drives, log: LogSpec::Drives, places, locks: Vec::new(), made: Default::default() }
}

/// "drive 5 of those given cannot be read: flush of 0 bytes": it could be read, had a name, and its pool did not open.
#[test]
fn a_drive_that_takes_no_flushes_is_named_and_done_without() {
    let config = Config { cpu: None, poll: PollPolicy::Interrupt, name: "test".into() };
    let on = vec![Reactor::start(config).unwrap()];
    let options = |seed| SimulatedOptions { capacity: 192 << 20, seed, ..Default::default() };
    let media: Vec<_> = (0..6).map(|n| Simulated::new(options(n))).collect();
    let asked = Asked {
        name: "fast".into(),
        id: Uuid::from_bytes([7; 16]),
        scheme: raid::Scheme::Raid6,
        log_bytes: Some(16 << 20),
        shards: Some(1),
    };
    OpenPool::create(on.clone(), made_of(&media), asked).unwrap().close();
    let (operation, kind) = (Some(Operation::Flush), MediaKind::Medium);
    media[5].refuse(Refusal { operation, range: 0..u64::MAX, kind, times: None });
    let before: Vec<_> = media.iter().map(|medium| medium.contents()).collect();
    let refused = OpenPool::open(on.clone(), made_of(&media), OpenOptions::default());
    let words = refused.unwrap_err().to_string();
    assert!(words.contains("/drives/5 does not make durable what it holds"), "{words}");
    assert!(media.iter().zip(&before).all(|(medium, then)| medium.difference(then).is_none()));
    let degraded = OpenOptions { degraded: true, unattended: true, ..OpenOptions::default() };
    let pool = OpenPool::open(on.clone(), made_of(&media), degraded).unwrap();
    let paths = pool.paths();
    assert!(paths[5].is_none() && paths[..5].iter().all(Option::is_some), "{paths:?}");
    pool.close();
    on.iter().for_each(Handle::stop);
}

/// A drive hung, and its pool was exported: what it had not answered could come after another machine had the pool.
#[test]
fn what_a_drive_has_not_answered_is_known_before_its_pool_is_another_machines() {
    let config = Config { cpu: None, poll: PollPolicy::Interrupt, name: "test".into() };
    let on = vec![Reactor::start(config).unwrap()];
    let options = |seed| SimulatedOptions {
        capacity: 192 << 20,
        seed,
        in_flight: InFlight::Kernel,
        ..Default::default()
    };
    let media: Vec<_> = (0..4).map(|n| Simulated::new(options(n))).collect();
    let asked = Asked {
        name: "fast".into(),
        id: Uuid::from_bytes([7; 16]),
        scheme: raid::Scheme::Raid6,
        log_bytes: Some(16 << 20),
        shards: Some(1),
    };
    // Where a drive is that is let go of beside that.
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("d2");
    std::fs::write(&at, "").unwrap();
    let mut of = made_of(&media);
    of.drives[2].path.clone_from(&at);
    of.locks.push(crate::lock::lock(&at, None).unwrap());
    let pool = OpenPool::create(on.clone(), of, asked).unwrap();
    assert!(pool.await_changes(Duration::ZERO).is_empty());
    let hung = Arc::clone(&media[2]);
    let asked = on[0].call(move || async move {
        hung.set_hanging(true);
        let drive = Drive::Simulated(hung);
        let data = reactor::buffer::pool().alloc(4096).await;
        let write = drive.write(100 << 20, data, false);
        reactor::timeout(Duration::from_millis(5), write).await.is_err()
    });
    assert!(asked.wait().unwrap(), "nobody waits for it any more");
    let late = pool.await_changes(Duration::from_millis(50));
    assert_eq!(late, std::slice::from_ref(&at));
    assert!(!pool.await_rest_at(&at, Duration::from_millis(50)));
    pool.unlock(2, &at);
    pool.unlock_rest();
    assert!(crate::lock::lock(&at, None).is_err(), "what is put there would be written over");
    // The kernel gives it up.
    media[2].fail();
    assert!(pool.await_rest_at(&at, Duration::ZERO));
    pool.unlock_rest();
    drop(crate::lock::lock(&at, None).unwrap());
    pool.close();
    on.iter().for_each(Handle::stop);
}
