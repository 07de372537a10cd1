//! The text format, word for word.

use api::v1::{Latency, NamespaceMetrics, Operation};

use super::*;

fn counters(operation: Operation, operations: u64) -> Counters {
    let latency = Latency {
        buckets: vec![
            Bucket { at_most_ns: 1_000, count: operations - 1 },
            Bucket { at_most_ns: 1_000_000, count: operations },
        ],
        sum_ns: operations * 1_500,
        count: operations,
    };
    Counters { operation, operations, bytes: operations * 4096, errors: 1, latency }
}

#[test]
fn a_subsystem_is_the_sum_of_its_namespaces() {
    let namespace = |nsid, operations| NamespaceMetrics {
        subsystem: "nqn.2026-11.io.flashloom:a".into(),
        nsid,
        outstanding: 3,
        counters: vec![counters(Operation::Read, operations)],
    };
    let metrics =
        Metrics { namespaces: vec![namespace(1, 10), namespace(2, 5)], ..Metrics::default() };
    let mut text = Text(String::new());
    subsystems(&mut text, &metrics);
    let labels = "subsystem=\"nqn.2026-11.io.flashloom:a\"";
    for line in [
        format!("flashloom_subsystem_queue_depth{{{labels}}} 6"),
        format!("flashloom_subsystem_operations_total{{{labels},operation=\"read\"}} 15"),
        format!("flashloom_subsystem_bytes_total{{{labels},operation=\"read\"}} 61440"),
        format!("flashloom_subsystem_errors_total{{{labels},operation=\"read\"}} 2"),
        format!(
            "flashloom_subsystem_latency_seconds_bucket{{{labels},operation=\"read\",le=\"0.000001\"}} 13"
        ),
        format!(
            "flashloom_subsystem_latency_seconds_bucket{{{labels},operation=\"read\",le=\"+Inf\"}} 15"
        ),
        format!("flashloom_subsystem_latency_seconds_sum{{{labels},operation=\"read\"}} 0.0000225"),
        format!("flashloom_subsystem_latency_seconds_count{{{labels},operation=\"read\"}} 15"),
    ] {
        assert!(text.0.lines().any(|other| other == line), "{line}\n---\n{}", text.0);
    }
}

#[test]
fn refused_connects_are_counted_by_reason() {
    let mut text = Text(String::new());
    let counted = |reason: &str, count| RefusedConnects { reason: reason.into(), count };
    refused(&mut text, &[counted("busy", 2), counted("no_subsystem", 0)]);
    for line in [
        "flashloom_connects_refused_total{reason=\"busy\"} 2",
        "flashloom_connects_refused_total{reason=\"no_subsystem\"} 0",
    ] {
        assert!(text.0.lines().any(|other| other == line), "{line}\n---\n{}", text.0);
    }
}

#[test]
fn what_hosts_share_is_told_of_each_reactor() {
    let budget = BudgetMetrics { name: "queue_entries".into(), used: 256, limit: 4096, missed: 3 };
    let reactor = ReactorMetrics {
        id: 1,
        answers: true,
        busy: 0.0,
        busy_seconds: 0.0,
        turns: 0,
        sleeps: 0,
        tasks: 0,
        connections: 0,
        outstanding: 0,
        counters: Vec::new(),
        budgets: vec![budget],
    };
    let mut text = Text(String::new());
    reactors(&mut text, &[reactor]);
    for line in [
        "flashloom_budget_used{reactor=\"1\",what=\"queue_entries\"} 256",
        "flashloom_budget_limit{reactor=\"1\",what=\"queue_entries\"} 4096",
        "flashloom_budget_missed_total{reactor=\"1\",what=\"queue_entries\"} 3",
    ] {
        assert!(text.0.lines().any(|other| other == line), "{line}\n---\n{}", text.0);
    }
}

#[test]
fn seconds_are_exact() {
    assert_eq!(seconds(0), "0");
    assert_eq!(seconds(1), "0.000000001");
    assert_eq!(seconds(2_500_000_000), "2.5");
}

#[test]
fn label_values_are_escaped() {
    let mut text = Text(String::new());
    text.sample("m", &vec![("l", "a\"b\\c\nd")], 1);
    assert_eq!(text.0, "m{l=\"a\\\"b\\\\c\\nd\"} 1\n");
}
