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
