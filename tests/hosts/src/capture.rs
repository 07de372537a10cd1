//! Packets between guest and target, decoded by Wireshark's own NVMe/TCP dissector.
use crate::{Result, shell};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long dumpcap may take to begin.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often the capture file is looked at while waiting for it to begin.
const GLANCE: Duration = Duration::from_millis(20);

/// A capture of one port on the loopback interface.
pub struct Capture {
    child: Child,
    file: PathBuf,
    port: u16,
}

/// What the dissector made of a capture.
pub struct Decoded {
    /// Frames that held NVMe/TCP.
    pub frames: usize,
    /// One line for each frame that the dissector calls malformed.
    pub malformed: Vec<String>,
}

impl Capture {
    /// Starts and waits until packets are being recorded.
    pub fn start(port: u16, work: &Path) -> Result<Self> {
        let file = work.join(format!("capture-{port}.pcapng"));
        let mut child = shell::tied("dumpcap")
            .args(["-q", "-B", "64", "-i", "lo", "-f", &format!("tcp port {port}"), "-w"])
            .arg(&file)
            .stderr(Stdio::null())
            .spawn()?;
        let start = Instant::now();
        while fs::metadata(&file).map_or(0, |facts| facts.len()) == 0 {
            if let Some(status) = child.try_wait()? {
                return Err(format!("dumpcap ended: {status}; capturing needs root").into());
            }
            if start.elapsed() > PATIENCE {
                child.kill()?;
                child.wait()?;
                return Err("dumpcap records nothing".into());
            }
            std::thread::sleep(GLANCE);
        }
        Ok(Self { child, file, port })
    }

    /// Ends the capture and decodes it.
    pub fn decode(mut self) -> Result<Decoded> {
        shell::run(Command::new("kill").args(["-s", "INT", &self.child.id().to_string()]))?;
        self.child.wait()?;
        Ok(Decoded {
            frames: self.frames("nvme-tcp")?.len(),
            malformed: self.frames("_ws.malformed || nvme-tcp && tcp.analysis.lost_segment")?,
        })
    }

    fn frames(&self, filter: &str) -> Result<Vec<String>> {
        let listed = shell::run(
            Command::new("tshark")
                .arg("-r")
                .arg(&self.file)
                .args(["-d", &format!("tcp.port=={},nvme-tcp", self.port)])
                .args(["-Y", filter]),
        )?;
        Ok(String::from_utf8_lossy(&listed).lines().map(str::to_owned).collect())
    }
}
