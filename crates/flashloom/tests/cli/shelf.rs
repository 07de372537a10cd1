//! Drives that can be pulled, also under a running daemon, and given back as they were or as they were long ago.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the bytes of a loop device begin that was pulled: behind everything, so that it has none, like a device
/// that Linux lost.
const NOWHERE: u64 = 1 << 40;

/// Has a loop device begin elsewhere in its file, which works while it is in use.
const SET_OFFSET: &str = r#"my ($at, $offset) = @ARGV;
open(my $device, "<", $at) or die "$at: $!";
my $info = "\0" x 232;
ioctl($device, 0x4C05, $info) or die "LOOP_GET_STATUS64: $!";
substr($info, 24, 8) = pack("Q", $offset);
for (1 .. 1000) { exit 0 if ioctl($device, 0x4C04, $info); $!{EAGAIN} or last }
die "LOOP_SET_STATUS64: $!";"#;

/// What the drives are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Files,
    Loops,
}

pub struct Shelf {
    dir: PathBuf,
    of: Of,
    loops: Vec<String>,
    /// What a drive held some time ago.
    aged: Option<usize>,
    /// Pulled under a running daemon: a file that refuses changes.
    refusing: Vec<usize>,
}

fn command(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl Shelf {
    /// Files that are made with their pool.
    pub fn of_files(dir: &Path) -> Self {
        let (dir, of) = (dir.to_owned(), Of::Files);
        Self { dir, of, loops: Vec::new(), aged: None, refusing: Vec::new() }
    }

    /// Loop devices, with nodes of their own.
    pub fn of_loops(dir: &Path, count: usize, bytes: u64) -> Self {
        let mut shelf = Self::of_files(dir);
        shelf.of = Of::Loops;
        for n in 0..count {
            fs::File::create(shelf.image(n)).unwrap().set_len(bytes).unwrap();
            let image = shelf.image(n).display().to_string();
            let device = command("losetup", &["--find", "--show", "--direct-io=on", &image]);
            let node = fs::metadata(&device).unwrap();
            assert!(node.file_type().is_block_device());
            let minor = (node.rdev() & 0xff).to_string();
            shelf.loops.push(device);
            command("mknod", &[&shelf.at(n).display().to_string(), "b", "7", &minor]);
        }
        shelf
    }

    /// Where a drive is as the daemon knows it.
    pub fn at(&self, drive: usize) -> PathBuf {
        self.dir.join(format!("d{drive}"))
    }

    fn away(&self, drive: usize) -> PathBuf {
        self.dir.join(format!("away{drive}"))
    }

    /// Where its bytes are.
    fn image(&self, drive: usize) -> PathBuf {
        self.dir.join(format!("image{drive}"))
    }

    fn old(&self) -> PathBuf {
        self.dir.join("old")
    }

    /// Whether drives can be pulled under a running daemon: that wants a file system whose files can be made immutable,
    /// and the right to.
    pub fn can_pull_hot(&self) -> bool {
        let probe = self.dir.join("probe");
        fs::write(&probe, "").unwrap();
        let chattr = |how| Command::new("chattr").arg(how).arg(&probe).output();
        let can = |how| chattr(how).is_ok_and(|output| output.status.success());
        let both = can("+i") && can("-i");
        fs::remove_file(&probe).unwrap();
        self.of == Of::Loops || both
    }

    /// The drive is not there any more. Nobody has it open, unless it is a loop device.
    pub fn pull(&self, drive: usize) {
        if self.of == Of::Loops {
            self.set_offset(drive, NOWHERE);
        }
        fs::rename(self.at(drive), self.away(drive)).unwrap();
    }

    /// Likewise, under a daemon that uses it.
    pub fn pull_hot(&mut self, drive: usize) {
        if self.of == Of::Loops {
            return self.pull(drive);
        }
        command("chattr", &["+i", &self.at(drive).display().to_string()]);
        self.refusing.push(drive);
    }

    /// Takes the bytes, too, of a file that was pulled under a daemon that has it open. They are kept, to be
    /// [put back](Self::put_back).
    pub fn empty(&self, drive: usize) {
        assert!(self.refusing.contains(&drive), "nobody changes it meanwhile");
        let (at, gone) = (self.at(drive), self.away(drive));
        copy(&at, &self.kept(drive));
        command("chattr", &["-i", &at.display().to_string()]);
        fs::rename(&at, &gone).unwrap();
        fs::OpenOptions::new().write(true).open(&gone).unwrap().set_len(0).unwrap();
    }

    /// A drive that was [emptied](Self::empty) has all that it had, at once.
    pub fn put_back(&mut self, drive: usize) {
        fs::rename(self.kept(drive), self.at(drive)).unwrap();
        self.refusing.retain(|n| *n != drive);
    }

    fn kept(&self, drive: usize) -> PathBuf {
        self.dir.join(format!("kept{drive}"))
    }

    /// The drive is there again, or what it held some time ago.
    pub fn give_back(&mut self, drive: usize, old: bool) {
        let is_refusing = self.refusing.contains(&drive);
        let at = if is_refusing { self.at(drive) } else { self.away(drive) };
        if is_refusing {
            command("chattr", &["-i", &at.display().to_string()]);
            self.refusing.retain(|n| *n != drive);
        }
        if old {
            // A daemon that has a file open would see its bytes change.
            assert!(!is_refusing && self.aged == Some(drive));
            let image = if self.of == Of::Loops { self.image(drive) } else { at.clone() };
            copy(&self.old(), &image);
        }
        if self.of == Of::Loops {
            self.set_offset(drive, 0);
        }
        if !is_refusing {
            fs::rename(at, self.at(drive)).unwrap();
        }
    }

    /// Whether the bytes of a drive that was pulled can be those of some time ago.
    pub fn has_old(&self, drive: usize) -> bool {
        self.aged == Some(drive) && !self.refusing.contains(&drive)
    }

    /// Puts a copy of a drive aside that nobody uses now.
    pub fn put_aside(&mut self, drive: usize) {
        let image = if self.of == Of::Loops { self.image(drive) } else { self.at(drive) };
        copy(&image, &self.old());
        self.aged = Some(drive);
    }

    fn set_offset(&self, drive: usize, offset: u64) {
        command("perl", &["-MErrno", "-e", SET_OFFSET, &self.loops[drive], &offset.to_string()]);
    }
}

/// In place, holes as holes: whoever has it open goes on with the copy.
fn copy(from: &Path, to: &Path) {
    let (from, to) = (from.display().to_string(), to.display().to_string());
    command("cp", &["--sparse=always", &from, &to]);
}

impl Drop for Shelf {
    fn drop(&mut self) {
        for device in &self.loops {
            let _ = Command::new("losetup").args(["--detach", device]).status();
        }
        for drive in &self.refusing {
            let _ = Command::new("chattr").arg("-i").arg(self.at(*drive)).status();
        }
    }
}
