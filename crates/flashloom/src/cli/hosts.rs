//! The host side: `discover`, `id-ctrl`, `id-ns`.

use std::time::Duration;

use clap::Args;
use initiator::{Address, HostIdentity, Options, Remote};

/// Which controller to speak to, and as whom.
#[derive(Args, Clone, Debug)]
pub struct To {
    /// Address of the target: IP address or name; for NVMe/RDMA with rdma:// before it. A port in it goes before
    /// --trsvcid.
    #[arg(long, short = 'a', value_name = "[rdma://]ADDR[:PORT]", default_value = "127.0.0.1")]
    pub traddr: Address,

    /// Port of the target.
    #[arg(long, short = 's', value_name = "PORT", default_value = "4420")]
    pub trsvcid: u16,

    /// Host NQN to connect as. [default: this machine's]
    #[arg(long, short = 'q', value_name = "NQN")]
    pub hostnqn: Option<String>,

    /// Host Identifier, a UUID. [default: that of --hostnqn, or this machine's]
    #[arg(long, short = 'I', value_name = "UUID", value_parser = HostIdentity::parse_id)]
    pub hostid: Option<[u8; 16]>,
}

impl To {
    /// Who connects.
    pub fn host(&self) -> HostIdentity {
        HostIdentity::of(self.hostnqn.as_deref(), self.hostid)
    }

    /// A subsystem there, with the usual options.
    pub fn remote(&self, subnqn: &str) -> Remote {
        Remote {
            traddr: self.traddr.traddr.clone(),
            trsvcid: self.traddr.trsvcid.unwrap_or(self.trsvcid),
            subnqn: subnqn.to_owned(),
            host: self.host(),
            options: Options::default(),
        }
    }
}

/// Print the discovery log of a target.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
Examples:
  flashloom discover
  flashloom discover --traddr 192.0.2.10 --trsvcid 8009
  flashloom discover --traddr rdma://192.0.2.10
  flashloom discover -o json")]
pub struct DiscoverArgs {
    #[command(flatten)]
    pub to: To,
}

/// Print a controller's Identify data.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
Examples:
  flashloom id-ctrl
  flashloom id-ctrl --traddr 192.0.2.10 --subnqn nqn.2026-11.io.flashloom:db -o json")]
pub struct AskArgs {
    #[command(flatten)]
    pub to: To,

    /// NQN of the subsystem.
    #[arg(long, short = 'n', value_name = "NQN", default_value = super::DEFAULT_NQN)]
    pub subnqn: String,
}

/// Print a namespace's Identify data.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
Examples:
  flashloom id-ns --nsid 1
  flashloom id-ns --traddr 192.0.2.10 --subnqn nqn.2026-11.io.flashloom:db --nsid 2 -o json")]
pub struct IdNsArgs {
    #[command(flatten)]
    pub ask: AskArgs,

    /// The namespace.
    #[arg(long, value_name = "NSID", default_value = "1")]
    pub nsid: u32,
}

/// `10`, `10s`, `500ms`, `20us`, `2m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.len() - text.trim_start_matches(|char: char| char.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| RIGHT.to_owned())?;
    const RIGHT: &str = "write a time such as 10s, 500ms or 2m";
    let duration = match unit {
        "" | "s" => Duration::from_secs(number),
        "ms" => Duration::from_millis(number),
        "us" => Duration::from_micros(number),
        "m" => Duration::from_secs(number.saturating_mul(60)),
        _ => return Err(RIGHT.to_owned()),
    };
    if duration.is_zero() {
        return Err("a run takes some time; ".to_owned() + RIGHT);
    }
    Ok(duration)
}
