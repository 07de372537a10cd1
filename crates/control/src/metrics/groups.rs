//! Groups of volumes.

use api::v1::Group;

use super::{Labels, Text};

fn labels_of(group: &Group) -> Labels<'_> {
    vec![("pool", group.name.pool.as_str()), ("group", group.name.group.as_str())]
}

pub fn text(text: &mut Text, groups: &[Group]) {
    let name = "flashloom_group_volumes";
    text.family(name, "gauge", "Volumes of a group.");
    for group in groups {
        text.sample(name, &labels_of(group), group.volumes.len());
    }
    let name = "flashloom_group_last_snapshot_seconds";
    let help = "When the oldest was taken of the newest snapshots of a group's volumes, in seconds since 1970; left out while \
                one of them has none.";
    text.family(name, "gauge", help);
    for (group, last) in groups.iter().filter_map(|of| Some((of, of.last_snapshot_ms?))) {
        text.sample(name, &labels_of(group), last / 1000);
    }
}
