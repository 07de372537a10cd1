//! Pools looked at while they are closed.

use super::*;
use std::os::unix::fs::FileExt;

fn flip(path: &Path, offset: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
}

/// Runs a dump that finds errors; its report.
fn unclean(dir: &Path, arguments: &str) -> Value {
    let output = run(dir, &format!("{arguments} -o json"));
    assert_eq!(output.status.code(), Some(1), "{arguments}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("errors found"));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_pool_is_dumped_while_it_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let nqn = "nqn.2026-11.io.flashloom:db";
    let serve = format!("serve memory:1MiB --listen 127.0.0.1:{port} --discovery off");
    let daemon = Daemon::start(dir, &serve);
    let drives: Vec<_> = (0..3).map(|n| format!("--drive {}/d{n}", dir.display())).collect();
    let sized: Vec<_> = drives.iter().map(|drive| format!("{drive},size=256MiB")).collect();
    let log = format!("--log bbu:{}/log", dir.display());
    json(dir, &format!("pool create fast {} {log} --log-size 4MiB", sized.join(" ")));
    json(dir, "volume create fast/db --size 1GiB");
    json(dir, &format!("volume map fast/db --subnqn {nqn} --allow-any-host"));
    let to = format!("--traddr 127.0.0.1 --trsvcid {port} --subnqn {nqn}");
    let load = "--rw randwrite --bs 4k --size 16MiB --verify --poll interrupt";
    json(dir, &format!("bench {load} {to}"));
    let (code, said) = failure(dir, "pool dump fast");
    assert!(code == 1 && said.contains("in use") && said.contains("stop the daemon"), "{said}");
    drop(daemon);

    // Killed: the log has something. By name, with data, as text and as JSON.
    let before: Vec<_> = (0..3).map(|n| fs::read(dir.join(format!("d{n}"))).unwrap()).collect();
    let report = json(dir, "pool dump fast --data --segments --log-records");
    assert_eq!(report["summary"]["clean"], true, "{report}");
    assert_eq!((&report["pool"]["name"], &report["pool"]["log"]), (&"fast".into(), &"bbu".into()));
    assert_eq!(report["volumes"][0]["name"], "db");
    assert!(report["segments"].as_array().unwrap().len() > 2, "{report}");
    let records = report["shards"][0]["log"]["records"].as_u64().unwrap();
    assert_eq!(report["shards"][0]["log_records"].as_array().unwrap().len() as u64, records);
    let text = String::from_utf8(run(dir, "pool dump fast").stdout).unwrap();
    assert!(text.contains("not checked: contents") && text.contains("clean: 0 errors"), "{text}");
    let after: Vec<_> = (0..3).map(|n| fs::read(dir.join(format!("d{n}"))).unwrap()).collect();
    assert!(before == after, "a dump writes nothing");

    // By its drives: the log is missed where it is not named.
    let all = drives.join(" ");
    let report = json(dir, &format!("pool dump {all}"));
    let told = report["findings"][0]["what"].as_str().unwrap();
    assert!(told.contains("was not given"), "{told}");
    assert_eq!(json(dir, &format!("pool dump {all} {log}"))["summary"]["warnings"], 0);
    let (_, said) = failure(dir, &format!("pool dump {all} {}", drives[0]));
    assert!(said.contains("given twice"), "{said}");
    let (_, said) = failure(dir, "pool dump --drive nowhere");
    assert!(said.contains("no drive"), "{said}");
    let (_, said) = failure(dir, "pool dump slow");
    assert!(said.contains("knows no pool slow"), "{said}");

    // One drive may be lost, two may not; nor both copies of every label.
    let degraded = format!("pool dump {} {} {log}", drives[0], drives[2]);
    assert!(json(dir, &degraded)["summary"]["warnings"] != 0);
    let text = String::from_utf8(run(dir, &degraded).stdout).unwrap();
    assert!(text.contains("not all is well: 0 errors") && !text.contains("clean"), "{text}");
    let report = unclean(dir, &format!("pool dump {} {log}", drives[2]));
    let findings = report["findings"].as_array().unwrap();
    assert!(findings.iter().any(|finding| finding["severity"] == "error"), "{report}");
    // The one that was written: a new pool has one.
    flip(&dir.join("d1"), 4096 + 40);
    let report = json(dir, "pool dump fast");
    assert_eq!(report["findings"][0]["structure"], "label", "{report}");
    assert_eq!(report["findings"][0]["device"], dir.join("d1").display().to_string());
    for n in 0..3 {
        (0..2).for_each(|slot| flip(&dir.join(format!("d{n}")), slot * 4096 + 60));
    }
    let report = unclean(dir, "pool dump fast");
    assert_eq!(report["pool"], Value::Null);
}
