//! A booted guest and the line protocol to the agent in it (`guest/agent.sh` describes it).
use crate::calls::Calls;
use crate::kernel::{Boot, Kernel};
use crate::target::HOST_FROM_GUEST;
use crate::{Result, rootfs, shell};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// From power-on to the agent's first line: about 10 s on a quiet machine, minutes on a loaded one.
const BOOT_PATIENCE: Duration = Duration::from_secs(400);

/// A guest that is silent for this long beyond a scenario's own limit is dead.
const SILENCE: Duration = Duration::from_secs(60);

/// Processors of the guest: as many I/O queues are the most that its host driver makes of a kind.
const PROCESSORS: &str = "4";

/// Memory of the guest, in which its root's overlay lives too.
pub const MEMORY_BYTES: u64 = 1536 << 20;

/// A running machine with its agent waiting for work.
pub struct Guest {
    child: Child,
    lines: BufReader<TcpStream>,
    console: PathBuf,
    _work: TempDir,
}

/// Where the machine's root is.
#[derive(Default)]
pub enum Root {
    /// In the image, as the emulator's own drive.
    #[default]
    Image,
    /// In a device that these arguments make.
    Device(Vec<OsString>),
}

/// What a machine has beside its root, its scripts and its network card.
#[derive(Default)]
pub struct Equipment {
    /// Its root.
    pub root: Root,
    /// Arguments of QEMU.
    pub devices: Vec<OsString>,
    /// Options of the network card's other end.
    pub forward: String,
    /// What is laid beside the scripts.
    pub folder: Option<PathBuf>,
}

/// How a scenario ended.
pub struct Outcome {
    /// Its exit code; 0 is success, 124 its time limit.
    pub code: i32,
    /// What it printed, and on failure the kernel's last messages.
    pub transcript: String,
}

impl Guest {
    /// Boots `kernel` and waits for the agent.
    pub fn boot(kernel: Kernel, equipment: &Equipment) -> Result<Self> {
        let boot = kernel.boot()?;
        let root = rootfs::image()?;
        let work = tempfile::tempdir()?;
        let scripts = work.path().join("scripts.tar");
        let mut tar = Command::new("tar");
        tar.arg("-cf").arg(&scripts).arg("-C").arg(env!("CARGO_MANIFEST_DIR"));
        tar.args(["guest", "scenarios", "array", "attach", "foreign", "rdma"]);
        if let Some(folder) = &equipment.folder {
            tar.arg("-C").arg(folder).arg(".");
        }
        shell::run(&mut tar)?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let console = work.path().join("console");
        let mut command = machine(&boot, &console, port);
        match &equipment.root {
            Root::Image => command.args(drive("root", &root)),
            Root::Device(arguments) => command.args(arguments),
        };
        command.args(drive("scripts", &scripts));
        command.args(["-netdev", &format!("user,id=net{}", equipment.forward)]);
        command.args(&equipment.devices);
        let mut child = command.spawn()?;
        let lines = match agent(&listener, &mut child) {
            Ok(lines) => lines,
            Err(error) => {
                let _killed = child.kill();
                return Err(format!("{error}\n{}", last_lines(&console)).into());
            }
        };
        Ok(Self { child, lines, console, _work: work })
    }

    /// Runs `NAME.sh` of a folder of scripts as one scenario, answering its calls. An error means that the guest is lost.
    pub fn scenario(&mut self, name: &str, limit: Duration, calls: &mut Calls) -> Result<Outcome> {
        self.lines.get_ref().set_read_timeout(Some(limit + SILENCE))?;
        writeln!(self.lines.get_ref(), "RUN {name} {}", limit.as_secs())?;
        let mut transcript = String::new();
        loop {
            let line = match read_line(&mut self.lines) {
                Ok(line) => line,
                Err(error) => {
                    let console = last_lines(&self.console);
                    return Err(
                        format!("the guest is lost: {error}\n{transcript}\n{console}").into()
                    );
                }
            };
            match line.split_once(' ').unwrap_or((&line, "")) {
                ("OUT", text) => writeln!(transcript, "{text}")?,
                ("CALL", call) => {
                    let (code, answer) = match calls.answer(call) {
                        Ok(answer) => (0, answer),
                        Err(error) => (1, error.to_string()),
                    };
                    writeln!(transcript, "> {call}: {code}")?;
                    let mut reply = format!("REPLY {code} {}\n", answer.lines().count());
                    for line in answer.lines() {
                        writeln!(reply, "{line}")?;
                    }
                    self.lines.get_ref().write_all(reply.as_bytes())?;
                }
                ("DONE", code) => {
                    let code = code.parse()?;
                    return Ok(Outcome { code, transcript });
                }
                _ => return Err(format!("the agent said {line:?}\n{transcript}").into()),
            }
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _killed = self.child.kill();
        let _waited = self.child.wait();
    }
}

/// One thread runs all processors in turn: with a thread each, on fewer cores than processors, a
/// processor that spins for another one that is not running makes a boot last minutes. With one thread the emulator
/// (before 8.1) leaves out the guest's memory barriers, so that its own threads may miss what a virtio driver has just
/// put in a queue, and such a card is silent for ever. This card is told of each packet by a register.
fn machine(boot: &Boot, console: &Path, port: u16) -> Command {
    // Room for persistent memory beside it.
    let memory = format!("{}M,slots=1,maxmem=4G", MEMORY_BYTES >> 20);
    let mut command = shell::tied("qemu-system-x86_64");
    command
        .args(["-machine", "q35,nvdimm=on", "-accel", "tcg,thread=single", "-cpu", "max"])
        .args(["-smp", PROCESSORS, "-m", &memory])
        .args(["-nodefaults", "-no-reboot", "-display", "none"])
        .arg("-serial")
        .arg(format!("file:{}", console.display()))
        .arg("-kernel")
        .arg(&boot.vmlinux)
        .arg("-initrd")
        .arg(&boot.initrd)
        .arg("-append")
        .arg(format!(
            "console=ttyS0 quiet mitigations=off cryptomgr.notests audit=0 apparmor=0 panic=-1 \
             rcupdate.rcu_cpu_stall_suppress=1 nowatchdog random.trust_cpu=on hosts.port={port}"
        ))
        .args(["-device", "e1000e,netdev=net,romfile="])
        .args(["-device", "virtio-rng-pci"]);
    command
}

/// A drive that nobody writes. Its device is named, as those of `if=virtio` come behind all that are, and the guest
/// numbers them as they come.
fn drive(name: &str, path: &Path) -> [String; 4] {
    let file = format!("file={},if=none,id={name},format=raw,readonly=on", path.display());
    let device = format!("virtio-blk-pci,drive={name}");
    ["-drive".to_owned(), format!("{file},cache=unsafe"), "-device".to_owned(), device]
}

/// Waits for the agent to connect and say that it is ready.
fn agent(listener: &TcpListener, child: &mut Child) -> Result<BufReader<TcpStream>> {
    listener.set_nonblocking(true)?;
    let start = Instant::now();
    let stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(status) = child.try_wait()? {
            return Err(format!("QEMU ended while booting: {status}").into());
        }
        if start.elapsed() > BOOT_PATIENCE {
            return Err("the guest did not boot in time".into());
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE))?;
    let mut lines = BufReader::new(stream);
    let ready = read_line(&mut lines)?;
    let release = ready.strip_prefix("READY ").ok_or("the agent is not ready")?;
    println!(
        "Linux {release} asks for {HOST_FROM_GUEST} after {:.1} s",
        start.elapsed().as_secs_f32()
    );
    Ok(lines)
}

fn read_line(lines: &mut BufReader<TcpStream>) -> Result<String> {
    let mut bytes = Vec::new();
    if lines.read_until(b'\n', &mut bytes)? == 0 {
        return Err("the connection closed".into());
    }
    Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned())
}

fn last_lines(console: &Path) -> String {
    let text = fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(60);
    format!("console:\n{}", lines[from..].join("\n"))
}
