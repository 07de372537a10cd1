//! Work that takes long is a job: told of, asked for twice, cut short.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

fn serve() -> String {
    format!("serve memory:1MiB --listen 127.0.0.1:{} --discovery off", free_port())
}

/// What makes a pool of two drives in `dir`.
fn create(dir: &Path) -> String {
    let drive = |n| format!("--drive {}/d{n},size=192MiB", dir.display());
    format!("pool create fast {} {} --log-size 16MiB", drive(0), drive(1))
}

fn events(dir: &Path) -> Vec<Value> {
    json(dir, "events").as_array().unwrap().clone()
}

/// A script that lost the answer asked again, and was told of a conflict.
#[test]
fn the_same_request_is_the_same_job_and_jobs_are_told_of_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let serve = serve();
    let daemon = Daemon::start(dir, &serve);
    let keyed = format!("{} --request-key one", create(dir));
    let id = json(dir, &format!("{keyed} --no-wait"))["id"].as_u64().unwrap();
    let over = json(dir, &format!("job wait {id}"));
    let told = ["kind", "target", "state", "result"].map(|key| over[key].as_str().unwrap());
    assert_eq!(told, ["pool-create", "fast", "done", "/v1/pools/fast"]);
    assert!(over["by"].as_str().unwrap().starts_with("uid "), "{over}");
    assert_eq!(json(dir, &keyed)["name"], "fast");
    assert_eq!(json(dir, "job list").as_array().unwrap().len(), 1);
    let (code, said) = failure(dir, "volume create fast/v --size 1MiB --request-key one");
    assert!(code == 1 && said.contains("another request"), "{said}");
    let (code, _) = failure(dir, &create(dir));
    assert_eq!(code, 1, "another request, without a key");
    let (code, said) = failure(dir, &format!("job wait {}", id + 1));
    assert!(code == 1 && said.contains("fast"), "{said}");
    let unhurried = |what: &str| {
        let id = json(dir, &format!("{what} --no-wait"))["id"].as_u64().unwrap();
        json(dir, &format!("job wait {id}"))["result"].take()
    };
    assert_eq!(unhurried("volume create fast/w --size 1MiB"), "/v1/pools/fast/volumes/w");
    assert_eq!(unhurried("volume resize fast/w 2MiB"), "/v1/pools/fast/volumes/w");
    assert_eq!(json(dir, "volume show fast/w")["size"], 2 << 20);
    assert_eq!(unhurried("volume delete fast/w --yes"), Value::Null);
    assert_eq!(json(dir, "volume list"), Value::Array(Vec::new()));
    // Two at once.
    let twice = "volume create fast/v --size 64MiB --request-key two -o json";
    let ask = |_| flashloom(dir, twice).stdout(Stdio::piped()).spawn().unwrap();
    let [one, two] = [0, 1].map(ask).map(|child| child.wait_with_output().unwrap());
    assert!(one.status.success() && two.status.success());
    assert_eq!(one.stdout, two.stdout);
    let (code, said) = failure(dir, &format!("job cancel {id}"));
    assert!(code == 1 && said.contains("is over"), "{said}");
    let (code, said) = failure(dir, "job show 99");
    assert!(code == 1 && said.contains("there is no job 99"), "{said}");
    let jobs = json(dir, "job list");
    assert_eq!(jobs.as_array().unwrap().len(), 6, "{jobs}");
    let is_made = |event: &&Value| event["message"] == "pool fast made";
    let before = events(dir);
    let made = before.iter().find(is_made).unwrap();
    assert_eq!(made["by"], over["by"]);
    // Dropped is killed, with -9.
    drop(daemon);

    let daemon = Daemon::start(dir, &serve);
    assert_eq!(json(dir, "job list"), jobs);
    assert_eq!(json(dir, &keyed)["name"], "fast");
    assert!(events(dir).starts_with(&before), "events are kept");
    daemon.stop();
}

/// A pool that was being made when the daemon was killed was there or not, and nobody said which.
#[test]
fn a_job_that_a_kill_cuts_short_is_done_or_interrupted() {
    for _ in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let serve = serve();
        let daemon = Daemon::start(dir, &serve);
        let keyed = format!("{} --request-key one", create(dir));
        let id = json(dir, &format!("{keyed} --no-wait"))["id"].as_u64().unwrap();
        drop(daemon);
        let daemon = Daemon::start(dir, &serve);
        let job = json(dir, &format!("job show {id}"));
        let is_there = json(dir, "pool list").as_array().unwrap().len() == 1;
        let state = if is_there { "done" } else { "interrupted" };
        assert_eq!(job["state"], state, "{job}");
        // Whichever it is, the request can be made again.
        let again = if is_there { keyed } else { format!("{keyed} --force") };
        assert_eq!(json(dir, &again)["name"], "fast");
        daemon.stop();
    }
}

#[test]
fn status_tells_the_health_of_pools_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let serve = serve();
    let daemon = Daemon::start(dir, &serve);
    json(dir, &create(dir));
    let status = json(dir, "status");
    assert_eq!(status["health"]["health"], "ok", "{status}");
    assert_eq!(status["pools"]["fast"]["health"], "ok", "{status}");
    daemon.stop();
    fs::rename(dir.join("d0"), dir.join("away")).unwrap();
    let daemon = Daemon::start(dir, &serve);
    let status = json(dir, "status");
    let of_node = &status["health"];
    assert_eq!((&of_node["health"], of_node), (&"failed".into(), &status["pools"]["fast"]));
    assert!(of_node["why"].as_str().unwrap().contains("pool fast"), "{status}");
    let shown = String::from_utf8(run(dir, "status").stdout).unwrap();
    assert!(shown.contains("what to do"), "{shown}");
    daemon.stop();
}

/// A drive that hangs: whoever opens it waits for as long as this is there, 45 s at most (fcntl(2), leases).
struct Hanging(Child);

impl Hanging {
    fn new(drive: &Path) -> Self {
        // Whoever had it open before may be about to close it.
        let lease = "open(D, '+<', shift) or die $!; $SIG{IO} = 'IGNORE'; $| = 1; \
                     until (fcntl(D, 1024, 1)) { $!{EAGAIN} or die $!; select(undef, undef, undef, 0.01) } \
                     print qq(held\\n); <STDIN>";
        let mut perl = Command::new("perl");
        perl.args(["-e", lease]).arg(drive).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = Self(perl.spawn().unwrap());
        let mut said = String::new();
        BufReader::new(holder.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "held\n");
        holder
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a command may take while a drive hangs: well below a second; the rest is for a machine that is busy with other
/// tests.
const PROMPT: Duration = Duration::from_secs(10);

/// The pools `fast`, of `d0` and `d1`, and `calm`.
fn make_pools(dir: &Path) {
    json(dir, &create(dir));
    json(
        dir,
        &format!("pool create calm --drive {}/c0,size=192MiB --log-size 16MiB", dir.display()),
    );
}

/// What reads answer, and changes of another pool do, while a drive of `fast` hangs: `round` names what they make.
fn all_else_goes_on(dir: &Path, round: &str) {
    let begun = reactor::now_exact();
    let promptly = |what: &str| {
        let asked = reactor::now_exact();
        let answer = json(dir, what);
        let took = Duration::from_nanos(reactor::now_exact() - asked);
        assert!(took < PROMPT, "{what}: {took:?}");
        answer
    };
    let reads = [
        "status",
        "pool list",
        "volume list",
        "drive list",
        "job list",
        "subsystem list",
        "events",
    ];
    reads.into_iter().for_each(|what| drop(promptly(what)));
    let volume = format!("calm/{round}");
    promptly(&format!("volume create {volume} --size 1MiB"));
    promptly(&format!("volume resize {volume} 2MiB"));
    promptly(&format!("volume map {volume} --subnqn {NQN}"));
    promptly(&format!("volume unmap {volume}"));
    promptly(&format!("volume delete {volume} --yes"));
    let took = Duration::from_nanos(reactor::now_exact() - begun);
    eprintln!("{round}: {took:?} for all");
}

fn import(dir: &Path) -> String {
    format!("pool import fast --drive {0}/d0 --drive {0}/d1", dir.display())
}

/// An import whose drive hung kept everybody waiting, and the watchdog from its sign of life: the daemon was killed.
#[test]
fn a_drive_that_hangs_holds_up_its_own_pool_alone_and_its_job_is_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let serve = serve();
    let notify = UnixDatagram::bind(dir.join("notify")).unwrap();
    let petted = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&petted);
    // Until the daemon is about to stop: a service manager reads what it is told.
    let manager = std::thread::spawn(move || {
        let mut told = [0; 256];
        loop {
            let length = notify.recv(&mut told).unwrap();
            match &told[..length] {
                b"WATCHDOG=1\n" => drop(counting.fetch_add(1, Ordering::Relaxed)),
                b"STOPPING=1\n" => return,
                _ => {}
            }
        }
    });
    let mut command = flashloom(dir, &serve);
    command.env("NOTIFY_SOCKET", dir.join("notify")).env("WATCHDOG_USEC", "200000");
    let daemon = Daemon::run(&mut command, &serve);
    make_pools(dir);
    json(dir, "pool export fast");
    let hanging = Hanging::new(&dir.join("d0"));
    let keyed = format!("{} --request-key one", import(dir));
    let job = json(dir, &format!("{keyed} --no-wait"));
    let id = job["id"].as_u64().unwrap();
    all_else_goes_on(dir, "importing");
    assert_eq!(json(dir, &format!("{keyed} --no-wait"))["id"], id, "the same key is the same job");
    let show = || json(dir, &format!("job show {id}"));
    assert_eq!(show()["state"], "running");
    let before = petted.load(Ordering::Relaxed);
    until("the watchdog is petted", || petted.load(Ordering::Relaxed) >= before + 3);
    let (code, said) = failure(dir, &format!("job wait {id} --timeout 1s"));
    assert!(code == 1 && said.contains("is not over yet"), "{said}");
    let cancelled = json(dir, &format!("job cancel {id}"));
    assert_eq!((&cancelled["state"], &cancelled["cancelling"]), (&"running".into(), &true.into()));
    drop(hanging);
    let (code, said) = failure(dir, &format!("job wait {id}"));
    assert!(code == 1 && said.contains("cancelled, and nothing was changed"), "{said}");
    assert!(said.contains("ask for it again"), "{said}");
    assert_eq!(show()["state"], "cancelled");
    assert_eq!(json(dir, "pool list").as_array().unwrap().len(), 1, "calm alone");
    assert_eq!(json(dir, &keyed)["name"], "fast");
    daemon.stop();
    manager.join().unwrap();
}

/// What a kill cut short was gone without a word.
#[test]
fn a_kill_in_the_midst_of_a_job_is_told_of_and_the_request_can_be_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let serve = serve();
    let daemon = Daemon::start(dir, &serve);
    make_pools(dir);
    json(dir, "pool export fast");
    let hanging = Hanging::new(&dir.join("d0"));
    let keyed = format!("{} --request-key one", import(dir));
    let id = json(dir, &format!("{keyed} --no-wait"))["id"].as_u64().unwrap();
    // Dropped is killed, with -9.
    drop(daemon);
    let daemon = Daemon::start(dir, &serve);
    let told = json(dir, &format!("job show {id}"));
    assert_eq!(told["state"], "interrupted", "{told}");
    assert!(told["error"]["help"].as_str().unwrap().contains("import it again"), "{told}");
    until_event(dir, &format!("job {id} (pool import fast)"));
    drop(hanging);
    assert_eq!(json(dir, &keyed)["name"], "fast");
    let jobs = json(dir, "job list");
    let states: Vec<_> = jobs.as_array().unwrap().iter().map(|job| &job["state"]).collect();
    assert_eq!(states, ["done", "done", "done", "interrupted", "done"], "{jobs}");
    daemon.stop();
}

/// A daemon that started with a drive that hung answered nobody.
#[test]
fn a_drive_that_hangs_at_the_start_holds_up_its_own_pool_alone() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let serve = serve();
    let daemon = Daemon::start(dir, &serve);
    make_pools(dir);
    daemon.stop();
    let hanging = Hanging::new(&dir.join("d0"));
    let mut command = flashloom(dir, &serve);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let daemon = Daemon { child, announced: Vec::new() };
    until("the daemon answers", || run(dir, "status").status.success());
    let health = |pool: &str| json(dir, &format!("pool show {pool}"))["health"].take();
    until("calm is online", || health("calm") == "online");
    assert_eq!(health("fast"), "opening");
    assert_eq!(json(dir, "status")["health"]["health"], "failed");
    all_else_goes_on(dir, "starting");
    assert_eq!(health("fast"), "opening");
    drop(hanging);
    until("fast is online", || health("fast") == "online");
    daemon.stop();
}
