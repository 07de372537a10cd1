//! What people type that is wrong: each is refused with the exit code and the words that tell them what to do.

use super::*;

/// A command, its exit code, and words of what it must say. `@` is the folder with the files of [`files`], `$` the
/// subsystem of [`NQN`].
type Wrong = (&'static str, i32, &'static str);

/// Refused before anybody is asked.
const TYPED: &[Wrong] = &[
    ("namespace add drive:@/a,size=xyz", 2, "`xyz` is not a size: start with a number"),
    ("namespace add drive:@/a,size=-5", 2, "`-5` is not a size: start with a number"),
    ("namespace add drive:@/a,size=10%", 2, "`%` is not a unit of size: use KiB"),
    ("namespace add drive:@/a,size=10EiB", 2, "at least 1 MiB and at most 1 EiB"),
    ("namespace add drive:@/a,size=16MiB,foo=3", 2, "`foo=3` is no option of a drive"),
    ("namespace add memory:16MiB --uuid 0", 2, "`uuidgen` makes one"),
    ("pool create p --drive @/d0 --raid raid7", 2, "a similar value exists: 'raid6'"),
    ("pool create a:b --drive @/d0", 2, "a name has 1 to 64 letters, digits"),
    ("pool destroy p", 2, "`flashloom pool delete POOL` deletes it"),
    ("pool replace p", 2, "`flashloom drive replace POOL/INDEX DRIVE`"),
    ("volume create a/b/c --size 64MiB", 2, "a name has 1 to 64 letters, digits"),
    ("volume create p/v --size ten", 2, "start with a number, as in 16KiB"),
    ("subsystem add iqn.2020", 2, "does not begin with \"nqn.\"; an NQN looks like nqn."),
    ("listener add 127.0.0.1:99999", 2, "\"99999\" is not a TCP port"),
    ("listener add localhost:4421", 2, "write an IP address and port, such as"),
    ("listener set-ana 127.0.0.1:4420 sideways", 2, "choose one of optimized"),
    ("status -o yaml", 2, "possible values: table, json, csv"),
    ("pool list -o csv", 2, "use -o json, or leave -o out"),
    ("stauts", 2, "a similar subcommand exists: 'status'"),
    ("namespace lst", 2, "similar subcommands exist: 'ls', 'list'"),
    ("bench --direct=1", 2, "leave it out: `--direct` is not needed"),
    ("bench --ioengine=libaio", 2, "leave it out: `--ioengine` is not needed"),
    ("bench --time_based", 2, "leave it out: `--time_based` is not needed"),
    ("bench --group_reporting", 2, "leave it out: `--group_reporting` is not needed"),
    ("bench --verify crc32c", 2, "leave the method out"),
    ("bench --verify=md5 --size 1MiB", 2, "leave the method out"),
    ("bench job.fio", 2, "`flashloom bench --job-file FILE` takes jobs in TOML"),
    ("attach --nbd unix:@/s --window open", 2, "off, auto, shm, rdma or require"),
    ("attach --nbd unix:@/s --read-only --window require", 1, "nothing is written with"),
    ("status", 4, "start one with `flashloom serve`"),
    ("check-config @/none.toml", 3, "name a readable TOML file"),
    ("check-config @/typo.toml", 3, "did you mean `address`?"),
    ("serve memory:1MiB --state-dir @/old", 1, "choose another with --state-dir"),
    ("serve memory:1MiB --state-dir @/cut", 1, "restore it from a backup"),
];

/// Refused by a daemon that has the pool `p` with the volumes `v1` (mapped) and `v2`.
const ASKED: &[Wrong] = &[
    ("pool create q --raid raid6 --drive @/d0 --drive @/d1", 1, "it wants 4 or more"),
    ("pool create q --raid raid5 --drive @/d0", 1, "it wants 3 or more"),
    ("pool create q --raid mirror --drive @/d0", 1, "one drive is too few for mirror"),
    ("pool create q --drive @/tiny --drive @/d0", 1, "and needs"),
    ("pool create q --drive @/d0 --drive @/d0", 1, "d0 is given twice"),
    ("pool create q --drive @/d0 --drive @/none", 1, "create it, or name its size"),
    ("pool create q --drive @/d0 --drive @/folder", 1, "name a regular file or a block device"),
    ("pool create q --drive @/d0 --drive /dev/null", 1, "neither a regular file nor a block"),
    ("pool create q --drive @/d0 --drive @/empty", 1, "has 0 bytes, less than a block"),
    ("pool create q --drive @/d0 --drive @/huge,size=1000TiB", 1, "choose a smaller one"),
    ("pool create q --drive @/d0 --drive @/old", 1, "--force takes it, and what it holds is lost"),
    ("pool create q --drive @/d0 --drive @/p0", 1, "a second user would destroy its data"),
    ("pool create p --drive @/d0 --drive @/d1", 1, "pool p is there already"),
    ("pool import --drive @/p0", 1, "p0 is in use"),
    ("pool dump p", 1, "stop the daemon that has the pool open, or export the pool first"),
    ("pool show none", 1, "`flashloom pool list` shows those there are"),
    ("drive show none/0", 1, "`flashloom pool list` shows those there are"),
    ("drive locate p/0", 1, "p0, which is no physical drive"),
    ("volume create p/v --size 1", 1, "choose a multiple of 4096, such as 4096"),
    ("volume create p/v --size 4097", 1, "choose a multiple of 4096, such as 8192"),
    ("volume create p/v --size 0", 1, "choose a size, such as 64GiB"),
    ("volume create p/v1 --size 1MiB", 1, "`flashloom volume list` show those there are"),
    ("volume create p/v --size 1MiB --quota 0", 2, "say `none` for no quota"),
    ("volume create none/v --size 1MiB", 1, "there is no pool none"),
    ("volume map p/v2 --subnqn nqn.2026-11.io.flashloom:db", 1, "--allow-host NQN or --allow-any"),
    ("volume map p/none --subnqn $", 1, "`flashloom volume list` shows those there are"),
    ("volume map p/v1 --subnqn $", 1, "is namespace 2 of"),
    ("volume map p/v1 --subnqn $", 1, "unmap it, or remove that namespace, first"),
    ("volume rename p/v2 v1", 1, "choose another name"),
    ("volume delete p/none", 1, "there is no volume p/none"),
    ("volume delete p/v1 --yes", 1, "`flashloom volume unmap p/v1` first"),
    ("volume delete p/v2", 1, "--yes does it without asking"),
    ("volume resize p/v1 1MiB", 1, "would be lost"),
    ("pool export p", 1, "`flashloom volume unmap p/v1` first"),
    ("namespace resize 2 128MiB", 1, "`flashloom volume resize p/v1 128MiB`"),
    ("namespace remove 77", 1, "`flashloom namespace list` shows those there are"),
    ("namespace add memory:16MiB --nsid 0", 1, "NSIDs run from 1 to 1024"),
    ("namespace add memory:16MiB --nsid 4294967295", 1, "NSIDs run from 1 to 1024"),
    ("namespace add memory:16MiB --block-size 520", 1, "choose 512 or 4096"),
    ("namespace add memory:16MiB --block-size 8192", 1, "choose 512 or 4096"),
    ("namespace add memory:100TiB", 1, "more than can be had"),
    ("namespace add drive:@/p0", 1, "p0 is a drive of pool p"),
    ("subsystem add $", 1, "is there already"),
    ("subsystem remove nqn.2026-11.io.flashloom:none", 1, "`flashloom subsystem list` shows"),
    ("host add nqn.2026-11.io.flashloom:h --subnqn $", 1, "is there already"),
    ("listener add 192.0.2.7:4420", 1, "no interface of this machine has that address"),
    ("serve memory:1MiB", 1, "stop it, or give this one a directory of its own"),
    ("bench --filename @/p0 --rw write --size 1MiB", 1, "would destroy what is there"),
];

/// What the commands name.
fn files(dir: &Path) {
    for (name, length) in [("d0", 64 << 20), ("d1", 64 << 20), ("tiny", 1 << 20), ("empty", 0)] {
        fs::File::create(dir.join(name)).unwrap().set_len(length).unwrap();
    }
    fs::write(dir.join("old"), vec![0x5a; 1 << 20]).unwrap();
    fs::create_dir(dir.join("folder")).unwrap();
    fs::write(dir.join("typo.toml"), "[[listener]]\naddres = \"127.0.0.1:4420\"\n").unwrap();
    fs::create_dir(dir.join("cut")).unwrap();
    fs::write(dir.join("cut/state.json"), "{\"a").unwrap();
}

/// Types each; what was not answered as it must be.
fn answered_otherwise(dir: &Path, commands: &[Wrong]) -> Vec<String> {
    let mut others = Vec::new();
    for (command, code, words) in commands {
        let command = command.replace('@', dir.to_str().unwrap()).replace('$', NQN);
        // One state directory, unless the command names another.
        let state = match command.contains("--state-dir") {
            true => String::new(),
            false => format!(" --state-dir {}", dir.join("state").display()),
        };
        let mut process = Command::new(env!("CARGO_BIN_EXE_flashloom"));
        process.args(format!("{command}{state}").split_whitespace()).stdin(Stdio::null());
        let output = process.env_remove("FLASHLOOM_STATE_DIR").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() != Some(*code) || !said.contains(words) {
            others
                .push(format!("{command}: {:?}, not {code}, \"{words}\":\n{said}", output.status));
        }
    }
    others
}

#[test]
fn what_is_typed_wrong_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    files(dir);
    let mut others = answered_otherwise(dir, TYPED);
    let state = dir.join("state");
    let serve = format!("serve memory:16MiB --listen 127.0.0.1:{} --discovery off", free_port());
    let daemon = Daemon::start(&state, &serve);
    let drives: String =
        (0..4).map(|n| format!(" --drive {}/p{n},size=300MiB", dir.display())).collect();
    json(&state, &format!("pool create p{drives}"));
    for volume in ["v1", "v2"] {
        json(&state, &format!("volume create p/{volume} --size 64MiB"));
    }
    json(&state, &format!("volume map p/v1 --subnqn {NQN}"));
    json(&state, &format!("host add nqn.2026-11.io.flashloom:h --subnqn {NQN}"));
    let before = (json(&state, "config export"), json(&state, "volume list"));
    others.extend(answered_otherwise(dir, ASKED));
    assert!(others.is_empty(), "{}", others.join("\n"));
    // Nothing of it was done.
    assert_eq!((json(&state, "config export"), json(&state, "volume list")), before);
    assert!(!dir.join("huge").exists() && !dir.join("none").exists());
    daemon.stop();
}

/// A file that was named in place of a socket was removed, as a socket is that nobody listens on any more.
#[test]
fn attach_leaves_files_alone_that_are_no_sockets() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let port = free_port();
    let daemon = Daemon::start(dir, &format!("serve memory:1MiB --listen 127.0.0.1:{port}"));
    let image = dir.join("image");
    fs::write(&image, "what somebody needs").unwrap();
    let to = format!("--traddr 127.0.0.1 --trsvcid {port} --subnqn {NQN} --nsid 1");
    let (code, said) = failure(dir, &format!("attach --nbd unix:{} {to}", image.display()));
    assert!(code == 1 && said.contains("it is a file of another kind"), "{said}");
    assert_eq!(fs::read(&image).unwrap(), b"what somebody needs");
    let (code, said) = failure(dir, &format!("attach --nbd unix:{}/no/s {to}", dir.display()));
    assert!(code == 1 && said.contains("make the folder of the socket first"), "{said}");
    daemon.stop();
}
