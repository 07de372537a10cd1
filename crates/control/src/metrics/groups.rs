//! Groups of volumes.

use api::v1::Group;
use api::value::Size;

use super::{Labels, Text};

fn labels_of(group: &Group) -> Labels<'_> {
    vec![("pool", group.name.pool.as_str()), ("group", group.name.group.as_str())]
}

fn quota(of: &Group) -> Option<u64> {
    of.quota.map(Size::bytes)
}

fn quota_used(of: &Group) -> Option<u64> {
    of.quota_used.map(Size::bytes)
}

pub fn text(text: &mut Text, groups: &[Group]) {
    let name = "flashloom_group_volumes";
    text.family(name, "gauge", "Volumes of a group.");
    for group in groups {
        text.sample(name, &labels_of(group), group.volumes.len());
    }
    let quotas = [
        (
            "flashloom_group_quota_bytes",
            "Bytes that the volumes of a group and their snapshots may hold together.",
        ),
        (
            "flashloom_group_quota_used_bytes",
            "Bytes of its quota that the volumes of a group and their snapshots hold.",
        ),
    ];
    for ((name, help), value) in quotas.into_iter().zip([quota, quota_used]) {
        text.family(name, "gauge", help);
        for (group, bytes) in groups.iter().filter_map(|of| Some((of, value(of)?))) {
            text.sample(name, &labels_of(group), bytes);
        }
    }
    let name = "flashloom_group_last_snapshot_seconds";
    let help = "When the oldest was taken of the newest snapshots of a group's volumes, in seconds since 1970; left out while \
                one of them has none.";
    text.family(name, "gauge", help);
    for (group, last) in groups.iter().filter_map(|of| Some((of, of.last_snapshot_ms?))) {
        text.sample(name, &labels_of(group), last / 1000);
    }
}
