//! Work that takes long is a job: told of, asked for twice, cut short.

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
    assert_eq!(jobs.as_array().unwrap().len(), 3, "{jobs}");
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
