//! A pool that fills up: told at each level, on the way up and on the way down.

use super::*;

const NQN: &str = "nqn.2026-11.io.flashloom:fill";

/// The pool's word for its room, and the metric.
fn space(dir: &Path) -> (String, bool) {
    let space = json(dir, "pool show small")["status"]["space"].take();
    let space = space.as_str().unwrap().to_owned();
    let number = ["enough", "low", "critical", "full"].iter().position(|word| *word == space);
    let line = format!("flashloom_pool_space{{pool=\"small\"}} {}", number.unwrap());
    let shown = scrape(dir).lines().any(|other| other == line);
    (space, shown)
}

#[test]
fn a_pool_that_fills_up_is_told_of_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (port, file) = (free_port(), dir.join("flashloom.toml"));
    let config = format!(
        "[node]\npool-low-percent = 50\npool-critical-percent = 75\n[[listener]]\naddress = \"127.0.0.1:{port}\"\n[[subsystem]]\n\
         nqn = \"{NQN}\"\nallow-any-host = true\n"
    );
    fs::write(&file, config).unwrap();
    let daemon = Daemon::start(dir, &format!("serve --config {} --discovery off", file.display()));
    let drives: Vec<_> =
        (0..2).map(|n| format!("--drive {}/d{n},size=192MiB", dir.display())).collect();
    let made = json(dir, &format!("pool create small {} --log-size 16MiB", drives.join(" ")));
    let capacity = made["status"]["capacity"].as_u64().unwrap();
    for volume in ["a", "b"] {
        json(dir, &format!("volume create small/{volume} --size 1GiB"));
        json(dir, &format!("volume map small/{volume} --subnqn {NQN}"));
    }
    assert_eq!(json(dir, "pool show small")["status"]["provisioned"], 2_u64 << 30);
    assert_eq!(space(dir), ("enough".to_owned(), true));

    let to = format!("--traddr 127.0.0.1 --trsvcid {port} --subnqn {NQN} --poll interrupt");
    let write = |nsid: u64, percent: u64| {
        let region = (capacity * percent / 100) >> 16 << 16;
        let load = format!("--rw write --bs 64k --iodepth 4 --size {region}");
        let output = run(dir, &format!("bench {load} --nsid {nsid} {to}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said)
    };
    let (done, said) = write(1, 60);
    assert!(done, "{said}");
    until_event(dir, "(warned of from 50 %)");
    assert_eq!(space(dir), ("low".to_owned(), true));
    let shown = String::from_utf8(run(dir, "pool show small").stdout).unwrap();
    assert!(shown.contains("online, low on space"), "{shown}");
    let (done, said) = write(2, 20);
    assert!(done, "{said}");
    until_event(dir, "(critical from 75 %)");
    assert_eq!(space(dir), ("critical".to_owned(), true));
    let (done, said) = write(2, 44);
    assert!(!done && said.contains("commands failed"), "{said}");
    until_event(dir, "reads and deallocation go on");
    let read = format!("--rw read --bs 64k --iodepth 4 --size 8MiB {to}");
    assert_eq!(json(dir, &format!("bench {read}"))["jobs"][0]["total_err"], 0);

    assert!(run(dir, "volume unmap small/a").status.success());
    assert!(run(dir, "volume delete small/a --yes").status.success());
    until_event(dir, "enough again");
    assert_eq!(space(dir), ("enough".to_owned(), true));
    daemon.stop();
}

/// What a pool would hold had to be found out by making it; of uneven drives a part was left unused without a word.
#[test]
fn what_a_pool_would_hold_is_said_before_it_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let serve = format!("serve memory:1MiB --listen 127.0.0.1:{} --discovery off", free_port());
    let daemon = Daemon::start(dir, &serve);
    // One that is there, and is to grow; the others are made.
    fs::File::create(dir.join("d1")).unwrap().set_len(64 << 20).unwrap();
    let drives: Vec<_> = [256, 512, 300]
        .iter()
        .enumerate()
        .map(|(n, size)| format!("--drive {}/d{n},size={size}MiB", dir.display()))
        .collect();
    for how in ["", "--log-size 16MiB --raid mirror"] {
        let create = format!("pool create p {} {how}", drives.join(" "));
        let plan = json(dir, &format!("{create} --dry-run"));
        assert!(!dir.join("d0").exists());
        assert_eq!(fs::metadata(dir.join("d1")).unwrap().len(), 64 << 20);
        assert_eq!(json(dir, "pool list"), Value::Array(Vec::new()));
        let bytes = |of: &Value, what: &str| of["breakdown"][what].as_u64().unwrap();
        assert_eq!(bytes(&plan, "raw"), (256 + 512 + 300) << 20);
        let parts = ["usable", "parity", "log", "labels", "reserve", "unused"];
        let sum: u64 = parts.iter().map(|part| bytes(&plan, part)).sum();
        assert_eq!(sum, bytes(&plan, "raw"), "{plan}");
        if how.is_empty() {
            assert!(bytes(&plan, "unused") > 200 << 20, "{plan}");
            assert!(plan["drives"][1]["used"].as_u64().unwrap() < 320 << 20, "{plan}");
        }
        let made = json(dir, &create)["status"].take();
        assert_eq!(made["breakdown"], plan["breakdown"]);
        assert_eq!(made["capacity"], plan["breakdown"]["usable"]);
        // What is beside its records is counted in the plan.
        let (log, planned) = (made["log"]["size"].as_u64(), plan["log_size"].as_u64());
        assert!(log < planned && log > planned.map(|bytes| bytes / 100 * 99), "{plan}");
        let shown = String::from_utf8(run(dir, "pool show p").stdout).unwrap();
        assert!(shown.contains("of raw") && shown.contains("reserve"), "{shown}");
        let (_, said) = failure(dir, &format!("{create} --dry-run"));
        assert!(said.contains("pool p is there already"), "{said}");
        let other = create.replace("create p", "create q");
        let (_, said) = failure(dir, &format!("{other} --dry-run"));
        assert!(said.contains("d0 is a drive of pool p"), "{said}");
        let (_, said) = failure(dir, &format!("drive add p {}/small,size=1MiB", dir.display()));
        assert!(said.contains("/small cannot be drive 3 of pool p: "), "{said}");
        json(dir, "pool delete p --yes");
        for n in 0..3 {
            fs::remove_file(dir.join(format!("d{n}"))).unwrap();
        }
        fs::File::create(dir.join("d1")).unwrap().set_len(64 << 20).unwrap();
    }
    let (_, said) =
        failure(dir, &format!("pool create p --drive {}/none --dry-run", dir.display()));
    assert!(said.contains("none is not there") && said.contains("create it"), "{said}");
    daemon.stop();
}
