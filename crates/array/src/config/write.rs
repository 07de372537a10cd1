//! What is served as a configuration file that asks for the same.

use api::value::{Address, Advertise, AnaState, Backend, Nqn};
use serde::Serialize;
use uuid::Uuid;

use crate::desired::{Desired, ListenerDef, NamespaceDef, SubsystemDef};

#[derive(Serialize)]
struct File<'d> {
    listener: Vec<Listener<'d>>,
    referral: Vec<Referral<'d>>,
    subsystem: Vec<Subsystem<'d>>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Listener<'d> {
    address: &'d Address,
    #[serde(skip_serializing_if = "Option::is_none")]
    advertise: Option<Advertise>,
    discovery_only: bool,
    ana: AnaState,
}

#[derive(Serialize)]
struct Referral<'d> {
    address: &'d Address,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Subsystem<'d> {
    nqn: &'d Nqn,
    #[serde(skip_serializing_if = "Option::is_none")]
    serial: Option<&'d str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'d str>,
    allow_any_host: bool,
    hosts: Vec<&'d Nqn>,
    namespace: Vec<Namespace<'d>>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Namespace<'d> {
    nsid: u32,
    backend: &'d Backend,
    block_size: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    uuid: Option<Uuid>,
}

/// The text of a configuration file that asks for `desired`. Tables of settings are left out.
///
/// # Errors
/// A sentence, where TOML has no way to say it.
pub fn text(desired: &Desired) -> Result<String, String> {
    let file = File {
        listener: desired.listeners.iter().map(listener).collect(),
        referral: desired.referrals.iter().map(|address| Referral { address }).collect(),
        subsystem: desired.subsystems.iter().map(subsystem).collect(),
    };
    toml::to_string(&file).map_err(|error| error.to_string())
}

fn listener<'d>((address, def): (&'d Address, &'d ListenerDef)) -> Listener<'d> {
    let ListenerDef { advertise, discovery_only, ana } = *def;
    Listener { address, advertise, discovery_only, ana }
}

fn subsystem<'d>((nqn, def): (&'d Nqn, &'d SubsystemDef)) -> Subsystem<'d> {
    let namespace = |(nsid, def): (&u32, &'d NamespaceDef)| Namespace {
        nsid: *nsid,
        backend: &def.backend,
        block_size: def.block_size,
        uuid: def.uuid,
    };
    Subsystem {
        nqn,
        serial: def.serial.as_deref(),
        model: def.model.as_deref(),
        allow_any_host: def.allow_any_host,
        hosts: def.hosts.iter().collect(),
        namespace: def.namespaces.iter().map(namespace).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::parse;

    const WHOLE: &str = r#"
[[listener]]
address = "192.0.2.1:4420"
advertise = "198.51.100.1:4421"
ana = "non-optimized"

[[listener]]
address = "0.0.0.0:8009"
discovery-only = true

[[referral]]
address = "192.0.2.9:8009"

[[subsystem]]
nqn = "nqn.2026-11.io.flashloom:a"
serial = "S \"1\" \\"
model = "M"
hosts = ["nqn.2026-11.io.flashloom:h1", "nqn.2026-11.io.flashloom:h2"]

[[subsystem.namespace]]
nsid = 7
backend = "drive:/srv/a b.img,size=1048576"
block-size = 512
uuid = "6f0a2c9e-7c7e-4c55-9c3c-2f0f0f1f9a11"

[[subsystem.namespace]]
nsid = 9
backend = "volume:fast/db"

[[subsystem]]
nqn = "nqn.2026-11.io.flashloom:b"
allow-any-host = true

[[subsystem.namespace]]
nsid = 1
backend = "memory:1GiB"
"#;

    #[test]
    fn what_is_written_asks_for_the_same() {
        let asked = parse(Path::new("whole"), WHOLE).unwrap().desired;
        assert_eq!((asked.listeners.len(), asked.subsystems.len()), (2, 2));
        let again = text(&asked).unwrap();
        assert_eq!(parse(Path::new("again"), &again).unwrap().desired, asked, "{again}");
        let nothing = text(&Desired::default()).unwrap();
        assert_eq!(parse(Path::new("nothing"), &nothing).unwrap().desired, Desired::default());
    }
}
