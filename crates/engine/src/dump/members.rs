//! What allocation units say of themselves.

use super::Look;
use super::checkpoint::{Checkpoint, Segment};
use super::live::Live;
use super::report::{Finding, Structure};
use crate::address::BLOCK;
use crate::format::Bad;
use crate::format::member::MemberHeader;
use reactor::join_all;
use stdx::num::u64_of;

/// Checks the header of every allocation unit whose segment holds something.
pub(super) async fn check(look: &Look<'_>, found: &Checkpoint, live: &Live) {
    let used = |segment: &&Segment| segment.rolled > 0 || live.blocks_of(segment.info.id) > 0;
    look.begin("member headers", u64_of(found.table.len()));
    for segment in found.table.values().filter(used) {
        let columns = MemberHeader::columns(&segment.info);
        join_all(columns.map(|(column, _)| check_one(look, segment, column))).await;
        look.advance(1);
    }
}

async fn check_one(look: &Look<'_>, segment: &Segment, column: u8) {
    let info = &segment.info;
    let member = info.members[usize::from(column)];
    if !look.set.is_online(member.drive) {
        return;
    }
    look.count_blocks(1);
    let offset = look.set.header_offset(member.drive, member.au);
    let read = look.set.read(member.drive, offset, BLOCK, reactor::buffer::pool()).await;
    let what = match read {
        Err(error) => format!("it cannot be read: {error}"),
        Ok(block) => match MemberHeader::read(&block, look.label.pool) {
            Err(Bad::Blank) => "there is none".to_owned(),
            Err(bad) => bad.to_string(),
            Ok(header) => {
                let says = &header.segment;
                let same = (says.id, says.generation, says.shard, &says.members)
                    == (info.id, info.generation, info.shard, &info.members);
                if same && header.column == column && says.geometry == info.geometry {
                    return;
                }
                format!(
                    "it says column {} of segment {}, generation {}; it is column {column} of \
                     generation {}",
                    header.column,
                    says.id.get(),
                    says.generation,
                    info.generation
                )
            }
        },
    };
    let finding = Finding::warning(Structure::MemberHeader, what)
        .on(look.name(member.drive))
        .at(offset)
        .shard(info.shard)
        .segment(info.id.get());
    look.add(finding.advise(
        "nothing is lost: opening does not need it; it tells units apart whose drives were mixed up",
    ));
}
