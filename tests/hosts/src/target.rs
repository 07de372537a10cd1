//! The target under test: the `flashloom` program as its users start it, on a loopback port.
use crate::{Result, shell};
use std::ffi::OsString;
use std::fs::{self, File};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The subsystem that `flashloom serve` makes when none is named.
const DEFAULT_SUBSYSTEM: &str = "nqn.2026-11.io.flashloom:default";

/// Where a guest on QEMU's user network finds this machine's loopback.
pub const HOST_FROM_GUEST: &str = "10.0.2.2";

/// How long a target may take to listen, or to end when asked; long for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a condition outside is looked at.
const GLANCE: Duration = Duration::from_millis(20);

/// A running (or killed) target with its own state directory.
pub struct Target {
    child: Option<Child>,
    arguments: Vec<OsString>,
    state: PathBuf,
    drive: PathBuf,
    log: PathBuf,
    _home: TempDir,
    port: u16,
    subsystem: String,
}

impl Target {
    /// Starts `flashloom serve` with one namespace and waits until it serves hosts and its
    /// management socket. `backend` is given
    /// on as it is, but for `file:SIZE`: a new sparse file of that many bytes under `work`.
    pub fn start(backend: &str, extra: &[&str], work: &Path) -> Result<Self> {
        let port = free_port()?;
        // The path of the management socket in it has to be short (108 bytes), wherever the
        // source lies.
        let home = tempfile::Builder::new().prefix("flashloom-").tempdir()?;
        let state = home.path().to_owned();
        let drive = work.join(format!("drive-{port}"));
        let backend = match backend.strip_prefix("file:") {
            None => backend.to_owned(),
            Some(size) => {
                File::create(&drive)?.set_len(size.parse()?)?;
                format!("drive:{}", drive.display())
            }
        };
        let mut arguments: Vec<OsString> =
            ["--state-dir".into(), state.clone().into_os_string()].into();
        arguments.extend(["serve", &backend, "--listen"].map(OsString::from));
        arguments.push(format!("127.0.0.1:{port}").into());
        arguments.extend(["--advertise", HOST_FROM_GUEST].map(OsString::from));
        // The port of the discovery service is one for the machine; tests run side by side.
        arguments.extend(["--discovery", "off"].map(OsString::from));
        arguments.extend(extra.iter().map(OsString::from));
        let named =
            extra.iter().position(|word| *word == "--subnqn").and_then(|at| extra.get(at + 1));
        let mut target = Self {
            child: None,
            arguments,
            log: state.join("log"),
            state,
            drive,
            _home: home,
            port,
            subsystem: named.map_or(DEFAULT_SUBSYSTEM, |nqn| nqn).to_owned(),
        };
        target.launch()?;
        Ok(target)
    }

    /// Starts the program again with the arguments it had, on the port it had.
    pub fn launch(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let child = shell::tied(program()?)
            .args(&self.arguments)
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let child = self.child.insert(child);
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err()
            || UnixStream::connect(self.state.join("api.sock")).is_err()
        {
            if let Some(status) = child.try_wait()? {
                return Err(
                    format!("the target ended at its start: {status}\n{}", self.said()).into()
                );
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("the target does not listen\n{}", self.said()).into());
            }
            std::thread::sleep(GLANCE);
        }
        Ok(())
    }

    /// Kills it with signal 9, as a power cut or the kernel's memory killer would.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Asks it to end with signal 15 and waits for that.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        self.signal("TERM")?;
        let mut child = self.child.take().ok_or("the target does not run")?;
        let start = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if start.elapsed() > PATIENCE {
                child.kill()?;
                child.wait()?;
                return Err(format!("the target ignored signal 15\n{}", self.said()).into());
            }
            std::thread::sleep(GLANCE);
        }
    }

    /// Sends a signal by name.
    pub fn signal(&self, name: &str) -> Result<()> {
        let id = self.process()?.to_string();
        shell::run(Command::new("kill").args(["-s", name, &id]))?;
        Ok(())
    }

    /// Runs the command line against this target's management socket; standard output.
    pub fn command_line(&self, arguments: &[&str]) -> Result<String> {
        let output = shell::run(
            Command::new(program()?).arg("--state-dir").arg(&self.state).args(arguments),
        )?;
        Ok(String::from_utf8_lossy(&output).into_owned())
    }

    /// Has it listen on one more port of loopback, which is the answer.
    pub fn listen(&self) -> Result<String> {
        let port = free_port()?.to_string();
        let address = format!("127.0.0.1:{port}");
        self.command_line(&["listener", "add", &address, "--advertise", HOST_FROM_GUEST])?;
        Ok(port)
    }

    /// Whether it runs still.
    pub fn running(&mut self) -> Result<bool> {
        Ok(match &mut self.child {
            Some(child) => child.try_wait()?.is_none(),
            None => false,
        })
    }

    /// Resident memory in KiB and the number of open files.
    pub fn usage(&self) -> Result<(u64, usize)> {
        let process = PathBuf::from(format!("/proc/{}", self.process()?));
        let status = fs::read_to_string(process.join("status"))?;
        let resident = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.split_whitespace().next())
            .ok_or("no VmRSS")?
            .parse()?;
        Ok((resident, fs::read_dir(process.join("fd"))?.count()))
    }

    /// Bytes that the backing file takes on this machine's disk.
    pub fn allocated(&self) -> Result<u64> {
        Ok(fs::metadata(&self.drive)?.blocks() * 512)
    }

    /// Port and subsystem, as a scenario needs them to connect.
    pub fn address(&self) -> (u16, &str) {
        (self.port, &self.subsystem)
    }

    /// What the program has written so far.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn process(&self) -> Result<u32> {
        Ok(self.child.as_ref().ok_or("the target does not run")?.id())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // A scenario may have killed it already.
        let _gone = self.kill();
    }
}

/// A port for one target, which needs the same one again after a restart.
pub fn free_port() -> Result<u16> {
    Ok(stdx::port::claim()?)
}

/// `FLASHLOOM_BIN`, or the release build of this workspace, made now.
pub fn program() -> Result<PathBuf> {
    static PROGRAM: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    PROGRAM.get_or_init(|| build().map_err(|error| error.to_string())).clone().map_err(Into::into)
}

fn build() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("FLASHLOOM_BIN") {
        return Ok(named.into());
    }
    release("flashloom", "flashloom")
}

/// `FLASHLOOM_LIBRARY`, or libflashloom of this workspace's release build, made now.
pub fn library() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("FLASHLOOM_LIBRARY") {
        return Ok(named.into());
    }
    release("capi", "libflashloom.so")
}

/// Builds `package`; the path of the file that it makes.
fn release(package: &str, file: &str) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    shell::run(Command::new(cargo).current_dir(env!("CARGO_MANIFEST_DIR")).args([
        "build",
        "--quiet",
        "--release",
        "--package",
        package,
    ]))?;
    // This program lies in <target directory>/<profile>/deps.
    let here = std::env::current_exe()?;
    let root = here.ancestors().nth(3).ok_or("a test program outside a target directory")?;
    Ok(root.join("release").join(file))
}
