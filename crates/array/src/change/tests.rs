//! Steps between two states: the order they come in, and that going back undoes going there.

use std::path::Path;

use super::*;
use crate::config;

const A: &str = r#"
[[listener]]
address = "127.0.0.1:4420"
[[listener]]
address = "127.0.0.1:4421"
[[subsystem]]
nqn = "nqn.2026-11.io.flashloom:a"
allow-any-host = true
[[subsystem.namespace]]
backend = "memory:1GiB"
[[subsystem.namespace]]
backend = "memory:1GiB"
[[subsystem]]
nqn = "nqn.2026-11.io.flashloom:b"
hosts = ["nqn.2026-11.io.flashloom:host"]
[[referral]]
address = "192.0.2.9:8009"
"#;

const B: &str = r#"
[[listener]]
address = "127.0.0.1:4421"
ana = "non-optimized"
[[listener]]
address = "127.0.0.1:4422"
[[subsystem]]
nqn = "nqn.2026-11.io.flashloom:a"
hosts = ["nqn.2026-11.io.flashloom:host"]
[[subsystem.namespace]]
backend = "memory:2GiB"
[[subsystem.namespace]]
backend = "drive:/dev/nvme0n1"
[[subsystem]]
nqn = "nqn.2026-11.io.flashloom:c"
[[referral]]
address = "192.0.2.9:8010"
"#;

fn desired(text: &str) -> Desired {
    config::parse(Path::new("test.toml"), text).unwrap().desired
}

/// Short names of `steps`, in order.
fn names(steps: &[Step]) -> Vec<String> {
    let last = |nqn: &Nqn| nqn.as_str().rsplit(':').next().unwrap_or_default().to_owned();
    let name = |step: &Step| match step {
        Step::AddSubsystem { nqn, .. } => format!("+{}", last(nqn)),
        Step::RemoveSubsystem { nqn, .. } => format!("-{}", last(nqn)),
        Step::AllowAny { nqn, allow } => format!("any {} {allow}", last(nqn)),
        Step::AllowHost { nqn, host } => format!("+{} {}", last(nqn), last(host)),
        Step::DenyHost { nqn, host } => format!("-{} {}", last(nqn), last(host)),
        Step::AddNamespace { nqn, nsid, .. } => format!("+{} {nsid}", last(nqn)),
        Step::RemoveNamespace { nqn, nsid, .. } => format!("-{} {nsid}", last(nqn)),
        Step::Resize { nqn, nsid, to, .. } => format!("{} {nsid} {}", last(nqn), to.backend),
        Step::AddReferral { address } => format!("+r{}", address.socket().port()),
        Step::RemoveReferral { address } => format!("-r{}", address.socket().port()),
        Step::SetAna { address, to, .. } => format!("{} {to}", address.socket().port()),
        Step::AddListener { address, .. } => format!("+{}", address.socket().port()),
        Step::RemoveListener { address, .. } => format!("-{}", address.socket().port()),
    };
    steps.iter().map(name).collect()
}

#[test]
fn what_goes_comes_before_what_is_new_and_listeners_open_last() {
    let expected = [
        "-4420",
        "-a 2",
        "-b host",
        "-b",
        "any a false",
        "+a host",
        "a 1 memory:2GiB",
        "+a 2",
        "+c",
        "-r8009",
        "+r8010",
        "4421 non-optimized",
        "+4422",
    ];
    assert_eq!(names(&steps(&desired(A), &desired(B))), expected);
}

#[test]
fn nothing_to_do_is_no_step() {
    assert_eq!(steps(&desired(A), &desired(A)), []);
}

#[test]
fn a_new_serial_number_takes_the_subsystem_away_and_brings_it_back() {
    let mut new = desired(B);
    for subsystem in new.subsystems.values_mut() {
        subsystem.serial = Some("NEW".into());
    }
    let names = names(&steps(&desired(B), &new));
    assert_eq!(
        names,
        ["-a 1", "-a 2", "-a host", "-a", "-c", "+a", "+a host", "+a 1", "+a 2", "+c"]
    );
}

#[test]
fn the_inverse_of_the_inverse_is_the_step() {
    for step in steps(&desired(A), &desired(B)) {
        assert_eq!(step.clone().inverse().inverse(), step);
    }
}
