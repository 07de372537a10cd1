//! Configuration files: what is read, and the exact words for what is refused.

use super::*;

const GOOD: &str = r#"
[node]
cpus = "0"
poll = "interrupt"
spin-us = 50
pool-low-percent = 70
strict-host-names = true
windows = "off"
window-bytes = "64MiB"

[serving]
connections = 4096
host-controllers = 128
queue-entries = 16384

[drives]
answer-within = 20

[[listener]]
address = "0.0.0.0:4420"
advertise = "10.0.2.2"

[[listener]]
address = "[::1]:8009"
discovery-only = true

[[subsystem]]
nqn = "nqn.2026-11.io.flashloom:a"
serial = "ABC"
hosts = ["nqn.2014-08.org.nvmexpress:uuid:6f0a2c9e-7c7e-4c55-9c3c-2f0f0f1f9a11"]

[[subsystem.namespace]]
backend = "memory:1GiB"
block-size = 512

[[subsystem.namespace]]
nsid = 1
backend = "drive:/dev/nvme0n1"

[[subsystem]]
nqn = "nqn.2026-11.io.flashloom:b"
allow-any-host = true

[[referral]]
address = "192.0.2.9:8009"
"#;

#[test]
fn a_good_file_means_what_it_says() {
    let config = parse(Path::new("good.toml"), GOOD).unwrap();
    assert_eq!(config.settings.cpus, [0]);
    assert!(config.settings.strict_host_names && !Settings::default().strict_host_names);
    assert!(!config.settings.windows && Settings::default().windows);
    assert_eq!(
        (config.settings.window_bytes, Settings::default().window_bytes),
        (64 << 20, 256 << 20)
    );
    assert_eq!(config.settings.poll, PollPolicy::Interrupt);
    assert_eq!((config.settings.space.low, config.settings.space.critical), (70, 95));
    assert_eq!(config.settings.spin, Some(Duration::from_micros(50)));
    let bounds = Bounds { connections: 4096, host_controllers: 128, queue_entries: 16384 };
    assert_eq!(config.settings.bounds, bounds);
    let deadline = Deadline { transfer: Duration::from_secs(20), ..media::drive::DEADLINE };
    assert_eq!(config.settings.deadline, deadline);
    assert_eq!(config.desired.listeners.len(), 2);
    assert_eq!(config.desired.referrals.first().unwrap().to_string(), "192.0.2.9:8009");
    let (nqn, a) = config.desired.subsystems.first_key_value().unwrap();
    assert_eq!(nqn.as_str(), "nqn.2026-11.io.flashloom:a");
    assert_eq!(a.serial.as_deref(), Some("ABC"));
    assert!(!a.allow_any_host);
    assert_eq!(a.hosts.len(), 1);
    assert_eq!(a.namespaces[&1].backend.to_string(), "drive:/dev/nvme0n1");
    assert_eq!(a.namespaces[&2].backend.to_string(), "memory:1GiB");
    assert_eq!(a.namespaces[&2].block_size, 512);
}

#[test]
fn an_empty_file_serves_nothing() {
    assert_eq!(parse(Path::new("empty.toml"), "").unwrap(), Config::default());
}

/// What is printed for `text` as `f.toml`.
fn refused(text: &str) -> String {
    parse(Path::new("f.toml"), text).unwrap_err().to_string()
}

#[test]
fn a_bad_value_is_shown_with_its_place_and_what_would_be_right() {
    assert_eq!(
        refused("[[listener]]\naddress = \"10.0.0.1:99999\"\n"),
        "f.toml:2:11: \"99999\" is not a TCP port\n \
         2 | address = \"10.0.0.1:99999\"\n   \
           |           ^^^^^^^^^^^^^^^^\n   \
           = write an IP address and port, such as 127.0.0.1:4420, 0.0.0.0:4420 or [::]:4420; for \
           RDMA with rdma:// before it, such as rdma://10.0.0.1:4420"
    );
}

#[test]
fn a_listener_has_an_ana_state() {
    let text = |state| format!("[[listener]]\naddress = \"10.0.0.1\"\nana = \"{state}\"\n");
    for state in api::value::AnaState::ALL {
        let config = parse(Path::new("f.toml"), &text(state.name())).unwrap();
        assert!(config.desired.listeners.values().all(|def| def.ana == state));
    }
    assert!(refused(&text("best")).contains("choose one of optimized, non-optimized"));
}

#[test]
fn the_management_socket_is_for_a_group_that_exists() {
    let group = |name: &str| {
        parse(Path::new("f.toml"), &format!("[node]\nsocket-group = \"{name}\"\n"))
            .map(|config| config.settings.socket_group)
    };
    assert_eq!(group("root").unwrap(), Some(0));
    for none in ["no such group", "", "a\\u0000b"] {
        let said = group(none).unwrap_err().to_string();
        assert!(said.contains("f.toml:2:16: the group `") && said.contains("getent"), "{said}");
    }
    assert_eq!(parse(Path::new("f.toml"), "").unwrap().settings.socket_group, None);
}

#[test]
fn a_file_without_a_word_of_what_is_served_is_known_as_such() {
    let of = |text: &str| {
        let config = parse(Path::new("f.toml"), text).unwrap();
        (config.has_listeners, config.has_subsystems)
    };
    assert_eq!(of("[node]\npoll = \"busy\"\n"), (false, false));
    assert_eq!(of("subsystem = []\n"), (false, true));
    assert_eq!(of("[[listener]]\naddress = \"10.0.0.1\"\n"), (true, false));
}

#[test]
fn a_start_goes_without_what_may_pass() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f.toml");
    std::fs::write(&file, "[node]\nsocket-group = \"no such group\"\n").unwrap();
    assert!(load(&file).is_err());
    let config = load_to_start(&file).unwrap();
    assert_eq!((config.settings.socket_group, config.passing.len()), (None, 1));
}

#[test]
fn direct_write_windows_are_had_or_not_and_their_rings_have_bounds() {
    let said = |line: &str| refused(&format!("[node]\n{line}\n"));
    assert!(said("windows = \"on\"").contains("write \"auto\" or \"off\""));
    let bytes = said("window-bytes = \"128KiB\"");
    assert!(bytes.contains("f.toml:2:16: 128 KiB of rings"), "{bytes}");
    assert!(bytes.contains("choose 256 KiB to 64 GiB"), "{bytes}");
    assert!(said("window-bytes = \"much\"").contains("f.toml:2:16: "));
    let auto = parse(Path::new("f.toml"), "[node]\nwindows = \"auto\"\n").unwrap();
    assert!(auto.settings.windows);
}

#[test]
fn metrics_are_for_this_machine_unless_more_is_said() {
    let listen = |text: &str| {
        let text = format!("[metrics]\nlisten = \"{text}\"\n");
        parse(Path::new("f.toml"), &text).map(|config| config.settings.metrics.unwrap().to_string())
    };
    assert_eq!(listen("9464").unwrap(), "127.0.0.1:9464");
    assert_eq!(listen("192.0.2.1:9464").unwrap(), "192.0.2.1:9464");
    assert_eq!(listen("[::1]:9464").unwrap(), "[::1]:9464");
    for wrong in ["192.0.2.1", "host:9464", "99999", ""] {
        assert!(listen(wrong).unwrap_err().to_string().contains("no address to serve metrics on"));
    }
    assert_eq!(parse(Path::new("f.toml"), "").unwrap().settings.metrics, None);
}

#[test]
fn a_misspelt_key_is_shown_with_the_one_meant() {
    assert_eq!(
        refused("[[listener]]\nadress = \"10.0.0.1\"\n"),
        "f.toml:2:1: unknown field `adress`, expected one of `address`, `advertise`, \
         `discovery-only`, `ana`\n 2 | adress = \"10.0.0.1\"\n   | ^^^^^^\n   = did you mean `address`?"
    );
    let tables = "= this table has node, serving, drives, metrics, listener, subsystem, referral";
    assert!(refused("[[volume]]\n").ends_with(tables));
}

#[test]
fn when_pools_are_low_on_space_is_checked() {
    let text = refused("[node]\npool-low-percent = 0\n");
    assert!(text.ends_with("= write a number from 1 to 99"), "{text}");
    let text = refused("[node]\npool-low-percent = 96\n");
    assert!(text.starts_with("f.toml:2:20: low from 96 %, critical from 95 %"), "{text}");
}

#[test]
fn a_missing_key_is_named() {
    let text = refused("[[subsystem]]\nserial = \"A\"\n");
    assert!(text.starts_with("f.toml:1:1: missing field `nqn`"), "{text}");
}

#[test]
fn broken_syntax_is_shown_with_its_place() {
    let text = refused("[node]\ncpus = \n");
    assert!(text.starts_with("f.toml:2:8: "), "{text}");
    let text = refused("[[listener]]\naddress = 4420\n");
    assert!(text.starts_with("f.toml:2:11: invalid type: integer `4420`"), "{text}");
}

#[test]
fn all_faults_are_reported_in_the_order_of_the_file() {
    let text = r#"
[node]
cpus = "3-1"
poll = "fast"
[[listener]]
address = "nowhere"
[[listener]]
address = "127.0.0.1"
[[listener]]
address = "127.0.0.1:4420"
[[subsystem]]
nqn = "nqn.2014-08.org.nvmexpress.discovery"
[[subsystem]]
nqn = "nqn.2026-11.io.flashloom:a"
serial = "far too long for a serial number"
[[subsystem.namespace]]
nsid = 7
backend = "memory:1GiB"
uuid = "x"
[[subsystem.namespace]]
nsid = 8
backend = "drive:relative"
[[subsystem.namespace]]
nsid = 9
backend = "memory:1048577"
[[subsystem.namespace]]
nsid = 10
backend = "memory:1GiB"
block-size = 520
[[subsystem]]
nqn = "nqn.2026-11.io.flashloom:a"
"#;
    let faults = parse(Path::new("f.toml"), text).unwrap_err().faults;
    let lines: Vec<usize> = faults.iter().map(|fault| fault.line).collect();
    assert_eq!(lines, [3, 4, 6, 10, 12, 15, 19, 22, 25, 29, 31]);
    let wrong: Vec<&str> = faults.iter().map(|fault| fault.refused.wrong.as_str()).collect();
    assert_eq!(wrong[0], "the range 3-1 runs backwards");
    assert_eq!(wrong[3], "127.0.0.1:4420 is listened on twice");
    assert_eq!(wrong[8], "1048577 bytes are not whole blocks of 4096 bytes");
    assert_eq!(wrong[10], "subsystem nqn.2026-11.io.flashloom:a is defined twice");
}

#[test]
fn a_taken_uuid_is_refused() {
    let namespace = |uuid: &str| {
        format!("[[subsystem.namespace]]\nbackend = \"memory:1GiB\"\nuuid = \"{uuid}\"\n")
    };
    let (one, nil) =
        ("6f0a2c9e-7c7e-4c55-9c3c-2f0f0f1f9a11", "00000000-0000-0000-0000-000000000000");
    let text = format!(
        "[[subsystem]]\nnqn = \"nqn.2026-11.io.flashloom:a\"\n{}[[subsystem]]\nnqn = \"nqn.2026-11.io.flashloom:b\"\n{}",
        namespace(one),
        namespace(one)
    );
    assert!(refused(&text).starts_with("f.toml:10:8: a namespace above has the UUID 6f0a2c9e"));
    let text = format!("[[subsystem]]\nnqn = \"nqn.2026-11.io.flashloom:a\"\n{}", namespace(nil));
    assert!(refused(&text).starts_with("f.toml:5:8: zeroes are no UUID"));
}

#[test]
fn a_taken_nsid_is_refused() {
    let text = "[[subsystem]]\nnqn = \"nqn.2026-11.io.flashloom:a\"\n\
                [[subsystem.namespace]]\nnsid = 1\nbackend = \"memory:1GiB\"\n\
                [[subsystem.namespace]]\nnsid = 1\nbackend = \"memory:1GiB\"\n";
    assert!(refused(text).starts_with("f.toml:7:8: NSID 1 is taken by a namespace above"));
}

#[test]
fn a_drive_is_for_one_namespace() {
    let text = "[[subsystem]]\nnqn = \"nqn.2026-11.io.flashloom:a\"\n\
                [[subsystem.namespace]]\nbackend = \"drive:/dev/nvme0n1\"\n\
                [[subsystem.namespace]]\nbackend = \"drive:/dev/nvme0n1,size=1GiB\"\n";
    let text = refused(text);
    assert!(text.starts_with("f.toml:6:11: a namespace above is on /dev/nvme0n1"), "{text}");
}

#[test]
fn the_packaged_file_is_a_good_one() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/flashloom.toml");
    let config = load(&file).unwrap();
    assert_eq!((config.desired.listeners.len(), config.desired.subsystems.len()), (2, 1));
    // What it only suggests is right as well.
    let text = std::fs::read_to_string(&file).unwrap();
    let bare = |line: &str| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with(' ') => rest.to_owned(),
        _ => line.to_owned(),
    };
    let all: Vec<String> = text.lines().map(bare).collect();
    let all = all.join("\n").replace("cpus = \"0-3\"", "cpus = \"0\"");
    // A group that every machine has.
    let all = all.replace("socket-group = \"flashloom\"", "socket-group = \"root\"");
    let config = parse(&file, &all.replace("serial = \"...\"", "serial = \"A\"")).unwrap();
    assert_eq!(config.desired.subsystems.values().next().unwrap().namespaces.len(), 1);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let text = load(Path::new("/nowhere/f.toml")).unwrap_err().to_string();
    assert!(text.starts_with("/nowhere/f.toml: No such file"), "{text}");
}

/// How long drives may take, how many controllers a host may have, and what bounds the daemon's memory could not be set.
#[test]
fn what_hosts_and_drives_may_have_is_bounded() {
    let text = "[serving]\nconnections = 10\nqueue-entries = 200000\nhost-controllers = 0\n\
                [drives]\nanswer-within = 5\nspace-within = 4000\n";
    let faults = parse(Path::new("bad.toml"), text).unwrap_err().to_string();
    for words in [
        "10 connections",
        "choose 2048 to 16384",
        "200000 entries of queues",
        "0 controllers of a host",
        "choose 15 to 60",
        "choose 60 to 3600",
    ] {
        assert!(faults.contains(words), "{words}: {faults}");
    }
}
