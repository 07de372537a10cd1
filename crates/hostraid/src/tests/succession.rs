//! Sets whose last program was killed: what that had in flight is executed at the last moment there is, by the drives
//! of the simulator, which let nobody change them before.

use super::*;
use crate::Claim;
use crate::member::simulated::Left;

/// A set that no other program of this machine knows, as kept for this host.
fn own(test: u8) -> (Create, Assemble) {
    let mut create = new(test, Level::Mirror, 2);
    create.id[..4].copy_from_slice(&std::process::id().to_le_bytes());
    let claim = Some(Claim::of_host([1; 16], false));
    (create, Assemble { claim, ..Assemble::default() })
}

fn inherited(drive: &Arc<Simulated>, left: &Rc<Left>) -> Member {
    Member::Simulated(Drive::inherited(drive, left))
}

/// The copies were made equal and the superblocks written while the killed program's write of one copy could still
/// come: it was there afterwards, on one of them.
#[test]
fn nothing_is_concluded_or_written_before_a_killed_program_is_known_to_be_gone() {
    simulate(1, async {
        let all = drives(2);
        let (create, how) = own(1);
        let set = Set::create(members(&all), create).await.unwrap();
        // The intent to write there is durable, and outlives the program.
        write(&set, 7, 1).await;
        let at = set.layout().data_at + 7 * 512;
        drop(set);
        let lefts = [Rc::new(Left::default()), Rc::default()];
        *lefts[0].write.borrow_mut() = Some((at, vec![2; 512]));
        let heirs = all.iter().zip(&lefts).map(|(drive, left)| inherited(drive, left)).collect();
        let begin = reactor::now();
        let set = Set::assemble(heirs, how).await.unwrap();
        assert_eq!(lefts.each_ref().map(|left| left.waits.get()), [1, 1]);
        // Side by side.
        assert!(reactor::now() - begin < 20_000_000_000);
        let found = set.check(false, None, |_, _| {}).await.unwrap();
        assert_eq!(found.mismatched, 0);
        let now = read(&set, 7).await;
        assert!([1, 2].contains(&now), "{now}");
        assert_eq!(read(&set, 7).await, now);
    });
}

#[test]
fn a_member_that_a_killed_program_used_joins_when_that_is_known_to_be_gone() {
    simulate(1, async {
        let all = drives(2);
        let (create, how) = own(2);
        Set::create(members(&all), create).await.unwrap();
        let how = Assemble { degraded: true, ..how };
        let set = Set::assemble(members(&all[..1]), how).await.unwrap();
        write(&set, 7, 1).await;
        let left = Rc::new(Left::default());
        *left.write.borrow_mut() = Some((set.layout().data_at + 7 * 512, vec![2; 512]));
        let joined = set.join(inherited(&all[1], &left), [0; 16], false).await.unwrap();
        assert_eq!((joined.slot, left.waits.get()), (1, 1));
        set.rebuild(1, None, |_| {}).await.unwrap();
        assert_eq!(set.check(false, None, |_, _| {}).await.unwrap().mismatched, 0);
        // One that this set loses and takes in again has no commands but this set's.
        all[1].fail();
        write(&set, 7, 3).await;
        all[1].revive();
        let (_, member) = set.lost_members().remove(0);
        set.join(member, [0; 16], false).await.unwrap();
        assert_eq!(left.waits.get(), 1);
    });
}
