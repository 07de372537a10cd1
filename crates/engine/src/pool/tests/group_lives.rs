//! Lives of groups: whatever is done with them and with their volumes, they have whom they should.

use std::collections::BTreeSet;

use super::super::delete_snapshots::edit_to_delete;
use super::clones::{clone_of, reopened};
use super::delete_snapshots::of_each;
use super::detach::detached;
use super::group_clones::cloned;
use super::groups::{adding, group, groups, killed, removing, take};
use super::snapshots::{check_drives, live, made};
use super::*;
use crate::format::catalog::Catalog;

/// What there should be.
#[derive(Default)]
struct World {
    /// By group, its volumes.
    groups: BTreeMap<String, BTreeSet<String>>,
    /// By volume, its snapshots.
    volumes: BTreeMap<String, BTreeSet<String>>,
    made: u64,
    /// Snapshots of groups, rollbacks, clones of groups and snapshots deleted together, so that none is left out.
    seen: (u64, u64, u64, u64),
}

fn any<'a>(prng: &mut Prng, mut all: impl ExactSizeIterator<Item = &'a String>) -> Option<String> {
    let nth = prng.below(all.len().max(1) as u64);
    all.nth(usize64(nth)).cloned()
}

impl World {
    fn name(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}{}", self.made)
    }

    fn is_in_any(&self, volume: &String) -> bool {
        self.groups.values().any(|members| members.contains(volume))
    }

    /// The groups come and go, and their members.
    async fn change_groups(&mut self, pool: &Pool, prng: &mut Prng) {
        let of = any(prng, self.groups.keys());
        let volume = any(prng, self.volumes.keys());
        match (prng.below(10), of, volume) {
            (0..2, _, Some(volume)) => {
                let name = self.name("g");
                let made = pool.create_group(group(&name, &[&volume])).await;
                assert_eq!(made.is_ok(), !self.is_in_any(&volume), "{volume} in {name}");
                if made.is_ok() {
                    self.groups.insert(name, BTreeSet::from([volume]));
                }
            }
            (2..6, Some(of), Some(volume)) => {
                let joined = pool.change_group(&of, adding(&[&volume])).await;
                assert_eq!(joined.is_ok(), !self.is_in_any(&volume), "{volume} into {of}");
                if joined.is_ok() {
                    self.groups.get_mut(&of).unwrap().insert(volume);
                }
            }
            (6..8, Some(of), Some(volume)) => {
                let left = pool.change_group(&of, removing(&[&volume])).await;
                assert_eq!(left.is_ok(), self.groups.get_mut(&of).unwrap().remove(&volume));
            }
            (8, Some(of), _) => {
                let to = self.name("g");
                let change = GroupChange { name: Some(to.clone()), ..GroupChange::default() };
                pool.change_group(&of, change).await.unwrap();
                let members = self.groups.remove(&of).unwrap();
                self.groups.insert(to, members);
            }
            (9, Some(of), _) => {
                pool.delete_group(&of).await.unwrap();
                self.groups.remove(&of);
            }
            _ => {}
        }
    }

    async fn take(&mut self, pool: &Pool, prng: &mut Prng) {
        let Some(of) = any(prng, self.groups.keys()) else { return };
        let name = self.name("s");
        let members = &self.groups[&of];
        let taken = take(pool, &of, &name).await.map(BTreeSet::from_iter);
        assert_eq!(taken.ok().as_ref(), (!members.is_empty()).then_some(members));
        for volume in members {
            self.volumes.get_mut(volume).unwrap().insert(name.clone());
            self.seen.0 += 1;
        }
    }

    /// All of its volumes are cloned, where all have that snapshot.
    async fn clone_group(&mut self, pool: &Pool, prng: &mut Prng) {
        let Some(of) = any(prng, self.groups.keys()) else { return };
        let members = &self.groups[&of];
        let one = any(prng, members.iter());
        let Some(snapshot) = one.and_then(|one| any(prng, self.volumes[&one].iter())) else {
            return;
        };
        let have_it = members.iter().all(|volume| self.volumes[volume].contains(&snapshot));
        let members = members.clone();
        let name = self.name("g");
        let made = cloned(pool, &of, &snapshot, &name).await;
        assert_eq!(made.is_ok(), have_it, "{of}@{snapshot}: {made:?}");
        if have_it {
            let clones = members.iter().map(|volume| format!("{name}-{volume}"));
            let clones: BTreeSet<_> = clones.collect();
            self.volumes.extend(clones.iter().map(|clone| (clone.clone(), BTreeSet::new())));
            self.groups.insert(name, clones);
            self.seen.2 += 1;
        }
    }

    /// A snapshot of all volumes of a group that have one of that name is deleted in one step, and leaves what it would if
    /// they were deleted one after another.
    async fn delete_group_snapshots(&mut self, pool: &Pool, prng: &mut Prng) {
        let Some(of) = any(prng, self.groups.keys()) else { return };
        let one = any(prng, self.groups[&of].iter());
        let Some(name) = one.and_then(|one| any(prng, self.volumes[&one].iter())) else { return };
        let mut volumes: Vec<&String> = self.groups[&of].iter().collect();
        volumes.retain(|volume| self.volumes[*volume].contains(&name));
        let names = of_each(volumes.iter().map(|volume| volume.as_str()), &name);
        detached(pool).await;
        let mut expected = pool.0.common.superblock.catalog(Catalog::clone);
        for one in &names {
            let edit = edit_to_delete(&expected, std::slice::from_ref(one)).unwrap().0;
            expected.apply(&edit).unwrap();
        }
        self.seen.3 += u64::from(names.len() > 1);
        pool.delete_snapshots(names).await.unwrap();
        assert!(pool.0.common.superblock.catalog(|catalog| catalog.has_same(&expected)));
        for volume in self.groups[&of].clone() {
            self.volumes.get_mut(&volume).unwrap().remove(&name);
        }
    }

    async fn roll_back(&mut self, pool: &Pool, prng: &mut Prng, volume: String) {
        let Some(snapshot) = any(prng, self.volumes[&volume].iter()) else { return };
        let keep = (prng.below(2) == 0).then(|| (self.name("k"), [8; 16]));
        let snapshots = self.volumes.get_mut(&volume).unwrap();
        snapshots.extend(keep.iter().map(|(name, _)| name.clone()));
        let spec = RollbackSpec { volume, snapshot, keep, created: 0 };
        pool.rollback_volume(spec).await.unwrap();
        self.seen.1 += 1;
    }

    async fn delete_snapshots(&mut self, pool: &Pool, volume: &String) {
        for snapshot in std::mem::take(self.volumes.get_mut(volume).unwrap()) {
            pool.delete_snapshot(volume, &snapshot).await.unwrap();
        }
    }

    /// Something else happens to the volumes.
    async fn change_volumes(&mut self, pool: &Pool, prng: &mut Prng) {
        let Some(volume) = any(prng, self.volumes.keys()) else { return };
        match prng.below(20) {
            0..4 if self.volumes.len() < 12 => {
                let name = self.name("v");
                pool.create_volume(super::volume(&name, MIB)).await.unwrap();
                self.volumes.insert(name, BTreeSet::new());
            }
            4..9 => {
                let data = block(0, self.made);
                pool.volume(&volume).unwrap().write(0, &data).await.unwrap();
            }
            9..14 => self.roll_back(pool, prng, volume).await,
            14..16 => {
                let Some(snapshot) = any(prng, self.volumes[&volume].iter()) else { return };
                let name = self.name("c");
                pool.clone_volume(clone_of(&volume, &snapshot, &name)).await.unwrap();
                self.volumes.insert(name, BTreeSet::new());
            }
            16 => self.delete_snapshots(pool, &volume).await,
            17 => {
                let to = self.name("v");
                pool.rename_volume(&volume, &to).await.unwrap();
                let snapshots = self.volumes.remove(&volume).unwrap();
                self.volumes.insert(to.clone(), snapshots);
                for members in self.groups.values_mut() {
                    if members.remove(&volume) {
                        members.insert(to.clone());
                    }
                }
            }
            18 if self.volumes.len() > 3 => {
                self.delete_snapshots(pool, &volume).await;
                pool.delete_volume(&volume).await.unwrap();
                self.volumes.remove(&volume);
                self.groups.values_mut().for_each(|members| _ = members.remove(&volume));
            }
            // What is no clone is refused.
            19 => drop(pool.detach_volume(&volume).await),
            _ => {}
        }
    }

    fn check(&self, pool: &Pool) {
        let there_are: BTreeMap<_, BTreeSet<_>> = groups(pool)
            .into_iter()
            .map(|(name, volumes)| (name, volumes.into_iter().collect()))
            .collect();
        assert_eq!(there_are, self.groups);
        let needing = |catalog: &Catalog| {
            let of = |name: &String| catalog.needing(catalog.find(name).unwrap().view) as usize;
            self.groups.iter().all(|(name, members)| of(name) == members.len())
        };
        let is_right = pool.0.common.superblock.catalog(needing);
        assert!(is_right, "nothing else is in a group");
        for (volume, snapshots) in &self.volumes {
            let names = pool.snapshots(volume).unwrap().into_iter().map(|one| one.name);
            assert_eq!(&names.collect::<BTreeSet<_>>(), snapshots, "of {volume}");
        }
    }
}

#[test]
fn whatever_happens_groups_have_the_volumes_that_they_should() {
    let (mut cloned, mut deleted) = (0, 0);
    for seed in 0..8 {
        let [clones, deletions] = reactor::simulate(seed, async move {
            let (drives, log, mut pool, _) = made(1).await;
            let mut world = World::default();
            world.volumes.insert("db".to_owned(), BTreeSet::new());
            let mut prng = Prng::new(seed);
            for _ in 0..8 {
                for _ in 0..60 {
                    match prng.below(10) {
                        0..4 => world.change_groups(&pool, &mut prng).await,
                        4..6 => world.take(&pool, &mut prng).await,
                        6 if world.volumes.len() < 24 => {
                            world.clone_group(&pool, &mut prng).await;
                        }
                        7 => world.delete_group_snapshots(&pool, &mut prng).await,
                        _ => world.change_volumes(&pool, &mut prng).await,
                    }
                    world.check(&pool);
                }
                pool = match prng.below(2) {
                    0 => reopened(&drives, &log, pool).await,
                    _ => killed(&drives, &log, pool).await,
                };
                world.check(&pool);
            }
            assert!(world.seen.0 > 10 && world.seen.1 > 5, "{:?}", world.seen);
            // All of it goes, and nothing is kept by anything else.
            for name in world.groups.keys() {
                pool.delete_group(name).await.unwrap();
            }
            for (name, snapshots) in &world.volumes {
                for snapshot in snapshots {
                    pool.delete_snapshot(name, snapshot).await.unwrap();
                }
                pool.delete_volume(name).await.unwrap();
            }
            assert_eq!(live(&pool).await, 0);
            let pool = reopened(&drives, &log, pool).await;
            assert_eq!(pool.0.common.superblock.catalog(|catalog| catalog.len()), 0);
            pool.close().await.unwrap();
            check_drives(&drives, &log).await;
            [world.seen.2, world.seen.3]
        });
        (cloned, deleted) = (cloned + clones, deleted + deletions);
    }
    assert!(cloned > 8 && deleted > 8, "groups: {cloned} cloned, {deleted} with snapshots deleted");
}
