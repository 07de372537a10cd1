//! A remote namespace as a network block device, in the hands of other people's tools.
use crate::attached::Attached;
use crate::target::Target;
use crate::{Result, machine, shell};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Bytes of the namespace.
const BYTES: u64 = 64 << 20;

/// How long a load may take to get anywhere.
const PATIENCE: Duration = Duration::from_secs(240);

/// How often a condition is looked at.
const GLANCE: Duration = Duration::from_millis(20);

/// Offers a target's namespace at a socket in `home`; the device's URI as well.
fn serve(target: &Target, home: &Path, extra: &[&str]) -> Result<(Attached, String)> {
    let place = format!("unix:{}", home.join("nbd.sock").display());
    let attached =
        Attached::start(target, &home.join("log"), &[&["--nbd", &place], extra].concat())?;
    let uri = attached.said[1].strip_prefix("nbdinfo '").and_then(|rest| rest.strip_suffix('\''));
    let uri = uri.ok_or("no URI")?.to_owned();
    Ok((attached, uri))
}

/// Runs a tool; its output.
fn tool(words: &[&str]) -> Result<String> {
    let output = shell::run(Command::new(words[0]).args(&words[1..]))?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

/// Bytes that look like nothing: neither empty nor the same twice.
fn image(path: &Path) -> Result<()> {
    let mut random = File::open("/dev/urandom")?.take(BYTES);
    std::io::copy(&mut random, &mut File::create(path)?)?;
    Ok(())
}

/// # Panics
/// When a tool is not served as it should be: this is the body of a test.
pub fn run() {
    if let Err(error) = serves() {
        panic!("{error}");
    }
}

fn serves() -> Result<()> {
    machine::prepare()?;
    let home = TempDir::new()?;
    let target = Target::start(&format!("memory:{BYTES}"), &[], home.path())?;
    let (attached, uri) = serve(&target, home.path(), &["--nr-io-queues", "2"])?;
    let uri = uri.as_str();
    let info = tool(&["nbdinfo", "--json", uri])?;
    for line in [
        format!("\"export-size\": {BYTES}"),
        "\"can_multi_conn\": true".to_owned(),
        "\"can_fua\": true".to_owned(),
        "\"can_fast_zero\": true".to_owned(),
        "\"block_size_minimum\": 4096".to_owned(),
    ] {
        assert!(info.contains(&line), "{line}\n{info}");
    }
    let listed = tool(&["nbdinfo", "--list", uri])?;
    assert!(listed.contains("namespace 1"), "{listed}");
    let map = tool(&["nbdinfo", "--map", uri])?;
    assert!(map.contains(&BYTES.to_string()) && map.contains("data"), "{map}");

    let path = |name: &str| home.path().join(name).display().to_string();
    let (before, after) = (path("before"), path("after"));
    image(Path::new(&before))?;
    tool(&["nbdcopy", "--flush", &before, uri])?;
    tool(&["nbdcopy", uri, &after])?;
    assert!(fs::read(&before)? == fs::read(&after)?, "what nbdcopy read is not what it wrote");
    tool(&["qemu-img", "compare", "-f", "raw", "-F", "raw", &before, uri])?;
    let qcow = path("qcow");
    tool(&["qemu-img", "convert", "-f", "raw", "-O", "qcow2", uri, &qcow])?;
    tool(&["qemu-img", "compare", "-f", "raw", "-F", "qcow2", uri, &qcow])?;

    let mut commands = vec!["qemu-io", "-f", "raw"];
    for command in [
        "write -P 7 1M 64k",
        "discard 1M 64k",
        "read -P 0 1M 64k",
        "write -P 8 2M 64k",
        "write -z 2M 32k",
        "write -zu 2080k 32k",
        "read -P 0 2M 64k",
        "write -f -P 9 4097k 3k",
        "read -P 9 4097k 3k",
        "aio_write -P 5 8M 8M",
        "aio_write -P 6 16M 8M",
        "aio_flush",
        "read -P 5 8M 8M",
        "read -P 6 16M 8M",
        "flush",
    ] {
        commands.extend(["-c", command]);
    }
    commands.push(uri);
    let said = tool(&commands)?;
    assert!(!said.contains("failed"), "{said}");
    fio(uri, &path("serves"), &["--size=16M", "--rw=randrw"])?;
    attached.stop()?;

    let (attached, uri) = serve(&target, home.path(), &["--read-only", "--export", "db"])?;
    let info = tool(&["nbdinfo", "--json", &uri])?;
    assert!(info.contains("\"is_read_only\": true"), "{info}");
    assert!(tool(&["nbdcopy", &before, &uri]).is_err(), "a read-only export was written");
    attached.stop()
}

/// # Panics
/// When a load fails because its target was killed: this is the body of a test.
pub fn run_killed() {
    if let Err(error) = outlives() {
        panic!("{error}");
    }
}

/// The target is killed with signal 9 under a verified load, and started again: the load waits.
fn outlives() -> Result<()> {
    machine::prepare()?;
    let home = TempDir::new()?;
    let mut target = Target::start(&format!("file:{BYTES}"), &[], home.path())?;
    let times = ["--keep-alive-tmo", "1s", "--reconnect-delay", "1s"];
    let (attached, uri) = serve(&target, home.path(), &times)?;
    let state = home.path().join("outlives").display().to_string();
    // Every block once, at a pace that leaves time for what happens meanwhile.
    let load = std::thread::spawn(move || {
        fio(&uri, &state, &["--size=32M", "--rw=randwrite", "--rate=4M"])
            .map_err(|error| error.to_string())
    });
    let start = Instant::now();
    for written in [4u64 << 20, 16 << 20] {
        while target.allocated()? < written {
            if load.is_finished() {
                break;
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("the load has not written {written} bytes").into());
            }
            std::thread::sleep(GLANCE);
        }
        assert!(!load.is_finished(), "the load ended early: {:?}", load.join());
        target.kill()?;
        target.launch()?;
    }
    load.join().map_err(|_| "the load panicked")??;
    attached.stop()
}

/// A verified load of fio's NBD engine, which uses libnbd.
fn fio(uri: &str, state: &str, extra: &[&str]) -> Result<String> {
    let uri = format!("--uri={uri}");
    let aux = format!("--aux-path={}", Path::new(state).with_file_name("").display());
    let mut words = vec!["fio", "--name=load", "--ioengine=nbd", &uri, &aux, "--bs=4k"];
    words.extend(["--iodepth=32", "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0"]);
    words.extend(extra);
    tool(&words)
}
