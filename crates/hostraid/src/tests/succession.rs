//! Sets whose last program was killed, over targets on the simulated network: what that had in flight arrives at the
//! last moment there is.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use fabric::TransportAddress;
use fabric::controller::Listener;
use initiator::{HostIdentity, Namespace, Options, Remote};
use reactor::network::{self, Cut};
use target::listener::ListenerInfo;
use target::namespace::{Backend, NamespaceSpec};
use target::subsystem::SubsystemSpec;
use target::{Identity, serve_connection};

use super::*;
use crate::Claim;

const SUBNQN: &str = "nqn.2026-11.io.flashloom:member";
const HOST: &str = "nqn.2026-11.io.flashloom:host";
const OTHER_HOST: &str = "nqn.2026-11.io.flashloom:other-host";

/// A target with one namespace, which is reached at one address by the program that is killed, and at another by its
/// successor: the network delays what goes to the first.
struct Target {
    number: u8,
    /// KATO of its hosts.
    kato: Duration,
}

impl Target {
    fn start(number: u8, kato: Duration) -> Self {
        let options = SimulatedOptions { capacity: 3 << 20, seed: number.into(), ..<_>::default() };
        let drive = media::Drive::Simulated(Simulated::new(options));
        let target = target::Target::new(Identity::default());
        let nqn = nvme::nqn::Nqn::new(SUBNQN).unwrap();
        target.add_subsystem(SubsystemSpec::new(nqn.clone())).unwrap();
        target.add_namespace(&nqn, &NamespaceSpec::new(Backend::Drive(drive.into()), 512)).unwrap();
        let it = Self { number, kato };
        for address in [it.address(false), it.address(true)] {
            let listener = Listener::bind(TransportAddress::Tcp(address)).unwrap();
            let id = target.add_listener(ListenerInfo::new(listener.address().unwrap())).unwrap();
            let target = Arc::clone(&target);
            reactor::spawn(async move {
                while let Ok(accepted) = listener.accept().await {
                    reactor::spawn(serve_connection(Arc::clone(&target), accepted, id, || {}));
                }
            });
        }
        it
    }

    fn address(&self, heirs: bool) -> SocketAddr {
        (Ipv4Addr::new(127, 0, 1 + u8::from(heirs), self.number), 4420).into()
    }

    /// A member that it keeps. While it cannot be reached, commands fail at once.
    async fn member(&self, heirs: bool) -> Member {
        Member::Namespace(self.namespace(HOST, heirs).await)
    }

    /// The same, as a host has it.
    async fn namespace(&self, host: &str, heirs: bool) -> Namespace {
        let address = self.address(heirs);
        let remote = Remote {
            traddr: address.ip().to_string(),
            trsvcid: address.port(),
            subnqn: SUBNQN.to_owned(),
            host: HostIdentity::named(host),
            options: Options {
                keep_alive: self.kato,
                reconnect_delay: Duration::from_millis(10),
                fast_io_fail: Some(Duration::ZERO),
                ..Options::default()
            },
        };
        Namespace::attach(&remote, 1).await.unwrap()
    }

    /// Nothing reaches it any more from the program that is killed, until shortly before the target gives that up.
    fn hold_up(&self) {
        network::stop(self.address(false).ip(), self.kato * 9 / 10);
    }
}

async fn all_members(of: &[Target], heirs: bool) -> Vec<Member> {
    let mut members = Vec::new();
    for target in of {
        members.push(target.member(heirs).await);
    }
    members
}

/// As whom one of this host's programs uses a set.
fn program(number: u8) -> Claim {
    Claim::new(HostIdentity::named(HOST).id, [number; 16], false)
}

/// A set that no other program of this machine knows, as kept for this host.
fn own(test: u8) -> (Create, Assemble) {
    let mut create = new(test, Level::Mirror, 2);
    create.id[..4].copy_from_slice(&std::process::id().to_le_bytes());
    let claim = Some(program(1));
    (create, Assemble { claim, ..Assemble::default() })
}

/// Uses a set, and is killed while a write of 2s is on its way to one of the targets.
async fn killed(targets: &[Target], how: Assemble, held_up: &Target) {
    // Its registrations stay. Its lock does not: the machine takes that from it with the process.
    drop(Set::assemble(all_members(targets, false).await, how).await.unwrap());
    let unlocked = Assemble { claim: None, ..how };
    let set = Set::assemble(all_members(targets, false).await, unlocked).await.unwrap();
    write(&set, 7, 1).await;
    held_up.hold_up();
    let mut buffer = Buffer::new(512).await;
    buffer.fill(2);
    let write = set.write(7, 1, &mut buffer, Fua::No);
    assert!(reactor::timeout(Duration::from_millis(5), write).await.is_err());
}

/// Has a successor put the set together while the killed program's write of one copy can still come, and gives how many
/// places differ afterwards.
fn differences_after(
    successor: impl FnOnce(Assemble) -> Assemble + 'static,
    forgets: bool,
    test: u8,
) -> u64 {
    simulate(1, async move {
        let targets = [1, 2].map(|number| Target::start(number, Duration::from_secs(2)));
        let (create, how) = own(test);
        Set::create(all_members(&targets, false).await, create).await.unwrap();
        killed(&targets, how, &targets[0]).await;
        for member in all_members(&targets, true).await.iter().filter(|_| forgets) {
            member.unreserve(how.claim.unwrap().key).await;
        }
        let begin = reactor::now();
        let set = Set::assemble(all_members(&targets, true).await, successor(how)).await.unwrap();
        // Side by side.
        assert!(reactor::now() - begin < 9_000_000_000);
        // Sleeps, in simulated time: until the write has come in any case.
        reactor::sleep(Duration::from_secs(10)).await;
        set.check(false, None, |_, _| {}).await.unwrap().mismatched
    })
}

/// The copies were made equal and the superblocks written while the killed program's write of one copy could still
/// come: it was there afterwards, on one of them.
#[test]
fn nothing_is_concluded_or_written_before_a_killed_program_is_known_to_be_gone() {
    let successor = |how| Assemble { claim: Some(program(2)), ..how };
    assert_eq!(differences_after(successor, false, 1), 0);
}

/// A target that keeps no registrations was started again meanwhile: nothing told that there had been a program.
#[test]
fn a_target_that_forgot_a_killed_program_is_waited_for_as_well() {
    let successor = |how| Assemble { claim: Some(program(2)), ..how };
    assert_eq!(differences_after(successor, true, 4), 0);
}

/// Two containers of a host with one Host Identifier had the same key, and each its own machine's lock: both wrote.
#[test]
fn of_two_programs_with_one_host_identifier_the_first_stops_before_the_second_begins() {
    simulate(1, async {
        let targets = [1, 2].map(|number| Target::start(number, Duration::from_secs(2)));
        let (create, how) = own(5);
        Set::create(all_members(&targets, false).await, create).await.unwrap();
        let as_program = |number| {
            let claim = Claim { unlocked: true, ..program(number) };
            Assemble { claim: Some(claim), ..how }
        };
        let first = all_members(&targets, false).await;
        let first = Set::assemble(first, as_program(1)).await.unwrap();
        write(&first, 7, 1).await;
        // Sleeps, in simulated time: it stays its as long as nobody comes.
        reactor::sleep(Duration::from_secs(20)).await;
        assert!(first.status().broken.is_none());
        let second = all_members(&targets, true).await;
        let second = Set::assemble(second, as_program(2)).await.unwrap();
        let broken = first.status().broken.unwrap();
        assert!(broken.contains("another program"), "{broken}");
        write(&second, 7, 2).await;
        // Nor does the first take anything back as it ends.
        let _ = first.shut_down().await;
        reactor::sleep(Duration::from_secs(5)).await;
        write(&second, 7, 3).await;
        assert!(second.status().broken.is_none());
    });
}

/// It was nobody's then, and another host could have it beside this one.
#[test]
fn a_target_that_forgot_a_reservation_is_told_again() {
    simulate(1, async {
        let targets = [1, 2].map(|number| Target::start(number, Duration::from_secs(2)));
        let (create, how) = own(6);
        Set::create(all_members(&targets, false).await, create).await.unwrap();
        let set = Set::assemble(all_members(&targets, false).await, how).await.unwrap();
        let other = targets[0].namespace(HOST, true).await;
        let held = async || other.registrants().await.unwrap().iter().any(|one| one.holds);
        assert!(held().await);
        other.unregister(how.claim.unwrap().key).await.unwrap();
        assert!(!held().await);
        reactor::sleep(Duration::from_secs(3)).await;
        assert!(held().await);
        set.shut_down().await.unwrap();
        reactor::sleep(Duration::from_secs(3)).await;
        assert!(!held().await);
    });
}

/// Members of targets that keep no registrations stayed reserved when another one was not to be had: for ever, as every
/// further try found its own registrations there.
#[test]
fn an_assembly_that_is_refused_leaves_only_the_registrations_that_it_found() {
    simulate(1, async {
        let targets = [1, 2].map(|number| Target::start(number, Duration::from_secs(2)));
        let (create, how) = own(7);
        Set::create(all_members(&targets, false).await, create).await.unwrap();
        let other = targets[1].namespace(OTHER_HOST, true).await;
        other.register(7).await.unwrap();
        other.acquire(7, nvme::reservation::Type::WriteExclusive).await.unwrap();
        let look = targets[0].namespace(OTHER_HOST, true).await;
        for found in [false, true] {
            if found {
                let killed = targets[0].namespace(HOST, true).await;
                killed.register(9).await.unwrap();
            }
            let said = refused(Set::assemble(all_members(&targets, false).await, how).await);
            assert!(said.contains("another host holds member 1"), "{said}");
            assert_eq!(look.registrants().await.unwrap().len(), usize::from(found));
            let all = other.registrants().await.unwrap();
            assert!(all.len() == 1 && all[0].key == 7);
        }
    });
}

/// The first one found that nobody had the members, took them again, and went on with what it knew of them.
fn a_set_that_another_host_had_meanwhile_ends(test: u8, kept: bool) {
    simulate(1, async move {
        let targets = [1, 2].map(|number| Target::start(number, Duration::from_secs(2)));
        let (create, how) = own(test);
        let how = Assemble { claim: Some(Claim { kept, ..program(1) }), ..how };
        Set::create(all_members(&targets, false).await, create).await.unwrap();
        let first = Set::assemble(all_members(&targets, false).await, how).await.unwrap();
        write(&first, 7, 1).await;
        // Until the other one has ended, its host sees and hears nothing.
        let begin = reactor::now();
        for target in &targets {
            network::stop(target.address(false).ip(), Duration::from_secs(20));
        }
        let mut others = Vec::new();
        for target in &targets {
            others.push(Member::Namespace(target.namespace(OTHER_HOST, true).await));
        }
        let host = HostIdentity::named(OTHER_HOST).id;
        let claim = Claim { unlocked: true, kept, ..Claim::new(host, [2; 16], true) };
        let second = Assemble { claim: Some(claim), ..how };
        let second = Set::assemble(others, second).await.unwrap();
        write(&second, 7, 2).await;
        second.shut_down().await.unwrap();
        assert!(reactor::now() - begin < 19_000_000_000 && first.status().broken.is_none());
        reactor::sleep(Duration::from_secs(25)).await;
        assert_eq!(first.status().broken, Some("another host took a member"));
    });
}

#[test]
fn a_set_that_another_host_had_meanwhile_ends_where_registrations_are_kept() {
    a_set_that_another_host_had_meanwhile_ends(8, true);
}

#[test]
fn a_set_that_another_host_had_meanwhile_ends_where_registrations_are_forgotten() {
    a_set_that_another_host_had_meanwhile_ends(9, false);
}

/// The looks at all members waited for the slowest one.
#[test]
fn a_member_that_does_not_answer_keeps_nobody_from_seeing_that_another_one_was_taken() {
    simulate(1, async {
        let targets = [1, 2].map(|number| Target::start(number, Duration::from_secs(30)));
        let (create, how) = own(10);
        Set::create(all_members(&targets, false).await, create).await.unwrap();
        let set = Set::assemble(all_members(&targets, false).await, how).await.unwrap();
        let other = targets[1].namespace(HOST, true).await;
        network::stop(targets[0].address(false).ip(), Duration::from_secs(20));
        reactor::sleep(Duration::from_secs(2)).await;
        other.register(77).await.unwrap();
        reactor::sleep(Duration::from_secs(3)).await;
        let broken = set.status().broken.unwrap();
        assert!(broken.contains("another program"), "{broken}");
    });
}

/// It stayed reserved for a host that did not use it.
#[test]
fn a_member_whose_set_ends_before_it_has_joined_is_left_to_others() {
    simulate(1, async {
        let targets = [1, 2].map(|number| Target::start(number, Duration::from_secs(2)));
        let (create, how) = own(11);
        Set::create(all_members(&targets, false).await, create).await.unwrap();
        let how = Assemble { degraded: true, ..how };
        let set = Set::assemble(vec![targets[0].member(false).await], how).await.unwrap();
        let (joins, member) = (set.clone(), targets[1].member(false).await);
        let joined = reactor::spawn(async move { joins.join(member, [0; 16], false).await });
        let look = targets[1].namespace(OTHER_HOST, true).await;
        // It waits for what a program before may have in flight.
        while look.registrants().await.unwrap().is_empty() {
            reactor::sleep(Duration::from_millis(1)).await;
        }
        set.shut_down().await.unwrap();
        assert!(joined.await.unwrap().is_err());
        assert!(look.registrants().await.unwrap().is_empty());
    });
}

/// What the rule is good for.
#[test]
fn who_does_not_wait_for_a_killed_program_finds_its_write_on_one_copy() {
    assert!(differences_after(|how| Assemble { claim: None, ..how }, false, 3) > 0);
}

#[test]
fn a_member_that_a_killed_program_used_joins_when_that_is_known_to_be_gone() {
    simulate(1, async {
        // A target counts in seconds.
        let (short, long) = (Duration::from_secs(1), Duration::from_secs(10));
        let targets = [Target::start(1, short), Target::start(2, long)];
        let (create, how) = own(2);
        Set::create(all_members(&targets, false).await, create).await.unwrap();
        killed(&targets, how, &targets[1]).await;
        let begin = reactor::now();
        let how = Assemble { degraded: true, ..how };
        let set = Set::assemble(vec![targets[0].member(true).await], how).await.unwrap();
        write(&set, 7, 1).await;
        assert!(
            reactor::now() - begin < 9_000_000_000,
            "the write to the other is still on its way"
        );
        let second = targets[1].member(true).await;
        let joined = set.join(second.clone(), [0; 16], false).await.unwrap();
        assert_eq!(joined.slot, 1);
        set.rebuild(1, None, |_| {}).await.unwrap();
        assert_eq!(set.check(false, None, |_, _| {}).await.unwrap().mismatched, 0);
        // One that this set loses and takes in again has no commands but this set's.
        let address = targets[1].address(true);
        network::refuse(address, true);
        for connected in network::connections().iter().filter(|it| it.to == address) {
            network::cut(connected.id, Cut::Reset);
        }
        // A write that is lost with a connection would be waited for, whoever sent it.
        let mut unread = Buffer::new(512).await;
        while second.read(0, 512, &mut unread).await.is_ok() {}
        write(&set, 7, 3).await;
        network::refuse(address, false);
        let (_, member) = set.lost_members().remove(0);
        let joined = async {
            while set.join(member.clone(), [0; 16], false).await.is_err() {
                reactor::sleep(Duration::from_millis(1)).await;
            }
        };
        let joined = reactor::timeout(Duration::from_secs(1), joined).await;
        joined.expect("a member waits for nothing that this set sent it");
    });
}
