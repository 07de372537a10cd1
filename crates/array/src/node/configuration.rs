//! The configuration as a whole: written out, taken from a file, and as it was before.

use std::path::Path;

use api::v1::{Consent, KeptConfiguration, Kind, Losses, Severity};

use super::Node;
use crate::config::{self, Config, Settings};
use crate::desired::Desired;
use crate::losses::check_meant;
use crate::{Error, Result, change, events, generic, history};

impl Node {
    /// A configuration file that asks for what is served.
    ///
    /// # Errors
    /// `Failed` where it cannot be written so.
    pub fn export_configuration(&self) -> Result<String> {
        write(&self.current())
    }

    /// What was served before, the newest first.
    pub fn configuration_history(&self) -> Vec<KeptConfiguration> {
        history::list(self.state_dir())
    }

    /// A configuration file that asks for what was served before.
    ///
    /// # Errors
    /// `NotFound`, `Failed` when it cannot be read.
    pub fn kept_configuration(&self, id: u64) -> Result<String> {
        write(&history::read(self.state_dir(), id)?.configuration)
    }

    /// Serves what the configuration file `text` asks for, and nothing else; `text` was called `name`. What is served now
    /// is kept. Gives what is lost; with `dry_run` nothing changes.
    ///
    /// # Errors
    /// `Invalid` with every fault, `Conflict` for a loss that is not meant, and as every change.
    pub fn import_configuration(&self, name: &str, text: &str, consent: Consent) -> Result<Losses> {
        let read = config::parse(Path::new(name), text);
        let Config { settings, desired: wanted, .. } =
            read.map_err(|faults| Error::new(Kind::Invalid, faults.to_string()))?;
        // That losses are meant says nothing of what is on drives.
        let help = "`flashloom pool import` opens that pool; where it is not needed, `flashloom namespace add --force` \
                    takes the drive first, and the pool is lost once hosts write to it";
        self.check_no_labels(new_drives(&self.current(), &wanted), Some(help))?;
        let losses = {
            let wanted = wanted.clone();
            self.owner.ask_unseen(move |owned| owned.losses(&wanted))?
        };
        if consent.dry_run {
            return Ok(losses);
        }
        // Before anything is waited for.
        check_meant(&losses, consent.force)?;
        let touched = change::pools(&change::steps(&self.current(), &wanted));
        let _turns = self.turns(wanted.pools().into_iter().chain(touched).collect())?;
        let losses = self.import(wanted, format!("{name} was imported"), consent)?;
        self.events.record(Severity::Info, format!("configuration {name} imported"));
        if settings != Settings::default() {
            let words = "[node], [serving], [drives] and [metrics] of what was imported are not taken: they are for \
                         `flashloom serve --config`";
            self.events.record(Severity::Warning, words);
        }
        Ok(losses)
    }

    /// Serves what is `wanted` and nothing else, when it is its turn. That losses are meant is asked of what is served
    /// then, and that is kept: much may have been added while the turn was waited for, or what is taken out.
    pub(super) fn import(
        &self,
        wanted: Desired,
        before: String,
        consent: Consent,
    ) -> Result<Losses> {
        let asked = wanted.clone();
        let (taken, opened) = self.make_ready(move |owned| {
            check_meant(&owned.losses(&asked)?, consent.force)?;
            Ok(asked)
        })?;
        let by = events::caller();
        let (result, put_back) = self.owner.ask(move |owned| {
            let kept = opened.and_then(|opened| {
                let losses = owned.losses(&wanted)?;
                check_meant(&losses, consent.force)?;
                owned.remember(&before, by)?;
                Ok((losses, opened))
            });
            let result = kept.and_then(|(losses, opened)| {
                owned.end_change(wanted, None, (&taken, opened))?;
                Ok(losses)
            });
            let put_back = owned.put_back_unless(result.is_ok(), &taken);
            Ok((result, put_back))
        })?;
        self.tell_put_back(put_back);
        self.finish_change();
        result
    }
}

fn write(desired: &Desired) -> Result<String> {
    config::text(desired)
        .map_err(|error| Error::new(Kind::Failed, format!("it cannot be written as TOML: {error}")))
}

/// Drives that are served by the one and not by the other.
pub(super) fn new_drives(old: &Desired, new: &Desired) -> Vec<std::path::PathBuf> {
    let drives = |desired: &Desired| -> Vec<_> {
        let all = desired.subsystems.values().flat_map(|def| def.namespaces.values());
        all.filter_map(|def| generic::block_device(&def.backend)).collect()
    };
    let had = drives(old);
    drives(new).into_iter().filter(|path| !had.contains(path)).collect()
}
