//! How the node is: series that are there whatever is not.

use api::v1::{Finding, Health, Job, JobState, NodeHealth, Status};

use super::{Text, u64_of};

/// As it is written: 0 is as it should be.
const fn level(health: Health) -> u8 {
    match health {
        Health::Ok => 0,
        Health::Degraded => 1,
        Health::Failed => 2,
    }
}

pub fn text(text: &mut Text, status: &Status, node: &NodeHealth, jobs: &[Job]) {
    let name = "flashloom_health";
    text.family(name, "gauge", "How the node is: 0 ok, 1 degraded, 2 failed.");
    text.sample(name, &vec![], level(node.health));
    let name = "flashloom_findings";
    text.family(name, "gauge", "What needs to be looked at, by how bad it is.");
    for health in [Health::Degraded, Health::Failed] {
        let is = |finding: &&Finding| finding.health == health;
        let count = node.findings.iter().filter(is).count();
        text.sample(name, &vec![("health", health.name())], count);
    }
    let name = "flashloom_pool_health";
    text.family(name, "gauge", "How a pool is, open or not: 0 ok, 1 degraded, 2 failed.");
    for (pool, report) in &status.pools {
        text.sample(name, &vec![("pool", pool.as_str())], level(report.health));
    }
    let name = "flashloom_hosts_with_fewer_paths";
    text.family(name, "gauge", "Hosts with fewer paths to a subsystem than they had.");
    let fewer = node.findings.iter().filter(|finding| finding.subject.starts_with("host "));
    text.sample(name, &vec![], fewer.count());
    let name = "flashloom_jobs";
    text.family(name, "gauge", "Jobs that are kept, by state.");
    for state in [
        JobState::Queued,
        JobState::Running,
        JobState::Done,
        JobState::Failed,
        JobState::Cancelled,
        JobState::Paused,
        JobState::Interrupted,
    ] {
        let count = jobs.iter().filter(|job| job.state == state).count();
        text.sample(name, &vec![("state", state.name())], u64_of(count));
    }
}
