//! The demo's array: a daemon of its own, which can be killed, on six files, which can be taken away.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use api::v1::{NewMapping, NewPool, NewVolume, PoolHealth};
use api::value::{DrivePath, Name, Size, VolumePath};
use array::state::socket_path;
use control::Client;

use super::{VOLUME, VOLUME_BYTES, text};
use crate::cli::DEFAULT_NQN;
use crate::exit::{Exit, Failure, Outcome};

/// Drives of the demo: RAID 6 of 4 + 2.
const DRIVES: u32 = 6;

/// Those that are taken away.
const TAKEN: [u32; 2] = [1, 4];

/// Time from one look at the daemon to the next.
const LOOK: Duration = Duration::from_millis(20);

/// How long any of its steps may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where it all is.
pub struct Stage {
    pub dir: PathBuf,
    pub state_dir: PathBuf,
    pub address: SocketAddr,
    pub client: Client,
    pub size: Size,
}

/// The daemon; killed when it is dropped.
pub struct Daemon(Child);

impl Stage {
    pub fn new(dir: PathBuf, state_dir: PathBuf, address: SocketAddr, size: Size) -> Self {
        let client = Client::new(&socket_path(&state_dir));
        Self { dir, state_dir, address, client, size }
    }

    fn drive(&self, number: u32) -> PathBuf {
        self.dir.join(format!("drive{number}.img"))
    }

    fn away(&self, number: u32) -> PathBuf {
        self.dir.join("away").join(format!("drive{number}.img"))
    }

    /// Writes the daemon's configuration, and puts back what an earlier demo was cut short with.
    pub fn set(&self) -> Outcome {
        fs::create_dir_all(self.dir.join("away")).map_err(|error| failed(&self.dir, &error))?;
        let _ = self.put_back();
        let file = self.dir.join("flashloom.toml");
        let config = format!(
            "# What `flashloom demo` serves; a drive that is away is waited for a second only.\n\
             [node]\nwait-for-drives = 1\n\n\
             [[listener]]\naddress = \"{}\"\n\n\
             [[subsystem]]\nnqn = \"{DEFAULT_NQN}\"\nallow-any-host = true\n",
            self.address
        );
        fs::write(&file, config).map_err(|error| failed(&file, &error))
    }

    /// Starts the daemon, and waits until it serves all that it knows.
    pub async fn start(&self) -> Outcome<Daemon> {
        let log = self.dir.join("daemon.log");
        let out = File::options().append(true).create(true).open(&log);
        let out = out.map_err(|error| failed(&log, &error))?;
        let program = std::env::current_exe().map_err(|error| failed(&log, &error))?;
        let mut command = Command::new(program);
        command.arg("serve").arg("--config").arg(self.dir.join("flashloom.toml"));
        command.arg("--state-dir").arg(&self.state_dir).args(["--log", "human"]);
        // Ctrl-C is for this process, which stops the other in order.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(out).process_group(0);
        let mut daemon = Daemon(command.spawn().map_err(|error| failed(&log, &error))?);
        let begun = self.until(async || {
            if daemon.0.try_wait().is_ok_and(|ended| ended.is_some()) {
                let what = format!("the daemon ended: {}", last_line(&log));
                return Err(Failure::new(Exit::Failed, what).help(format!("see {}", log.display())));
            }
            let Ok(pools) = self.client.pools().await else { return Ok(false) };
            Ok(pools.iter().all(|pool| pool.status.is_some()))
        });
        begun.await?;
        Ok(daemon)
    }

    /// Waits until it is so.
    async fn until(&self, mut is_so: impl AsyncFnMut() -> Outcome<bool>) -> Outcome {
        let waited = tokio::time::timeout(PATIENCE, async {
            while !is_so().await? {
                tokio::time::sleep(LOOK).await;
            }
            Ok::<(), Failure>(())
        });
        let late = |_| {
            let what = format!("the daemon took longer than {} s", PATIENCE.as_secs());
            let log = self.dir.join("daemon.log");
            Failure::new(Exit::Failed, what).help(format!("see {}", log.display()))
        };
        waited.await.map_err(late)?
    }

    /// Makes the pool and the volume, unless they are there from before, and maps the volume. Gives the pool's capacity.
    pub async fn prepare(&self) -> Outcome<u64> {
        let path: VolumePath = text(VOLUME)?;
        let known = self.client.pools().await?.into_iter().find(|pool| pool.name == path.pool);
        let pool = match known {
            Some(pool) => pool,
            None => self.client.create_pool(&self.new_pool(&path.pool)).await?,
        };
        if !self.client.volumes().await?.iter().any(|volume| volume.name == path) {
            let (name, size) = (path.volume.clone(), Size::new(VOLUME_BYTES));
            let new = NewVolume {
                name,
                size: Some(size),
                block_size: None,
                from: None,
                quota: None,
                reserve: None,
                reserve_all: false,
            };
            self.client.create_volume(&path.pool, &new).await?;
        }
        if self.client.volume(&path).await?.mapping.is_none() {
            let subsystem = text(DEFAULT_NQN)?;
            let new =
                NewMapping { subsystem, nsid: Some(1), allow_any_host: true, hosts: Vec::new() };
            self.client.map_volume(&path, &new).await?;
        }
        Ok(pool.status.map_or(0, |status| status.capacity))
    }

    fn new_pool(&self, name: &Name) -> NewPool {
        let drive = |number| DrivePath { path: self.drive(number), size: Some(self.size) };
        NewPool {
            name: name.clone(),
            drives: (0..DRIVES).map(drive).collect(),
            raid: None,
            log: Vec::new(),
            log_size: None,
            shards: None,
            force: true,
            dry_run: false,
        }
    }

    /// Takes two drives away.
    pub fn take_away(&self) -> Outcome {
        self.rename(|number| (self.drive(number), self.away(number)))
    }

    /// Puts them back.
    pub fn put_back(&self) -> Outcome {
        self.rename(|number| (self.away(number), self.drive(number)))
    }

    fn rename(&self, paths: impl Fn(u32) -> (PathBuf, PathBuf)) -> Outcome {
        TAKEN
            .into_iter()
            .map(paths)
            .try_for_each(|(from, to)| fs::rename(&from, to).map_err(|error| failed(&from, &error)))
    }

    /// Waits until the pool is whole.
    pub async fn until_whole(&self) -> Outcome {
        self.until(async || {
            let pools = self.client.pools().await?;
            Ok(pools.iter().all(|pool| pool.health == PoolHealth::Online))
        })
        .await
    }
}

impl Daemon {
    /// As a crash ends it: with SIGKILL.
    pub fn kill(mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// In order.
    pub fn stop(mut self) {
        let _ = Command::new("kill").arg("-TERM").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn last_line(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().last().unwrap_or_default().to_owned()
}

pub fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("{}: {error}", path.display()))
        .help("choose another directory with --dir")
}
