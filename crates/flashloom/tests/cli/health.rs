//! What monitors and people at the screen are told of how a node is.

use super::*;

fn serve(port: u16) -> String {
    format!("serve memory:16MiB --listen 127.0.0.1:{port} --discovery off")
}

/// `flashloom health`: its exit code and document.
fn health(dir: &Path) -> (i32, Value) {
    let output = run(dir, "health -o json");
    let document = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code().unwrap(), document)
}

/// A load that goes on until it is killed.
fn load(dir: &Path, port: u16, host: &str) -> Child {
    let load = format!(
        "bench --traddr 127.0.0.1 --trsvcid {port} --hostnqn {host} --rw randrw --runtime 10m --poll interrupt"
    );
    let mut load = flashloom(dir, &load);
    load.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn events(dir: &Path) -> String {
    json(dir, "events").to_string()
}

#[test]
fn a_monitor_is_told_by_exit_codes() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert_eq!(health(dir).0, 3, "no daemon");
    let serve = serve(free_port());
    let daemon = Daemon::start(dir, &serve);
    let (code, found) = health(dir);
    assert_eq!((code, &found["health"]), (0, &"ok".into()), "{found}");
    assert_eq!(run(dir, "health").stdout, b"ok\n");
    let drive = |n| format!("--drive {}/d{n},size=192MiB", dir.display());
    json(dir, &format!("pool create fast {} {} --log-size 16MiB", drive(0), drive(1)));
    assert_eq!(health(dir).0, 0);
    let ended = || events(dir).matches("ended without order").count();
    daemon.stop();
    fs::rename(dir.join("d0"), dir.join("away")).unwrap();
    let daemon = Daemon::start(dir, &serve);
    assert_eq!(ended(), 0);
    let (code, found) = health(dir);
    let worst = &found["findings"][0];
    assert_eq!((code, &worst["subject"]), (2, &"pool fast".into()), "{found}");
    assert!(!worst["help"].as_str().unwrap().is_empty(), "{found}");
    let shown = String::from_utf8(run(dir, "health").stdout).unwrap();
    assert!(shown.starts_with("failed\n") && shown.contains("what to do"), "{shown}");
    // Series that alerts look at do not vanish with the pool.
    let text = scrape(dir);
    for line in [
        "flashloom_health 2",
        "flashloom_findings{health=\"failed\"} 1",
        "flashloom_pool_health{pool=\"fast\"} 2",
        "flashloom_drive_online{pool=\"fast\",drive=\"0\"} 0",
        "flashloom_drive_online{pool=\"fast\",drive=\"1\"} 0",
        "flashloom_jobs{state=\"done\"} 1",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    // With -9.
    drop(daemon);
    let daemon = Daemon::start(dir, &serve);
    assert_eq!(ended(), 1);
    daemon.stop();
}

/// A host that had lost a path was like any other, and nothing told of who came and went.
#[test]
fn a_host_that_lost_a_path_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let daemon = Daemon::start(dir, &serve(port));
    let host = "nqn.2014-08.org.nvmexpress:uuid:6f0a2c9e-7c7e-4c55-9c3c-2f0f0f1f9a11";
    let mut paths = [load(dir, port, host), load(dir, port, host)];
    let told = |words: &str| events(dir).contains(words);
    while !told("2 paths") {
        assert!(paths.iter_mut().all(|path| path.try_wait().unwrap().is_none()), "a load ended");
    }
    assert_eq!(health(dir).0, 0);
    let shown = json(dir, "top --count 1 --interval 200ms");
    assert!(shown["namespaces"][0]["reads"].as_f64().unwrap() > 0.0, "{shown}");
    assert!(shown["hosts"][0]["name"].as_str().unwrap().starts_with(host), "{shown}");
    assert!(String::from_utf8(run(dir, "top --count 1").stdout).unwrap().contains("reads/s"));
    paths[0].kill().unwrap();
    paths[0].wait().unwrap();
    while !told("has 1 path, of 2 before") {}
    let (code, found) = health(dir);
    let subject = format!("host {host}");
    assert_eq!((code, &found["findings"][0]["subject"]), (1, &subject.into()), "{found}");
    assert!(scrape(dir).contains("\nflashloom_hosts_with_fewer_paths 1\n"));
    paths[1].kill().unwrap();
    paths[1].wait().unwrap();
    while !told("is no longer connected") {}
    assert_eq!(health(dir).0, 0, "it left");
    daemon.stop();
}

/// What is answered to a request for `path` over TCP.
fn get(port: u16, path: &str) -> String {
    let mut socket = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

/// Prometheus scrapes no Unix socket.
#[test]
fn metrics_are_served_over_tcp_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (port, metrics) = (free_port(), free_port());
    let file = dir.join("flashloom.toml");
    let text = format!(
        "[metrics]\nlisten = \"{metrics}\"\n[[listener]]\naddress = \"127.0.0.1:{port}\"\n\
         [[subsystem]]\nnqn = \"{NQN}\"\nallow-any-host = true\n\
         [[subsystem.namespace]]\nbackend = \"memory:16MiB\"\n"
    );
    fs::write(&file, &text).unwrap();
    let daemon = Daemon::start(dir, &format!("serve --config {}", file.display()));
    while !events(dir).contains(&format!("http://127.0.0.1:{metrics}/metrics")) {}
    let scraped = get(metrics, "/metrics");
    assert!(scraped.starts_with("HTTP/1.1 200") && scraped.contains("text/plain; version=0.0.4"));
    assert!(scraped.contains("\nflashloom_health 0\n"), "{scraped}");
    for path in ["/", "/v1/status", "/openapi.json"] {
        assert!(get(metrics, path).starts_with("HTTP/1.1 404"), "{path}: nothing else");
    }
    // What alerts and the dashboard ask for is there.
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    for asked in ["prometheus/flashloom.rules.yml", "grafana/flashloom.json"] {
        let text = fs::read_to_string(packaging.join(asked)).unwrap();
        let mut names = 0;
        for part in text.split("flashloom_").skip(1) {
            let name = part.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap();
            let is_there = |name: &str| scraped.contains(&format!("# TYPE flashloom_{name} "));
            let of_histogram = name.strip_suffix("_bucket").is_some_and(is_there);
            assert!(is_there(name) || of_histogram, "{asked}: flashloom_{name}");
            names += 1;
        }
        assert!(names > 10, "{asked}");
    }
    let dashboard = fs::read(packaging.join("grafana/flashloom.json")).unwrap();
    let dashboard: Value = serde_json::from_slice(&dashboard).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() > 10);
    daemon.stop();
    let wrong = text.replace(&format!("\"{metrics}\""), "\"elsewhere:9464\"");
    fs::write(&file, wrong).unwrap();
    let (code, said) = failure(dir, &format!("check-config {}", file.display()));
    assert!(code == 3 && said.contains("is no address to serve metrics on"), "{said}");
}
