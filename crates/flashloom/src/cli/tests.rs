//! The command line holds together, and every example in its help is one that it takes.

use clap::{CommandFactory, Parser};

use super::*;

#[test]
fn the_command_line_holds_together() {
    Cli::command().debug_assert();
}

/// Every `  flashloom ...` line of the help of `command` and those below it.
fn examples(command: &mut clap::Command, found: &mut Vec<String>) {
    let help = command.render_long_help().to_string();
    let lines = help.lines().map(str::trim).filter(|line| line.starts_with("flashloom "));
    found.extend(lines.map(|line| line.split(" #").next().unwrap().trim().to_owned()));
    for below in command.get_subcommands_mut() {
        examples(below, found);
    }
}

#[test]
fn every_example_is_taken() {
    let mut found = Vec::new();
    // Wide enough that no example is wrapped.
    examples(&mut Cli::command().term_width(400), &mut found);
    assert!(found.len() > 30, "{found:?}");
    for example in found {
        if let Err(error) = Cli::try_parse_from(example.split_whitespace()) {
            panic!("{example}\n{error}");
        }
    }
}

#[test]
fn every_command_that_is_shown_has_an_example() {
    fn check(command: &mut clap::Command, path: &str) {
        let path = format!("{path} {}", command.get_name());
        if command.get_name() == "help" || command.is_hide_set() {
            return;
        }
        let is_leaf = command.get_subcommands().next().is_none();
        let help = command.render_long_help().to_string();
        assert!(!is_leaf || path.ends_with(" status") || help.contains("Examples:"), "{path}");
        for below in command.get_subcommands_mut() {
            check(below, &path);
        }
    }
    check(&mut Cli::command(), "");
}

fn refused(line: &str) -> String {
    Cli::try_parse_from(line.split_whitespace()).unwrap_err().to_string()
}

#[test]
fn what_is_wrong_is_said_with_what_would_be_right() {
    for (line, words) in [
        ("flashloom serve memory:lots", "memory:lots"),
        ("flashloom serve ssd:/dev/sda", "memory:SIZE"),
        ("flashloom serve memory:1GiB --listen nowhere", "127.0.0.1:4420"),
        ("flashloom serve memory:1GiB --cpus 3-1", "runs backwards"),
        ("flashloom serve memory:1GiB --subnqn x", "does not begin with"),
        ("flashloom serve memory:1GiB --poll sometimes", "adaptive, eager, busy, interrupt"),
        ("flashloom serve memory:1GiB --discovery 0", "off"),
        ("flashloom serve memory:1GiB --block-size 520", "512 or 4096"),
        ("flashloom serve memory:1GiB --config f.toml", "cannot be used with"),
        ("flashloom serve --config f.toml --listen 127.0.0.1", "cannot be used with"),
        ("flashloom serve --advertise 192.0.2.1", "--listen"),
        ("flashloom bench --runtime 10x", "500ms"),
        ("flashloom attach --nbd /run/x.sock", "unix:PATH or HOST:PORT"),
        ("flashloom attach", "--nbd"),
        ("flashloom attach --nbd unix:/x --ctrl-loss-tmo never", "or off"),
        ("flashloom attach --nbd unix:/x --hostid 17", "UUID"),
        ("flashloom attach --nbd unix:/x --optimizations speed", "batching"),
        ("flashloom attach --nbd unix:/x --path 192.0.2.1:x", "192.0.2.11:4420"),
        ("flashloom attach --nbd unix:/x --path-policy fastest", "queue-depth"),
        ("flashloom bench --bs 4q", "KiB"),
        ("flashloom bench --job bs=1m,iodept=3", "did you mean `iodepth`?"),
        ("flashloom bench --bssplit 4k/70", "70 %"),
        ("flashloom bench --iodepth 1,0", "from 1 up"),
        ("flashloom bench --cpu-of me", "or daemon"),
        ("flashloom bench report", "--out"),
        ("flashloom bench --rw sideways", "randread"),
        ("flashloom subsystem set nqn.2026-11.io.x:a", "--allow-any-host"),
    ] {
        let text = refused(line);
        assert!(text.contains(words), "{line}\n{text}");
    }
}

#[test]
fn what_connect_is_asked_arrives() {
    let line = "flashloom attach --nbd unix:/x -a 192.0.2.1 -s 4421 -n nqn.2026-11.io.x:s \
        -q nqn.2026-11.io.x:h -I 00112233-4455-6677-8899-aabbccddeeff -i 4 -W 2 -P 1 -Q 64 -k 7 -c 2 \
        -l off -F 3s -T 16 --so-priority 5 -g -G --cures=-hints";
    let Command::Attach(args) = Cli::parse_from(line.split_whitespace()).command else { panic!() };
    let remote = args.connect.remote();
    assert_eq!((&*remote.traddr, remote.trsvcid), ("192.0.2.1", 4421));
    assert_eq!((&*remote.subnqn, &*remote.host.nqn), ("nqn.2026-11.io.x:s", "nqn.2026-11.io.x:h"));
    assert_eq!(remote.host.id[..3], [0, 0x11, 0x22]);
    let seconds = std::time::Duration::from_secs;
    let optimizations = initiator::Optimizations::default().without(initiator::Optimization::Hints);
    let wanted = initiator::Options {
        header_digest: true,
        data_digest: true,
        keep_alive: seconds(7),
        tos: Some(16),
        priority: Some(5),
        reconnect_delay: seconds(2),
        ctrl_loss: None,
        fast_io_fail: Some(seconds(3)),
        io_queues: 4,
        write_queues: 2,
        poll_queues: 1,
        optimizations,
        queue_size: 64,
        ..initiator::Options::default()
    };
    assert_eq!(remote.options, wanted);
}

#[test]
fn paths_are_addresses_beside_the_first() {
    let line = "flashloom attach --nbd unix:/x -a 192.0.2.1 -s 4421 --path 192.0.2.2 --path 192.0.2.3:4422 \
        --path fd00::1 --path [fd00::1]:4423 --path array --path array:4424 --path-policy queue-depth";
    let Command::Attach(args) = Cli::parse_from(line.split_whitespace()).command else { panic!() };
    let remotes = args.connect.remotes();
    let places: Vec<_> = remotes.iter().map(|r| (&*r.traddr, r.trsvcid)).collect();
    let expected = [
        ("192.0.2.1", 4421),
        ("192.0.2.2", 4421),
        ("192.0.2.3", 4422),
        ("fd00::1", 4421),
        ("[fd00::1]", 4423),
        ("array", 4421),
        ("array", 4424),
    ];
    assert_eq!(places, expected);
    assert_eq!(
        initiator::PathPolicy::from(args.connect.path_policy),
        initiator::PathPolicy::QueueDepth
    );
}

#[test]
fn the_exit_codes_are_documented() {
    let help = Cli::command().render_long_help().to_string();
    for code in 0..=6 {
        assert!(help.lines().any(|line| line.starts_with(&format!("  {code}  "))), "{code}");
    }
}
