//! Drives of a pool that were given to another machine meanwhile, which went on with them and a log of its own.

use super::*;

const DEGRADED: OpenOptions = OpenOptions {
    degraded: true,
    import: false,
    accept_loss: false,
    unattended: false,
    known_term: 0,
    known_log: None,
    new_log: None,
};
const UNATTENDED: OpenOptions = OpenOptions { unattended: true, ..DEGRADED };

/// Half of the mirror, with a log.
#[derive(Clone)]
struct Half {
    drives: Vec<Arc<Drive>>,
    log: LogSpec,
}

/// Both halves of a mirror that was closed in order, the second with a blank log; and what it holds.
fn closed_mirror() -> (Half, Half, Model) {
    let log = || LogSpec::Bbu(vec![pmem(16 * MIB)]);
    let (all, here, elsewhere) = (drives(2, 256 * MIB), log(), log());
    let half = |n: usize, log| Half { drives: vec![Arc::clone(&all[n])], log };
    let halves = (half(0, here.clone()), half(1, elsewhere));
    let model = reactor::simulate(1, async move {
        let mirror = PoolSpec { scheme: raid::Scheme::Mirror { copies: 2 }, ..spec(&all, here) };
        let pool = Pool::create(mirror, &[]).await.unwrap();
        let v = pool.create_volume(volume("db", 16 * MIB)).await.unwrap();
        let mut model = Model::new();
        scribble(&v, &mut model, 300, 1).await;
        pool.close().await.unwrap();
        model
    });
    (halves.0, halves.1, model)
}

/// A life of these, in which something is written; what they hold then, and the term that is known of it.
fn goes_on(
    half: &Half,
    options: OpenOptions,
    (mut model, seed): (Model, u64),
    closes: bool,
) -> (Model, u64) {
    let Half { drives, log } = half.clone();
    reactor::simulate(seed, async move {
        let pool = Pool::open(drives, log, options, &[]).await.unwrap();
        let v = pool.volume("db").unwrap();
        verify(&v, &model).await;
        scribble(&v, &mut model, 300, seed).await;
        let term = pool.status().await.unwrap().log.durable_term;
        if closes {
            pool.close().await.unwrap();
        }
        (model, term)
    })
}

async fn open(drives: &[Arc<Drive>], log: &LogSpec, options: OpenOptions) -> Result<Pool> {
    Pool::open(drives.to_vec(), log.clone(), options, &[]).await
}

async fn refusal(drives: &[Arc<Drive>], log: &LogSpec, options: OpenOptions) -> Kind {
    open(drives, log, options).await.err().unwrap().kind
}

/// Both halves began from the same labels, and made the same names for their new logs of them: the log of the one was
/// taken for the other's, and its records came over what that had.
#[test]
fn the_log_of_one_half_is_not_the_other_s() {
    let (here, elsewhere, model) = closed_mirror();
    goes_on(&elsewhere, DEGRADED, (model.clone(), 2), false);
    let (_, known_term) = goes_on(&here, UNATTENDED, (model, 3), false);
    reactor::simulate(4, async move {
        for options in [UNATTENDED, DEGRADED] {
            let options = OpenOptions { known_term, ..options };
            assert_eq!(refusal(&elsewhere.drives, &here.log, options).await, Kind::Loss);
            assert_eq!(refusal(&here.drives, &elsewhere.log, options).await, Kind::Loss);
        }
    });
}

/// Nothing tells here what another machine did with half of a pool and a new log, as long as that half is not seen: the
/// log that the pool had has everything it ever had. Beside the other half it is seen.
#[test]
fn what_half_of_a_pool_did_elsewhere_is_seen_beside_the_other() {
    for closes in [false, true] {
        let (here, elsewhere, model) = closed_mirror();
        goes_on(&elsewhere, DEGRADED, (model.clone(), 2), closes);
        let both = [here.drives.clone(), elsewhere.drives.clone()].concat();
        let (drives, log, blank) =
            (both.clone(), here.log.clone(), LogSpec::Bbu(vec![pmem(16 * MIB)]));
        let half = here.drives.clone();
        reactor::simulate(3, async move {
            for options in [UNATTENDED, DEGRADED, OpenOptions::default()] {
                // What it wrote last is in a log of its own.
                if !closes {
                    assert_eq!(refusal(&drives, &log, options).await, Kind::Loss);
                }
            }
            assert_eq!(refusal(&half, &blank, UNATTENDED).await, Kind::Missing);
        });
        let (ours, known_term) = goes_on(&here, UNATTENDED, (model, 4), closes);
        reactor::simulate(5, async move {
            for options in [UNATTENDED, DEGRADED, OpenOptions::default()] {
                let options = OpenOptions { known_term, ..options };
                assert_eq!(refusal(&both, &here.log, options).await, Kind::Invalid);
            }
            let pool = open(&here.drives, &here.log, UNATTENDED).await.unwrap();
            verify(&pool.volume("db").unwrap(), &ours).await;
            let back = pool.rejoin(Arc::clone(&elsewhere.drives[0])).await;
            assert_eq!(back.err().unwrap().kind, Kind::Invalid);
            pool.close().await.unwrap();
        });
    }
}

/// Half of a mirror goes on elsewhere, is closed there, and is given back before anything was done here.
#[test]
fn what_half_of_a_pool_did_elsewhere_is_the_pool_s_where_the_other_did_nothing() {
    let (here, elsewhere, model) = closed_mirror();
    let (theirs, _) = goes_on(&elsewhere, DEGRADED, (model, 2), true);
    reactor::simulate(3, async move {
        let both = [here.drives, elsewhere.drives].concat();
        let pool = open(&both, &here.log, UNATTENDED).await.unwrap();
        verify(&pool.volume("db").unwrap(), &theirs).await;
        pool.close().await.unwrap();
    });
}

/// Half of a mirror went on here, and the other elsewhere, where it was closed. That one is given alone: nothing but the
/// name of its log tells that what was written here is not on it.
#[test]
fn what_half_of_a_pool_did_elsewhere_is_not_taken_for_what_the_other_did_here() {
    let (here, elsewhere, model) = closed_mirror();
    let (theirs, _) = goes_on(&elsewhere, DEGRADED, (model.clone(), 2), true);
    reactor::simulate(3, async move {
        let pool = open(&here.drives, &here.log, UNATTENDED).await.unwrap();
        let log = pool.status().await.unwrap().log;
        let (known_term, known_log) = (log.durable_term, Some(log.id));
        let v = pool.volume("db").unwrap();
        let mut ours = model;
        verify(&v, &ours).await;
        scribble(&v, &mut ours, 50, 4).await;
        pool.close().await.unwrap();
        let by_itself = OpenOptions { known_term, known_log, ..UNATTENDED };
        assert_eq!(refusal(&elsewhere.drives, &here.log, by_itself).await, Kind::Missing);
        let named = OpenOptions { new_log: Some([7; 16]), ..by_itself };
        let pool = open(&here.drives, &here.log, named).await.unwrap();
        assert_eq!(pool.log_id(), [7; 16]);
        verify(&pool.volume("db").unwrap(), &ours).await;
        pool.close().await.unwrap();
        // Somebody may want it.
        let by_hand = OpenOptions { known_term, known_log, ..DEGRADED };
        let pool = open(&elsewhere.drives, &elsewhere.log, by_hand).await.unwrap();
        verify(&pool.volume("db").unwrap(), &theirs).await;
        pool.close().await.unwrap();
    });
}
