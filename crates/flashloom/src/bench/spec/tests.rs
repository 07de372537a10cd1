//! Words, values and what is said of wrong ones.

use super::*;

fn made(text: &str) -> Vec<Job> {
    let mut spec = Spec::unconnected();
    for (key, value) in inline(text).unwrap() {
        spec.set(&key, &value).unwrap();
    }
    spec.jobs().unwrap()
}

#[test]
fn every_word_has_a_meaning() {
    let values = [
        ("rw", "randrw"),
        ("name", "a"),
        ("random-distribution", "zipf:1.2"),
        ("bs", "4k"),
        ("bssplit", "4k/70:64k/30"),
        ("verify", "true"),
        ("hdr-digest", "false"),
        ("data-digest", "1"),
        ("cpus", "0"),
        ("poll", "busy"),
        ("optimizations", "-hints"),
        ("log-interval", "500ms"),
        ("runtime", "1m"),
        ("ramp-time", "20us"),
        ("thinktime", "5ms"),
        ("reconnect", "2m"),
        ("traddr", "192.0.2.1"),
        ("subnqn", "nqn.2026-11.io.x:s"),
        ("hostnqn", "nqn.2026-11.io.x:h"),
        ("journal", "acks"),
        ("filename", "/dev/x"),
        ("window", "shm"),
    ];
    let mut spec = Spec::unconnected();
    assert_eq!(spec.set("cures", "-hints"), Ok(()), "what it was called before");
    for key in KEYS {
        let value = values.iter().find(|(word, _)| *word == key).map_or("16", |(_, value)| value);
        let mut spec = Spec::unconnected();
        assert_eq!(spec.set(key, value), Ok(()), "{key}={value}");
        assert_eq!(spec.set(&key.replace('-', "_"), value), Ok(()), "{key}");
    }
}

#[test]
fn sizes_and_times_end_a_job_as_in_fio() {
    assert_eq!(made("rw=read")[0].limit, Limit::Runtime(Duration::from_secs(10)));
    let sized = &made("size=1m")[0];
    assert_eq!((sized.limit, sized.region), (Limit::Size(1 << 20), Some(1 << 20)));
    let twice = &made("size=1m,io_size=2m")[0];
    assert_eq!((twice.limit, twice.region), (Limit::Size(2 << 20), Some(1 << 20)));
    let timed = &made("size=1m,runtime=3s")[0];
    assert_eq!(
        (timed.limit, timed.region),
        (Limit::Runtime(Duration::from_secs(3)), Some(1 << 20))
    );
}

#[test]
fn a_job_on_one_line_may_have_commas_in_its_values() {
    let job = &made("name=x,bs=4k,16k,iodepth=8")[0];
    assert_eq!(job.sizes, Sizes { read: Mix::one(4096), write: Mix::one(16384) });
    let job = &made("bssplit=4k/50:8k/50,64k,rw=randrw,rwmixread=30")[0];
    assert_eq!(
        (job.sizes.read.show().as_str(), job.sizes.write.show().as_str()),
        ("4096/50:8192/50", "65536")
    );
}

#[test]
fn copies_differ_by_their_seeds() {
    let jobs = made("numjobs=3,rate=1m,thinktime=1ms,thinktime_blocks=4");
    assert_eq!(jobs.len(), 3);
    assert!(jobs[0].seed != jobs[1].seed && jobs[1].seed != jobs[2].seed);
    assert_eq!(jobs[0].think, Some(Think { time: Duration::from_millis(1), after: 4 }));
}

#[test]
fn what_is_wrong_is_said_with_what_would_be_right() {
    for (text, words) in [
        ("iodept=3", "did you mean `iodepth`?"),
        ("ioengine=libaio", "random-distribution"),
        ("bs=4q", "KiB"),
        ("bssplit=4k/70:8k/70", "140 %"),
        ("bssplit=4k/x", "4k/70:64k/30"),
        ("rw=sideways", "randread"),
        ("random_distribution=zipf:0", "zipf:1.2"),
        ("iodepth=0", "from 1 up"),
        ("rwmixread=101", "0 to 100"),
        ("runtime=soon", "500ms"),
        ("poll=never", "adaptive"),
        ("verify=maybe", "true or false"),
        ("16", "16=VALUE"),
    ] {
        let told = inline(text).unwrap_err();
        assert!(told.contains(words), "{text}: {told}");
    }
    let mut spec = Spec::unconnected();
    spec.set("bssplit", "4k/50:6k/50").unwrap();
    assert!(spec.jobs().unwrap_err().wrong.contains("multiple"));
}
