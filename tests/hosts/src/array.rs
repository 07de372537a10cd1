//! An array inside the guest, its clients outside: what it acknowledged must be there after the program was killed
//! and after the machine lost its power.
//!
//! The power goes by the end of the emulator. The drives' image format keeps, until a flush, where a block was put
//! only in the emulator's memory, so that drives lose what was written but not flushed (the scripts check that they
//! do). The persistent memory is a file mapped by the emulator: it keeps every store. Stores that were not fenced
//! are the simulator's matter (`crates/sim`).
use crate::calls::Calls;
use crate::guest::{Equipment, Guest};
use crate::runner::LIMIT;
use crate::target::{free_port, program};
use crate::{Kernel, Result, machine, shell};
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The namespaces that `array/make.sh` makes: a pool with its log on persistent memory, and one with its log on its
/// drives.
const NAMESPACES: [&str; 2] = ["1", "2"];

const SUBSYSTEM: &str = "nqn.2026-11.io.flashloom:array";

/// Where the array listens in the guest.
const LISTENS: &str = "10.0.2.15:4420";

/// Bytes of the persistent memory.
const PMEM_BYTES: u64 = 512 << 20;

/// Drives of the two pools, and one to try how drives lose power.
const DRIVES: usize = 7;

/// Blocks of the image format: what a drive loses at once.
const IMAGE: &str = "cluster_size=4096";

/// Bytes of acknowledgements that each load is to note between two events: some hundred writes.
const NOTED: u64 = 6000;

/// The longest that a load may take for that: it has to connect again, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// How often a journal is looked at.
const GLANCE: Duration = Duration::from_millis(20);

/// Runs an array in a guest with `kernel`, kills it, and cuts the guest's power.
///
/// # Panics
/// When anything acknowledged is lost: this is the body of a test.
pub fn run(kernel: Kernel) {
    if let Err(error) = lives(kernel) {
        panic!("{kernel:?}: {error}");
    }
}

fn lives(kernel: Kernel) -> Result<()> {
    machine::prepare()?;
    let site = Site::new()?;
    let equipment = site.equipment()?;
    let mut guest = Guest::boot(kernel, &equipment)?;
    act(&mut guest, "array/make")?;
    let mut loads = site.loads()?;
    go_on(&mut loads)?;
    act(&mut guest, "array/kill")?;
    go_on(&mut loads)?;
    drop(loads);
    act(&mut guest, "array/kill")?;
    site.check("after kill -9")?;

    let mut loads = site.loads()?;
    go_on(&mut loads)?;
    // The power goes.
    drop(guest);
    drop(loads);
    let mut guest = Guest::boot(kernel, &equipment)?;
    act(&mut guest, "array/open")?;
    site.check("after a power cut")?;
    // It is a pool like any other.
    let mut loads = site.loads()?;
    go_on(&mut loads)?;
    drop(loads);
    act(&mut guest, "array/kill")?;
    site.check("in the end")
}

/// Runs a script in the guest, as a scenario.
pub fn act(guest: &mut Guest, script: &str) -> Result<()> {
    let start = Instant::now();
    let outcome = guest.scenario(script, LIMIT, &mut Calls::new()?)?;
    println!("{script}: {:.1} s", start.elapsed().as_secs_f32());
    match outcome.code {
        0 => Ok(()),
        code => Err(format!("{script}: exit code {code}\n{}", outcome.transcript).into()),
    }
}

/// What outlasts the machine.
struct Site {
    work: TempDir,
    port: u16,
}

impl Site {
    fn new() -> Result<Self> {
        let work = tempfile::Builder::new().prefix("flashloom-array-").tempdir()?;
        let at = work.path();
        File::create(at.join("pmem"))?.set_len(PMEM_BYTES)?;
        for index in 0..DRIVES {
            let image = at.join(format!("drive{index}"));
            shell::run(
                Command::new("qemu-img")
                    .args(["create", "-q", "-f", "qcow2", "-o", IMAGE])
                    .arg(image)
                    .arg("1G"),
            )?;
        }
        fs::create_dir(at.join("guest"))?;
        // Symbols would be most of what the guest unpacks.
        shell::run(
            Command::new("strip").arg("-o").arg(at.join("guest/flashloom")).arg(program()?),
        )?;
        Ok(Self { work, port: free_port()? })
    }

    fn equipment(&self) -> Result<Equipment> {
        let at = self.work.path();
        let mut devices: Vec<OsString> = Vec::new();
        for index in 0..DRIVES {
            let image = at.join(format!("drive{index}"));
            let options = "if=virtio,format=qcow2,cache=writeback";
            devices.push("-drive".into());
            devices.push(format!("file={},{options}", image.display()).into());
        }
        let pmem = at.join("pmem");
        devices.push("-object".into());
        devices.push(
            format!(
                "memory-backend-file,id=pmem,share=on,mem-path={},size={PMEM_BYTES}",
                pmem.display()
            )
            .into(),
        );
        devices.extend(["-device", "nvdimm,memdev=pmem"].map(OsString::from));
        Ok(Equipment {
            devices,
            forward: format!(",hostfwd=tcp:127.0.0.1:{}-{LISTENS}", self.port),
            folder: Some(at.join("guest")),
            ..Equipment::default()
        })
    }

    fn bench(&self, nsid: &str) -> Result<(Command, PathBuf)> {
        let journal = self.work.path().join(format!("acknowledged-{nsid}"));
        let mut command = shell::tied(program()?);
        command.args(["bench", "--traddr", "127.0.0.1", "--trsvcid", &self.port.to_string()]);
        command.args(["--subnqn", SUBSYSTEM, "--nsid", nsid, "--poll", "interrupt"]);
        command.arg("--journal").arg(&journal);
        Ok((command, journal))
    }

    /// A load on each namespace, at a pace that an emulated machine keeps up with.
    fn loads(&self) -> Result<Vec<Load>> {
        let load = |nsid| {
            let (mut command, journal) = self.bench(nsid)?;
            command.args(["--rw", "randrw", "--rwmixread", "30", "--size", "8MiB", "--verify"]);
            command.args(["--iodepth", "8", "--rate-iops", "150", "--runtime", "60m"]);
            command.args(["--reconnect", "5m"]);
            let said = File::create(journal.with_extension("said"))?;
            command.stdout(said.try_clone()?).stderr(said);
            Ok(Load { child: command.spawn()?, journal })
        };
        NAMESPACES.into_iter().map(load).collect()
    }

    /// Reads back all that was ever acknowledged.
    fn check(&self, when: &str) -> Result<()> {
        for nsid in NAMESPACES {
            let (mut command, _) = self.bench(nsid)?;
            command.args(["--check", "-o", "json"]);
            let output = command.stderr(Stdio::piped()).output()?;
            let said = String::from_utf8_lossy(&output.stdout);
            if !output.status.success() {
                let errors = String::from_utf8_lossy(&output.stderr);
                return Err(format!("namespace {nsid} {when}: {errors}{said}").into());
            }
            let verified = said.lines().find(|line| line.contains("verified_bytes"));
            println!("namespace {nsid} {when}: {}", verified.unwrap_or_default().trim());
        }
        Ok(())
    }
}

/// A load that keeps a journal; killed when it is dropped.
struct Load {
    child: Child,
    journal: PathBuf,
}

/// Waits until every load has noted more acknowledgements. One that ends has seen an error.
fn go_on(loads: &mut [Load]) -> Result<()> {
    let noted = |journal: &Path| fs::metadata(journal).map_or(0, |file| file.len());
    let start = Instant::now();
    for load in loads {
        let until = noted(&load.journal) + NOTED;
        while noted(&load.journal) < until {
            if let Some(status) = load.child.try_wait()? {
                return Err(format!("a load ended: {status}\n{}", load.said()).into());
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("a load goes on no more\n{}", load.said()).into());
            }
            std::thread::sleep(GLANCE);
        }
    }
    Ok(())
}

impl Load {
    fn said(&self) -> String {
        fs::read_to_string(self.journal.with_extension("said")).unwrap_or_default()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _killed = self.child.kill();
        let _waited = self.child.wait();
    }
}
