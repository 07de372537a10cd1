//! What is told of the hardware behind drives. Of drives in files there is none, and nothing is made of that.

use super::*;

/// Another thing than a file takes hardware: `array` has tests with drives that answer as they are told to.
#[test]
fn a_file_has_no_hardware_and_says_so_in_documents_only() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let serve = format!("serve memory:16MiB --listen 127.0.0.1:{} --discovery off", free_port());
    let daemon = Daemon::start(dir, &serve);
    let drive = |n| format!("--drive {}/d{n},size=192MiB", dir.display());
    json(dir, &format!("pool create fast {} {} --log-size 16MiB", drive(0), drive(1)));
    let hardware = |shown: &Value| shown["hardware"].clone();
    let begun = reactor::now();
    while json(dir, "drive list")
        .as_array()
        .unwrap()
        .iter()
        .any(|d| d["hardware"]["state"] == "unread")
    {
        assert!(reactor::now() - begun < 120_000_000_000, "it is not read");
    }
    let listed = json(dir, "drive list");
    for (index, listed) in listed.as_array().unwrap().iter().enumerate() {
        let shown = hardware(&json(dir, &format!("drive show fast/{index}")));
        assert_eq!((&shown["state"], &hardware(listed)), (&"none".into(), &shown), "{listed}");
        assert!(shown["read_ms"].as_u64().unwrap() > 0, "{shown}");
        let keys: Vec<_> = shown.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["read_ms", "state"]);
    }
    let pool = json(dir, "pool show fast");
    assert_eq!(pool["status"]["drives"][1]["hardware"]["state"], "none", "{pool}");
    // People are not told of what there is not.
    let shown = String::from_utf8(run(dir, "drive show fast/0").stdout).unwrap();
    assert!(shown.contains("slow reads") && !shown.contains("model"), "{shown}");
    assert_eq!(run(dir, "health").stdout, b"ok\n");
    let text = scrape(dir);
    assert!(text.contains("# TYPE flashloom_drive_wear_ratio gauge\n"), "{text}");
    let hardware =
        ["_info{pool", "_answers{", "_warnings{", "_celsius{", "_ratio{pool", "_critical_warning{"];
    for name in hardware {
        assert!(!text.contains(&format!("flashloom_drive{name}")), "{name}");
    }
    assert!(!json(dir, "events").to_string().contains("hardware"));
    daemon.stop();
}
