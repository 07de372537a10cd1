use super::*;

const REGION: Region = Region { logical: 4096, blocks: 2, first_lba: 64, count: 1000 };

fn reopen(path: &Path) -> (Arc<Journal>, History) {
    let (journal, history) = Journal::open(path, REGION, 7).unwrap();
    (Arc::new(journal), history)
}

#[test]
fn what_was_acknowledged_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("acks");
    let (journal, history) = reopen(&path);
    assert_eq!((history.upto, history.torn, history.run), (0, 0, 7));
    let mut low = Acks::new(Arc::clone(&journal), 0);
    let mut high = Acks::new(journal, 500);
    for sequence in 1..=3 {
        low.reserve(sequence).unwrap();
        for block in 0..500 {
            low.push(block, sequence).unwrap();
        }
    }
    high.push(499, 9).unwrap();
    low.flush().unwrap();
    high.flush().unwrap();
    drop((low, high));
    let history = Journal::read(&path).unwrap();
    assert!(history.acked[..500].iter().all(|&sequence| sequence == 3));
    assert!(history.acked[500..999].iter().all(|&sequence| sequence == 0));
    assert_eq!((history.acked[999], history.upto), (9, 1 + JOURNAL_RESERVE));
    // Continued: the mark is the old one, whatever is asked for.
    let (_, history) = Journal::open(&path, REGION, 8).unwrap();
    assert_eq!((history.run, history.acked[0]), (7, 3));
}

#[test]
fn a_torn_tail_is_cut_wherever_it_is_torn() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("acks");
    let (journal, _) = reopen(&path);
    let mut acks = Acks::new(journal, 0);
    acks.reserve(1).unwrap();
    acks.push(1, 1).unwrap();
    acks.flush().unwrap();
    let whole = std::fs::metadata(&path).unwrap().len();
    acks.push(1, 2).unwrap();
    acks.push(2, 2).unwrap();
    acks.flush().unwrap();
    drop(acks);
    let bytes = std::fs::read(&path).unwrap();
    for length in usize64(whole)..bytes.len() {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let history = Journal::read(&path).unwrap();
        assert_eq!((history.acked[1], history.acked[2]), (1, 0), "{length}");
        assert_eq!(history.torn, u64_of(length) - whole);
    }
    let mut harmed = bytes.clone();
    *harmed.last_mut().unwrap() ^= 1;
    std::fs::write(&path, &harmed).unwrap();
    let (journal, history) = reopen(&path);
    assert_eq!((history.acked[1], history.torn), (1, u64_of(bytes.len()) - whole));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), whole);
    let mut acks = Acks::new(journal, 0);
    acks.push(5, 4).unwrap();
    acks.flush().unwrap();
    drop(acks);
    assert_eq!(Journal::read(&path).unwrap().acked[5], 4);
}

#[test]
fn a_file_that_is_no_journal_of_this_load_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("acks");
    let said = |error: Error| error.to_string();
    assert!(said(Journal::read(&path).unwrap_err()).contains("No such file"));
    std::fs::write(&path, [b'x'; 100]).unwrap();
    assert!(said(Journal::open(&path, REGION, 1).unwrap_err()).contains("is not a journal"));
    assert_eq!(std::fs::read(&path).unwrap(), [b'x'; 100]);
    std::fs::write(&path, [0; 10]).unwrap();
    assert!(said(Journal::read(&path).unwrap_err()).contains("not whole"));
    std::fs::remove_file(&path).unwrap();
    let (held, _) = reopen(&path);
    assert!(said(Journal::open(&path, REGION, 1).unwrap_err()).contains("another bench"));
    assert!(said(Journal::read(&path).unwrap_err()).contains("another bench"));
    drop(held);
    let other = Region { blocks: 1, ..REGION };
    assert!(said(Journal::open(&path, other, 1).unwrap_err()).contains("--bs"));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[33] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert!(said(Journal::read(&path).unwrap_err()).contains("damaged"));
}
