//! The file's tables as TOML has them: every value with its place.

use serde::Deserialize;
use toml::Spanned;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Document {
    #[serde(default)]
    pub node: Node,
    #[serde(default)]
    pub serving: Serving,
    #[serde(default)]
    pub drives: Drives,
    #[serde(default)]
    pub metrics: Metrics,
    pub listener: Option<Vec<Listener>>,
    pub subsystem: Option<Vec<Subsystem>>,
    #[serde(default)]
    pub referral: Vec<Referral>,
}

/// `[[referral]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Referral {
    pub address: Spanned<String>,
}

/// `[node]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Node {
    pub cpus: Option<Spanned<String>>,
    pub poll: Option<Spanned<String>>,
    pub spin_us: Option<Spanned<u64>>,
    pub pool_low_percent: Option<Spanned<u8>>,
    pub pool_critical_percent: Option<Spanned<u8>>,
    pub pool_discard: Option<bool>,
    pub wait_for_drives: Option<Spanned<u64>>,
    pub rebuild_after: Option<Spanned<u64>>,
    pub scrub_days: Option<Spanned<u64>>,
    #[serde(default)]
    pub drive_folders: Vec<Spanned<String>>,
    #[serde(default)]
    pub strict_host_names: bool,
    pub socket_group: Option<Spanned<String>>,
    pub windows: Option<Spanned<String>>,
    pub window_bytes: Option<Spanned<String>>,
}

/// `[serving]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Serving {
    pub connections: Option<Spanned<u64>>,
    pub host_controllers: Option<Spanned<u64>>,
    pub queue_entries: Option<Spanned<u64>>,
}

/// `[drives]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Drives {
    pub answer_within: Option<Spanned<u64>>,
    pub space_within: Option<Spanned<u64>>,
}

/// `[metrics]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Metrics {
    pub listen: Option<Spanned<String>>,
}

/// `[[listener]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Listener {
    pub address: Spanned<String>,
    pub advertise: Option<Spanned<String>>,
    #[serde(default)]
    pub discovery_only: bool,
    pub ana: Option<Spanned<String>>,
}

/// `[[subsystem]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Subsystem {
    pub nqn: Spanned<String>,
    pub serial: Option<Spanned<String>>,
    pub model: Option<Spanned<String>>,
    #[serde(default)]
    pub allow_any_host: bool,
    #[serde(default)]
    pub hosts: Vec<Spanned<String>>,
    #[serde(default)]
    pub namespace: Vec<Namespace>,
}

/// `[[subsystem.namespace]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Namespace {
    pub nsid: Option<Spanned<u32>>,
    pub backend: Spanned<String>,
    pub block_size: Option<Spanned<u32>>,
    pub uuid: Option<Spanned<String>>,
}
