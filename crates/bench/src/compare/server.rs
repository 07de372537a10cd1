//! The two targets, each on core 0 with one namespace, in memory unless a case says otherwise, at its
//! fastest settings.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use super::management;
use super::process::{Process, output};
use crate::rank;

/// How long a target may take to start.
const START_PROBES: u32 = 600;
const PROBE: Duration = Duration::from_millis(50);

/// Where a client finds a namespace.
pub trait Server {
    fn port(&self) -> u16;
    fn nqn(&self) -> &'static str;

    /// The namespace that is measured.
    fn nsid(&self) -> u32 {
        1
    }

    /// Its process.
    fn id(&self) -> u32;

    /// How long its core has been at work, other than looking for some, in its own account.
    ///
    /// # Errors
    /// That it does not say.
    fn busy(&self) -> Result<Duration, String>;

    /// Lets it run, or stops it where it is.
    ///
    /// # Errors
    /// That it is gone.
    fn run_while(&self, run: bool) -> Result<(), String>;
}

/// Arguments that name the namespace that is measured, at an address of its target.
pub fn to(server: &dyn Server, address: &str) -> String {
    let (port, nqn, nsid) = (server.port(), server.nqn(), server.nsid());
    format!("--traddr {address} --trsvcid {port} --subnqn {nqn} --nsid {nsid}")
}

/// Flashloom's target.
pub struct Flashloom {
    process: Process,
    port: u16,
    /// Removed with it.
    state: Folder,
    /// Its pool, if it has one.
    pool: Option<PoolPlaces>,
    /// Of the file that is its namespace.
    _file: Option<Folder>,
    /// The other target that has its pool's log, too. Neither is ever stopped then, or each would take the other for dead.
    other: Option<Box<Flashloom>>,
}

/// Where a pool lies.
struct PoolPlaces {
    log: Folder,
    /// Of the drives that are files.
    drives: Option<Folder>,
}

/// Where the drives of a pool are: RAID 6, 8+2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drives {
    /// In the daemon's memory: what a disk would add is not what is measured.
    Memory,
    /// Files in shared memory, which another opening of the pool finds again.
    Shared,
    /// Files on the disk of the folder for temporary files.
    Disk,
}

/// Where the log of a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// In shared memory.
    Memory,
    /// The same, and so little of it that hosts wait until what they wrote is on the drives.
    Short,
    /// In shared memory, and in that of another target on this machine.
    Mirrored,
    /// On the pool's drives.
    Drives,
}

const POOL_DRIVES: usize = 10;
const POOL_DRIVE: &str = "512MiB";

/// The namespace's bytes.
const BYTES: u64 = 1 << 30;

/// A file system in memory.
const SHARED: &str = "/dev/shm";

/// Of the pool's log: a run goes several times through it.
const POOL_LOG: &str = "64MiB";

/// Of one that is [too short](Log::Short).
const SHORT_LOG: &str = "16MiB";

/// Where the target that is measured runs, and where its client does.
const TARGET_CPU: &str = "0";
const CLIENT_CPU: &str = "1";

/// Its volume's namespace, beside the one that it was started with.
const VOLUME: u32 = 2;

/// SPDK's target.
pub struct Spdk {
    process: Process,
    port: u16,
    /// Its management socket.
    socket: String,
    _state: Folder,
    _file: Option<Folder>,
}

impl Flashloom {
    /// Starts it with a namespace in memory and waits until it accepts.
    pub fn start(program: &Path, poll: &str) -> Result<Self, String> {
        Self::serve(program, poll, "memory:1GiB")
    }

    /// Starts it with a file as its namespace, on the disk of the folder for temporary files.
    pub fn with_file(program: &Path, poll: &str) -> Result<Self, String> {
        let folder = Folder::new("flashloom-compare-drives")?;
        let mut this = Self::serve(program, poll, &format!("drive:{}/d,size={BYTES}", folder.0))?;
        this._file = Some(folder);
        Ok(this)
    }

    /// Starts it with a volume of a pool as its namespace, of the same size, thin.
    pub fn with_volume(
        program: &Path,
        poll: &str,
        drives: Drives,
        log: Log,
    ) -> Result<Self, String> {
        let size = if log == Log::Short { SHORT_LOG } else { POOL_LOG };
        Self::with_pool(program, poll, drives, (log, size))
    }

    /// The same on drives in memory, its volume with blocks of 512 bytes.
    pub fn with_small_blocks(program: &Path, poll: &str) -> Result<Self, String> {
        Self::with_blocks(program, poll, Drives::Memory, (Log::Memory, POOL_LOG), 512)
    }

    /// The same with so much of a log.
    pub fn with_pool(
        program: &Path,
        poll: &str,
        drives: Drives,
        log: (Log, &str),
    ) -> Result<Self, String> {
        Self::with_blocks(program, poll, drives, log, 4096)
    }

    fn with_blocks(
        program: &Path,
        poll: &str,
        drives: Drives,
        (log, log_size): (Log, &str),
        block: u32,
    ) -> Result<Self, String> {
        let mut this = Self::serve(program, poll, "memory:1MiB")?;
        let folder = match drives {
            Drives::Memory => None,
            Drives::Shared => Some(Folder::new_in(Path::new(SHARED), "flashloom-compare")?),
            Drives::Disk => Some(Folder::new("flashloom-compare-drives")?),
        };
        let places = PoolPlaces {
            log: Folder::new_in(Path::new(SHARED), "flashloom-compare")?,
            drives: folder,
        };
        let drives: String = (0..POOL_DRIVES).map(|n| places.create(n)).collect();
        let log = match log {
            Log::Memory | Log::Short => format!("--log {}", places.log()),
            Log::Mirrored => {
                let other = this.other.insert(Box::new(Self::serve_log(program, log_size)?));
                let (port, nqn, nsid) = (other.port, other.nqn(), other.nsid());
                format!("--log {} --log tcp://127.0.0.1:{port}/{nqn}/{nsid}", places.log())
            }
            Log::Drives => String::new(),
        };
        this.ask(
            program,
            &format!("pool create bench {drives} --raid raid6 {log} --log-size {log_size}"),
        )?;
        let size = format!("--size {BYTES} --block-size {block}");
        this.ask(program, &format!("volume create bench/v {size}"))?;
        this.pool = Some(places);
        this.map_volume(program)?;
        Ok(this)
    }

    /// Starts what has a second copy of a log in its memory. It shares the CPU of the client, which waits for it by
    /// spinning: it takes that as soon as it is asked, and sleeps as soon as it has answered.
    fn serve_log(program: &Path, size: &str) -> Result<Self, String> {
        let this = Self::serve_on(program, "interrupt", &format!("memory:{size}"), CLIENT_CPU)?;
        rank::give(this.id(), rank::FIRST);
        Ok(this)
    }

    fn map_volume(&self, program: &Path) -> Result<(), String> {
        let (nqn, nsid) = (self.nqn(), self.nsid());
        self.ask(program, &format!("volume map bench/v --subnqn {nqn} --nsid {nsid}")).map(drop)
    }

    /// Has it listen at another address, too.
    pub fn listen_on(&self, address: &str, program: &Path) -> Result<(), String> {
        self.ask(program, &format!("listener add [{address}]:{}", self.port)).map(drop)
    }

    /// Runs a command of the program against it; what that printed.
    pub fn ask(&self, program: &Path, what: &str) -> Result<String, String> {
        let mut args = vec!["--state-dir", &self.state.0];
        args.extend(what.split_whitespace());
        output(&program.display().to_string(), &args)
    }

    /// Opens its pool anew without the first two drives: as many as the redundancy bears.
    pub fn lose_two_drives(&self, program: &Path) -> Result<(), String> {
        let Some(places) = &self.pool else {
            return Err("there is no pool to lose drives of".into());
        };
        self.ask(program, "volume unmap bench/v")?;
        self.ask(program, "pool export bench")?;
        let left: String = (2..POOL_DRIVES).filter_map(|n| places.open(n)).collect();
        let import = format!("pool import {left} --log {} --degraded", places.log());
        // Programs from before did not ask.
        let sure = self.ask(program, &format!("{import} --yes"));
        sure.or_else(|_| self.ask(program, &import))?;
        self.map_volume(program)
    }

    fn serve(program: &Path, poll: &str, backend: &str) -> Result<Self, String> {
        Self::serve_on(program, poll, backend, TARGET_CPU)
    }

    fn serve_on(program: &Path, poll: &str, backend: &str, cpu: &str) -> Result<Self, String> {
        let port = free_port()?;
        let state = Folder::new("flashloom-compare")?;
        let process = start_daemon(program, poll, &state, port, Some(backend), cpu)?;
        await_port(port, "flashloom serve")?;
        Ok(Self { process, port, state, pool: None, _file: None, other: None })
    }

    /// Takes a drive of its pool away, a file, for the next start to do without.
    pub fn take_away_a_drive(&self) -> Result<(), String> {
        let drive = self.pool.as_ref().and_then(|places| places.file(0));
        let drive = drive.ok_or("there is no file to take away")?;
        std::fs::remove_file(&drive).map_err(|e| format!("cannot remove {drive}: {e}"))
    }

    /// Kills it where it is and starts it again on what it left, without waiting for it.
    pub fn kill_and_start(&mut self, program: &Path, poll: &str) -> Result<(), String> {
        self.process.kill();
        self.process = start_daemon(program, poll, &self.state, self.port, None, TARGET_CPU)?;
        Ok(())
    }

    /// Writes the namespace once: its memory is committed as it is written, and a page fault a
    /// command is not what is measured.
    pub fn fill(&self, program: &Path) -> Result<(), String> {
        let args = format!(
            "bench {} --rw write --bs 128k --iodepth 8 --size {BYTES} --cpus 1 -o json",
            to(self, "127.0.0.1")
        );
        let args: Vec<_> = args.split_whitespace().collect();
        output(&program.display().to_string(), &args).map(drop)
    }

    /// Its management socket.
    pub fn socket(&self) -> String {
        format!("{}/api.sock", self.state.0)
    }
}

impl PoolPlaces {
    /// Drive `n`, to be made.
    fn create(&self, n: usize) -> String {
        match &self.drives {
            Some(folder) => format!("--drive {}/d{n},size={POOL_DRIVE} ", folder.0),
            None => format!("--drive memory:{POOL_DRIVE} "),
        }
    }

    /// Drive `n`, to be opened: none in memory.
    fn open(&self, n: usize) -> Option<String> {
        self.file(n).map(|file| format!("--drive {file} "))
    }

    /// Its file.
    fn file(&self, n: usize) -> Option<String> {
        self.drives.as_ref().map(|folder| format!("{}/d{n}", folder.0))
    }

    fn log(&self) -> String {
        format!("bbu:{}/log", self.log.0)
    }
}

/// Starts the daemon, with a namespace or with what it served last.
fn start_daemon(
    program: &Path,
    poll: &str,
    state: &Folder,
    port: u16,
    backend: Option<&str>,
    cpu: &str,
) -> Result<Process, String> {
    let address = format!("127.0.0.1:{port}");
    let mut args = vec!["--state-dir", &state.0, "serve"];
    args.extend(backend);
    args.extend(["--listen", &address, "--cpus", cpu, "--poll", poll]);
    Process::start(&program.display().to_string(), &args)
}

impl Server for Flashloom {
    fn port(&self) -> u16 {
        self.port
    }

    fn nqn(&self) -> &'static str {
        "nqn.2026-11.io.flashloom:default"
    }

    fn nsid(&self) -> u32 {
        if self.pool.is_some() { VOLUME } else { 1 }
    }

    fn run_while(&self, run: bool) -> Result<(), String> {
        if self.other.is_some() {
            return Ok(());
        }
        self.process.signal(if run { "CONT" } else { "STOP" })
    }

    fn id(&self) -> u32 {
        self.process.id()
    }

    fn busy(&self) -> Result<Duration, String> {
        management::flashloom(&self.socket())
    }
}

impl Spdk {
    /// Starts `nvmf_tgt` of a built SPDK folder with a namespace in memory and waits until it
    /// accepts.
    pub fn start(folder: &Path) -> Result<Self, String> {
        Self::serve(folder, Medium::Memory, None)
    }

    /// The same with a file of the disk that has the folder for temporary files, written once before,
    /// through its `aio` block device, which writes directly.
    pub fn on_file(folder: &Path) -> Result<Self, String> {
        let place = Folder::new("spdk-compare-drive")?;
        let path = format!("{}/drive", place.0);
        let written = std::fs::File::create(&path).and_then(|mut file| {
            let piece = vec![0x5a; 1 << 20];
            (0..BYTES >> 20).try_for_each(|_| file.write_all(&piece))?;
            file.sync_all()
        });
        written.map_err(|e| format!("{path}: {e}"))?;
        Self::serve(folder, Medium::File(&path), Some(place))
    }

    /// The same with a logical volume in memory.
    pub fn with_lvol(folder: &Path) -> Result<Self, String> {
        Self::serve(folder, Medium::Lvol, None)
    }

    /// Of its logical volume.
    pub fn take_snapshot(&self) -> Result<(), String> {
        let params = serde_json::json!({ "lvol_name": "lvs/v", "snapshot_name": "one" });
        management::spdk_rpc(&self.socket, "bdev_lvol_snapshot", &params).map(drop)
    }

    pub fn delete_snapshot(&self) -> Result<(), String> {
        let params = serde_json::json!({ "name": "lvs/one" });
        management::spdk_rpc(&self.socket, "bdev_lvol_delete", &params).map(drop)
    }

    fn serve(folder: &Path, medium: Medium<'_>, file: Option<Folder>) -> Result<Self, String> {
        let port = free_port()?;
        let state = Folder::new("spdk-compare")?;
        let config = format!("{}/config.json", state.0);
        std::fs::write(&config, spdk_config(port, medium).to_string())
            .map_err(|e| format!("{config}: {e}"))?;
        let program = folder.join("build/bin/nvmf_tgt");
        let socket = format!("{}/rpc.sock", state.0);
        let args =
            ["-m", "0x1", "-s", "900", "--no-pci", "--huge-unlink", "-r", &socket, "-c", &config];
        let process = Process::start(&program.display().to_string(), &args)?;
        await_port(
            port,
            "nvmf_tgt (it needs 600 hugepages of 2 MiB reserved, for itself and its client)",
        )?;
        Ok(Self { process, port, socket, _state: state, _file: file })
    }
}

impl Server for Spdk {
    fn port(&self) -> u16 {
        self.port
    }

    fn nqn(&self) -> &'static str {
        SPDK_NQN
    }

    fn run_while(&self, run: bool) -> Result<(), String> {
        self.process.signal(if run { "CONT" } else { "STOP" })
    }

    fn id(&self) -> u32 {
        self.process.id()
    }

    fn busy(&self) -> Result<Duration, String> {
        management::spdk(&self.socket)
    }
}

const SPDK_NQN: &str = "nqn.2016-06.io.spdk:cnode1";

/// What its namespace is.
#[derive(Clone, Copy)]
enum Medium<'a> {
    Memory,
    File(&'a str),
    /// A logical volume in memory, all of it there from the beginning, with room for what its snapshot has copied.
    Lvol,
}

/// MiB of SPDK's logical volume.
pub const LVOL_MIB: u64 = 256;

/// The start-up configuration: the settings under which it was fastest on loopback.
fn spdk_config(port: u16, medium: Medium<'_>) -> serde_json::Value {
    let method = |name: &str, params: serde_json::Value| serde_json::json!({ "method": name, "params": params });
    let memory = |name: &str, blocks: u64, block_size: u32| {
        let params =
            serde_json::json!({ "name": name, "num_blocks": blocks, "block_size": block_size });
        method("bdev_malloc_create", params)
    };
    let (drives, name) = match medium {
        Medium::Memory => (vec![memory("b0", 1_048_576, 512)], "b0"),
        Medium::File(path) => {
            let params = serde_json::json!({ "name": "b0", "filename": path, "block_size": 4096 });
            (vec![method("bdev_aio_create", params)], "b0")
        }
        Medium::Lvol => {
            let store = serde_json::json!({ "bdev_name": "m0", "lvs_name": "lvs" });
            let volume = serde_json::json!({
                "lvs_name": "lvs", "lvol_name": "v", "size_in_mib": LVOL_MIB });
            let drives = vec![
                memory("m0", (2 * LVOL_MIB + 64) * 256, 4096),
                method("bdev_wait_for_examine", serde_json::json!({})),
                method("bdev_lvol_create_lvstore", store),
                method("bdev_lvol_create", volume),
            ];
            (drives, "lvs/v")
        }
    };
    serde_json::json!({ "subsystems": [
        { "subsystem": "bdev", "config": drives },
        { "subsystem": "nvmf", "config": [
            method("nvmf_create_transport", serde_json::json!({
                "trtype": "TCP", "io_unit_size": 131_072, "max_io_size": 131_072,
                "in_capsule_data_size": 8192, "num_shared_buffers": 2047, "buf_cache_size": 64 })),
            method("nvmf_create_subsystem", serde_json::json!({
                "nqn": SPDK_NQN, "allow_any_host": true, "serial_number": "1", "max_namespaces": 4 })),
            method("nvmf_subsystem_add_ns",
                serde_json::json!({ "nqn": SPDK_NQN, "namespace": { "bdev_name": name } })),
            method("nvmf_subsystem_add_listener", serde_json::json!({
                "nqn": SPDK_NQN, "listen_address": {
                    "trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1",
                    "trsvcid": port.to_string() } })),
        ]},
    ]})
}

/// A folder of this run.
pub struct Folder(pub String);

impl Folder {
    pub fn new(name: &str) -> Result<Self, String> {
        Self::new_in(&std::env::temp_dir(), name)
    }

    fn new_in(place: &Path, name: &str) -> Result<Self, String> {
        let path = place.join(format!("{name}-{}-{}", std::process::id(), free_port()?));
        std::fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self(path.display().to_string()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn free_port() -> Result<u16, String> {
    stdx::port::claim().map_err(|e| format!("no free port: {e}"))
}

/// Waits until something accepts on the port.
fn await_port(port: u16, who: &str) -> Result<(), String> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    for _ in 0..START_PROBES {
        if TcpStream::connect(address).is_ok() {
            return Ok(());
        }
        std::thread::park_timeout(PROBE);
    }
    Err(format!("{who} did not start within {:?}", PROBE * START_PROBES))
}
