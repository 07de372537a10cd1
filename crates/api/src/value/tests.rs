//! Values: what is read, what is refused, and that printing and reading agree.

use super::*;

#[test]
fn sizes_say_what_would_be_right() {
    assert_eq!("1GiB".parse::<Size>().unwrap().bytes(), 1 << 30);
    assert_eq!("10GB".parse::<Size>().unwrap().bytes(), 10_000_003_072, "whole blocks");
    assert_eq!("1.5TiB".parse::<Size>().unwrap().bytes(), 3 << 39);
    assert_eq!("1048577".parse::<Size>().unwrap().bytes(), 1_048_577, "as it was said");
    let refused = "1 parsec".parse::<Size>().unwrap_err();
    assert!(refused.wrong.contains("parsec") && refused.right.contains("512MiB"), "{refused:?}");
    assert_eq!(Size::new(1 << 30).exact(), "1GiB");
    assert_eq!(Size::new((1 << 30) + 512).exact(), "1073742336");
}

#[test]
fn sizes_in_json_are_integers_and_accept_text() {
    assert_eq!(serde_json::to_string(&Size::new(4096)).unwrap(), "4096");
    assert_eq!(serde_json::from_str::<Size>("\"1GiB\"").unwrap().bytes(), 1 << 30);
    assert_eq!(serde_json::from_str::<Size>("4096").unwrap().bytes(), 4096);
    assert!(serde_json::from_str::<Size>("-1").is_err());
}

#[test]
fn nqns_are_checked_as_base_4_7_says() {
    for good in [
        "nqn.2026-11.io.flashloom:default",
        "nqn.2014-08.org.nvmexpress:uuid:6f0a2c9e-7c7e-4c55-9c3c-2f0f0f1f9a11",
        "nqn.2014-08.com.example",
    ] {
        assert_eq!(good.parse::<Nqn>().unwrap().as_str(), good);
    }
    for (bad, why) in [
        ("", "begin"),
        ("iqn.2026-11.io.flashloom:x", "begin"),
        ("nqn.2026-13.io.flashloom:x", "year and month"),
        ("nqn.26-11.io.flashloom:x", "year and month"),
        ("nqn.2026-11", "domain"),
        ("nqn.2026-11.", "domain"),
        ("nqn.2026-11.:x", "domain"),
        ("nqn.2026-11.io.flash_loom:x", "domain"),
        ("nqn.2026-11.io..x:y", "domain"),
        ("nqn.2026-11.io.flashloom:", "nothing follows"),
        ("nqn.2026-11.io.flash loom", "white space"),
        ("nqn.2014-08.org.nvmexpress:uuid:nonsense", "UUID"),
    ] {
        let refused = bad.parse::<Nqn>().unwrap_err();
        assert!(refused.wrong.contains(why), "{bad}: {refused}");
    }
    let long = format!("nqn.2026-11.io.flashloom:{}", "x".repeat(200));
    assert!(long.parse::<Nqn>().unwrap_err().wrong.contains("more than 223"));
}

#[test]
fn addresses_take_the_nvme_port_when_none_is_given() {
    assert_eq!("10.0.0.1".parse::<Address>().unwrap().to_string(), "10.0.0.1:4420");
    assert_eq!("[::1]:8009".parse::<Address>().unwrap().to_string(), "[::1]:8009");
    assert_eq!("::1".parse::<Address>().unwrap().to_string(), "[::1]:4420");
    let refused = "10.0.0.1:70000".parse::<Address>().unwrap_err();
    assert_eq!(refused.wrong, "\"70000\" is not a TCP port");
    let rdma: Address = "rdma://10.0.0.1".parse().unwrap();
    assert_eq!(
        (rdma.to_string(), rdma.transport()),
        ("rdma://10.0.0.1:4420".into(), Transport::Rdma)
    );
    assert_eq!(
        "rdma://[fd00::1]:4421".parse::<Address>().unwrap().to_string(),
        "rdma://[fd00::1]:4421"
    );
    assert_ne!(rdma, Address::from(rdma.socket()));
    assert!("tcp://10.0.0.1".parse::<Address>().is_err() && "rdma://".parse::<Address>().is_err());
    assert!("storage.example".parse::<Address>().is_err());
}

#[test]
fn namespaces_of_other_targets_print_the_way_they_are_read() {
    let nqn = "nqn.2026-11.io.flashloom:logs";
    for (text, shown) in [
        (format!("tcp://10.0.0.2/{nqn}/1"), format!("tcp://10.0.0.2:4420/{nqn}/1")),
        (format!("tcp://10.0.0.2:4421/{nqn}/7"), format!("tcp://10.0.0.2:4421/{nqn}/7")),
        (format!("rdma://[fd00::2]/{nqn}/1"), format!("rdma://[fd00::2]:4420/{nqn}/1")),
        (format!("rdma://[fd00::2]:9/{nqn}/1"), format!("rdma://[fd00::2]:9/{nqn}/1")),
        // An NQN may have slashes of its own.
        (format!("tcp://10.0.0.2:1/{nqn}/2/3"), format!("tcp://10.0.0.2:1/{nqn}/2/3")),
    ] {
        let read: RemoteNamespace = text.parse().unwrap();
        assert_eq!((read.to_string(), RemoteNamespace::is_meant(&text)), (shown.clone(), true));
        assert_eq!(shown.parse(), Ok(read));
    }
    let read: RemoteNamespace = format!("rdma://[fd00::2]:9/{nqn}/2/3").parse().unwrap();
    assert_eq!((read.rdma, read.traddr.to_string().as_str()), (true, "fd00::2"));
    assert_eq!((read.trsvcid, read.subnqn.as_str(), read.nsid), (9, &*format!("{nqn}/2"), 3));
    assert!(!RemoteNamespace::is_meant("/dev/nvme0n1"));
}

#[test]
fn what_is_no_namespace_of_another_target_is_told() {
    let nqn = "nqn.2026-11.io.flashloom:logs";
    for (bad, why) in [
        (String::new(), "not a namespace of another target"),
        (format!("10.0.0.2/{nqn}/1"), "not a namespace of another target"),
        ("tcp://10.0.0.2".to_owned(), "names no subsystem"),
        (format!("tcp://10.0.0.2/{nqn}"), "names no namespace"),
        (format!("tcp:///{nqn}/1"), "not the address of a target"),
        (format!("tcp://storage.example/{nqn}/1"), "not the address of a target"),
        (format!("tcp://fd00::2/{nqn}/1"), "not the address of a target"),
        (format!("tcp://10.0.0.2:70000/{nqn}/1"), "not the address of a target"),
        (format!("tcp://10.0.0.2:0/{nqn}/1"), "nobody can be reached"),
        (format!("tcp://0.0.0.0/{nqn}/1"), "nobody can be reached"),
        ("tcp://10.0.0.2/iqn.x/1".to_owned(), "not an NQN"),
        ("tcp://10.0.0.2/nqn.2014-08.org.nvmexpress.discovery/1".to_owned(), "discovery"),
        (format!("tcp://10.0.0.2/{nqn}/"), "not a namespace identifier"),
        (format!("tcp://10.0.0.2/{nqn}/0"), "not a namespace identifier"),
        (format!("tcp://10.0.0.2/{nqn}/+1"), "not a namespace identifier"),
        (format!("tcp://10.0.0.2/{nqn}/4294967295"), "not a namespace identifier"),
    ] {
        let refused = bad.parse::<RemoteNamespace>().unwrap_err();
        assert!(refused.wrong.contains(why), "{bad}: {refused}");
    }
}

#[test]
fn back_ends_print_the_way_they_are_read() {
    for text in ["memory:1GiB", "memory:1049088", "drive:/dev/nvme0n1", "drive:/a b,size=64MiB"] {
        assert_eq!(text.parse::<Backend>().unwrap().to_string(), text);
    }
    for bad in ["memory", "memory:", "memory:1KiB", "drive:", "ssd:/dev/sda", "memory:2000PiB"] {
        assert!(bad.parse::<Backend>().is_err(), "{bad}");
    }
    for text in ["volume:fast/db", "snapshot:fast/db@mon"] {
        let read: Backend = text.parse().unwrap();
        assert_eq!(
            (read.to_string(), read.pool()),
            (text.to_owned(), "fast".parse().ok().as_ref())
        );
    }
    let whole: Backend = "passthrough:/dev/ng0n1".parse().unwrap();
    assert_eq!(
        (whole.kind(), whole.to_string()),
        ("passthrough", "passthrough:/dev/ng0n1".to_owned())
    );
    assert!(whole.with_size(Size::new(1 << 30)).is_err(), "the drive has its own size");
    for bad in ["passthrough:", "passthrough:/dev/ng0n1,size=1GiB"] {
        assert!(bad.parse::<Backend>().is_err(), "{bad}");
    }
    for bad in ["snapshot:fast/db", "snapshot:fast@a", "snapshot:fast/db@", "snapshot:fast/db@a@b"]
    {
        assert!(bad.parse::<Backend>().is_err(), "{bad}");
    }
    for bad in ["volume:", "volume:fast", "volume:fast/", "volume:/db", "volume:a/b/c"] {
        assert!(bad.parse::<Backend>().is_err(), "{bad}");
    }
}

#[test]
fn parts_of_pools_print_the_way_they_are_read() {
    for text in ["fast", "db-2.old_one", "7"] {
        assert_eq!(text.parse::<Name>().unwrap().to_string(), text);
    }
    for bad in ["", "-a", ".a", "a b", "a/b", "ä", &"x".repeat(65)] {
        assert!(bad.parse::<Name>().is_err(), "{bad}");
    }
    for text in ["/dev/nvme0n1", "/srv/d0.img,size=10GiB", "memory:512MiB"] {
        assert_eq!(text.parse::<DrivePath>().unwrap().to_string(), text);
    }
    assert!("memory:1".parse::<DrivePath>().is_err());
    assert!("memory:".parse::<DrivePath>().is_err());
    for text in ["pmem:/mnt/dax/log", "bbu:/dev/shm/log", "drives"] {
        assert_eq!(text.parse::<LogPlace>().unwrap().to_string(), text);
    }
    for bad in ["pmem", "pmem:", "drives:/x", "nvram:/x"] {
        assert!(bad.parse::<LogPlace>().unwrap_err().right.contains("bbu:/dev/shm/log"), "{bad}");
    }
}

#[test]
fn periods_and_templates_of_schedules() {
    for (text, shown, seconds) in [
        ("60m", "1h", 3600),
        ("90m", "90m", 5400),
        ("48h", "2d", 172_800),
        ("14d", "2w", 1_209_600),
    ] {
        let period = text.parse::<Period>().unwrap();
        assert_eq!((period.to_string().as_str(), period.seconds()), (shown, seconds));
    }
    for bad in
        ["", "h", "1", "0m", "-1h", "+1h", "1s", "1.5h", "367d", "99999999999999999999w", "1 h"]
    {
        assert!(bad.parse::<Period>().is_err(), "{bad}");
    }
    let (every, time) = ("1h".parse().unwrap(), "20261128T220000Z");
    let name = |text: &str, copy| {
        let template = text.parse::<NameTemplate>().unwrap();
        template.name(time, every, copy).unwrap().to_string()
    };
    assert_eq!(name("{every}-{time}", 1), "1h-20261128T220000Z");
    assert_eq!(name("a_{time}.b", 2), "a_20261128T220000Z.b-2");
    let long = format!("{}{{time}}", "x".repeat(44));
    assert!(
        long.parse::<NameTemplate>().is_ok() && format!("x{long}").parse::<NameTemplate>().is_err()
    );
    for bad in
        ["", "daily", "{every}", "{time} ", "{time}@", "{volume}-{time}", "-{time}", "{time}/x"]
    {
        assert!(bad.parse::<NameTemplate>().is_err(), "{bad}");
    }
}
