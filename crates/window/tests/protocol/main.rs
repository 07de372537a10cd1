//! The protocol of `docs/anof.md`, explored: in all orders that the steps of its processes, and what they store, can
//! come in, with the end of any process anywhere, every write that was reported complete is in the log once, in order,
//! and seen by who comes later. Each of its rules is needed: without it something goes wrong.

mod checks;
mod explorer;
mod host;
mod memory;
mod model;
mod target;

use checks::Violation;
use explorer::explore;
use model::{Memory, Model, Rule};

const BBU: Model = Model {
    memory: Memory::Bbu,
    writes: [3, 0],
    copies: 1,
    commands: 1,
    crashes: 1,
    power_cuts: 0,
    looks_before_flush: false,
    left_out: None,
    only_outcomes: false,
};

const PMEM: Model = Model { memory: Memory::Pmem, crashes: 0, power_cuts: 1, ..BBU };

/// Nothing goes wrong, and these steps were among those taken: what is checked did happen.
fn holds(model: &Model, steps: &[&str]) {
    let explored = explore(model);
    println!("{} states", explored.states);
    if let Some(found) = explored.found {
        panic!("{found}");
    }
    for step in steps {
        assert!(explored.steps.contains(step), "never: {step}");
    }
}

#[test]
fn around_the_ring_with_the_target_killed_anywhere() {
    let steps = [
        "host stores with padding",
        "target sees padding",
        "host writes by command: no credit",
        "host's write is complete: the window stands",
        "host's write is complete: taken",
        "host writes by command: not taken",
        "target opens, and ends a window",
        "target takes at leisure",
    ];
    holds(&BBU, &steps);
}

#[test]
fn with_the_target_killed_again_while_it_opens() {
    holds(&Model { writes: [2, 0], commands: 2, crashes: 2, ..BBU }, &[]);
}

#[test]
fn with_another_window_while_the_first_host_is_on_its_way() {
    let steps = ["target grants another window", "host writes by command: not taken"];
    holds(&Model { writes: [1, 1], ..BBU }, &steps);
}

#[test]
fn with_a_power_cut_on_memory_that_keeps_what_is_seen() {
    holds(&Model { crashes: 0, power_cuts: 1, ..BBU }, &["power is cut"]);
}

#[test]
fn with_a_power_cut_on_memory_that_keeps_what_was_fenced() {
    holds(&Model { crashes: 1, ..PMEM }, &["power is cut", "host stores with padding"]);
}

/// RDMA FLUSH and the look are posted together: which of them is carried out first does not matter.
#[test]
fn with_a_power_cut_and_a_look_that_comes_before_the_flush() {
    let steps = [
        "power is cut",
        "host looks, and has not flushed",
        "host's write is complete: it is flushed, and the window stood",
        "host has flushed, and waits for the window's end",
        "host's write is complete: taken",
    ];
    let model = Model { looks_before_flush: true, ..PMEM };
    holds(&Model { writes: [2, 0], ..model }, &steps);
    is_needed(Rule::Flush, Model { only_outcomes: true, ..model }, Violation::Lost);
}

#[test]
fn with_two_copies_one_of_which_is_lost() {
    let steps = ["target loses a copy, and ends the window", "host's write is complete: taken"];
    holds(&Model { writes: [2, 0], copies: 2, ..BBU }, &steps);
    holds(&Model { writes: [2, 0], copies: 2, commands: 0, crashes: 1, ..PMEM }, &["power is cut"]);
}

/// Without the rule, the explorer comes to what must not be.
fn is_needed(rule: Rule, model: Model, expected: Violation) {
    let explored = explore(&Model { left_out: Some(rule), ..model });
    let found = explored.found.unwrap_or_else(|| panic!("nothing goes wrong without {rule:?}"));
    assert_eq!(found.violation, expected, "without {rule:?}: {found}");
}

/// What users see goes wrong.
#[test]
fn each_rule_is_needed() {
    let (bbu, pmem) =
        (|| Model { only_outcomes: true, ..BBU }, || Model { only_outcomes: true, ..PMEM });
    is_needed(Rule::FenceBeforeLook, bbu(), Violation::Lost);
    is_needed(Rule::Look, bbu(), Violation::Lost);
    is_needed(Rule::WaitForEnd, bbu(), Violation::DoneTwice);
    is_needed(Rule::TakeBeforeCommand, bbu(), Violation::Lost);
    is_needed(Rule::AppendBeforeTaken, bbu(), Violation::Lost);
    is_needed(Rule::AppendBeforeCredit, bbu(), Violation::Lost);
    is_needed(Rule::TakenBeforeCredit, bbu(), Violation::Lost);
    is_needed(Rule::TakenFenced, bbu(), Violation::TakenTwice);
    is_needed(Rule::PhaseBeforeTake, bbu(), Violation::Lost);
    is_needed(Rule::PhaseFenced, bbu(), Violation::Lost);
    is_needed(Rule::TakenBeforeEnded, bbu(), Violation::DoneTwice);
    is_needed(Rule::OpeningEnds, bbu(), Violation::Lost);
    is_needed(Rule::OpeningLeavesEnded, bbu(), Violation::DoneTwice);
    is_needed(Rule::OwnFiles, Model { writes: [1, 1], ..bbu() }, Violation::Lost);
    is_needed(Rule::EndedFenced, pmem(), Violation::DoneTwice);
    is_needed(Rule::OpeningTakesAll, pmem(), Violation::Lost);
    is_needed(Rule::HeaderKept, pmem(), Violation::OutOfOrder);
}

#[test]
fn each_rule_of_copies_is_needed() {
    let copies = |model| Model { copies: 2, writes: [2, 0], only_outcomes: true, ..model };
    is_needed(Rule::LookAtAllCopies, copies(BBU), Violation::Lost);
    is_needed(Rule::WaitForAllCopies, copies(BBU), Violation::DoneTwice);
    is_needed(Rule::TakenOfAnyCopy, copies(BBU), Violation::DoneTwice);
    is_needed(Rule::InAllCopies, copies(BBU), Violation::OutOfOrder);
    let thrice = Model { crashes: 1, commands: 0, ..copies(PMEM) };
    is_needed(Rule::OpeningBehindAllTaken, thrice, Violation::OutOfOrder);
}

/// Without these nobody's data goes wrong, for the checksum finds out, but a host that obeys is told not to.
#[test]
fn each_rule_is_needed_that_spares_a_host_the_blame() {
    is_needed(Rule::HeaderBehindData, BBU, Violation::Blamed);
    is_needed(Rule::LookAgain, BBU, Violation::Blamed);
}

/// A record's place is not stored to before an opening can do without it.
#[test]
fn credit_is_given_last() {
    is_needed(Rule::AppendBeforeCredit, BBU, Violation::Overwritten);
    is_needed(Rule::TakenBeforeCredit, BBU, Violation::Overwritten);
}
