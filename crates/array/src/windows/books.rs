//! What pools have given of their logs' memory for rings, and which windows stand.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use uuid::Uuid;
use window::Phase;
use window::page::PHASE_AT;

/// A volume's window, and those that are to take its place.
#[derive(Debug)]
struct Entry {
    pool: Uuid,
    granted: Option<Window>,
    /// Bytes set aside for each that is being granted.
    wanted: Vec<u64>,
}

impl Entry {
    /// Bytes that are its: one takes the place of the other.
    fn bytes(&self) -> u64 {
        let granted = self.granted.iter().map(|window| window.bytes);
        granted.chain(self.wanted.iter().copied()).max().unwrap_or(0)
    }
}

#[derive(Debug)]
struct Window {
    number: u32,
    /// Of all of its rings.
    bytes: u64,
    /// What says whether it stands: of each ring, in each of its copies.
    states: Vec<Vec<File>>,
}

fn phase(state: &File) -> Option<Phase> {
    let mut word = [0; 8];
    state.read_exact_at(&mut word, PHASE_AT).ok()?;
    Some(Phase::of(u64::from_le_bytes(word)))
}

/// Whether a ring has ended: a copy that failed before does not tell.
fn has_ended(copies: &[File]) -> bool {
    copies.iter().any(|copy| phase(copy) == Some(Phase::Ended))
}

impl Window {
    /// Whether it has ended for sure, all of it.
    fn has_ended(&self) -> bool {
        !self.states.is_empty() && self.states.iter().all(|copies| has_ended(copies))
    }

    /// Whether a ring of it stands for sure, or is ending.
    fn stands(&self) -> bool {
        let stands = |copies: &Vec<File>| {
            !has_ended(copies) && copies.iter().any(|copy| phase(copy).is_some())
        };
        self.states.iter().any(stands)
    }
}

/// The windows of all pools, by volume.
#[derive(Debug)]
pub struct Books {
    /// Bytes of rings that a pool gives at most.
    most: u64,
    entries: BTreeMap<[u8; 16], Entry>,
}

impl Books {
    pub const fn new(most: u64) -> Self {
        Self { most, entries: BTreeMap::new() }
    }

    /// Forgets windows that their pools have ended. A volume for which one is being granted stays.
    fn tidy(&mut self) {
        self.entries.retain(|_, entry| {
            entry.granted.take_if(|window| window.has_ended());
            entry.granted.is_some() || !entry.wanted.is_empty()
        });
    }

    /// Sets bytes of a pool aside for another window of a volume, in place of the one there is; whether there is room. What
    /// became of it is to be [told](Self::settle).
    pub fn reserve(&mut self, pool: Uuid, volume: [u8; 16], bytes: u64) -> bool {
        self.tidy();
        let of_others =
            self.entries.iter().filter(|(of, entry)| **of != volume && entry.pool == pool);
        let taken: u64 = of_others.map(|(_, entry)| entry.bytes()).sum();
        if taken.saturating_add(bytes) > self.most {
            return false;
        }
        let new = || Entry { pool, granted: None, wanted: Vec::new() };
        let entry = self.entries.entry(volume).or_insert_with(new);
        entry.pool = pool;
        entry.wanted.push(bytes);
        true
    }

    /// Notes the number and the state pages of a window that so many bytes were set aside for, or that it was not granted
    /// after all: then the one before was ended for it, or stands.
    pub fn settle(&mut self, volume: [u8; 16], bytes: u64, granted: Option<(u32, Vec<Vec<File>>)>) {
        let entry = self.entries.get_mut(&volume).expect("it stays while one is being granted");
        let at = entry.wanted.iter().position(|wanted| *wanted == bytes);
        entry.wanted.swap_remove(at.expect("what was set aside is settled once"));
        if let Some((number, states)) = granted {
            entry.granted = Some(Window { number, bytes, states });
        }
        self.tidy();
    }

    fn window(&self, volume: [u8; 16], number: u32) -> Option<&Window> {
        self.entries.get(&volume)?.granted.as_ref().filter(|window| window.number == number)
    }

    /// Whether a window may stand, as far as anybody can tell.
    pub fn may_stand(&self, volume: [u8; 16], number: u32) -> bool {
        self.window(volume, number).is_some_and(|window| !window.has_ended())
    }

    /// Whether it stands for sure, or is ending.
    pub fn stands(&self, volume: [u8; 16], number: u32) -> bool {
        self.window(volume, number).is_some_and(Window::stands)
    }

    /// A window has ended.
    pub fn forget(&mut self, volume: [u8; 16], number: u32) {
        if self.window(volume, number).is_some()
            && let Some(entry) = self.entries.get_mut(&volume)
        {
            entry.granted = None;
        }
        self.tidy();
    }

    /// How many windows of a pool stand.
    pub fn standing(&mut self, pool: Uuid) -> usize {
        self.tidy();
        let of_pool = self.entries.values().filter(|entry| entry.pool == pool);
        of_pool.filter(|entry| entry.granted.is_some()).count()
    }

    /// Bytes of rings that a pool gives at most, and those that its windows have.
    pub fn log_of(&mut self, pool: Uuid) -> (u64, u64) {
        self.tidy();
        let of_pool = self.entries.values().filter(|entry| entry.pool == pool);
        (self.most, of_pool.map(Entry::bytes).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: Uuid = Uuid::from_u128(1);
    const OTHER: Uuid = Uuid::from_u128(2);

    fn page(phase: Phase) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&phase.word().to_le_bytes(), PHASE_AT).unwrap();
        file
    }

    #[test]
    fn a_pool_gives_no_more_than_it_may_and_each_volume_has_one() {
        let mut books = Books::new(100);
        assert!(books.reserve(POOL, [1; 16], 60));
        assert!(!books.reserve(POOL, [2; 16], 50), "while it is being granted");
        books.settle([1; 16], 60, Some((7, vec![vec![page(Phase::Stands)]])));
        assert!(!books.reserve(POOL, [2; 16], 50));
        assert!(books.reserve(OTHER, [3; 16], 100), "another pool's");
        assert!(books.reserve(POOL, [1; 16], 100), "in its place");
        books.settle([1; 16], 100, Some((8, vec![vec![page(Phase::Stands)]])));
        assert!(books.may_stand([1; 16], 8) && !books.may_stand([1; 16], 7));
        assert_eq!((books.standing(POOL), books.standing(OTHER)), (1, 0));
        assert_eq!((books.log_of(POOL), books.log_of(Uuid::nil())), ((100, 100), (100, 0)));
        books.forget([1; 16], 7);
        assert_eq!(books.standing(POOL), 1, "of another number");
        books.forget([1; 16], 8);
        assert!(books.reserve(POOL, [2; 16], 100));
        books.settle([2; 16], 100, None);
        assert!(books.reserve(POOL, [4; 16], 100), "it was not granted");
    }

    #[test]
    fn a_window_that_its_pool_has_ended_takes_no_room() {
        let mut books = Books::new(100);
        assert!(books.reserve(POOL, [1; 16], 100));
        // Two rings, the second with a copy that was lost before.
        let state = page(Phase::Ending);
        let copies = vec![page(Phase::Stands), state.try_clone().unwrap()];
        books.settle([1; 16], 100, Some((7, vec![vec![page(Phase::Ended)], copies])));
        assert!(books.may_stand([1; 16], 7) && books.stands([1; 16], 7), "not yet");
        assert!(!books.reserve(POOL, [2; 16], 1));
        state.write_all_at(&Phase::Ended.word().to_le_bytes(), PHASE_AT).unwrap();
        assert!(!books.may_stand([1; 16], 7) && !books.stands([1; 16], 7));
        assert_eq!(books.log_of(POOL), (100, 0));
        assert!(books.reserve(POOL, [2; 16], 100));
        // One whose page cannot be read may stand, for all that is known.
        books.settle([2; 16], 100, Some((9, vec![])));
        assert!(books.may_stand([2; 16], 9) && !books.stands([2; 16], 9));
    }

    /// Who looked between the end of one and the grant of the other had the volume forgotten: the new window stood in no
    /// book, and a host that had lost its reservation went on writing by it.
    #[test]
    fn a_window_that_takes_the_place_of_another_is_known_whoever_looks_meanwhile() {
        let mut books = Books::new(100);
        assert!(books.reserve(POOL, [1; 16], 40));
        let state = page(Phase::Stands);
        books.settle([1; 16], 40, Some((7, vec![vec![state.try_clone().unwrap()]])));
        assert!(books.reserve(POOL, [1; 16], 60));
        assert_eq!(books.log_of(POOL), (100, 60));
        state.write_all_at(&Phase::Ended.word().to_le_bytes(), PHASE_AT).unwrap();
        assert_eq!((books.standing(POOL), books.log_of(POOL)), (0, (100, 60)));
        books.forget([1; 16], 7);
        assert!(!books.reserve(POOL, [2; 16], 41), "room is set aside for it");
        books.settle([1; 16], 60, Some((8, vec![vec![page(Phase::Stands)]])));
        assert!(books.may_stand([1; 16], 8) && books.stands([1; 16], 8));
        assert_eq!((books.standing(POOL), books.log_of(POOL)), (1, (100, 60)));
    }

    #[test]
    fn a_window_keeps_its_own_bytes_where_no_other_takes_its_place() {
        let mut books = Books::new(100);
        assert!(books.reserve(POOL, [1; 16], 80));
        books.settle([1; 16], 80, Some((7, vec![vec![page(Phase::Stands)]])));
        assert!(books.reserve(POOL, [1; 16], 20));
        books.settle([1; 16], 20, None);
        assert!(books.may_stand([1; 16], 7));
        assert_eq!(books.log_of(POOL), (100, 80));
        assert!(!books.reserve(POOL, [2; 16], 21));
    }
}
