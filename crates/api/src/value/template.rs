//! What the snapshots of a schedule are called: `{every}-{time}`.

use std::fmt;
use std::str::FromStr;

use super::{Name, Period, Refused};

/// A name in which `{time}` stands for when a snapshot was taken, and `{every}` for the period of the rule that had it taken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameTemplate(String);

const RIGHT: &str = "write what a name may have, with {time} and, if you like, {every}, such as \
                     {every}-{time} or hourly_{time}";

/// As long as any time or period is written, with the number that tells apart what would be called alike.
const LONGEST: (&str, &str, &str) = ("20261128T220000Z", "527040m", "-999");

impl NameTemplate {
    /// The name at a time that is written so, of a rule's period: the first, or a copy of that number.
    ///
    /// # Errors
    /// Where that is no name, which no template allows for times until the year 9999.
    pub fn name(&self, time: &str, every: Period, copy: u32) -> Result<Name, Refused> {
        let copy = if copy <= 1 { String::new() } else { format!("-{copy}") };
        format!("{}{copy}", self.filled(time, &every.to_string())).parse()
    }

    /// Whether rules with other periods have other names.
    pub fn tells_rules_apart(&self) -> bool {
        self.0.contains("{every}")
    }

    fn filled(&self, time: &str, every: &str) -> String {
        self.0.replace("{time}", time).replace("{every}", every)
    }
}

impl Default for NameTemplate {
    fn default() -> Self {
        Self("{every}-{time}".to_owned())
    }
}

impl FromStr for NameTemplate {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        let (template, (time, every, copy)) = (Self(text.to_owned()), LONGEST);
        let refused = |why: &str| {
            Refused::new(format!("{text:?} is not a template of snapshots' names: {why}"), RIGHT)
        };
        if !text.contains("{time}") {
            return Err(refused("it has no {time}"));
        }
        match format!("{}{copy}", template.filled(time, every)).parse::<Name>() {
            Ok(_) => Ok(template),
            Err(_) => Err(refused("with {time} and {every} filled in, it makes no name")),
        }
    }
}

impl fmt::Display for NameTemplate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&self.0)
    }
}

super::text_value!(
    NameTemplate,
    "{every}-{time}",
    "What snapshots are called: {time} is when one was taken, {every} the period of its rule."
);
