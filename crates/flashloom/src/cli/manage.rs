//! What is asked of the running daemon.

use api::value::{Address, Advertise, AnaState, Backend, Nqn, Size};
use clap::{Args, Subcommand};

use super::{DEFAULT_NQN, SureArgs, value};

/// What to do with subsystems.
#[derive(Debug, Subcommand)]
pub enum SubsystemVerb {
    /// Add a subsystem.
    #[command(after_long_help = "\
Examples:
  flashloom subsystem add nqn.2026-11.io.flashloom:db --allow-any-host
  flashloom subsystem add nqn.2026-11.io.flashloom:db --allow-host nqn.2014-08.org.nvmexpress:uuid:6f0a2c9e-7c7e-4c55-9c3c-2f0f0f1f9a11")]
    Add {
        /// Its NQN.
        #[arg(value_parser = value::<Nqn>)]
        nqn: Nqn,
        /// Serial number. [default: made from the node's identity]
        #[arg(long)]
        serial: Option<String>,
        /// Model number. [default: Flashloom]
        #[arg(long)]
        model: Option<String>,
        /// Let any host connect.
        #[arg(long)]
        allow_any_host: bool,
        /// Let this host connect; may be given several times.
        #[arg(long, value_name = "NQN", value_parser = value::<Nqn>)]
        allow_host: Vec<Nqn>,
    },
    /// Let any host connect, or only those on the list.
    #[command(after_long_help = "\
Examples:
  flashloom subsystem set nqn.2026-11.io.flashloom:db --allow-any-host false")]
    Set {
        /// Its NQN.
        #[arg(value_parser = value::<Nqn>)]
        nqn: Nqn,
        /// Whether any host may connect.
        #[arg(long, value_name = "BOOL", action = clap::ArgAction::Set, required = true)]
        allow_any_host: bool,
        #[command(flatten)]
        sure: SureArgs,
    },
    /// Remove a subsystem with its namespaces; hosts lose it.
    #[command(after_long_help = "\
Examples:
  flashloom subsystem remove nqn.2026-11.io.flashloom:db --dry-run
  flashloom subsystem remove nqn.2026-11.io.flashloom:db")]
    #[command(alias = "rm")]
    Remove {
        /// Its NQN.
        #[arg(value_parser = value::<Nqn>)]
        nqn: Nqn,
        #[command(flatten)]
        sure: SureArgs,
    },
    /// Print the subsystems.
    #[command(after_long_help = "\
Examples:
  flashloom subsystem list
  flashloom subsystem list -o json")]
    #[command(alias = "ls")]
    List,
}

/// The subsystem that a command is about.
#[derive(Args, Clone, Debug)]
pub struct Of {
    /// NQN of the subsystem.
    #[arg(long, short = 'n', value_name = "NQN", default_value = DEFAULT_NQN, value_parser = value::<Nqn>)]
    pub subnqn: Nqn,
}

/// What to do with namespaces.
#[derive(Debug, Subcommand)]
pub enum NamespaceVerb {
    /// Add a namespace; connected hosts notice.
    #[command(after_long_help = "\
Examples:
  flashloom namespace add memory:1GiB
  flashloom namespace add drive:/srv/b.img,size=10GiB --nsid 7 --block-size 512")]
    Add {
        /// What it keeps its bytes on: memory:SIZE, drive:PATH, drive:PATH,size=SIZE, passthrough:PATH or
        /// volume:POOL/NAME.
        #[arg(value_parser = value::<Backend>)]
        backend: Backend,
        #[command(flatten)]
        of: Of,
        /// Its NSID. [default: the lowest free one]
        #[arg(long)]
        nsid: Option<u32>,
        /// Logical block size: 512 or 4096. [default: 4096]
        #[arg(long, value_name = "BYTES")]
        block_size: Option<u32>,
        /// Its UUID. [default: made from the node's identity]
        #[arg(long, value_parser = uuid)]
        uuid: Option<uuid::Uuid>,
        /// Also a drive that carries a pool's label: that pool is lost once hosts write to it.
        #[arg(long)]
        force: bool,
    },
    /// Change a namespace's size; connected hosts notice.
    #[command(after_long_help = "\
Examples:
  flashloom namespace resize 1 2GiB")]
    Resize {
        /// Its NSID.
        nsid: u32,
        /// The new size; what lies beyond a smaller one is lost, which is asked about.
        #[arg(value_parser = value::<Size>)]
        size: Size,
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        sure: SureArgs,
    },
    /// Remove a namespace; connected hosts notice. A drive keeps its data.
    #[command(after_long_help = "\
Examples:
  flashloom namespace remove 7")]
    #[command(alias = "rm")]
    Remove {
        /// Its NSID.
        nsid: u32,
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        sure: SureArgs,
    },
    /// Print the namespaces of all subsystems.
    #[command(after_long_help = "\
Examples:
  flashloom namespace list
  flashloom namespace list -o json")]
    #[command(alias = "ls")]
    List,
}

/// What to do with listeners.
#[derive(Debug, Subcommand)]
pub enum ListenerVerb {
    /// Listen on one more address.
    #[command(after_long_help = "\
Examples:
  flashloom listener add 192.0.2.10:4420
  flashloom listener add 0.0.0.0:8009 --discovery-only")]
    Add {
        /// IP address and port.
        #[arg(value_parser = value::<Address>)]
        address: Address,
        /// Address that discovery returns in place of the one the host connected to.
        #[arg(long, value_name = "ADDR[:PORT]", value_parser = value::<Advertise>)]
        advertise: Option<Advertise>,
        /// Offer discovery only.
        #[arg(long)]
        discovery_only: bool,
        /// What hosts that connect here are told of the way to the namespaces.
        #[arg(long, value_name = "STATE", default_value = "optimized", value_parser = value::<AnaState>)]
        ana: AnaState,
    },
    /// Change the ANA state for hosts that are connected through an address; they are told.
    #[command(after_long_help = "\
States: optimized, non-optimized, inaccessible, persistent-loss, change.
Hosts with several ways to a namespace use an optimized one, else a non-optimized one, else they wait.

Examples:
  flashloom listener set-ana 192.0.2.10:4420 non-optimized
  flashloom listener set-ana 192.0.2.10:4420 inaccessible")]
    SetAna {
        /// IP address and port.
        #[arg(value_parser = value::<Address>)]
        address: Address,
        /// The new state.
        #[arg(value_parser = value::<AnaState>)]
        state: AnaState,
        #[command(flatten)]
        sure: SureArgs,
    },
    /// Stop listening on an address; connections made through it stay.
    #[command(after_long_help = "\
Examples:
  flashloom listener remove 192.0.2.10:4420")]
    #[command(alias = "rm")]
    Remove {
        /// IP address and port.
        #[arg(value_parser = value::<Address>)]
        address: Address,
        #[command(flatten)]
        sure: SureArgs,
    },
    /// Print the addresses listened on.
    #[command(after_long_help = "\
Examples:
  flashloom listener list")]
    #[command(alias = "ls")]
    List,
}

/// What to do with referrals.
#[derive(Debug, Subcommand)]
pub enum ReferralVerb {
    /// Tell hosts of another discovery service.
    #[command(after_long_help = "\
Examples:
  flashloom referral add 192.0.2.9:8009")]
    Add {
        /// Its IP address and port.
        #[arg(value_parser = value::<Address>)]
        address: Address,
    },
    /// Tell hosts no longer of another discovery service.
    #[command(after_long_help = "\
Examples:
  flashloom referral remove 192.0.2.9:8009")]
    #[command(alias = "rm")]
    Remove {
        /// Its IP address and port.
        #[arg(value_parser = value::<Address>)]
        address: Address,
    },
    /// Print the discovery services that hosts are told of.
    #[command(after_long_help = "\
Examples:
  flashloom referral list")]
    #[command(alias = "ls")]
    List,
}

/// What to do with hosts.
#[derive(Debug, Subcommand)]
pub enum HostVerb {
    /// Let a host connect.
    #[command(after_long_help = "\
Examples:
  flashloom host add nqn.2014-08.org.nvmexpress:uuid:6f0a2c9e-7c7e-4c55-9c3c-2f0f0f1f9a11")]
    Add {
        /// NQN of the host.
        #[arg(value_parser = value::<Nqn>)]
        nqn: Nqn,
        #[command(flatten)]
        of: Of,
    },
    /// Take a host off the list; it loses its connections unless any host may connect.
    #[command(after_long_help = "\
Examples:
  flashloom host remove nqn.2014-08.org.nvmexpress:uuid:6f0a2c9e-7c7e-4c55-9c3c-2f0f0f1f9a11")]
    #[command(alias = "rm")]
    Remove {
        /// NQN of the host.
        #[arg(value_parser = value::<Nqn>)]
        nqn: Nqn,
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        sure: SureArgs,
    },
    /// Print the hosts on the lists of all subsystems.
    #[command(after_long_help = "\
Examples:
  flashloom host list")]
    #[command(alias = "ls")]
    List,
}

/// What to do with controllers.
#[derive(Debug, Subcommand)]
pub enum ControllerVerb {
    /// Print the live controllers: which host is connected to what.
    #[command(after_long_help = "\
Examples:
  flashloom controller list")]
    #[command(alias = "ls")]
    List,
}

/// Reads a UUID.
fn uuid(text: &str) -> Result<uuid::Uuid, String> {
    let right = "it looks like 6f0a2c9e-7c7e-4c55-9c3c-2f0f0f1f9a11, and `uuidgen` makes one";
    text.parse().map_err(|_| format!("\"{text}\" is not a UUID; {right}"))
}

/// Print what happened in the running daemon.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  flashloom events
  flashloom events --follow
  flashloom events --from 100 -o json")]
pub struct EventsArgs {
    /// Leave out events before this one.
    #[arg(long, value_name = "ID", default_value = "0")]
    pub from: u64,

    /// Go on with those that happen, a line each, until the daemon ends.
    #[arg(long, short)]
    pub follow: bool,
}
