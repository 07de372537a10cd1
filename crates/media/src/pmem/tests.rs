use super::*;
use stdx::Prng;
use stdx::num::usize64;

fn simulated(len: u64) -> (Arc<SimulatedPmem>, Pmem) {
    let inner = Arc::new(SimulatedPmem::new(len));
    (Arc::clone(&inner), Pmem::Simulated(inner))
}

fn bytes_of(pmem: &Pmem, offset: u64, len: usize) -> Vec<u8> {
    pmem.with(offset, len, <[u8]>::to_vec).unwrap()
}

#[test]
fn ranges_are_checked() {
    let (_, sim) = simulated(4096);
    for pmem in [Pmem::anonymous(4096).unwrap(), sim] {
        assert_eq!(pmem.capacity(), 4096);
        assert_eq!(pmem.write(4095, &[1, 2]).unwrap_err().kind, Kind::OutOfRange);
        assert_eq!(pmem.read(u64::MAX, &mut [0; 2]).unwrap_err().kind, Kind::OutOfRange);
        pmem.write(4094, &[1, 2]).unwrap();
        assert_eq!(bytes_of(&pmem, 4093, 3), [0, 1, 2]);
    }
}

#[test]
fn a_shared_file_keeps_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    assert_eq!(Pmem::shared(&path, None).unwrap_err().kind, Kind::Gone);
    let pmem = Pmem::shared(&path, Some(1 << 20)).unwrap();
    pmem.write(777, b"kept").unwrap();
    pmem.fence();
    drop(pmem);
    let again = Pmem::shared(&path, Some(2 << 20)).unwrap();
    assert_eq!(again.capacity(), 1 << 20);
    assert_eq!(bytes_of(&again, 777, 4), b"kept");
}

#[test]
fn a_file_that_is_not_on_dax_is_refused() {
    let near = std::env::current_exe().unwrap();
    let folder = tempfile::TempDir::new_in(near.parent().unwrap()).unwrap();
    let path = folder.path().join("log");
    let error = Pmem::dax(&path, Some(1 << 16)).unwrap_err();
    assert_eq!(error.kind, Kind::Unsupported);
    assert!(!path.exists(), "what cannot be used is not left behind");
    // What was there before is left alone.
    drop(Pmem::shared(&path, Some(1 << 16)).unwrap());
    Pmem::dax(&path, Some(1 << 16)).unwrap_err();
    assert!(path.exists());
}

#[cfg(target_arch = "x86_64")]
#[test]
fn streams_store_what_copies_store_whatever_the_alignment() {
    let mapped = Mapped::anonymous(1 << 16).unwrap();
    let mut model = vec![0u8; 1 << 16];
    let mut prng = Prng::new(5);
    for _ in 0..500 {
        let mut data = vec![0; usize64(prng.below(700))];
        prng.fill(&mut data);
        let offset = prng.below((1 << 16) - 700);
        mapped.stream(offset, &data);
        model[usize64(offset)..][..data.len()].copy_from_slice(&data);
    }
    mapped::fence();
    assert!(mapped.look(0, 1 << 16, |bytes| bytes == model).unwrap());
}

#[test]
fn a_crash_keeps_what_was_fenced_and_some_lines_of_the_rest() {
    let (inner, pmem) = simulated(64 * 1024);
    pmem.write(0, &[1; 32 * 1024]).unwrap();
    pmem.fence();
    pmem.write(100, &[2; 50 * 1024]).unwrap();
    inner.crash(&mut Prng::new(1));
    let after = bytes_of(&pmem, 0, 64 * 1024);
    let is_new = |line: usize| after[line * LINE + 50] == 2;
    let is_old = |line: usize| after[line * LINE + 50] == u8::from(line < 512);
    let lines = 2..100 + 50 * 1024 / LINE - 99;
    assert!(lines.clone().all(|line| is_new(line) || is_old(line)));
    assert!(lines.clone().any(is_new) && lines.clone().any(is_old));
    assert_eq!(&after[..100], [1; 100]);
}

/// A fence has only what its own core stored last: another core's is to have a fence of its own.
#[test]
fn a_fence_is_of_its_core() {
    let (inner, pmem) = simulated(4096);
    std::thread::scope(|scope| {
        scope.spawn(|| pmem.write(0, &[1; 2048]).unwrap());
    });
    pmem.write(2048, &[1; 2048]).unwrap();
    pmem.fence();
    inner.crash(&mut Prng::new(1));
    assert!(bytes_of(&pmem, 0, 2048).contains(&0));
    assert_eq!(bytes_of(&pmem, 2048, 2048), [1; 2048]);
}

#[test]
fn nothing_is_stored_once_the_power_is_gone() {
    let (inner, pmem) = simulated(4096);
    inner.cut_after(2);
    pmem.write(0, &[7; 256]).unwrap();
    assert!(inner.is_cut());
    pmem.fence();
    assert_eq!(bytes_of(&pmem, 127, 2), [7, 0]);
    inner.crash(&mut Prng::new(3));
    assert!(!inner.is_cut());
}

/// The whole daemon died of a bus error, with all it served, for want of one page of its log.
#[test]
fn a_mapped_file_that_was_cut_short_fails_as_a_medium_does() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("log"), folder.path().join("mirror"));
    let pmem = Pmem::shared(&path, Some(1 << 20)).unwrap();
    let mirror = Pmem::shared(&other, Some(1 << 20)).unwrap();
    pmem.write(0, b"kept").unwrap();
    pmem.write(1 << 19, b"gone").unwrap();
    mirror.write(1 << 19, b"gone").unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(8192).unwrap();
    // One within the other, as when copies are compared.
    let within = mirror.with(1 << 19, 4, |_| pmem.with(1 << 19, 4, <[u8]>::to_vec));
    assert_eq!(within.unwrap().unwrap_err().kind, Kind::Medium);
    // Zeroes that were put in the place of what is gone are never taken for it.
    assert_eq!(pmem.read(1 << 19, &mut [0; 4]).unwrap_err().kind, Kind::Medium);
    assert_eq!(pmem.write((1 << 19) + 4096, &[7; 9000]).unwrap_err().kind, Kind::Medium);
    assert_eq!(pmem.write(0, b"more").unwrap_err().kind, Kind::Medium);
    assert_eq!(bytes_of(&pmem, 0, 4), b"kept");
    assert_eq!(bytes_of(&mirror, 1 << 19, 4), b"gone");
    mirror.write(1 << 19, b"more").unwrap();
}

#[test]
fn simulated_memory_is_poisoned_as_told() {
    let (inner, pmem) = simulated(8192);
    pmem.write(0, &[1; 8192]).unwrap();
    inner.poison(4096..4160);
    assert_eq!(pmem.read(4090, &mut [0; 10]).unwrap_err().kind, Kind::Medium);
    // As of a mapping: the rest of the page is gone with the line, and nothing is stored any more.
    assert_eq!(pmem.read(8000, &mut [0; 10]).unwrap_err().kind, Kind::Medium);
    assert_eq!(pmem.write(64, &[3; 64]).unwrap_err().kind, Kind::Medium);
    assert_eq!(bytes_of(&pmem, 64, 1), [1]);
    inner.remap();
    pmem.write(64, &[2; 64]).unwrap();
    assert_eq!(bytes_of(&pmem, 8000, 1), [1]);
    assert_eq!(pmem.write(4100, &[2; 4]).unwrap_err().kind, Kind::Medium);
    inner.cure(false);
    assert_eq!(bytes_of(&pmem, 4095, 66), [[1].as_slice(), &[0; 64], &[1]].concat());
    inner.poison(0..8192);
    inner.cure(true);
    assert_eq!(bytes_of(&pmem, 63, 2), [1, 2]);
}

#[test]
fn regions_beside_a_file_are_of_its_kind_and_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let pmem = Pmem::shared(&folder.path().join("log"), Some(4096)).unwrap();
    let kind = |of: Result<Pmem, crate::Error>| of.unwrap_err().kind;
    assert_eq!(kind(pmem.open_beside(".window-1", 8192)), Kind::Gone);
    let made = pmem.create_beside(".window-1", 8192).unwrap();
    assert_eq!(kind(pmem.create_beside(".window-1", 8192)), Kind::Busy);
    made.store(64, 7).unwrap();
    let found = pmem.open_beside(".window-1", 8192).unwrap();
    assert_eq!((found.load(64).unwrap(), found.capacity()), (7, 8192));
    pmem.create_beside(".window-2", 4096).unwrap();
    pmem.create_beside(".other", 4096).unwrap();
    pmem.remove_beside(".window-", |suffix| suffix == ".window-2").unwrap();
    assert_eq!(kind(pmem.open_beside(".window-1", 8192)), Kind::Gone);
    assert_eq!(found.load(64).unwrap(), 7, "whoever has it mapped keeps it");
    pmem.open_beside(".window-2", 4096).unwrap();
    pmem.open_beside(".other", 4096).unwrap();
    // A link may lie on what does not last.
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(folder.path().join("log"), elsewhere.path().join("link")).unwrap();
    let linked = Pmem::shared(&elsewhere.path().join("link"), None).unwrap();
    linked.open_beside(".window-2", 4096).unwrap();
    linked.create_beside(".window-3", 4096).unwrap();
    assert!(folder.path().join("log.window-3").is_file());
    let anonymous = Pmem::anonymous(4096).unwrap();
    assert_eq!(kind(anonymous.create_beside(".window-1", 4096)), Kind::Unsupported);
}

#[test]
fn a_region_beside_that_others_made_longer_or_cut_short_is_opened_as_long_as_it_was_made() {
    let folder = tempfile::tempdir().unwrap();
    let pmem = Pmem::shared(&folder.path().join("log"), Some(4096)).unwrap();
    let made = pmem.create_beside(".ring", 8192).unwrap();
    made.store(64, 7).unwrap();
    let file = std::fs::File::from(made.share(Access::ReadWrite).unwrap());
    // As much as there is would be mapped, and memory taken for all of it.
    file.set_len(1 << 43).unwrap();
    assert_eq!(pmem.open_beside(".ring", 8192).unwrap().capacity(), 8192);
    for len in [4096, 0] {
        file.set_len(len).unwrap();
        assert_eq!(pmem.open_beside(".ring", 8192).unwrap_err().kind, Kind::OutOfRange);
        pmem.fill_up_beside(".ring", 8192).unwrap();
        let found = pmem.open_beside(".ring", 8192).unwrap();
        assert_eq!(found.load(64).unwrap(), if len > 0 { 7 } else { 0 });
        assert_eq!(found.load(8184).unwrap(), 0);
    }
    pmem.fill_up_beside(".none", 8192).unwrap_err();
}

#[test]
fn a_region_is_shared_with_the_rights_that_are_given() {
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let pmem = Pmem::shared(&folder.path().join("log"), Some(4096)).unwrap();
    let mut file = std::fs::File::from(pmem.share(Access::Read).unwrap());
    file.write_all(b"no").unwrap_err();
    let mut file = std::fs::File::from(pmem.share(Access::ReadWrite).unwrap());
    file.write_all(b"yes").unwrap();
    assert_eq!(bytes_of(&pmem, 0, 3), b"yes");
}

#[test]
fn simulated_regions_beside_crash_with_it() {
    let (inner, pmem) = simulated(4096);
    let region = pmem.create_beside(".window", 4096).unwrap();
    region.store(0, 1).unwrap();
    region.full_fence();
    region.write(64, &[2; 64 * 40]).unwrap();
    inner.crash(&mut Prng::new(4));
    let region = pmem.open_beside(".window", 4096).unwrap();
    assert_eq!(region.load(0).unwrap(), 1);
    assert!(bytes_of(&region, 64, 64 * 40).contains(&0), "what was not fenced is there in part");
    pmem.remove_beside(".window", |_| false).unwrap();
    pmem.open_beside(".window", 4096).unwrap_err();
}

#[test]
fn a_file_of_another_process_is_mapped_by_its_descriptor() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ring");
    let there = Pmem::shared(&path, Some(1 << 16)).unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let here = Pmem::of_fd(&file, 1 << 16).unwrap();
    let seen = Pmem::of_fd_to_read(std::fs::File::open(&path).unwrap(), 4096).unwrap();
    here.write(64, &7_u64.to_ne_bytes()).unwrap();
    here.full_fence();
    assert_eq!((there.load(64).unwrap(), seen.load(64).unwrap()), (7, 7));
    assert_eq!(seen.load(4096).unwrap_err().kind, Kind::OutOfRange);
    assert_eq!(seen.write(0, &[1]).unwrap_err().kind, Kind::Medium, "only to be looked at");
    assert_eq!(Pmem::of_fd(&file, 1 << 17).unwrap_err().kind, Kind::Unsupported, "it has less");
    assert_eq!(Pmem::of_fd(&file, 100).unwrap_err().kind, Kind::Unsupported, "no whole pages");
    // Cut short by whoever made it: an error here, not the end of the process.
    file.set_len(0).unwrap();
    assert_eq!(seen.load(64).unwrap_err().kind, Kind::Medium);
    assert_eq!(here.write(4096, &[1; 64]).unwrap_err().kind, Kind::Medium);
    assert_eq!(here.load(4096).unwrap_err().kind, Kind::Medium);
}

#[test]
fn simulated_memory_is_loaded_by_words() {
    let (inner, pmem) = simulated(4096);
    pmem.write(8, &9_u64.to_ne_bytes()).unwrap();
    pmem.full_fence();
    assert_eq!(pmem.load(8).unwrap(), 9);
    inner.poison(0..64);
    assert_eq!(pmem.load(8).unwrap_err().kind, Kind::Medium);
}
