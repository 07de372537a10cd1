//! RAID at the host: `raid`, and members wherever a set can be used.

use std::str::FromStr;

use api::value::Size;
use clap::{Args, Subcommand, ValueEnum};
use hostraid::Level;
use initiator::Address;

use super::connect::ConnectArgs;
use super::value;

/// A namespace that is a member of a set; what it leaves out is as the other options say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberSpec {
    pub traddr: Option<Address>,
    pub trsvcid: Option<u16>,
    pub subnqn: Option<String>,
    pub nsid: Option<u32>,
}

const RIGHT: &str = "write traddr=ADDR, trsvcid=PORT, nqn=NQN and nsid=NSID with commas between them, \
                     such as traddr=192.0.2.10,nqn=nqn.2026-11.io.flashloom:a";

impl FromStr for MemberSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || format!("{RIGHT}: `{text}`");
        let mut spec = Self::default();
        for part in text.split(',') {
            let (key, value) = part.split_once('=').ok_or_else(refused)?;
            let taken = match key {
                "traddr" => spec.traddr.replace(value.parse().map_err(|_| refused())?).is_some(),
                "trsvcid" => spec.trsvcid.replace(value.parse().map_err(|_| refused())?).is_some(),
                "nqn" | "subnqn" => spec.subnqn.replace(value.to_owned()).is_some(),
                "nsid" => spec.nsid.replace(value.parse().map_err(|_| refused())?).is_some(),
                _ => return Err(refused()),
            };
            if taken || value.is_empty() {
                return Err(refused());
            }
        }
        Ok(spec)
    }
}

impl std::fmt::Display for MemberSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = [
            self.traddr.as_ref().map(|addr| format!("traddr={addr}")),
            self.trsvcid.map(|port| format!("trsvcid={port}")),
            self.subnqn.as_ref().map(|nqn| format!("nqn={nqn}")),
            self.nsid.map(|nsid| format!("nsid={nsid}")),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(","))
    }
}

/// What a set is put together from.
#[derive(Args, Clone, Debug)]
pub struct SetArgs {
    #[command(flatten)]
    pub connect: ConnectArgs,

    /// A member: traddr=ADDR,trsvcid=PORT,nqn=NQN,nsid=NSID; given once for each. What it leaves out is as
    /// --traddr, --trsvcid, --subnqn and --nsid say.
    #[arg(
        long = "member",
        value_name = "MEMBER",
        required = true,
        conflicts_with_all = ["path", "all_paths"]
    )]
    pub members: Vec<MemberSpec>,
}

/// How members are made use of.
#[derive(Args, Clone, Debug)]
pub struct UseArgs {
    /// Go on without members that were there when the set was last used.
    #[arg(long)]
    pub degraded: bool,

    /// Take the members from another host that holds them: only when that is gone for good.
    #[arg(long)]
    pub take_over: bool,

    /// Bytes a second that a rebuild or check takes of each member at most. [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = value::<Size>)]
    pub rate: Option<Size>,
}

/// What protects a set's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SetLevel {
    /// Nothing: a lost member loses data.
    #[value(name = "raid0", alias = "stripe")]
    Raid0,
    /// Copies: all members but one may be lost.
    #[value(name = "raid1", alias = "mirror")]
    Raid1,
    /// One member may be lost.
    Raid5,
    /// Two members may be lost.
    Raid6,
}

impl From<SetLevel> for Level {
    fn from(level: SetLevel) -> Self {
        match level {
            SetLevel::Raid0 => Self::Stripe,
            SetLevel::Raid1 => Self::Mirror,
            SetLevel::Raid5 => Self::Raid5,
            SetLevel::Raid6 => Self::Raid6,
        }
    }
}

/// What to do with sets. A set is used by one program at a time.
#[derive(Debug, Subcommand)]
pub enum RaidVerb {
    /// Make a set of namespaces; what they hold is lost.
    #[command(after_long_help = "\
Examples:
  flashloom raid create --name db --level raid5 --member traddr=192.0.2.10 --member traddr=192.0.2.11 --member traddr=192.0.2.12
  flashloom attach --nbd unix:/run/db.sock --member traddr=192.0.2.10 --member traddr=192.0.2.11 --member traddr=192.0.2.12")]
    Create {
        #[command(flatten)]
        of: SetArgs,
        /// Its name, up to 32 bytes.
        #[arg(long, value_name = "NAME")]
        name: String,
        /// What protects its data.
        #[arg(long, value_name = "LEVEL")]
        level: SetLevel,
        /// Bytes of a stripe that lie on one member: a power of two from 4k to 1m.
        #[arg(long, value_name = "SIZE", default_value = "64k", value_parser = value::<Size>)]
        chunk: Size,
        /// Take namespaces that are not blank.
        #[arg(long)]
        force: bool,
    },
    /// Print what the members say of their set; nothing is changed.
    #[command(after_long_help = "\
Examples:
  flashloom raid show --member traddr=192.0.2.10 --member traddr=192.0.2.11 -o json")]
    Show {
        #[command(flatten)]
        of: SetArgs,
    },
    /// Read everything, and compare parity and copies with the data.
    #[command(after_long_help = "\
Examples:
  flashloom raid check --member traddr=192.0.2.10 --member traddr=192.0.2.11 --rate 100MiB
  flashloom raid check --member traddr=192.0.2.10 --member traddr=192.0.2.11 --repair

What cannot be read on one member is written there again from the others. Exits with 6 if something differs
and was not repaired.")]
    Check {
        #[command(flatten)]
        of: SetArgs,
        #[command(flatten)]
        how: UseArgs,
        /// Make parity and copies say what the data does.
        #[arg(long)]
        repair: bool,
    },
    /// Give members what they have not: those that were away, and new ones.
    #[command(after_long_help = "\
Examples:
  flashloom raid rebuild --member traddr=192.0.2.10 --member traddr=192.0.2.11 --member traddr=192.0.2.12
  flashloom raid rebuild --member traddr=192.0.2.10 --member traddr=192.0.2.11 --add traddr=192.0.2.13

A member that was away gets what was written meanwhile, a new one everything. Stopped, it goes on where it was.")]
    Rebuild {
        #[command(flatten)]
        of: SetArgs,
        #[command(flatten)]
        how: UseArgs,
        /// A blank namespace to take in for a member that is missing.
        #[arg(long, value_name = "MEMBER")]
        add: Option<MemberSpec>,
        /// Take it although it is not blank.
        #[arg(long, requires = "add")]
        force: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_and_shown() {
        let text = "traddr=192.0.2.10,trsvcid=4421,nqn=nqn.2026-11.io.flashloom:a,nsid=3";
        let spec: MemberSpec = text.parse().unwrap();
        assert_eq!(
            (spec.trsvcid, spec.nsid, spec.to_string()),
            (Some(4421), Some(3), text.to_owned())
        );
        assert_eq!("traddr=::1".parse::<MemberSpec>().unwrap().to_string(), "traddr=::1");
        for text in ["", "192.0.2.10", "traddr=", "nsid=x", "traddr=a,traddr=b", "size=3"] {
            assert!(text.parse::<MemberSpec>().is_err(), "{text}");
        }
    }
}
