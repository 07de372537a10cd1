//! Goes through every state that a model can come to, breadth first: the first wrong one is found by one of the
//! shortest ways there are to any.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};

use stdx::num::{u32_of, usize32};

/// States of one exploration, at most: a model that got beyond has too much in it.
const STATES_MAX: usize = 2_000_000;

/// What was done, and by or to whom.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub what: &'static str,
    pub whose: u8,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.what, self.whose)
    }
}

/// A step from a state: to another, or to what must not be.
pub struct Edge<S, V> {
    pub step: Step,
    pub to: Result<S, V>,
}

/// What can be explored.
pub trait Model {
    type State: Hash;
    type Violation;

    fn initial(&self) -> Self::State;

    /// All steps that can be taken from a state.
    fn next(&self, from: &Self::State, edges: &mut Vec<Edge<Self::State, Self::Violation>>);
}

/// What must not be, and how it came to be.
pub struct Found<V> {
    pub violation: V,
    pub steps: Vec<Step>,
}

impl<V: fmt::Debug> fmt::Display for Found<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}:", self.violation)?;
        self.steps.iter().try_for_each(|step| writeln!(f, "  {step}"))
    }
}

/// What an exploration came by.
pub struct Explored<V> {
    pub states: usize,
    /// Every step that was taken somewhere.
    pub steps: BTreeSet<&'static str>,
    pub found: Option<Found<V>>,
}

/// Explores until something is wrong, or nothing is left. States are told apart by 64 bits of hash: of a million, two
/// are the same by chance once in tens of millions of explorations, and the hash is the same in each.
pub fn explore<M: Model>(model: &M) -> Explored<M::Violation> {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let initial = model.initial();
    let mut known = HashSet::from([hasher.hash_one(&initial)]);
    // Of each state: from which it was come to, and by which step.
    let mut ways = vec![(0, Step { what: "", whose: 0 })];
    let mut frontier = VecDeque::from([(0, initial)]);
    let mut steps = BTreeSet::new();
    let mut edges = Vec::new();
    while let Some((number, from)) = frontier.pop_front() {
        model.next(&from, &mut edges);
        for edge in edges.drain(..) {
            let _ = steps.insert(edge.step.what);
            match edge.to {
                Ok(to) if known.insert(hasher.hash_one(&to)) => {
                    frontier.push_back((u32_of(ways.len()), to));
                    ways.push((number, edge.step));
                    assert!(ways.len() < STATES_MAX, "too many states");
                }
                Ok(_) => {}
                Err(violation) => {
                    let steps_there = way_to(&ways, number, edge.step);
                    let found = Found { violation, steps: steps_there };
                    return Explored { states: ways.len(), steps, found: Some(found) };
                }
            }
        }
    }
    Explored { states: ways.len(), steps, found: None }
}

fn way_to(ways: &[(u32, Step)], mut number: u32, last: Step) -> Vec<Step> {
    let mut steps = vec![last];
    while number != 0 {
        let (from, step) = ways[usize32(number)];
        steps.push(step);
        number = from;
    }
    steps.reverse();
    steps
}
