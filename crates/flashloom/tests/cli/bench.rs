//! `bench` from the command line: job files, what it writes, and the report.

use std::fs;

use super::*;

const JOBS: &str = "\
[global]
runtime = \"1s\"
poll = \"interrupt\"
size = \"8m\"

[[job]]
name = \"readers\"
rw = \"randread\"
bssplit = \"4k/70:16k/30\"
random-distribution = \"zipf:1.1\"
numjobs = 2
iodepth = 4

[[job]]
name = \"writer\"
rw = \"write\"
bs = \"64k\"
rate_iops = 200
";

#[test]
fn a_job_file_runs_its_jobs_together_and_leaves_what_tools_read() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let daemon = Daemon::start(
        dir,
        &format!("serve memory:64MiB --listen 127.0.0.1:{port} --discovery off"),
    );
    let file = dir.join("mixed.toml");
    fs::write(&file, JOBS).unwrap();
    let out = dir.join("out");
    let bench = format!("bench --trsvcid {port} --job-file {} --cpu-of daemon", file.display());
    let report = json(dir, &format!("{bench} --out {} --log-interval 200ms", out.display()));
    let jobs = report["jobs"].as_array().unwrap();
    let names: Vec<&str> = jobs.iter().map(|job| job["jobname"].as_str().unwrap()).collect();
    assert_eq!(names, ["readers", "readers", "writer"]);
    let number = |value: &Value| value.as_f64().unwrap();
    assert!(
        (1.0..=204.0).contains(&number(&jobs[2]["write"]["iops"])),
        "{}",
        jobs[2]["write"]["iops"]
    );
    assert!(number(&jobs[0]["read"]["iops"]) > 0.0 && number(&jobs[1]["read"]["iops"]) > 0.0);
    assert!(jobs[0]["read"]["clat_ns"].get("bins").is_none());
    assert!(number(&report["flashloom"]["host"]["cpu_ns_per_io"]) > 0.0);
    assert!(number(&report["flashloom"]["target"]["busy_ns_per_io"]) > 0.0);
    for name in [
        "result.json",
        "result.csv",
        "series.csv",
        "job1-read.hgrm",
        "job3-write.hgrm",
        "fio_bw.3.log",
        "latency.svg",
        "latency-over-time.svg",
        "iops-over-time.svg",
    ] {
        assert!(fs::metadata(out.join(name)).unwrap().len() > 50, "{name}");
    }
    assert!(!out.join("depth.svg").exists());
    let series = fs::read_to_string(out.join("series.csv")).unwrap();
    assert!(series.lines().filter(|line| line.starts_with("writer,")).count() >= 5, "{series}");
    fs::write(&file, "[[job]]\nrw = \"write\"\niodept = 4\n").unwrap();
    let (code, told) = failure(dir, &bench);
    assert_eq!(code, 3);
    assert!(told.contains("mixed.toml:3:1: a job has no `iodept`"), "{told}");
    assert!(told.contains("did you mean `iodepth`?"), "{told}");
    daemon.stop();
}

#[test]
fn depths_are_swept_and_jobs_come_from_the_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let daemon = Daemon::start(
        dir,
        &format!("serve memory:16MiB --listen 127.0.0.1:{port} --discovery off"),
    );
    let out = dir.join("out");
    let sweep = format!("--iodepth 1,4,16 --io-size 2m --poll interrupt --out {}", out.display());
    let output = run(dir, &format!("bench --trsvcid {port} {sweep} -o csv"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    let depths: Vec<&str> =
        text.lines().skip(1).filter_map(|line| line.split(',').nth(3)).collect();
    assert_eq!(depths, ["1", "4", "16"], "{text}");
    let svg = fs::read_to_string(out.join("depth.svg")).unwrap();
    assert_eq!(svg.matches("<circle").count(), 3, "{svg}");
    let jobs = "--job name=a,rw=randread,iodepth=2 --job name=b,rw=randwrite,bs=8k --io-size 1m --poll interrupt";
    let table =
        String::from_utf8(run(dir, &format!("bench --trsvcid {port} {jobs}")).stdout).unwrap();
    for words in ["a", "b", "read", "write", "host: "] {
        assert!(table.contains(words), "{table}");
    }
    assert_eq!(failure(dir, "status -o csv").0, 2);
    daemon.stop();
}

#[test]
fn the_report_compares_a_file_with_itself_over_the_fabric() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("report");
    let report = format!(
        "bench report --out {} --size 16MiB --runtime 100ms --poll interrupt",
        out.display()
    );
    let output = run(dir.path(), &report);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    let text = fs::read_to_string(out.join("report.md")).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
    for row in ["| local | ", "| fabric | ", "| memory | "] {
        assert_eq!(text.matches(row).count(), 4, "{row}\n{text}");
    }
    assert_eq!(text.matches("Over the fabric: ").count(), 4);
    // Every picture is there, and nothing else is left behind.
    let pictures = text.split("](").skip(1).filter_map(|part| part.split_once(')'));
    let pictures: Vec<&str> = pictures.map(|(name, _)| name).collect();
    assert_eq!(pictures.len(), 11);
    for name in pictures {
        assert!(fs::read_to_string(out.join(name)).unwrap().ends_with("</svg>\n"), "{name}");
    }
    let left = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name());
    let is_result = |name: &std::ffi::OsString| {
        let name = name.to_string_lossy();
        [".md", ".svg", ".json"].iter().any(|end| name.ends_with(end))
    };
    assert!(left.into_iter().all(|name| is_result(&name)));
    let durable = text.split("## Durable writes").nth(1).unwrap();
    for bytes in [512, 1024, 2048, 4096, 8192, 16384] {
        let row = durable.lines().find(|line| line.starts_with(&format!("| {bytes} |"))).unwrap();
        assert!(!row.contains(" - "), "{row}");
    }
    let written: Value =
        serde_json::from_str(&fs::read_to_string(out.join("durable.json")).unwrap()).unwrap();
    let by_window =
        written["jobs"].as_array().unwrap().iter().filter(|job| {
            job["flashloom"]["direct_writes"].as_u64().is_some_and(|writes| writes > 0)
        });
    // By size, and as many as go.
    assert_eq!(by_window.count(), 7, "{written}");
    let most = durable.lines().find(|line| line.starts_with("| a second, 32 outstanding |"));
    assert!(most.is_some_and(|row| !row.contains(" - ")), "{durable}");
    let cost = durable.lines().find(|line| line.starts_with("| us at work for each"));
    assert!(cost.is_some_and(|row| !row.contains('?') && row.contains(" + ")), "{durable}");
}

#[test]
fn a_load_goes_over_every_path_that_discovery_names() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (first, second) = (free_port(), free_port());
    let serve = format!(
        "serve memory:16MiB --discovery off --listen 127.0.0.1:{first} --listen 127.0.0.1:{second}"
    );
    let daemon = Daemon::start(dir, &serve);
    let mut bench = flashloom(dir, "-o json bench --all-paths --path-policy round-robin");
    let shape = "--rw randrw --iodepth 8 --size 4MiB --runtime 3s --rate-iops 500 --poll interrupt";
    bench.args(["--trsvcid", &first.to_string()]).args(shape.split(' ')).stdout(Stdio::piped());
    let mut bench = bench.spawn().unwrap();
    // A controller for each path; no more than those.
    let mut most = 0;
    while bench.try_wait().unwrap().is_none() {
        most = most.max(json(dir, "controller list").as_array().unwrap().len());
    }
    assert_eq!(most, 2);
    let output = bench.wait_with_output().unwrap();
    assert!(output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["jobs"][0]["read"]["total_ios"].as_u64() > Some(100), "{report}");
    daemon.stop();
}
