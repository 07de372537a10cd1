//! Who can reach the port and nothing more, and who is a user of the same machine.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;

use reactor::net::TcpStream as Stream;

use super::*;

/// More than a reactor's ring has slots.
const SILENT: u16 = 15_500;

/// Addresses that they come from, each with fewer than one may have.
const ADDRESSES: u16 = 300;

/// 12 300 silent connections took every slot of a reactor's ring. Whoever asked for one next got EBUSY: connected hosts
/// were thrown out, and all drives and log devices of a pool failed, until a restart.
#[test]
fn silent_connections_leave_hosts_and_pools_alone() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let serve = format!("serve memory:16MiB --listen 127.0.0.1:{port} --discovery off --cpus 0");
    let daemon = Daemon::start(dir, &serve);
    let drives: Vec<_> =
        (0..4).map(|n| format!("--drive {}/d{n},size=128MiB", dir.display())).collect();
    json(dir, &format!("pool create fast {} --log-size 12MiB", drives.join(" ")));
    json(dir, "volume create fast/a --size 64MiB");
    json(dir, &format!("volume map fast/a --subnqn {NQN} --nsid 2"));

    let to = format!("--traddr 127.0.0.1 --trsvcid {port} --poll interrupt");
    let load =
        "--rw randrw --bs 4k --iodepth 4 --size 16MiB --rate-iops 200 --verify --runtime 15s";
    let host = |nsid| {
        let mut command = flashloom(dir, &format!("bench {load} {to} --nsid {nsid} -o json"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let neighbour = host(2);
    let served = || json(dir, "status")["connections"].as_u64().unwrap();
    while served() < 2 {
        std::thread::yield_now();
    }

    reactor::raise_descriptor_limit().unwrap();
    let connect = |numbers: Range<u16>| {
        let connected = async move {
            let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let mut silent = Vec::new();
            for n in numbers {
                let [high, low] = (n % ADDRESSES).to_be_bytes();
                let from = SocketAddr::from((Ipv4Addr::new(127, 1, high, low), 0));
                silent.push(Stream::connect_from(Some(from), to).await.unwrap().into_fd().unwrap());
            }
            silent
        };
        reactor::run(reactor::Config::default(), connected).unwrap()
    };
    let mut silent = connect(0..SILENT / 4);
    let amid_them = host(1);
    silent.extend(connect(SILENT / 4..SILENT));
    let process = fs::read_to_string(format!("/proc/{}/status", daemon.child.id())).unwrap();
    let resident = process.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kilobytes = resident.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap();
    assert!(kilobytes < 400 << 10, "{kilobytes} KiB");
    // Those that were shown out end in turns of their own.
    assert!((0..1000).any(|_| served() <= 1024 + 8), "{}", served());

    // What was written before and meanwhile is there, and nothing has failed.
    for host in [neighbour, amid_them] {
        let output = host.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["jobs"][0]["total_err"], 0);
    }
    drop(silent);
    let pool = json(dir, "pool show fast");
    assert_eq!(pool["health"], "online", "{pool}");
    let bench =
        format!("bench --rw randrw --bs 4k --size 16MiB --io-size 4MiB --verify --nsid 2 {to}");
    assert_eq!(json(dir, &bench)["jobs"][0]["total_err"], 0);
    daemon.stop();
}

/// The commit log, with what hosts wrote last, and drives that the daemon made were for every user of the machine to
/// read.
#[test]
fn what_the_daemon_makes_is_for_its_user_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, port) = (dir.path(), free_port());
    let state = dir.join("state");
    let drive = dir.join("drive.img");
    let serve = format!("serve drive:{},size=16MiB --listen 127.0.0.1:{port}", drive.display());
    let mut command = Command::new("sh");
    command.args(["-c", "umask 0; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_flashloom")]);
    command.arg("--state-dir").arg(&state).args(serve.split_whitespace());
    let daemon = Daemon::run(command.args(["--discovery", "off"]), &serve);
    let log = dir.join("log");
    let drives: Vec<_> =
        (0..2).map(|n| format!("--drive {}/d{n},size=192MiB", dir.display())).collect();
    let log_of = format!("--log bbu:{} --log-size 12MiB", log.display());
    json(&state, &format!("pool create fast {} {log_of}", drives.join(" ")));
    for path in [&drive, &log, &dir.join("d0"), &state.join("state.json"), &state.join("api.sock")]
    {
        let mode = fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", path.display());
    }
    for path in [&state, &state.join("events"), &state.join("reservations")] {
        let mode = fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700, "{}", path.display());
    }
    daemon.stop();
}

#[test]
fn a_subsystem_open_to_a_network_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, port) = (dir.path(), free_port());
    let warned = |listen: &str| {
        let serve = format!("serve memory:16MiB --listen {listen}:{port} --discovery off --fresh");
        let daemon = Daemon::start(dir, &serve);
        let status = json(dir, "status");
        let events = json(dir, "events").to_string();
        daemon.stop();
        let open = status["open_to_any_host"].as_array().unwrap().len();
        assert_eq!(events.contains("any host that reaches this machine"), open == 1, "{events}");
        open
    };
    assert_eq!(warned("127.0.0.1"), 0);
    assert_eq!(warned("0.0.0.0"), 1);
}
