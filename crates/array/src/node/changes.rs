//! What is wanted changes: by the management API or the configuration file. All of a change is taken, or none.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use api::v1::{Consent, Kind, Losses, Severity};

use super::configuration::new_drives;
use super::drive_openings::{Limit, Opened};
use super::owner::Owned;
use super::{Node, StartError, stopped};
use crate::change::Step;
use crate::config::{self, Config};
use crate::desired::{self, Desired};
use crate::limits::NAMESPACE_DRAIN;
use crate::losses::{check_meant, losses};
use crate::serving::{Cut, LateDrive, OpenedDrive, Place, controllers, does_not_answer};
use crate::state::{State, StateDir};
use crate::{Error, Result, change, events, history};

impl Node {
    /// Reads the configuration file again and takes what changed in it. Settings that take effect
    /// at start only are not taken.
    ///
    /// # Errors
    /// As [`Node::start`]; what was served is served as before.
    pub fn reload(&self) -> std::result::Result<(), StartError> {
        let Some(path) = &self.config else {
            self.events.record(Severity::Warning, "nothing to reload: no configuration file");
            return Ok(());
        };
        // One after the other: what was read first would come last, and be kept, where its drives are slower.
        let turn = self.reloads.lock().unwrap_or_else(PoisonError::into_inner);
        let result = self.reload_from(path);
        let refused = result
            .as_ref()
            .err()
            .map(|error| format!("{} was not taken, nothing changed: {error}", path.display()));
        self.refused_reload.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&refused);
        drop(turn);
        match refused {
            None => self.events.record(Severity::Info, format!("reloaded {}", path.display())),
            Some(words) => self.events.record(Severity::Error, words),
        }
        result
    }

    fn reload_from(&self, path: &Path) -> std::result::Result<(), StartError> {
        let config = config::load_to_start(path)?;
        for fault in &config.passing {
            let words = format!("{}, line {}: {}", path.display(), fault.line, fault.refused);
            self.events.record(Severity::Warning, words);
        }
        super::check_serves(path, &config, &self.view().state.base)?;
        let Config { settings, desired: base, .. } = config;
        // What is to be served anew from where it is: first nothing of the old one must be left there.
        self.check_new_drives(&base)?;
        let asked = base.clone();
        let merged = move |state: &State| desired::merge(&state.base, &asked, &state.current);
        let touched = {
            let state = &self.view().state;
            change::pools(&change::steps(&state.current, &merged(state)))
        };
        let _turns = self.turns(base.pools().into_iter().chain(touched).collect())?;
        let wanted = merged.clone();
        let (taken, opened) = self.make_ready(move |owned| Ok(wanted(&owned.state)))?;
        let words = format!("{} was read again", path.display());
        let (result, put_back) = self.owner.ask(move |owned| {
            let wanted = merged(&owned.state);
            let kept = opened.and_then(|opened| {
                if !owned.losses(&wanted)?.losses.is_empty() {
                    owned.remember(&words, None)?;
                }
                Ok(opened)
            });
            let ended = |opened| owned.end_change(wanted, Some(base), (&taken, opened));
            let result = kept.and_then(ended);
            let put_back = owned.put_back_unless(result.is_ok(), &taken);
            Ok((result, put_back))
        })?;
        self.tell_put_back(put_back);
        self.finish_change();
        result?;
        if settings != self.settings {
            let words = "what changed under [node], [serving], [drives] and [metrics] takes effect at the next start";
            self.events.record(Severity::Warning, words);
        }
        Ok(())
    }

    /// Refuses a configuration file that asks for drives of pools of this node.
    fn check_new_drives(&self, base: &Desired) -> Result<()> {
        let view = self.view();
        let wanted = desired::merge(&view.state.base, base, &view.state.current);
        let pools = &view.serving()?.pools;
        let (drives, opener) = (new_drives(&view.state.current, &wanted), pools.opener());
        let found = self.drive_looks.look_at(&drives, move |path| opener.pool_at(path))?;
        let mut both = drives.iter().zip(found);
        both.try_for_each(|(path, of)| pools.check_none_of_ours(path, of))
    }

    /// Does what goes before a change to what is `wanted`, with nothing held: opens its drives, and
    /// [takes out](Self::take_out_replaced) what comes back in another way. Those are opened last, all others before
    /// anything is out of service: one that hangs, or is not there, is the end of the change. Gives what is taken out, and
    /// what came of opening.
    pub(super) fn make_ready(
        &self,
        wanted: impl FnOnce(&Owned) -> Result<Desired> + Clone + Send + 'static,
    ) -> Result<(BTreeSet<Place>, Result<Opened>)> {
        let others = self.open_wanted(wanted.clone(), &BTreeSet::new(), Opened::new())?;
        let taken = self.take_out_replaced(wanted.clone())?;
        let opened = self.open_wanted(wanted, &taken, others);
        Ok((taken, opened))
    }

    /// Takes namespaces out of service that are `wanted` to be served in another way from the same drive or volume, and
    /// waits with nothing held until their commands have ended. They are asked for all the while: what is remembered of
    /// them is, nobody else gets their places and media, and they are served should the node end before. Gives where
    /// they are.
    pub(super) fn take_out_replaced(
        &self,
        wanted: impl FnOnce(&Owned) -> Result<Desired> + Send + 'static,
    ) -> Result<BTreeSet<Place>> {
        let taken = self.owner.ask(move |owned| {
            let (wanted, _) = owned.named_now(wanted(owned)?)?;
            owned.check_left_alone(&wanted, &owned.taken_out)?;
            let mut taken = change::replaced(&owned.steps_to(&wanted, &owned.taken_out));
            // What is not there goes on to be waited for.
            taken.retain(|place| owned.serving().is_ok_and(|serving| serving.is_there(place)));
            if taken.is_empty() {
                return Ok(taken);
            }
            wanted.check()?;
            let all = owned.taken_out.union(&taken).cloned().collect();
            owned.pass(owned.state.current.clone(), None, (all, Opened::new()))?;
            owned.serving_mut()?.take_out();
            Ok(taken)
        })?;
        self.finish_change();
        Ok(taken)
    }

    /// Opens the drives that what is `wanted` asks for, beside everything else: one may hang. What was `taken` out for it
    /// comes back; what is served, and to be taken out, is left. Those that are `opened` by now are given with the others.
    ///
    /// # Errors
    /// Those of a change to there, and why a drive cannot be opened.
    pub(super) fn open_wanted(
        &self,
        wanted: impl FnOnce(&Owned) -> Result<Desired> + Send + 'static,
        taken: &BTreeSet<Place>,
        mut opened: Opened,
    ) -> Result<Opened> {
        let taken = taken.clone();
        let (mut drives, opener) = self.owner.ask_unseen(move |owned| {
            let (wanted, _) = owned.named_now(wanted(owned)?)?;
            let left = &owned.taken_out - &taken;
            owned.check_left_alone(&wanted, &left)?;
            let steps = owned.steps_to(&wanted, &left);
            let serving = owned.serving_mut()?;
            let mut drives = serving.asked_drives(&steps)?;
            drives.retain(|drive| !serving.is_replaced(&steps, &drive.def));
            Ok((drives, serving.pools().opener()))
        })?;
        let is_of = |came: &Result<OpenedDrive>, drive: &LateDrive| {
            came.as_ref().is_ok_and(|came| came.is_of(&drive.def))
        };
        opened.retain(|place, came| {
            drives.iter().any(|drive| drive.place == *place && is_of(came, drive))
        });
        drives.retain(|drive| !opened.contains_key(&drive.place));
        let with = (self.physical.machine(), &opener);
        let mut came = self.drive_openings.open(&drives, with, Limit::of_change());
        for LateDrive { place, def, .. } in drives {
            let drive =
                came.remove(&place).unwrap_or_else(|| Err(does_not_answer(&def.backend)))?;
            opened.insert(place, Ok(drive));
        }
        Ok(opened)
    }

    /// Changes what is served: `edit` makes the wish, then all of it is taken or none.
    pub(crate) fn change<T: Send + 'static>(
        &self,
        what: impl FnOnce(&T) -> String,
        edit: impl FnOnce(&mut Desired) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.change_with(what, edit, |_| Opened::new())
    }

    /// Likewise, with drives that were opened for it.
    pub(super) fn change_with<T: Send + 'static>(
        &self,
        what: impl FnOnce(&T) -> String,
        edit: impl FnOnce(&mut Desired) -> Result<T> + Send + 'static,
        opened: impl FnOnce(&T) -> Opened + Send + 'static,
    ) -> Result<T> {
        let answer = self.owner.ask(move |owned| {
            let mut wanted = owned.state.current.clone();
            let answer = edit(&mut wanted)?;
            owned.go_to(wanted, opened(&answer))?;
            Ok(answer)
        })?;
        self.events.record(Severity::Info, what(&answer));
        self.finish_change();
        Ok(answer)
    }

    /// As [`change`](Self::change) for what may take something away: that has to be meant, and what was served is kept
    /// then. Gives what is lost; with `dry_run` nothing changes.
    pub(super) fn change_meant(
        &self,
        consent: Consent,
        what: String,
        edit: impl FnOnce(&mut Desired) -> Result<()> + Send + 'static,
    ) -> Result<Losses> {
        let by = events::caller();
        let before = what.clone();
        let losses = self.owner.ask(move |owned| {
            let mut wanted = owned.state.current.clone();
            edit(&mut wanted)?;
            owned.check_left_alone(&wanted, &owned.taken_out)?;
            let losses = owned.losses(&wanted)?;
            if consent.dry_run {
                wanted.check()?;
                return Ok(losses);
            }
            check_meant(&losses, consent.force)?;
            if !losses.losses.is_empty() {
                owned.remember(&before, by)?;
            }
            owned.go_to(wanted, Opened::new())?;
            Ok(losses)
        })?;
        if !consent.dry_run {
            self.events.record(Severity::Info, what);
            self.finish_change();
        }
        Ok(losses)
    }

    /// Sees to it that namespaces that were taken out for a change that failed are back, and says so where they are not.
    pub(super) fn tell_put_back(&self, put_back: Result<Option<Vec<String>>>) {
        let said = match put_back {
            Ok(None) => return,
            Ok(Some(said)) => said,
            Err(error) => vec![error.to_string()],
        };
        for why in said {
            let words = format!("namespaces taken out for a change are not served again: {why}");
            self.events.record(Severity::Error, words);
        }
        // Those of drives. What is not there by now is looked for again and again.
        if let Err(error) = self.take_up_drives() {
            self.events.record(Severity::Error, error.context);
        }
    }

    /// Waits, with nothing held, until the commands of namespaces that were removed or made smaller have ended: what
    /// they were kept in can be used by others then, or cut. Those that do not end are told of.
    pub(super) fn finish_change(&self) {
        let left = self.owner.ask_unseen(|owned| {
            let renames = std::mem::take(&mut owned.renames);
            let serving = owned.serving_mut()?;
            Ok((serving.lingering(), serving.cuts(), renames, serving.take_ending()))
        });
        let Ok((late, cuts, renames, ending)) = left else { return };
        renames.into_iter().for_each(|words| self.events.record(Severity::Info, words));
        let begun = reactor::now_exact();
        let left = || {
            let gone = Duration::from_nanos(reactor::now_exact().saturating_sub(begun));
            NAMESPACE_DRAIN.saturating_sub(gone)
        };
        for ((nqn, nsid), draining) in late {
            if !draining.wait(left()) {
                let words = format!(
                    "namespace {nsid} of {nqn} is removed, but commands of it have not ended in {} s: what it was \
                     kept in stays in use until they have",
                    NAMESPACE_DRAIN.as_secs()
                );
                self.events.record(Severity::Error, words);
            }
        }
        if !ending.iter().all(|ending| ending.wait(left())) {
            let words = "direct write windows of hosts that the change takes them from have not ended in time";
            self.events.record(Severity::Error, words);
        }
        cuts.iter().for_each(|cut| self.cut(cut, left()));
        // Nothing to let go of, when the node has stopped.
        let _ = self.let_go();
    }

    fn cut(&self, cut: &Cut, limit: Duration) {
        let result = cut.finish(limit);
        if let Err(error) = &result {
            let (nqn, nsid) = &cut.place;
            let words =
                format!("namespace {nsid} of {nqn} is smaller, but not what keeps it: {error}");
            self.events.record(Severity::Error, words);
        }
        // Those whose commands have not ended are cut when they have.
        if result.is_ok() || cut.is_due() {
            let cut = cut.clone();
            // There are none, when the node has stopped.
            let _ = self.owner.ask_unseen(move |owned| {
                owned.serving_mut()?.cut_is_over(&cut);
                Ok(())
            });
        }
    }

    /// Finishes what a change had to leave, as far as that waits for nothing. To be called now and then.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn finish_changes(&self) -> Result<()> {
        let cuts = self.owner.ask_unseen(|owned| Ok(owned.serving()?.cuts()))?;
        cuts.iter().filter(|cut| cut.is_due()).for_each(|cut| self.cut(cut, Duration::ZERO));
        self.let_go()
    }

    fn let_go(&self) -> Result<()> {
        self.owner.ask_unseen(|owned| {
            owned.serving_mut()?.let_go();
            Ok(())
        })
    }
}

impl Owned {
    /// Takes the steps to `wanted`, for which drives were `opened`, and keeps it; on any error everything is as before.
    pub(super) fn go_to(&mut self, wanted: Desired, opened: Opened) -> Result<()> {
        self.end_change(wanted, None, (&BTreeSet::new(), opened))
    }

    /// As [`go_to`](Self::go_to), where that ends the change for which `taken` were taken out.
    pub(super) fn end_change(
        &mut self,
        wanted: Desired,
        base: Option<Desired>,
        (taken, opened): (&BTreeSet<Place>, Opened),
    ) -> Result<()> {
        self.pass(wanted, base, (&self.taken_out - taken, opened))?;
        let state = Arc::clone(&self.state);
        self.serving_mut()?.forget_removed(&state.current);
        Ok(())
    }

    /// The steps from what is served to `wanted`, where these are taken out.
    fn steps_to(&self, wanted: &Desired, taken_out: &BTreeSet<Place>) -> Vec<Step> {
        let served = without(&self.state.current, &self.taken_out);
        change::steps(&served, &without(wanted, taken_out))
    }

    /// Refuses a change of namespaces that another change has `taken_out`, and other namespaces of what keeps them.
    ///
    /// # Errors
    /// `Conflict`.
    fn check_left_alone(&self, wanted: &Desired, taken_out: &BTreeSet<Place>) -> Result<()> {
        for (nqn, nsid) in taken_out {
            let def = |of: &Desired| of.subsystem(nqn)?.namespaces.get(nsid).cloned();
            let is = def(&self.state.current);
            let all = wanted.subsystems.values().flat_map(|def| def.namespaces.values());
            let kept_there = all.filter(|other| {
                is.as_ref().is_some_and(|is| is.backend.is_same_medium(&other.backend))
            });
            if def(wanted) != is || kept_there.count() > 1 {
                let what = format!("namespace {nsid} of {nqn} is being served in another way");
                return Err(Error::new(Kind::Conflict, what).help("try again in a moment"));
            }
        }
        Ok(())
    }

    /// As [`go_to`](Self::go_to), on the way to something else: of what is removed nothing is forgotten yet. These are taken
    /// out then.
    fn pass(
        &mut self,
        wanted: Desired,
        base: Option<Desired>,
        (taken_out, opened): (BTreeSet<Place>, Opened),
    ) -> Result<()> {
        wanted.check()?;
        let (wanted, renames) = self.named_now(wanted)?;
        self.check_left_alone(&wanted, &taken_out)?;
        let steps = self.steps_to(&wanted, &taken_out);
        let serving = self.serving.as_mut().ok_or_else(stopped)?;
        let taken = serving.apply(steps, opened)?;
        let mut state = State::clone(&self.state);
        state.current = wanted;
        state.pools = serving.pools().defs();
        state.seen = serving.seen(&state.current);
        if let Some(base) = base {
            state.base = base;
        }
        if let Err(error) = self.dir.save(&state) {
            write_back(&self.dir, &self.state);
            // What is not kept must not be served: a restart would silently undo it.
            serving.take_back(taken);
            return Err(error);
        }
        serving.kept();
        (self.state, self.taken_out) = (Arc::new(state), taken_out);
        self.renames.extend(renames);
        Ok(())
    }

    /// Writes down which pools there are, and what hosts see.
    pub(super) fn keep(&mut self) -> Result<()> {
        self.keep_changed(|_| {})
    }

    /// Likewise, with what is `changed` of it; nothing is where it cannot be written down.
    pub(super) fn keep_changed(&mut self, changed: impl FnOnce(&mut State)) -> Result<()> {
        let serving = self.serving.as_ref().ok_or_else(stopped)?;
        let mut state = State::clone(&self.state);
        changed(&mut state);
        state.pools = serving.pools().defs();
        state.seen = serving.seen(&state.current);
        if let Err(error) = self.dir.save(&state) {
            write_back(&self.dir, &self.state);
            return Err(error);
        }
        self.state = Arc::new(state);
        Ok(())
    }

    /// What going to `wanted` takes away.
    ///
    /// # Errors
    /// Those of going there that are of names.
    pub(super) fn losses(&self, wanted: &Desired) -> Result<Losses> {
        let (wanted, _) = self.named_now(wanted.clone())?;
        let serving = self.serving()?;
        let (seen, connected) = (serving.snapshot(), controllers(&serving.target()));
        let bytes = |place: &Place| seen.namespace_bytes(place);
        Ok(losses(&self.state.current, &wanted, bytes, &connected))
    }

    /// Keeps what is served, before it is changed as `words` say: it can be served again.
    pub(super) fn remember(&self, words: &str, by: Option<String>) -> Result<()> {
        history::keep(self.dir.path(), &self.state.current, words, by).map(drop)
    }

    /// Serves again what was taken out for a change, if that failed: then gives why some is not, in words.
    pub(super) fn put_back_unless(
        &mut self,
        is_done: bool,
        taken: &BTreeSet<Place>,
    ) -> Result<Option<Vec<String>>> {
        if taken.is_empty() {
            return Ok(None);
        }
        let left = &self.taken_out - taken;
        let steps = self.steps_to(&self.state.current, &left);
        self.taken_out = left;
        let state = Arc::clone(&self.state);
        let serving = self.serving_mut()?;
        serving.brought_back();
        let said = (!is_done).then(|| serving.put_back(steps));
        serving.forget_removed(&state.current);
        Ok(said)
    }
}

/// `wanted` but these namespaces.
fn without(wanted: &Desired, places: &BTreeSet<Place>) -> Desired {
    let mut without = wanted.clone();
    for (nqn, nsid) in places {
        if let Some(def) = without.subsystems.get_mut(nqn) {
            def.namespaces.remove(nsid);
        }
    }
    without
}

/// Keeps what was `before` a state that could not be kept. That may be there all the same, when only that it stays could not
/// be had, and a restart would go by it.
fn write_back(dir: &StateDir, before: &State) {
    if let Err(again) = dir.save(before) {
        tracing::warn!("what was kept before is not written back: {again}");
    }
}
