//! What the documents say to type does what they say.

use super::*;

/// The commands of this program in a document's blocks of code.
fn commands(document: &str) -> Vec<String> {
    let blocks = document.split("```").skip(1).step_by(2);
    let text = blocks.collect::<String>().replace("\\\n", " ");
    let all = text.lines().filter_map(|line| line.strip_prefix("flashloom "));
    all.map(str::to_owned).collect()
}

#[test]
fn the_way_to_the_first_volume_can_be_gone() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let document =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/first-volume.md"));
    let port = free_port();
    let daemon = Daemon::start(dir, &format!("serve memory:1MiB --listen 127.0.0.1:{port}"));
    let host = "nqn.2026-11.io.flashloom:host";
    for n in 1..=4 {
        let drive = fs::File::create(dir.join(format!("nvme-MODEL_S{n}"))).unwrap();
        drive.set_len(300 << 20).unwrap();
    }
    let commands = commands(&document.unwrap());
    assert!(commands.len() >= 8, "{commands:?}");
    // These go on until they are stopped.
    let is_endless = |command: &&String| *command == "top" || command.contains("--follow");
    for command in commands.iter().filter(|command| !is_endless(command)) {
        let command = command.replace("HOSTNQN", host);
        let output = flashloom(dir, &command).current_dir(dir).output().unwrap();
        // The last block is to look at, and this target has something to be told of.
        let succeeded = output.status.success() || command == "health";
        assert!(succeeded, "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let to = format!("--traddr 127.0.0.1 --trsvcid {port} --subnqn nqn.2026-11.io.flashloom:db");
    let namespace = json(dir, &format!("id-ns {to} --nsid 1 --hostnqn {host}"));
    assert_eq!(namespace["nsze"], (500_u64 << 30) / 4096);
    // Nobody else was let in.
    assert_eq!(failure(dir, &format!("id-ns {to} --nsid 1 --hostnqn {host}-other")).0, 5);
    daemon.stop();
}

/// All sources of this program, without their tests.
fn sources() -> String {
    fn add(folder: &Path, text: &mut String) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && name != "tests" {
                add(&path, text);
            } else if name.ends_with(".rs") && name != "tests.rs" {
                text.push_str(&fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut text = String::new();
    for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).unwrap() {
        add(&entry.unwrap().path().join("src"), &mut text);
    }
    // A string goes on behind a backslash.
    let lines = text.split("\\\n").map(str::trim_start);
    lines.collect::<Vec<_>>().concat()
}

/// What stands for something else in a message.
const STANDS_FOR: [&str; 6] = ["PATH", "ADDRESS", "NQN", "N", "P", "M"];

/// What hosts say, or the system, and not this program.
const OF_OTHERS: [&str; 5] = [
    "Capacity Exceeded",
    "No space left on device",
    "Connect Invalid Parameters ... SUBNQN",
    "Connect Invalid Host",
    "Address already in use",
];

/// What is between backquotes before the colon behind which the explanation is.
fn messages(explained: &str) -> Vec<String> {
    let mut parts = explained.split('`').map(|part| part.replace('\n', " "));
    let mut messages = Vec::new();
    while parts.next().is_some_and(|text| !text.contains(':')) {
        messages.extend(parts.next());
    }
    messages
}

/// Messages were explained that the program did not say any more.
#[test]
fn the_messages_that_are_explained_are_those_that_are_said() {
    let document =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/troubleshooting.md"));
    let (document, sources) = (document.unwrap(), sources());
    let is_said = |part: &str| {
        let mut spaces = part.match_indices(' ');
        let both = |at: usize| sources.contains(&part[..at]) && sources.contains(&part[at..]);
        OF_OTHERS.contains(&part) || sources.contains(part) || spaces.any(|(at, _)| both(at))
    };
    // What is said has values in place of these.
    let is_value = |word: &&str| {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        word.is_empty() || STANDS_FOR.contains(&word) || word.parse::<u64>().is_ok()
    };
    let mut all = 0;
    for message in document.split("\n- ").skip(1).flat_map(messages) {
        all += 1;
        if OF_OTHERS.contains(&&*message) {
            continue;
        }
        let words: Vec<_> = message.split(' ').collect();
        for part in words.split(is_value).map(|part| part.join(" ")) {
            let part = part.trim_end_matches([':', ',', ';']);
            assert!(is_said(part), "{message}: nothing says {part:?}");
        }
    }
    assert!(all >= 20, "{all}");
}
