//! Nodes on a machine whose drives answer as they are told to.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::v1::{
    Consent, CriticalWarning, DriveHardware, DriveReplacement, Finding, HardwareState, JobState,
    NewDrives, NewPool, PollPolicy, Severity,
};
use api::value::{Name, Nqn, PoolDrive};
use hardware::{Answer, Machine, Script};
use serde_json::json;

use crate::jobs::Work;
use crate::limits::{HARDWARE_EVERY, HARDWARE_PATIENCE, MEDIA_ERRORS_TOLD};
use crate::node::{Node, Options, Source};

/// More than any of this takes.
const PATIENCE: Duration = Duration::from_secs(120);

struct Rig {
    node: Arc<Node>,
    script: Arc<Script>,
    dir: tempfile::TempDir,
    /// The node's time, which is ahead of the clock.
    ahead: u64,
}

/// A page of a drive that is well.
fn well() -> [u8; 512] {
    let mut page = [0; 512];
    page[1..3].copy_from_slice(&(273_u16 + 35).to_le_bytes());
    (page[3], page[4], page[5]) = (100, 10, 3);
    page[128..136].copy_from_slice(&20_000_u64.to_le_bytes());
    page
}

/// Such a page with other bytes in places.
fn page(changes: &[(usize, u8)]) -> Answer {
    let mut page = well();
    for (at, byte) in changes {
        page[*at] = *byte;
    }
    Answer::Page(Box::new(page))
}

fn start(state_dir: PathBuf, script: &Arc<Script>) -> Arc<Node> {
    let options = Options {
        state_dir,
        source: Source::State,
        fresh: false,
        cpus: None,
        poll: Some(PollPolicy::Interrupt),
    };
    let node = Node::start_on(options, Machine::scripted(Arc::clone(script))).unwrap();
    assert!(node.wait_for_openings(PATIENCE));
    node
}

impl Rig {
    /// A RAID 5 pool of four drives, of which the first three are physical.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let script = Arc::<Script>::default();
        let node = start(dir.path().join("state"), &script);
        let mut pool: NewPool = serde_json::from_str(
            r#"{"name": "fast", "drives": [], "raid": "raid5", "log_size": "16MiB"}"#,
        )
        .unwrap();
        let drive = |n| format!("{}/d{n},size=192MiB", dir.path().display()).parse().unwrap();
        pool.drives = (0..4).map(drive).collect();
        for n in 0..3 {
            script.set(&dir.path().join(format!("d{n}")), &format!("S{n}"), page(&[]));
        }
        node.create_pool(&pool).unwrap();
        Self { node, script, dir, ahead: 0 }
    }

    fn path(&self, n: usize) -> PathBuf {
        self.dir.path().join(format!("d{n}"))
    }

    fn look(&self) {
        self.node.look_at_hardware_as_of(reactor::now() + self.ahead).unwrap();
    }

    fn hardware(&self, index: u16) -> DriveHardware {
        self.node.drive(&place(index)).unwrap().hardware
    }

    /// Looks until it is as wanted.
    fn until(&self, is_wanted: impl Fn() -> bool) {
        let limit = reactor::now() + u64::try_from(PATIENCE.as_nanos()).unwrap();
        while !is_wanted() {
            self.look();
            assert!(reactor::now() < limit, "{:?}", self.node.drives());
            std::thread::yield_now();
        }
    }

    /// Has a drive that answers do so anew.
    fn read_again(&mut self, n: usize, serial: &str, answer: Answer) {
        self.read_at(n, n, serial, answer);
    }

    /// Likewise one at the `file`th path.
    fn read_at(&mut self, n: usize, file: usize, serial: &str, answer: Answer) {
        self.later(HARDWARE_EVERY);
        self.script.set(&self.path(file), serial, answer);
        let asked = self.script.asked(serial);
        self.until(|| self.script.asked(serial) > asked);
        self.until(|| self.hardware(u16::try_from(n).unwrap()).state != HardwareState::Unread);
        self.settle();
    }

    /// Lets time pass: not while somebody reads, who would have been silent for as long.
    fn later(&mut self, by: u64) {
        self.settle();
        self.ahead += by;
    }

    /// Waits until no reading that is due is under way but those that hang.
    fn settle(&self) {
        self.look();
        let begun = || self.node.physical.under_way();
        self.until(|| begun() == self.script.waiting());
        self.look();
    }

    /// What was told with such words, at this severity.
    fn told(&self, severity: Severity, words: &str) -> usize {
        let events = self.node.events(0);
        let is =
            |event: &&api::v1::Event| event.severity == severity && event.message.contains(words);
        events.iter().filter(is).count()
    }

    fn findings(&self, index: u16) -> Vec<Finding> {
        let mut all = self.node.health().unwrap().findings;
        all.retain(|finding| finding.subject == format!("drive fast/{index}"));
        all
    }
}

fn place(index: u16) -> PoolDrive {
    PoolDrive { pool: "fast".parse().unwrap(), index }
}

#[test]
fn a_drive_says_who_it_is_and_how_and_a_file_that_it_is_none() {
    let rig = Rig::new();
    rig.until(|| (0..4).all(|index| rig.hardware(index).state != HardwareState::Unread));
    rig.settle();
    let known = rig.hardware(1);
    assert_eq!((known.state, known.serial.as_deref()), (HardwareState::Known, Some("S1")));
    assert_eq!((known.model.as_deref(), known.slot.as_deref()), (Some("EXAMPLE MODEL"), Some("3")));
    assert_eq!((known.temperature_celsius, known.critical_celsius), (Some(35), Some(85)));
    let smart = known.smart.unwrap();
    assert_eq!((smart.wear_percent, smart.spare_percent), (3, 100));
    assert_eq!((smart.power_on_hours, smart.critical.len()), (20_000, 0));
    let file = rig.hardware(3);
    assert_eq!(
        file,
        DriveHardware {
            state: HardwareState::None,
            read_ms: file.read_ms,
            ..DriveHardware::default()
        }
    );
    // The same in all documents, and nothing is told of it.
    let pool = rig.node.pool(&"fast".parse().unwrap()).unwrap();
    assert_eq!(pool.status.unwrap().drives[1].hardware, rig.hardware(1));
    assert_eq!(rig.told(Severity::Warning, "drive 3"), 0);
    // A look asks nobody who was asked a moment ago.
    let asked = rig.script.asked("S1");
    rig.look();
    rig.settle();
    assert_eq!(rig.script.asked("S1"), asked);
    rig.node.stop();
}

#[test]
fn a_drive_that_hangs_holds_up_nobody_and_takes_one_thread() {
    let mut rig = Rig::new();
    rig.until(|| rig.hardware(0).smart.is_some());
    rig.settle();
    rig.script.set(&rig.path(0), "S0", Answer::Never);
    rig.later(HARDWARE_EVERY);
    rig.until(|| rig.script.waiting() == 1);
    // The others are read again and again meanwhile.
    for _ in 0..3 {
        rig.read_again(1, "S1", page(&[(5, 50)]));
    }
    assert_eq!(rig.script.waiting(), 1, "no second thread");
    assert_eq!(rig.hardware(1).smart.unwrap().wear_percent, 50);
    let silent = rig.hardware(0);
    assert_eq!((silent.state, silent.smart), (HardwareState::Silent, None));
    assert_eq!(silent.serial.as_deref(), Some("S0"));
    assert_eq!(
        rig.told(Severity::Warning, "drive 0 of pool fast (EXAMPLE MODEL, serial S0) warns"),
        1
    );
    let [finding] = &rig.findings(0)[..] else { panic!("{:?}", rig.findings(0)) };
    assert!(finding.why.contains("has not said in 30 s how it is"), "{finding:?}");
    assert!(finding.help.as_ref().unwrap().contains("drive replace fast/0 NEW"), "{finding:?}");
    // A node that is asked to stop does not wait for it; here it comes back first.
    rig.script.set(&rig.path(0), "S0", page(&[]));
    rig.until(|| rig.hardware(0).smart.is_some());
    rig.look();
    assert_eq!(rig.told(Severity::Info, "no longer warns: it has not said"), 1);
    assert!(rig.findings(0).is_empty());
    rig.script.set(&rig.path(2), "S2", Answer::Never);
    rig.later(HARDWARE_EVERY + HARDWARE_PATIENCE);
    rig.until(|| rig.script.waiting() == 1);
    rig.node.stop();
    rig.script.set(&rig.path(2), "S2", page(&[]));
}

#[test]
fn warnings_are_told_once_when_they_come_and_when_they_go() {
    let mut rig = Rig::new();
    rig.until(|| rig.hardware(2).smart.is_some());
    rig.settle();
    assert!(rig.findings(2).is_empty());
    let words = "drive 2 of pool fast (EXAMPLE MODEL, serial S2) warns: reliability is degraded";
    for _ in 0..3 {
        rig.read_again(2, "S2", page(&[(0, 0b100)]));
        assert_eq!(rig.told(Severity::Warning, words), 1);
    }
    assert_eq!(rig.hardware(2).smart.unwrap().critical, [CriticalWarning::DegradedReliability]);
    assert_eq!(rig.hardware(2).warnings, ["reliability is degraded"]);
    let [finding] = &rig.findings(2)[..] else { panic!("{:?}", rig.findings(2)) };
    let help = finding.help.as_ref().unwrap();
    assert!(help.contains("about to fail: `flashloom drive replace fast/2 NEW`"), "{help}");
    // A stripe is as wide as the pool: there is nowhere to move it.
    assert!(!help.contains("evacuate"), "{help}");
    // What is not said this time is as it was.
    rig.read_again(2, "S2", Answer::Resetting);
    let unknown = rig.hardware(2);
    assert_eq!((unknown.smart, unknown.temperature_celsius), (None, Some(40)));
    assert!(unknown.why.unwrap().contains("not live but resetting"));
    assert_eq!(unknown.warnings, ["reliability is degraded"]);
    rig.read_again(2, "S2", page(&[]));
    let over = "serial S2) no longer warns: reliability is degraded";
    assert_eq!((rig.told(Severity::Info, over), rig.told(Severity::Warning, words)), (1, 1));
    assert!(rig.findings(2).is_empty() && rig.hardware(2).warnings.is_empty());
    rig.node.stop();
}

#[test]
fn wear_spare_heat_and_media_errors_are_looked_at() {
    let mut rig = Rig::new();
    rig.until(|| rig.hardware(0).smart.is_some());
    rig.settle();
    let hot = u8::try_from(273 + 85 - 256).unwrap();
    for (changes, words) in [
        (vec![(5, 100)], "100 % of the life that its vendor expects are used"),
        (vec![(3, 9)], "available spare is 9 %, below its threshold of 10 %"),
        (vec![(1, hot), (2, 1)], "it has 85 C, and 85 C are critical"),
        (vec![(160, 3)], "it has 3 media errors, 3 of them new"),
    ] {
        rig.read_again(0, "S0", page(&changes));
        assert_eq!(rig.hardware(0).warnings, [words]);
        assert_eq!(rig.findings(0).len(), 1, "{words}");
        assert_eq!(rig.told(Severity::Warning, words), 1, "{words}");
    }
    // Just below is nothing, and media errors are news for a day.
    rig.later(MEDIA_ERRORS_TOLD);
    rig.read_again(0, "S0", page(&[(5, 99), (3, 10), (1, hot - 1), (2, 1), (160, 3)]));
    assert_eq!(rig.hardware(0).warnings, [""; 0]);
    assert_eq!(rig.told(Severity::Info, "no longer warns: "), 4);
    rig.node.stop();
}

#[test]
fn what_may_not_be_asked_is_told_apart_without_noise() {
    let mut rig = Rig::new();
    rig.until(|| rig.hardware(0).smart.is_some());
    rig.settle();
    rig.read_again(0, "S0", Answer::Denied);
    let known = rig.hardware(0);
    assert_eq!((known.state, known.smart), (HardwareState::Known, None));
    assert!(known.why.unwrap().contains("needs CAP_SYS_ADMIN"));
    assert_eq!((known.serial.as_deref(), known.temperature_celsius), (Some("S0"), Some(40)));
    assert_eq!(rig.told(Severity::Warning, "S0"), 0);
    assert!(rig.findings(0).is_empty());
    rig.node.stop();
}

#[test]
fn another_drive_in_the_place_has_its_own_facts_and_warnings() {
    let mut rig = Rig::new();
    rig.until(|| rig.hardware(1).smart.is_some());
    rig.settle();
    rig.read_again(1, "S1", page(&[(0, 0b1000)]));
    assert_eq!(rig.findings(1).len(), 1);
    // What hangs in the old one says nothing of the new one.
    rig.script.set(&rig.path(1), "S1", Answer::Never);
    rig.later(HARDWARE_EVERY);
    rig.until(|| rig.script.waiting() == 1);
    rig.script.set(&rig.path(9), "S9", page(&[]));
    let new = format!("{},size=192MiB", rig.path(9).display()).parse().unwrap();
    let new = DriveReplacement { drive: new, force: false };
    let job = rig.node.submit(Work::ReplaceDrive(place(1), new), None, false).unwrap();
    let job = rig.node.wait_for_job(job.id, PATIENCE).unwrap();
    assert_eq!(job.state, JobState::Done, "{job:?}");
    rig.until(|| rig.hardware(1).smart.is_some());
    rig.settle();
    assert_eq!(rig.hardware(1).serial.as_deref(), Some("S9"));
    assert!(rig.findings(1).is_empty(), "{:?}", rig.findings(1));
    rig.script.set(&rig.path(1), "S1", page(&[(0, 0b1000)]));
    rig.until(|| rig.script.waiting() == 0);
    rig.settle();
    assert_eq!(rig.hardware(1).serial.as_deref(), Some("S9"));
    // One that was swapped without the pool's seeing it is another one as well.
    rig.read_at(1, 9, "S9", page(&[(0, 0b1000)]));
    assert_eq!(rig.findings(1).len(), 1);
    rig.read_at(1, 9, "S10", page(&[]));
    assert!(rig.findings(1).is_empty());
    assert_eq!(rig.told(Severity::Info, "no longer warns"), 0);
    rig.node.stop();
}

#[test]
fn a_drive_is_read_when_it_comes_back_and_after_a_restart() {
    let rig = Rig::new();
    rig.until(|| rig.hardware(2).smart.is_some());
    rig.settle();
    for work in [Work::FailDrive(place(2)), Work::RejoinDrive(place(2))] {
        let asked = rig.script.asked("S2");
        let job = rig.node.submit(work, None, false).unwrap();
        let job = rig.node.wait_for_job(job.id, PATIENCE).unwrap();
        assert_eq!(job.state, JobState::Done, "{job:?}");
        rig.until(|| rig.script.asked("S2") > asked);
        rig.settle();
    }
    let Rig { node, script, dir, ahead } = rig;
    node.stop();
    drop(node);
    let node = start(dir.path().join("state"), &script);
    let mut rig = Rig { node, script, dir, ahead };
    assert_eq!(rig.hardware(2).state, HardwareState::Unread);
    rig.until(|| rig.hardware(2).smart.is_some());
    // Of a pool that is gone nothing is left.
    rig.settle();
    rig.read_again(2, "S2", page(&[(0, 1)]));
    assert_eq!(rig.findings(2).len(), 1);
    rig.node.export_pool(&"fast".parse().unwrap()).unwrap();
    rig.look();
    assert!(rig.findings(2).is_empty());
    rig.node.stop();
}

/// A spare that is about to fail is none, and what is on a drive that is a namespace by itself nothing gives back.
#[test]
fn spares_and_drives_that_are_namespaces_are_watched_too() {
    let mut rig = Rig::new();
    let pool: Name = "fast".parse().unwrap();
    let nqn: Nqn = "nqn.2026-11.org.example:s".parse().unwrap();
    for n in [4, 5] {
        rig.script.set(&rig.path(n), &format!("S{n}"), page(&[]));
    }
    let sized = |n| format!("{},size=192MiB", rig.path(n).display());
    let spare = NewDrives { drives: vec![sized(4).parse().unwrap()], force: false };
    rig.node.add_spares(&pool, &spare).unwrap();
    rig.node.add_subsystem(serde_json::from_value(json!({"nqn": nqn})).unwrap()).unwrap();
    let new = json!({"nsid": 3, "backend": format!("drive:{}", sized(5))});
    rig.node.add_namespace(&nqn, serde_json::from_value(new).unwrap()).unwrap();
    let new = json!({"nsid": 4, "backend": "memory:1MiB"});
    rig.node.add_namespace(&nqn, serde_json::from_value(new).unwrap()).unwrap();

    let of_spare = |rig: &Rig| rig.node.spares(&pool).unwrap()[0].hardware.clone();
    let of_namespace = |rig: &Rig| rig.node.namespace(&nqn, 3).unwrap().hardware.unwrap();
    rig.until(|| of_spare(&rig).smart.is_some() && of_namespace(&rig).smart.is_some());
    rig.settle();
    assert_eq!(of_spare(&rig).serial.as_deref(), Some("S4"));
    assert_eq!(of_namespace(&rig).serial.as_deref(), Some("S5"));
    assert_eq!(rig.node.all_spares().unwrap()[0].hardware, of_spare(&rig));
    let subsystem = rig.node.subsystem(&nqn).unwrap();
    assert_eq!(subsystem.namespaces[0].hardware, Some(of_namespace(&rig)));
    assert_eq!(subsystem.namespaces[1].hardware, None, "memory");

    let fails = page(&[(0, 0b100)]);
    rig.later(HARDWARE_EVERY);
    rig.script.set(&rig.path(4), "S4", fails.clone());
    rig.script.set(&rig.path(5), "S5", fails);
    let warns = |hardware: DriveHardware| hardware.warnings == ["reliability is degraded"];
    rig.until(|| warns(of_spare(&rig)) && warns(of_namespace(&rig)));
    rig.settle();
    let path = rig.path(4).display().to_string();
    let findings = rig.node.health().unwrap().findings;
    for (subject, told, help) in [
        (
            format!("spare {path} of pool fast"),
            format!("spare {path} of pool fast (EXAMPLE MODEL, serial S4) warns"),
            format!("`flashloom pool spare remove fast {path}`"),
        ),
        (
            format!("namespace 3 of {nqn}"),
            format!("the drive of namespace 3 of {nqn} (EXAMPLE MODEL, serial S5) warns"),
            "have its hosts copy that".to_owned(),
        ),
    ] {
        assert_eq!(rig.told(Severity::Warning, &told), 1, "{told}");
        let finding = findings.iter().find(|finding| finding.subject == subject).unwrap();
        assert!(finding.help.as_ref().unwrap().contains(&help), "{finding:?}");
    }

    // Those that are used no more are nobody's concern.
    let id = rig.node.spares(&pool).unwrap()[0].id;
    rig.node.remove_spare(&pool, id).unwrap();
    rig.node.remove_namespace(&nqn, 3, Consent::FORCE).unwrap();
    rig.look();
    let findings = rig.node.health().unwrap().findings;
    assert!(findings.iter().all(|finding| !finding.why.contains("serial")), "{findings:?}");
    rig.node.stop();
}
