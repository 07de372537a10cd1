//! Stripes: their headers, and with `data` their contents and parity.

use std::collections::BTreeMap;

use stdx::num::{u32_of, u64_of, usize32};

use super::blocks::{locate, placed};
use super::checkpoint::{Checkpoint, Segment};
use super::live::{Live, Sum};
use super::report::{Finding, Structure};
use super::{Look, advice};
use crate::address::{BLOCK, Entry, Key, Location, SegmentId, SharedBlockId, View};
use crate::recover::Since;
use crate::segment::{Owner, SegmentInfo, StripeFaults, StripeHeader};
use reactor::join_all;

/// Headers read at once.
const AT_ONCE: usize = 16;

/// What became of a header.
enum Header {
    Whole(StripeHeader),
    /// It came out of the rest of its stripe, because of this.
    Rebuilt(StripeHeader, String),
    /// There is none that counts.
    None(String),
}

impl Header {
    const fn get(&self) -> Option<&StripeHeader> {
        match self {
            Self::Whole(header) | Self::Rebuilt(header, _) => Some(header),
            Self::None(_) => None,
        }
    }
}

async fn read_header(look: &Look<'_>, info: &SegmentInfo, stripe: u32) -> Header {
    let (drive, offset) = locate(look, info, info.geometry.stripe_slot(stripe));
    let blocks = usize32(info.header_blocks());
    look.count_blocks(blocks);
    let pool = reactor::buffer::pool();
    let why = match look.set.read(drive, offset, blocks * BLOCK, pool).await {
        Ok(bytes) => match StripeHeader::read(&bytes, look.label.pool, info.geometry) {
            Ok(header) if info.has_header(&header, stripe) => return Header::Whole(header),
            Ok(_) => "what lies there is of an earlier life of the space".to_owned(),
            Err(bad) => bad.to_string(),
        },
        Err(error) => error.to_string(),
    };
    match look.segments.read_header(info, stripe).await {
        Ok(Some(header)) => Header::Rebuilt(header, why),
        Ok(None) => Header::None(why),
        Err(error) => Header::None(error.to_string()),
    }
}

/// Tells that a header had to be reconstructed, unless its drive is known to be lost.
fn tell_rebuilt(look: &Look<'_>, info: &SegmentInfo, stripe: u32, why: &str) {
    let slot = info.geometry.stripe_slot(stripe);
    if look.set.is_online(locate(look, info, slot).0) {
        let what = format!("it had to be reconstructed: {why}");
        let finding = Finding::warning(Structure::StripeHeader, what).shard(info.shard);
        look.add(placed(look, finding.advise(advice::REPAIRS), info, slot));
    }
}

/// Finds the stripes that were written after the checkpoint and count, in their order: none when the
/// log is not at hand, which tells those that are whole from those that power failed in.
pub(super) async fn roll(
    look: &Look<'_>,
    found: &mut Checkpoint,
    durable: Option<u64>,
) -> Vec<StripeHeader> {
    let mut headers = Vec::new();
    let Some(durable) = durable else { return headers };
    let cut = found.cut;
    look.begin("stripes since the checkpoint", u64_of(found.table.len()));
    let mut since = Since::new();
    for segment in found.table.values() {
        look.advance(1);
        let Some(from) = segment.roll_from else { continue };
        for stripe in from..segment.info.geometry.stripes() {
            let header = read_header(look, &segment.info, stripe).await;
            let counts = |header: &&StripeHeader| header.sequence <= durable;
            let Some(sequence) = header.get().filter(counts).map(|h| h.sequence) else { break };
            since.add(segment.info.generation, sequence, (segment.info.id, stripe, header));
        }
    }
    for (id, stripe, header) in since.counting().into_values() {
        let (Some(segment), Some(whole)) = (found.table.get_mut(&id), header.get()) else {
            continue;
        };
        if let Header::Rebuilt(_, why) = &header {
            tell_rebuilt(look, &segment.info, stripe, why);
        }
        segment.rolled += 1;
        if whole.sequence > cut {
            segment.rolled_blocks += whole.blocks();
            headers.push(whole.clone());
        }
    }
    let gapless = (cut.saturating_add(1)..).zip(&headers);
    let whole = gapless.take_while(|(sequence, header)| *sequence == header.sequence).count();
    let reached = cut.saturating_add(u64_of(whole));
    if whole < headers.len() || reached < durable {
        let next = reached.saturating_add(1);
        let what = format!("stripe {next} is missing, and those up to {durable} were durable");
        let finding = Finding::error(Structure::StripeHeader, what).shard(found.shard);
        look.add(finding.advise(
            "what these stripes held is lost with them: restore what was written last from a \
             backup",
        ));
    }
    headers.truncate(whole);
    headers
}

/// A stripe whose header does not say what the map does.
pub(super) struct Disagreement {
    /// By slot, as the header says.
    says: BTreeMap<u32, (Key, u32)>,
    pub wrong: usize,
    pub first: Option<String>,
}

impl Disagreement {
    /// What the header has at a place.
    pub fn of(&self, at: Location) -> Option<(Key, u32)> {
        self.says.get(&at.slot()).copied()
    }
}

/// Stripes to be looked at again.
pub(super) type Doubtful = BTreeMap<(SegmentId, u32), Disagreement>;

/// What a header says of each block, in slot order.
fn blocks(header: &StripeHeader) -> impl Iterator<Item = (Key, Entry)> {
    let contents = header.placed().filter_map(|record| match record.owner {
        Owner::Write { key } | Owner::Move { key, .. } => Some((key, record)),
        _ => None,
    });
    contents.flat_map(|(key, record)| {
        (0..u32_of(record.crcs.len())).map(move |n| {
            let key = Key { view: key.view, block: key.block + u64::from(n) };
            let entry = Entry { location: record.location.offset(n), crc: record.crcs[usize32(n)] };
            (key, entry)
        })
    })
}

/// Checks every stripe that holds something in use.
pub(super) async fn check(look: &Look<'_>, found: &Checkpoint, live: &Live) -> Doubtful {
    let mut doubtful = Doubtful::new();
    let stripes = |segment: &Segment| {
        let mut stripes = live.stripes(segment.info.id);
        if let Some(from) = segment.roll_from {
            stripes.extend(from..from.saturating_add(segment.rolled));
        }
        stripes.sort_unstable();
        stripes.dedup();
        stripes
    };
    let all: usize = found.table.values().map(|segment| stripes(segment).len()).sum();
    look.begin(if look.spec.data { "contents" } else { "stripes" }, u64_of(all));
    for segment in found.table.values() {
        let info = &segment.info;
        for some in stripes(segment).chunks(AT_ONCE) {
            let headers = join_all(some.iter().map(|stripe| read_header(look, info, *stripe)));
            for (stripe, header) in some.iter().zip(headers.await) {
                let sum = live.stripe(info.id, *stripe);
                check_header(look, segment, *stripe, &header, sum, live, &mut doubtful);
                if look.spec.data {
                    verify(look, info, *stripe, live).await;
                }
            }
            look.advance(u64_of(some.len()));
        }
    }
    doubtful
}

fn check_header(
    look: &Look<'_>,
    segment: &Segment,
    stripe: u32,
    header: &Header,
    sum: Sum,
    live: &Live,
    doubtful: &mut Doubtful,
) {
    let info = &segment.info;
    let header = match header {
        Header::Whole(header) => header,
        Header::Rebuilt(header, why) => {
            // Those rolled forward were told of.
            if segment.roll_from.is_none_or(|from| stripe < from) {
                tell_rebuilt(look, info, stripe, why);
            }
            header
        }
        Header::None(why) => {
            let what =
                format!("it is lost, and {} blocks of its stripe are in use: {why}", sum.blocks);
            let finding = Finding::error(Structure::StripeHeader, what).shard(info.shard);
            let finding = finding.advise(
                "blocks that can still be read keep their own checksums: copy the volumes away, \
                 and make the pool anew",
            );
            let slot = info.geometry.stripe_slot(stripe);
            return look.add(placed(look, finding, info, slot));
        }
    };
    let mut said = Sum::default();
    for (key, at) in blocks(header).filter(|(_, at)| live.has(at.location)) {
        // One that was shared where it lies has its name for a key since.
        let name = SharedBlockId::of(at.location);
        said.add(if live.is_born(name) { name.key() } else { key }, at);
    }
    if said != sum || header.shard != info.shard {
        let says = blocks(header).map(|(key, at)| (at.location.slot(), (key, at.crc)));
        let disagreement = Disagreement { says: says.collect(), wrong: 0, first: None };
        doubtful.insert((info.id, stripe), disagreement);
    }
}

/// Reads all of a stripe.
async fn verify(look: &Look<'_>, info: &SegmentInfo, stripe: u32, live: &Live) {
    look.count_blocks(info.geometry.width() * usize32(info.geometry.unit_blocks()));
    // A header that is lost was told of.
    let Ok(Some((header, faults))) = look.segments.verify(info, stripe).await else { return };
    if faults.is_none() {
        return;
    }
    let tell_unit = |unit: usize, structure: Structure, what: String| {
        let member = info.member(stripe, unit);
        if look.set.is_online(member.drive) {
            let offset =
                look.set.offset(member.drive, member.au, info.geometry.member_block(stripe, 0));
            let finding = Finding::warning(structure, what).on(look.name(member.drive)).at(offset);
            let finding = finding.shard(info.shard).segment(info.id.get()).stripe(stripe);
            look.add(finding.advise(advice::REPAIRS));
        }
    };
    for unit in &faults.unreadable {
        let structure =
            if *unit < info.geometry.data() { Structure::Data } else { Structure::Parity };
        tell_unit(*unit, structure, "a part of the drive cannot be read".to_owned());
    }
    verify_blocks(look, info, &header, &faults, live).await;
    tell_parity(look, info, stripe, &faults);
}

/// Tells of blocks that are damaged, and which of them are lost.
async fn verify_blocks(
    look: &Look<'_>,
    info: &SegmentInfo,
    header: &StripeHeader,
    faults: &StripeFaults,
    live: &Live,
) {
    let mut out = vec![0; BLOCK];
    for (key, at) in blocks(header) {
        let slot = at.location.slot();
        let unit = usize32(info.geometry.place(slot).unit);
        let wrong = faults.wrong.binary_search(&slot).is_ok();
        let in_use = live.has(at.location);
        let unreadable = in_use && faults.unreadable.contains(&unit);
        if !(wrong || unreadable) {
            continue;
        }
        let whose = match (in_use, key.view) {
            (false, _) => "a block that is in use no more".to_owned(),
            (true, View::METADATA) => "a block of metadata".to_owned(),
            (true, _) => look.block(key),
        };
        let read = look.segments.read(info, slot, &[at.crc], &mut out).await;
        let finding = match read {
            // That its drive is lost, or a part of it, was told.
            Ok(()) if !wrong => continue,
            Ok(()) => Finding::warning(Structure::Data, format!("{whose} is damaged"))
                .advise(advice::REPAIRS),
            Err(error) if in_use => {
                let what = format!("{whose} is lost: {error}");
                Finding::error(Structure::Data, what).advise(advice::RESTORE)
            }
            Err(_) => Finding::note(Structure::Data, format!("{whose} is lost")),
        };
        look.add(placed(look, finding.shard(info.shard), info, slot));
    }
    for slot in &faults.not_blank {
        let what = "a block that was never used is not blank";
        let finding = Finding::warning(Structure::Data, what).shard(info.shard);
        look.add(placed(look, finding.advise(advice::REPAIRS), info, *slot));
    }
}

/// Tells of parity that is wrong although what it protects is not.
fn tell_parity(look: &Look<'_>, info: &SegmentInfo, stripe: u32, faults: &StripeFaults) {
    let row_of = |slot: &u32| info.geometry.place(*slot).block;
    let known: Vec<u32> = faults.wrong.iter().chain(&faults.not_blank).map(row_of).collect();
    let rows: Vec<u32> = faults.parity.iter().filter(|row| !known.contains(row)).copied().collect();
    let Some(first) = rows.first() else { return };
    let unit = info.geometry.data();
    let member = info.member(stripe, unit);
    let offset =
        look.set.offset(member.drive, member.au, info.geometry.member_block(stripe, *first));
    let what = format!(
        "the parity of {} rows does not belong to their contents, which are whole",
        rows.len()
    );
    let finding = Finding::warning(Structure::Parity, what)
        .on(look.name(member.drive))
        .at(offset)
        .shard(info.shard)
        .segment(info.id.get())
        .stripe(stripe);
    look.add(finding.advise(
        "nothing is lost, but a drive that fails now takes these rows with it: copy the volumes \
         named in this stripe, or write them anew",
    ));
}
