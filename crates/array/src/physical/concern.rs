//! What there is to look at in a drive, and what to do about it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use api::v1::{CriticalWarning, DriveHardware};
use api::value::{Name, Nqn};
use reactor::Nanos;

use crate::limits::{HARDWARE_PATIENCE, MEDIA_ERRORS_TOLD};

/// What a drive is used for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A pool, and its place there.
    Pool(Name, usize),
    /// A pool that it stands by for, and where it is.
    Spare(Name, String),
    /// A namespace by itself.
    Namespace(Nqn, u32),
}

impl Place {
    /// As findings name it.
    pub fn subject(&self) -> String {
        match self {
            Self::Pool(pool, index) => format!("drive {pool}/{index}"),
            Self::Spare(pool, path) => format!("spare {path} of pool {pool}"),
            Self::Namespace(nqn, nsid) => format!("namespace {nsid} of {nqn}"),
        }
    }
}

/// As events name it.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(pool, index) => write!(f, "drive {index} of pool {pool}"),
            Self::Spare(..) => f.write_str(&self.subject()),
            Self::Namespace(..) => write!(f, "the drive of {}", self.subject()),
        }
    }
}

/// Percent used of the life that the vendor expects, at which it is over.
const WORN: u8 = 100;

/// What there is to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Concern {
    /// The drive warns of it.
    Critical(CriticalWarning),
    /// The life that its vendor expects is over.
    Worn,
    /// It is as hot as it calls critical, or hotter.
    Hot,
    /// It has more media errors than it had.
    MediaErrors,
    /// It does not answer.
    Silent,
}

/// What can be done about a drive of a pool.
#[derive(Clone, Copy, Debug, Default)]
pub struct Advice {
    /// The pool has more drives than a stripe is wide.
    pub can_evacuate: bool,
    /// What it has is being moved already.
    pub is_leaving: bool,
}

/// The media errors of a drive, over the time that it was watched.
#[derive(Clone, Debug, Default)]
pub struct MediaErrors {
    count: Option<u64>,
    /// How many came since it was told of, and when the last ones did.
    grown: Option<(u64, Nanos)>,
}

impl MediaErrors {
    pub fn see(&mut self, count: u64, now: Nanos) {
        let more = self.count.map_or(0, |before| count.saturating_sub(before));
        if more > 0 {
            let before = self.grown.map_or(0, |(grown, _)| grown);
            self.grown = Some((before.saturating_add(more), now));
        }
        self.count = Some(count);
    }

    /// Forgets those that came long ago.
    pub fn forget(&mut self, now: Nanos) {
        self.grown = self.grown.filter(|(_, at)| at.saturating_add(MEDIA_ERRORS_TOLD) > now);
    }
}

/// What there is to look at, in words. What a drive did not tell of this time stays as it was told `before`.
pub fn of(
    facts: &DriveHardware,
    media_errors: &MediaErrors,
    is_silent: bool,
    before: &BTreeMap<Concern, String>,
) -> BTreeMap<Concern, String> {
    let mut found = BTreeMap::new();
    let is_open = |concern: &Concern| match concern {
        Concern::Critical(_) | Concern::Worn => facts.smart.is_none(),
        Concern::Hot => facts.temperature_celsius.is_none(),
        Concern::MediaErrors | Concern::Silent => false,
    };
    for (concern, words) in before.iter().filter(|(concern, _)| is_open(concern)) {
        found.insert(*concern, words.clone());
    }
    if let Some(smart) = &facts.smart {
        for warning in &smart.critical {
            found.insert(Concern::Critical(*warning), warning.to_string());
        }
        let (spare, least) = (smart.spare_percent, smart.spare_threshold_percent);
        if spare < least {
            let words = format!("available spare is {spare} %, below its threshold of {least} %");
            found.insert(Concern::Critical(CriticalWarning::SpareBelowThreshold), words);
        }
        if smart.wear_percent >= WORN {
            let words =
                format!("{} % of the life that its vendor expects are used", smart.wear_percent);
            found.insert(Concern::Worn, words);
        }
    }
    match (facts.temperature_celsius, facts.critical_celsius) {
        (Some(is), Some(critical)) if is >= critical => {
            found.insert(Concern::Hot, format!("it has {is} C, and {critical} C are critical"));
        }
        _ => {}
    }
    if let (Some((more, _)), Some(count)) = (media_errors.grown, media_errors.count) {
        let words = format!("it has {count} media errors, {more} of them new");
        found.insert(Concern::MediaErrors, words);
    }
    if is_silent {
        let seconds = Duration::from_nanos(HARDWARE_PATIENCE).as_secs();
        let words = format!("it has not said in {seconds} s how it is");
        found.insert(Concern::Silent, words);
    }
    found
}

impl Concern {
    /// What to do about it.
    pub fn help(self, place: &Place, advice: Advice) -> String {
        if advice.is_leaving
            && let Place::Pool(pool, index) = place
        {
            return format!(
                "what it has is being moved: `flashloom drive show {pool}/{index}` says when it can be pulled"
            );
        }
        let instead = instead(place, advice);
        match self {
            Self::Critical(warning) if warning.foretells_failure() => {
                format!("it is about to fail: {instead}")
            }
            Self::Critical(CriticalWarning::Temperature) | Self::Hot => {
                "look at the machine's cooling: a drive that is too hot gets slow, then stops"
                    .to_owned()
            }
            Self::Critical(_) => {
                format!("it may lose what it has acknowledged when power fails: {instead}")
            }
            Self::Worn => format!("plan for another one: {instead}"),
            Self::MediaErrors => match place {
                Place::Pool(pool, _) => format!(
                    "`flashloom pool scrub start {pool}` finds what it no longer gives; if they go on, {instead}"
                ),
                Place::Spare(..) | Place::Namespace(..) => format!("if they go on, {instead}"),
            },
            Self::Silent => format!("see the kernel's log; if it stays so, {instead}"),
        }
    }
}

/// How another drive comes to do what this one does.
fn instead(place: &Place, advice: Advice) -> String {
    match place {
        Place::Pool(pool, index) => {
            let drive = format!("{pool}/{index}");
            let replace =
                format!("`flashloom drive replace {drive} NEW` puts another one in its place");
            match advice.can_evacuate {
                true => format!(
                    "{replace}, `flashloom drive evacuate {drive}` moves what it has onto the others"
                ),
                false => replace,
            }
        }
        Place::Spare(pool, path) => format!(
            "`flashloom pool spare add {pool} NEW` has another one stand by, then \
             `flashloom pool spare remove {pool} {path}` lets this one go"
        ),
        Place::Namespace(..) => {
            "nothing else has what is on it: have its hosts copy that to another namespace"
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_advised_can_be_done() {
        let pool: Name = "fast".parse().unwrap();
        let place = Place::Pool(pool.clone(), 2);
        let help = |concern: Concern, can_evacuate, is_leaving| {
            concern.help(&place, Advice { can_evacuate, is_leaving })
        };
        for warning in CriticalWarning::ALL {
            let said = help(Concern::Critical(warning), true, false);
            assert_eq!(
                said.starts_with("it is about to fail: `flashloom drive replace fast/2 NEW`"),
                warning.foretells_failure(),
                "{said}"
            );
        }
        let failing = Concern::Critical(CriticalWarning::ReadOnly);
        assert!(help(failing, true, false).contains("`flashloom drive evacuate fast/2`"));
        assert!(!help(failing, false, false).contains("evacuate"));
        let leaving = help(failing, true, true);
        assert!(leaving.contains("being moved") && !leaving.contains("replace"), "{leaving}");
        for concern in [Concern::Worn, Concern::MediaErrors, Concern::Silent] {
            assert!(help(concern, false, false).contains("drive replace fast/2 NEW"));
        }
        assert!(help(Concern::Hot, false, false).contains("cooling"));
        let spare = Place::Spare(pool, "/dev/sdx".to_owned());
        for concern in [failing, Concern::Worn, Concern::MediaErrors, Concern::Silent] {
            let said = concern.help(&spare, Advice::default());
            assert!(said.contains("`flashloom pool spare remove fast /dev/sdx`"), "{said}");
        }
        let alone = Place::Namespace("nqn.2026-11.org.example:s".parse().unwrap(), 3);
        let said = failing.help(&alone, Advice::default());
        assert!(said.starts_with("it is about to fail") && said.contains("copy"), "{said}");
    }

    #[test]
    fn media_errors_are_new_for_a_day() {
        let mut errors = MediaErrors::default();
        // Those that it had before are old.
        errors.see(7, 0);
        assert_eq!(errors.grown, None);
        errors.see(9, 10);
        errors.see(9, 20);
        assert_eq!(errors.grown, Some((2, 10)));
        errors.see(10, 30);
        errors.forget(29 + MEDIA_ERRORS_TOLD);
        assert_eq!(errors.grown, Some((3, 30)));
        errors.forget(30 + MEDIA_ERRORS_TOLD);
        assert_eq!(errors.grown, None);
        // A counter that fell is another drive's.
        errors.see(1, 40);
        assert_eq!(errors.grown, None);
    }
}
