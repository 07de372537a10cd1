//! What a scenario can ask of the machine outside the guest.
use crate::attached::Attached;
use crate::capture::Capture;
use crate::nvme::Drives;
use crate::target::Target;
use crate::{Result, cache, shell};
use std::process::Command;
use tempfile::TempDir;

/// The state of one scenario outside the guest: gone when the scenario is over.
pub struct Calls {
    targets: Vec<Target>,
    capture: Option<Capture>,
    /// What offers the machine its disk.
    pub attached: Option<Attached>,
    /// What pulls and plugs drives of the guest.
    pub drives: Option<Drives>,
    work: TempDir,
}

impl Calls {
    /// Nothing runs yet.
    pub fn new() -> Result<Self> {
        // Backing files need a file system with direct I/O and hole punching, which /tmp may not have.
        let work = tempfile::Builder::new().prefix("flashloom-hosts-").tempdir_in(cache::root()?)?;
        Ok(Self { targets: Vec::new(), capture: None, attached: None, drives: None, work })
    }

    /// A target runs already.
    pub fn with(target: Target) -> Result<Self> {
        let mut calls = Self::new()?;
        calls.targets.push(target);
        Ok(calls)
    }

    /// Carries out one line `VERB ARGUMENTS...` and returns what the scenario reads as answer.
    /// All verbs but `serve` speak of the target that was started last.
    pub fn answer(&mut self, line: &str) -> Result<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (verb, arguments) = words.split_first().ok_or("empty call")?;
        match (*verb, arguments) {
            ("serve", [backend, extra @ ..]) => {
                let target = Target::start(backend, extra, self.work.path())?;
                let (port, subsystem) = target.address();
                let answer = format!("{port} {subsystem}");
                self.targets.push(target);
                Ok(answer)
            }
            ("address", []) => {
                let (port, subsystem) = self.target()?.address();
                Ok(format!("{port} {subsystem}"))
            }
            ("kill", []) => self.target()?.kill().map(|()| String::new()),
            ("launch", []) => self.target()?.launch().map(|()| String::new()),
            ("attached", ["kill"]) => self.attached()?.kill().map(|()| String::new()),
            ("attached", ["launch"]) => self.attached()?.launch().map(|()| String::new()),
            ("attached", ["log"]) => Ok(self.attached()?.logged()),
            ("pull", [drive]) => self.drives()?.pull(drive).map(|()| String::new()),
            ("plug", [drive]) => self.drives()?.plug(drive).map(|()| String::new()),
            ("signal", [name]) => self.target()?.signal(name).map(|()| String::new()),
            ("running", []) => Ok(self.target()?.running()?.to_string()),
            ("stop", []) => match self.target()?.stop()? {
                status if status.success() => Ok(String::new()),
                status => Err(format!("{status}\n{}", self.said()).into()),
            },
            ("flashloom", arguments) => self.target()?.command_line(arguments),
            ("pool", [name, drives, size]) => {
                let mut words = vec!["pool".to_owned(), "create".to_owned(), (*name).to_owned()];
                for index in 0..drives.parse::<usize>()? {
                    let path = self.work.path().join(format!("{name}-{index}"));
                    words.push("--drive".to_owned());
                    words.push(format!("{},size={size}", path.display()));
                }
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                self.target()?.command_line(&words)
            }
            ("pool_takes", [name]) => self.pool_takes(name),
            ("drives", [name, which @ ("away" | "back")]) => self.move_drives(name, which),
            ("drives", [name, "refuse"]) => self.have_drives_change(name, "+i"),
            ("drives", [name, "take"]) => self.have_drives_change(name, "-i"),
            ("listen", []) => self.target()?.listen(),
            ("usage", []) => {
                let (resident, files) = self.target()?.usage()?;
                Ok(format!("{resident} {files}"))
            }
            ("allocated", []) => Ok(self.target()?.allocated()?.to_string()),
            ("capture", []) => {
                let (port, _) = self.target()?.address();
                self.capture = Some(Capture::start(port, self.work.path())?);
                Ok(String::new())
            }
            ("decode", []) => {
                let decoded = self.capture.take().ok_or("nothing is captured")?.decode()?;
                match decoded.malformed.as_slice() {
                    [] => Ok(decoded.frames.to_string()),
                    malformed => Err(malformed.join("\n").into()),
                }
            }
            _ => Err(format!("no such call: {line}").into()),
        }
    }

    /// KiB that the files of a pool's drives take.
    fn pool_takes(&self, name: &str) -> Result<String> {
        let mut blocks = 0;
        for entry in std::fs::read_dir(self.work.path())? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&format!("{name}-")) {
                blocks += std::os::unix::fs::MetadataExt::blocks(&entry.metadata()?);
            }
        }
        Ok((blocks / 2).to_string())
    }

    /// Has the files of a pool's drives refuse changes (`+i`), also of a program that has them open, or take them again.
    fn have_drives_change(&self, name: &str, how: &str) -> Result<String> {
        for entry in std::fs::read_dir(self.work.path())? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&format!("{name}-")) {
                shell::run(Command::new("chattr").arg(how).arg(entry.path()))?;
            }
        }
        Ok(String::new())
    }

    /// Moves the files of a pool's drives where it does not find them, and back.
    fn move_drives(&self, name: &str, which: &str) -> Result<String> {
        let aside = self.work.path().join("aside");
        std::fs::create_dir_all(&aside)?;
        let (from, to) = match which {
            "away" => (self.work.path(), aside.as_path()),
            _ => (aside.as_path(), self.work.path()),
        };
        for entry in std::fs::read_dir(from)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&format!("{name}-")) {
                std::fs::rename(entry.path(), to.join(entry.file_name()))?;
            }
        }
        Ok(String::new())
    }

    /// What the targets wrote, for a failed scenario's report.
    pub fn said(&self) -> String {
        self.targets.iter().map(Target::said).collect()
    }

    fn attached(&mut self) -> Result<&mut Attached> {
        self.attached.as_mut().ok_or_else(|| "nothing is attached".into())
    }

    fn drives(&mut self) -> Result<&mut Drives> {
        self.drives.as_mut().ok_or_else(|| "the guest has no drives to be pulled".into())
    }

    fn target(&mut self) -> Result<&mut Target> {
        self.targets.last_mut().ok_or_else(|| "no target was started".into())
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        // What refuses changes could not be removed.
        let _ = Command::new("chattr").args(["-R", "-f", "-i"]).arg(self.work.path()).status();
    }
}
