//! Every scenario with every kernel: `cargo test -p hosts-tests`.
// The kernels of a scenario are neighbours: the tests run in the order of their names, and each
// kernel's guest is busy while the other one's is.
macro_rules! scenarios {
    ($($name:ident)*) => {
        $(mod $name {
            #[test]
            fn bookworm() {
                hosts_tests::run(hosts_tests::Kernel::Bookworm, stringify!($name));
            }
            #[test]
            fn newest() {
                hosts_tests::run(hosts_tests::Kernel::Newest, stringify!($name));
            }
        })*
        const SCENARIOS: &[&str] = &[$(stringify!($name)),*];
    };
}

scenarios! {
    access
    capture
    commands
    connect
    connect_all
    cycles
    digests
    disconnect
    discover
    features
    filesystems
    identify
    keep_alive
    late_drives
    logs
    multipath
    namespaces
    near_full
    passthrough
    persistent_discovery
    queues
    reservations
    reservations_kept
    reset
    restart
    rollback
    snapshots
    trim
    verify
}

/// The array itself inside a guest, its log on persistent memory: killed, and its machine's power cut.
#[test]
fn an_array_keeps_what_it_acknowledged_through_power_cuts() {
    hosts_tests::run_array(hosts_tests::Kernel::Newest);
}

/// The array and its host in a guest: what its drives' files lie on gets full.
#[test]
fn a_file_system_that_is_full_is_waited_out() {
    hosts_tests::run_full(hosts_tests::Kernel::Newest);
}

/// What others wrote to use network block devices, with a remote namespace.
#[test]
fn tools_of_others_use_a_namespace_by_nbd() {
    hosts_tests::run_nbd();
}

/// The target of a network block device is killed under a verified load.
#[test]
fn a_network_block_device_outlives_its_target() {
    hosts_tests::run_nbd_killed();
}

/// fio itself, with an engine made of libflashloom.
#[test]
fn fio_uses_a_namespace_by_its_engine() {
    hosts_tests::run_fio_engine();
}

/// The tools that come with fio, on what our load writes in fio's formats.
#[test]
fn fios_own_tools_read_what_the_load_writes() {
    hosts_tests::run_fio_tools();
}

/// A card's queues and the reactors that they belong to, over a pair of virtual cards.
#[test]
fn a_reactors_queues_come_by_one_queue_of_the_card() {
    hosts_tests::run_groups();
}

/// A virtual machine whose root and data are remote namespaces: its target is killed, and so is the machine.
#[test]
fn a_virtual_machine_lives_on_remote_namespaces() {
    hosts_tests::run_vhost(hosts_tests::Kernel::Newest);
}

/// The program in a guest, with a remote namespace as a block device of the guest's kernel.
#[test]
fn a_kernel_has_a_remote_namespace_as_a_block_device() {
    hosts_tests::run_ublk(hosts_tests::Kernel::Newest);
}

/// The program in a guest with NVMe drives: one that gets hosts' commands as they are, and a pool of which one is pulled
/// and plugged again.
#[test]
fn nvme_drives_are_passed_through_pulled_and_plugged() {
    hosts_tests::run_nvme(hosts_tests::Kernel::Newest);
}

/// Over soft RoCE, in one guest: our target with the kernel's host and with ours, and ours with the kernel's target.
#[test]
fn a_kernel_uses_our_target_by_rdma() {
    let beside = [env!("CARGO_BIN_EXE_hostile"), env!("CARGO_BIN_EXE_flush")];
    let beside = beside.map(std::path::Path::new);
    hosts_tests::run_rdma(hosts_tests::Kernel::Newest, &beside);
}

/// Our host side with the target of others: Linux's own, in a guest.
#[test]
fn the_library_uses_a_namespace_of_linux() {
    hosts_tests::run_foreign(hosts_tests::Kernel::Newest);
}

/// A script that no test names would never run.
#[test]
fn every_script_is_a_test() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut scripts: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .map(|name| name.strip_suffix(".sh").unwrap().to_owned())
        .collect();
    scripts.sort();
    let mut named: Vec<String> = SCENARIOS.iter().map(ToString::to_string).collect();
    named.sort();
    assert_eq!(scripts, named);
}
