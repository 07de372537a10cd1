//! What is wanted changes: by the management API or the configuration file. All of a change is taken, or none.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::v1::{Consent, Losses, Severity};

use super::configuration::new_drives;
use super::owner::Owned;
use super::{Node, StartError, stopped};
use crate::config::{self, Config};
use crate::desired::{self, Desired, NamespaceDef};
use crate::limits::NAMESPACE_DRAIN;
use crate::losses::{check_meant, losses};
use crate::serving::{Cut, Place, controllers};
use crate::state::{State, StateDir};
use crate::{Result, change, events, history};

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
        let result = self.reload_from(path);
        match &result {
            Ok(()) => self.events.record(Severity::Info, format!("reloaded {}", path.display())),
            Err(error) => self.events.record(
                Severity::Error,
                format!("{} was not taken, nothing changed: {error}", path.display()),
            ),
        }
        result
    }

    fn reload_from(&self, path: &Path) -> std::result::Result<(), StartError> {
        let Config { settings, desired: base } = config::load(path)?;
        // What is to be served anew from where it is: first nothing of the old one must be left there.
        self.check_new_drives(&base)?;
        let asked = base.clone();
        let wanted = move |state: &State| desired::merge(&state.base, &asked, &state.current);
        let _turns = self.turns(base.pools())?;
        let taken = self.take_out_replaced(wanted)?;
        let words = format!("{} was read again", path.display());
        let (result, put_back) = self.owner.ask(move |owned| {
            let State { base: before, current, .. } = &*owned.state;
            let wanted = desired::merge(before, &base, current);
            let kept = owned.losses(&wanted).and_then(|lost| match lost.losses.is_empty() {
                true => Ok(()),
                false => owned.remember(&words, None),
            });
            let result = kept.and_then(|()| owned.end_change(wanted, Some(base), &taken));
            let put_back = owned.put_back_unless(result.is_ok(), taken);
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
        for path in new_drives(&view.state.current, &wanted) {
            pools.check_none_of_ours(&path, pools.opener().pool_at(&path)?)?;
        }
        Ok(())
    }

    /// Takes namespaces out of service that are `wanted` to be served in another way from the same drive or volume, and
    /// waits with nothing held until their commands have ended. Gives what they were.
    pub(super) fn take_out_replaced(
        &self,
        wanted: impl FnOnce(&State) -> Desired + Send + 'static,
    ) -> Result<Vec<(Place, NamespaceDef)>> {
        let taken = self.owner.ask(move |owned| {
            let current = &owned.state.current;
            let (wanted, _) = owned.named_now(wanted(&owned.state))?;
            let taken = change::replaced(&change::steps(current, &wanted));
            if taken.is_empty() {
                return Ok(taken);
            }
            wanted.check()?;
            let mut without = current.clone();
            for ((nqn, nsid), _) in &taken {
                if let Some(def) = without.subsystems.get_mut(nqn) {
                    def.namespaces.remove(nsid);
                }
            }
            // They come back: what is remembered of them is. So are they, should the node end before.
            // And what other changes have taken out.
            let mut all = owned.taken_out.clone();
            all.extend(taken.clone());
            owned.pass(without, None, all)?;
            owned.serving_mut()?.take_out();
            Ok(taken)
        })?;
        self.finish_change();
        Ok(taken)
    }

    /// Changes what is served: `edit` makes the wish, then all of it is taken or none.
    pub(crate) fn change<T: Send + 'static>(
        &self,
        what: impl FnOnce(&T) -> String,
        edit: impl FnOnce(&mut Desired) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let answer = self.owner.ask(move |owned| {
            let mut wanted = owned.state.current.clone();
            let answer = edit(&mut wanted)?;
            owned.go_to(wanted, None)?;
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
            let losses = owned.losses(&wanted)?;
            if consent.dry_run {
                wanted.check()?;
                return Ok(losses);
            }
            check_meant(&losses, consent.force)?;
            if !losses.losses.is_empty() {
                owned.remember(&before, by)?;
            }
            owned.go_to(wanted, None)?;
            Ok(losses)
        })?;
        if !consent.dry_run {
            self.events.record(Severity::Info, what);
            self.finish_change();
        }
        Ok(losses)
    }

    /// Says so where namespaces that were taken out for a change that failed are not back.
    pub(super) fn tell_put_back(&self, put_back: Result<()>) {
        if let Err(error) = put_back {
            let words = format!("namespaces taken out for a change are not served again: {error}");
            self.events.record(Severity::Error, words);
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
    /// Takes the steps to `wanted` and keeps it; on any error everything is as before.
    pub(super) fn go_to(&mut self, wanted: Desired, base: Option<Desired>) -> Result<()> {
        let taken_out = self.taken_out.clone();
        self.arrive(wanted, base, taken_out)
    }

    /// As [`go_to`](Self::go_to), where that ends the change for which `taken` were taken out.
    pub(super) fn end_change(
        &mut self,
        wanted: Desired,
        base: Option<Desired>,
        taken: &[(Place, NamespaceDef)],
    ) -> Result<()> {
        let left = self.taken_out_but(taken);
        self.arrive(wanted, base, left)
    }

    /// What other changes have taken out.
    fn taken_out_but(&self, taken: &[(Place, NamespaceDef)]) -> Vec<(Place, NamespaceDef)> {
        let mut left = self.taken_out.clone();
        left.retain(|one| !taken.contains(one));
        left
    }

    fn arrive(
        &mut self,
        wanted: Desired,
        base: Option<Desired>,
        taken_out: Vec<(Place, NamespaceDef)>,
    ) -> Result<()> {
        self.pass(wanted, base, taken_out)?;
        let state = Arc::clone(&self.state);
        self.serving_mut()?.forget_removed(&state.current);
        Ok(())
    }

    /// As [`go_to`](Self::go_to), on the way to something else: of what is removed nothing is forgotten yet. These are taken
    /// out then.
    fn pass(
        &mut self,
        wanted: Desired,
        base: Option<Desired>,
        taken_out: Vec<(Place, NamespaceDef)>,
    ) -> Result<()> {
        wanted.check()?;
        let (wanted, renames) = self.named_now(wanted)?;
        let serving = self.serving.as_mut().ok_or_else(stopped)?;
        serving.apply(change::steps(&self.state.current, &wanted))?;
        let mut state = State::clone(&self.state);
        state.current = wanted;
        state.pools = serving.pools().defs();
        state.seen = serving.seen(&state.current);
        if let Some(base) = base {
            state.base = base;
        }
        if let Err(error) = save(&self.dir, &state, &taken_out) {
            write_back(&self.dir, &self.state, &self.taken_out);
            // What is not kept must not be served: a restart would silently undo it.
            serving.apply(change::steps(&state.current, &self.state.current))?;
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
        if let Err(error) = save(&self.dir, &state, &self.taken_out) {
            write_back(&self.dir, &self.state, &self.taken_out);
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

    /// Serves again what was taken out for a change, if that failed.
    pub(super) fn put_back_unless(
        &mut self,
        is_done: bool,
        taken: Vec<(Place, NamespaceDef)>,
    ) -> Result<()> {
        if taken.is_empty() {
            return Ok(());
        }
        self.serving_mut()?.brought_back();
        if !is_done {
            return self.put_back(&taken);
        }
        let state = Arc::clone(&self.state);
        self.serving_mut()?.forget_removed(&state.current);
        Ok(())
    }

    /// Serves again what was taken out for a change that failed.
    fn put_back(&mut self, taken: &[(Place, NamespaceDef)]) -> Result<()> {
        let mut wanted = self.state.current.clone();
        put_into(&mut wanted, taken);
        let put_back = self.end_change(wanted, None, taken);
        // Also where that failed: whoever asked is told, and nobody else ends it.
        self.taken_out = self.taken_out_but(taken);
        put_back
    }
}

/// Has namespaces be wanted where nothing else is.
fn put_into(wanted: &mut Desired, taken: &[(Place, NamespaceDef)]) {
    for ((nqn, nsid), was) in taken {
        if let Some(def) = wanted.subsystems.get_mut(nqn) {
            def.namespaces.entry(*nsid).or_insert_with(|| was.clone());
        }
    }
}

/// Writes a state down, with what is taken out for a change that is not through: what starts from there serves it.
fn save(dir: &StateDir, state: &State, taken_out: &[(Place, NamespaceDef)]) -> Result<()> {
    if taken_out.is_empty() {
        return dir.save(state);
    }
    let mut state = state.clone();
    put_into(&mut state.current, taken_out);
    dir.save(&state)
}

/// Keeps what was `before` a state that could not be kept. That may be there all the same, when only that it stays could not
/// be had, and a restart would go by it.
fn write_back(dir: &StateDir, before: &State, taken_out: &[(Place, NamespaceDef)]) {
    if let Err(again) = save(dir, before, taken_out) {
        tracing::warn!("what was kept before is not written back: {again}");
    }
}
