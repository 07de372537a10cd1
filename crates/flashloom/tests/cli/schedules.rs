//! Schedules: snapshots that are taken by themselves, and deleted once there are enough, over restarts.

use super::*;

const SERVE: &str = "serve --discovery off --listen 127.0.0.1:0 memory:16MiB";

fn names(dir: &Path, of: &str) -> Vec<String> {
    let all = json(dir, &format!("snapshot list {of}"));
    let name = |snapshot: &Value| snapshot["name"].as_str().unwrap().to_owned();
    all.as_array().unwrap().iter().map(name).collect()
}

/// A pool with the volumes `db` and `log`.
fn make(dir: &Path) {
    let drives: Vec<_> =
        (0..2).map(|n| format!("--drive {}/d{n},size=256MiB", dir.display())).collect();
    json(dir, &format!("pool create fast {} --log-size 16MiB", drives.join(" ")));
    for volume in ["db", "log"] {
        json(dir, &format!("volume create fast/{volume} --size 64MiB"));
    }
}

/// Of `fast/db` and `fast/log`, of which nothing is scheduled.
fn what_cannot_be_is_refused(dir: &Path) {
    for (asked, why) in [
        ("fast/db --every 30s --keep 1", "not a period"),
        ("fast/db --every 1h --keep 0", "keep 1 at least"),
        ("fast/db --every 1h --keep 1 --every 1d", "--keep 1 times"),
        ("fast/db --every 1h --keep 1 --name-template daily", "no {time}"),
        ("fast/db --every 1h --keep 1 --name-template a/{time}", "makes no name"),
        ("fast/db --every 1h --keep 1 --every 1d --keep 1 --name-template a-{time}", "alike"),
        ("fast/db fast/db --every 1h --keep 1", "named twice"),
        ("fast/none --every 1h --keep 1", "no volume fast/none"),
        ("none/db --every 1h --keep 1", "no pool none"),
    ] {
        let (_, said) = failure(dir, &format!("schedule create {asked}"));
        assert!(said.contains(why), "{asked}: {said}");
    }
    assert_eq!(json(dir, "schedule list"), Value::Array(Vec::new()));
}

/// Of a schedule of `fast/base` and `fast/log`, every hour, that has kept two runs.
fn a_schedule_is_changed(dir: &Path) {
    // With fewer to keep, those that are beyond go with the next run; what is called otherwise is known all the same.
    let (_, said) = failure(dir, "schedule change fast/log");
    assert!(said.contains("nothing is to be changed"), "{said}");
    let asked = "--every 1h --keep 1 --every 1d --keep 3 --name-template auto-{every}-{time}";
    let changed = json(dir, &format!("schedule change fast/log {asked}"));
    assert_eq!(
        (&changed["rules"][0]["keep"], &changed["rules"][0]["kept"]),
        (&1.into(), &2.into())
    );
    json(dir, "schedule run fast/base --every 1h");
    let of_log = names(dir, "fast/log");
    assert!(of_log.len() == 1 && of_log[0].starts_with("fast/log@auto-1h-20"), "{of_log:?}");
}

/// Of one that keeps one run every hour, and a snapshot made by hand.
fn a_schedule_is_deleted_or_goes_with_its_volume(dir: &Path) {
    assert!(run(dir, "schedule delete fast/log").status.success());
    until_event(dir, "the snapshots that it made stay");
    let (_, said) = failure(dir, "schedule show fast/base");
    assert!(said.contains("fast/base has no schedule"), "{said}");
    assert_eq!(names(dir, "fast/base").len(), 2);

    // A volume that is deleted takes its schedule with it.
    json(dir, "volume create fast/brief --size 4MiB");
    json(dir, "schedule create fast/brief --every 1w --keep 1");
    run(dir, "volume delete fast/brief --yes");
    until_event(dir, "schedule of fast/brief dropped with its volume");
    assert_eq!(json(dir, "schedule list"), Value::Array(Vec::new()));
}

#[test]
fn snapshots_are_taken_and_deleted_as_a_schedule_says() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, SERVE);
    make(dir);
    what_cannot_be_is_refused(dir);
    let made =
        json(dir, "schedule create fast/db fast/log --every 1d --keep 30 --every 1h --keep 2");
    assert_eq!(made["volumes"], serde_json::json!(["fast/db", "fast/log"]));
    assert_eq!((&made["rules"][0]["every"], &made["rules"][1]["keep"]), (&"1h".into(), &30.into()));
    assert_eq!(made["rules"][0].get("last_ms"), None);
    assert_eq!(made["rules"][1]["next_ms"].as_u64().unwrap() % 86_400_000, 0);
    let (_, said) = failure(dir, "schedule create fast/log --every 1w --keep 1");
    assert!(said.contains("fast/log has a schedule"), "{said}");

    // One made by hand that is called alike is nobody's to delete.
    json(dir, "snapshot create fast/db@1h-20200101T000000Z");
    let ran = json(dir, "schedule run fast/log --every 1h");
    assert_eq!((&ran["rules"][0]["kept"], &ran["rules"][1]["kept"]), (&1.into(), &0.into()));
    assert!(ran["rules"][0]["last_ms"].is_u64());
    let of_first = names(dir, "fast/log");
    assert!(of_first.len() == 1 && of_first[0].starts_with("fast/log@1h-20"), "{of_first:?}");
    assert_eq!(names(dir, "fast/db").len(), 2);
    let first = of_first[0].replace("fast/log@", "");
    until_event(dir, &format!("snapshots fast/db@{first}, fast/log@{first} taken"));

    // What hosts have is kept beyond, and told; what they do not is deleted.
    json(
        dir,
        &format!("snapshot map fast/db@{first} -n nqn.2026-11.io.flashloom:s --allow-any-host"),
    );
    json(dir, "volume rename fast/db base");
    for _ in 0..2 {
        json(dir, "schedule run fast/base --every 1h");
    }
    until_event(dir, &format!("snapshot fast/base@{first} is beyond the 2 that are kept"));
    assert_eq!(json(dir, "schedule show fast/base")["volumes"][0], "fast/base");
    let (of_base, of_log) = (names(dir, "fast/base"), names(dir, "fast/log"));
    assert_eq!((of_base.len(), of_log.len()), (4, 2), "{of_base:?} {of_log:?}");
    assert!(of_base.contains(&format!("fast/base@{first}")), "{of_base:?}");
    assert!(!of_log.contains(&of_first[0]), "{of_log:?}");
    json(dir, &format!("snapshot unmap fast/base@{first} --yes"));

    // Over a restart it is known what is whose.
    drop(daemon);
    let daemon = Daemon::start(dir, SERVE);
    json(dir, "schedule run fast/base --every 1h");
    let of_base = names(dir, "fast/base");
    assert!(of_base.len() == 3 && !of_base.contains(&format!("fast/base@{first}")), "{of_base:?}");
    assert_eq!(of_base[0], "fast/base@1h-20200101T000000Z");
    a_schedule_is_changed(dir);
    let scraped = scrape(dir);
    let of = "{pool=\"fast\",volume=\"base\",every=\"1h\"}";
    assert!(
        scraped.lines().any(|line| line == format!("flashloom_schedule_runs_failed_total{of} 0"))
    );
    assert!(scraped.contains(&format!("flashloom_schedule_age_seconds{of} ")), "{scraped}");
    assert!(
        !scraped
            .contains("flashloom_schedule_age_seconds{pool=\"fast\",volume=\"base\",every=\"1d\"}")
    );

    a_schedule_is_deleted_or_goes_with_its_volume(dir);
    drop(daemon);
}

#[test]
fn a_schedule_of_a_group_takes_snapshots_of_all_its_volumes() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, SERVE);
    make(dir);
    json(dir, "group create fast/app --volume fast/db --volume fast/log");
    let made = json(dir, "schedule create fast/app --every 1h --keep 1");
    assert_eq!(made["group"], "fast/app");
    assert_eq!(made["volumes"], serde_json::json!(["fast/db", "fast/log"]));
    json(dir, "schedule run fast/app");
    until_event(dir, "schedule of group fast/app, every 1h: snapshots fast/db@1h-");
    let first = [names(dir, "fast/db"), names(dir, "fast/log")];
    assert_eq!(first[0][0].replace("/db@", "/log@"), first[1][0], "by one name, at one instant");
    json(dir, "group rename fast/app shop");
    json(dir, "group remove fast/shop fast/log");
    let ran = json(dir, "schedule run fast/shop");
    assert_eq!(
        (&ran["group"], &ran["volumes"]),
        (&"fast/shop".into(), &serde_json::json!(["fast/db"]))
    );
    assert_eq!((names(dir, "fast/db").len(), names(dir, "fast/log").len()), (1, 0));
    let table = String::from_utf8(run(dir, "schedule list").stdout).unwrap();
    assert!(table.contains("group fast/shop"), "{table}");
    let of = "flashloom_schedule_runs_failed_total{pool=\"fast\",group=\"shop\",every=\"1h\"} 0";
    assert!(scrape(dir).lines().any(|line| line == of));
    let (_, said) = failure(dir, "group delete fast/shop");
    assert!(said.contains("the schedule of group fast/shop would be lost"), "{said}");
    json(dir, "group delete fast/shop --yes");
    until_event(dir, "schedule of group fast/shop dropped with it");
    assert_eq!(json(dir, "schedule list"), Value::Array(Vec::new()));
    assert_eq!(names(dir, "fast/db").len(), 1);
    drop(daemon);
}

/// The drives of a pool, as an option for each.
fn drives(dir: &Path, of: &str, size: &str) -> String {
    (0..2).map(|n| format!(" --drive {}/{of}{n}{size}", dir.display())).collect()
}

/// A pool `p` with a volume `v` on drives of its own; what identifies the volume.
fn make_p(dir: &Path, on: &str) -> Value {
    json(dir, &format!("pool create p --log-size 16MiB{}", drives(dir, on, ",size=256MiB")));
    json(dir, "volume create p/v --size 8MiB")["id"].take()
}

fn problems(dir: &Path) -> Vec<String> {
    let all = json(dir, "schedule list");
    let problem = |of: &Value| of["problem"].as_str().unwrap_or_default().to_owned();
    all.as_array().unwrap().iter().map(problem).collect()
}

/// The schedule of an exported pool was dropped with another pool that was called alike.
#[test]
fn schedules_of_an_exported_pool_outlast_another_one_of_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let daemon = Daemon::start(dir, SERVE);
    let id = make_p(dir, "a");
    json(dir, "schedule create p/v --every 1w --keep 3");
    assert!(run(dir, "pool export p").status.success());
    assert!(problems(dir)[0].contains("no pool p"), "{:?}", problems(dir));

    make_p(dir, "b");
    let why = "pool p is another one by now: the one with p/v was exported";
    assert!(problems(dir)[0].contains(why), "{:?}", problems(dir));
    let (_, said) = failure(dir, "schedule run p/v");
    assert!(said.contains(why), "{said}");
    json(dir, "schedule create p/v --every 1h --keep 2");
    assert_eq!(json(dir, "schedule show p/v")["rules"][0]["every"], "1h");
    json(dir, "pool delete p --yes");
    until_event(dir, "schedules of volumes of pool p dropped with it");
    assert_eq!(json(dir, "schedule list").as_array().unwrap().len(), 1);
    // Over a restart it is known whose it is.
    drop(daemon);
    let daemon = Daemon::start(dir, SERVE);
    make_p(dir, "b");
    json(dir, "pool delete p --yes");
    assert_eq!(json(dir, "schedule show p/v")["rules"][0]["every"], "1w");

    json(dir, &format!("pool import p{}", drives(dir, "a", "")));
    assert_eq!(json(dir, "volume show p/v")["id"], id);
    assert_eq!(problems(dir), [""]);
    assert_eq!(json(dir, "schedule run p/v")["rules"][0]["kept"], 1);
    assert!(run(dir, "pool export p").status.success());

    // Beside another pool it is deleted by the name that it waits under.
    make_p(dir, "b");
    json(dir, "schedule create p/v --every 1h --keep 2");
    for left in [1, 0] {
        assert!(run(dir, "schedule delete p/v").status.success());
        let all = json(dir, "schedule list");
        assert_eq!(all.as_array().unwrap().len(), left, "{all}");
        assert!(left == 0 || all[0]["rules"][0]["every"] == "1w", "{all}");
    }
    let (_, said) = failure(dir, "schedule delete p/v");
    assert!(said.contains("p/v has no schedule"), "{said}");

    // With its pool it goes, also where that does not open.
    json(dir, "schedule create p/v --every 1h --keep 2");
    drop(daemon);
    for n in 0..2 {
        fs::rename(dir.join(format!("b{n}")), dir.join(format!("away{n}"))).unwrap();
    }
    let daemon = Daemon::start(dir, SERVE);
    json(dir, "pool delete p --yes");
    until_event(dir, "schedules of volumes of pool p dropped with it");
    assert_eq!(problems(dir), [""; 0]);
    drop(daemon);
}
