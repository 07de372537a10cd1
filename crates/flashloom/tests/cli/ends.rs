//! The daemon when one of its reactors cannot go on, or does not answer.

use std::process::ExitStatus;

use super::*;

/// A daemon whose first reactor can be broken through the folder `dir`.
fn breakable(dir: &Path) -> Daemon {
    let port = free_port();
    let serve = format!("serve memory:16MiB --listen 127.0.0.1:{port} --discovery off");
    let mut command = flashloom(dir, &serve);
    Daemon::run(command.env("FLASHLOOM_CANARY", dir), &serve)
}

impl Daemon {
    /// Waits for its end; how it ended, and what it said.
    fn ended(mut self) -> (ExitStatus, String) {
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (self.child.wait().unwrap(), errors)
    }
}

/// A reactor's panic left a daemon behind that refused connections, told `status` that all was well, and did not end
/// when it was asked to.
#[test]
fn a_reactor_that_panics_ends_the_daemon_with_a_last_word() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = breakable(dir.path());
    let asked = reactor::now_exact();
    fs::write(dir.path().join("panic"), []).unwrap();
    let (status, errors) = daemon.ended();
    assert_eq!(status.code(), Some(7), "{errors}");
    assert!(errors.contains("flashloom-0 cannot go on: asked to panic"), "{errors}");
    // Well below a second; the rest is for a machine that is busy with other tests.
    let took = Duration::from_nanos(reactor::now_exact() - asked);
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(failure(dir.path(), "status").0, 4);
}

/// A daemon with a stuck reactor could only be killed: whoever asked something of it kept the lock that the rest waited
/// for, and each scrape of the counters left a thread behind.
#[test]
fn a_stuck_reactor_keeps_neither_a_scrape_nor_the_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = breakable(dir.path());
    let threads = || fs::read_dir(format!("/proc/{}/task", daemon.child.id())).unwrap().count();
    let scrape = || {
        let mut socket = UnixStream::connect(dir.path().join("api.sock")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let request = b"GET /metrics HTTP/1.1\r\nHost: flashloom\r\nConnection: close\r\n\r\n";
        socket.write_all(request).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    };
    let whole = scrape();
    assert!(whole.contains("\nflashloom_reactor_answers{reactor=\"0\"} 1\n"), "{whole}");
    fs::write(dir.path().join("stuck"), []).unwrap();
    // It reads no more: what it was asked is not answered.
    until("a reactor does not answer", || {
        scrape().contains("\nflashloom_reactor_answers{reactor=\"0\"} 0\n")
    });
    // Each left a thread; threads that wait for the next scrape may come, and go when idle, but not with each.
    const SCRAPES: usize = 8;
    let before = threads();
    for _ in 0..SCRAPES {
        let text = scrape();
        assert!(text.contains("\nflashloom_reactor_turns_total{reactor=\"0\"}"), "{text}");
    }
    assert!(threads() < before + SCRAPES / 2, "{} threads, {before} before", threads());
    daemon.signal("-TERM");
    let mut daemon = daemon;
    // Asked again, it does not insist on order.
    while daemon.child.try_wait().unwrap().is_none() {
        daemon.signal("-TERM");
        std::thread::yield_now();
    }
    let (status, errors) = daemon.ended();
    assert_eq!(status.code(), Some(1), "{errors}");
    assert!(errors.contains("asked to stop again"), "{errors}");
}
