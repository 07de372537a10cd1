//! Snapshots and clones of groups, told to the model before and after.

use super::Life;
use super::answer::Answer;
use crate::contents::{Found, Stamp, recognize};
use crate::model::{Begun, Serial, Target};
use crate::store::Refusal;

/// Copies under way, each with what the model calls it.
type Copies = Vec<(Serial, Begun)>;

impl Life {
    /// Takes snapshots of volumes, all at one instant, by a name that they have together. Gives them, if they are there, and
    /// calls `begun` with what the model calls them before anything is done.
    pub async fn take_group(
        &self,
        of: &[Target],
        name: &str,
        begun: impl FnOnce(&[Serial]),
    ) -> Option<Vec<Target>> {
        let volumes: Vec<String> = of.iter().map(|v| v.name.clone()).collect();
        let what = format!("snapshot {volumes:?} as {name}");
        let names = volumes.iter().map(|volume| self.store.name_in_group(volume, name));
        let names = names.collect::<Option<Vec<String>>>()?;
        self.note(format_args!("{what}"));
        let copies: Copies = {
            let mut model = self.run.model.borrow_mut();
            of.iter().zip(&names).map(|(v, name)| model.begin_snapshot(v, name)).collect()
        };
        let serials = self.begin_together(&copies);
        begun(&serials);
        let answer = self.settled(&what, self.store.take_group(&volumes, name)).await;
        self.end_copies(&what, &answer, &copies, &serials)?;
        let each = of.iter().zip(names).zip(&serials);
        let target = |((v, name), serial): ((&Target, String), &Serial)| Target {
            serial: *serial,
            name,
            parent: Some(v.serial),
            ..v.clone()
        };
        Some(each.map(target).collect())
    }

    /// Makes clones of the snapshots of a group, which were taken as `name`, under these names. Gives them, if they are
    /// there.
    pub async fn clone_group(
        &self,
        (of, name): (&[Target], &str),
        snapshots: &[Target],
        names: &[String],
    ) -> Option<Vec<Target>> {
        let clones = of.iter().map(|v| v.name.clone()).zip(names.iter().cloned());
        let clones: Vec<(String, String)> = clones.collect();
        let what = format!("clone {name} as {clones:?}");
        self.note(format_args!("{what}"));
        let copies: Copies = {
            let mut model = self.run.model.borrow_mut();
            let each = snapshots.iter().zip(names);
            each.map(|(v, name)| model.begin_clone(v, name, v.size)).collect()
        };
        let serials = self.begin_together(&copies);
        let of: Vec<Serial> = snapshots.iter().map(|v| v.serial).collect();
        self.run.model.borrow_mut().copy_instant(&of, &serials);
        let answer = self.settled(&what, self.store.clone_group(name, &clones)).await;
        let waits = self.waits_for_log(&snapshots[0], &answer).await;
        let answer = if waits { Answer::Refused(Refusal::Full) } else { answer };
        self.end_copies(&what, &answer, &copies, &serials)?;
        let each = snapshots.iter().zip(names).zip(&serials);
        let target = |((v, name), serial): ((&Target, &String), &Serial)| {
            let (serial, name) = (*serial, name.clone());
            Target { serial, name, parent: None, inherits: true, ..v.clone() }
        };
        Some(each.map(target).collect())
    }

    fn begin_together(&self, copies: &Copies) -> Vec<Serial> {
        let serials: Vec<Serial> = copies.iter().map(|(serial, _)| *serial).collect();
        self.run.model.borrow_mut().begin_together(serials.clone());
        serials
    }

    /// Whether the copies are there.
    fn end_copies(
        &self,
        what: &str,
        answer: &Answer<()>,
        copies: &Copies,
        serials: &[Serial],
    ) -> Option<()> {
        self.count(|c| c.others += 1);
        match answer {
            Answer::Done(()) => {
                self.note(format_args!("{what}: done"));
                let mut model = self.run.model.borrow_mut();
                for (serial, begun) in copies {
                    model.end_write(begun, true);
                    model.end_create(*serial);
                }
                model.end_together(serials);
                Some(())
            }
            Answer::Refused(refusal) => {
                for (serial, begun) in copies {
                    self.refuse_whole(what, refusal, *serial, begun);
                }
                None
            }
            Answer::GivenUp | Answer::Lost => None,
        }
    }

    /// Deletes snapshots in one step. Tells whether that is done.
    pub async fn delete_together(&self, snapshots: &[Target]) -> bool {
        let names: Vec<String> = snapshots.iter().map(|v| v.name.clone()).collect();
        let what = format!("delete {names:?}");
        self.note(format_args!("{what}"));
        let serials: Vec<Serial> = snapshots.iter().map(|v| v.serial).collect();
        {
            let mut model = self.run.model.borrow_mut();
            serials.iter().for_each(|serial| model.begin_delete(*serial));
            model.begin_together(serials.clone());
        }
        let answer = self.settled(&what, self.store.delete_together(&names)).await;
        self.count(|c| c.others += 1);
        if self.lacks_space(&answer) {
            let mut model = self.run.model.borrow_mut();
            serials.iter().for_each(|serial| model.refuse_change(*serial));
            model.end_together(&serials);
            return false;
        }
        let done = self.expect(&what, answer).is_some();
        if done {
            let mut model = self.run.model.borrow_mut();
            serials.iter().for_each(|serial| model.end_delete(*serial));
            model.end_together(&serials);
        }
        done
    }

    /// The next of the writes that go one after another to the volumes of an instant. Tells whether it was done.
    pub async fn write_in_order(
        &self,
        instant: u64,
        number: usize,
        (v, block): (&Target, u64),
    ) -> bool {
        let note = |stamp| self.run.model.borrow_mut().note_in_order(instant, number, stamp);
        self.write_stamped(v, (block, 1), None, Some(&note)).await
    }

    /// Looks whether all that was copied at one instant still says so.
    pub async fn check_instants(&self) {
        let instants = self.run.model.borrow().instants();
        for (instant, names) in instants {
            let mut found = Vec::new();
            for (copied, (name, unit)) in instant.copies.iter().zip(names) {
                let what = format!("look at {} of {name}", copied.block);
                let read = self.store.read(&name, copied.block, 1, true);
                let answer = self.settled(&what, read).await;
                found.push(match answer {
                    Answer::Done(bytes) if bytes.len() == unit => {
                        match recognize(&bytes, copied.of, copied.block) {
                            Found::Stamp(stamp) if stamp != Stamp::ZERO => Some(stamp),
                            _ => None,
                        }
                    }
                    // Whether it may be refused is looked at where everything is read.
                    _ => None,
                });
            }
            self.note(format_args!("instant {}: {found:?}", instant.number));
            let known = found.iter().flatten().count();
            self.count(|c| c.instants += u64::from(known > 1));
            if let Err(violation) = instant.check(&found) {
                self.violate(violation);
            }
        }
    }
}
