//! `flashloom pool dump`: everything a pool's drives hold, checked and explained.

mod document;

use std::fmt::Write;

use api::value::Size;
use array::dump::{Asked, open};
use engine::dump::{Progress, Severity};
use indicatif::ProgressBar;

use crate::cli::{DumpArgs, Global, Output};
use crate::exit::{Exit, Failure, Outcome};
use crate::manage::whole;
use crate::output::{emit, facts, json, or_dash, table};
use crate::progress;
use api::value::LogPlace;
use document::Document;

/// `flashloom pool dump`
pub fn run(global: &Global, args: DumpArgs) -> Outcome {
    let (segments, records) = (args.segments, args.log_records);
    let asked = match args.name {
        Some(name) => Asked::Known { state_dir: global.state_dir(), name },
        None => Asked::Drives(args.drive.iter().map(|path| whole(path)).collect::<Outcome<_>>()?),
    };
    let log = args.log.into_iter().map(|place| {
        Ok(match place {
            LogPlace::Pmem(path) => LogPlace::Pmem(whole(&path)?),
            LogPlace::Bbu(path) => LogPlace::Bbu(whole(&path)?),
            LogPlace::Drives | LogPlace::Remote(_) => place,
        })
    });
    let mut held = open(asked, &log.collect::<Outcome<Vec<_>>>()?)?;
    (held.spec.data, held.spec.log_records) = (args.data, records);
    let bar = progress::bar(0, "{prefix:>28} [{bar:40}] {pos} of {len}");
    let shown = bar.clone();
    let looked = reactor::run(reactor::Config::default(), async move {
        engine::dump::dump(&held.spec, &mut |progress| show(&shown, progress)).await
    });
    bar.finish_and_clear();
    let report = looked.map_err(|error| Failure::new(Exit::Failed, error))?;
    let document = Document::of(&report, segments);
    match global.output {
        Output::Json => json(&document)?,
        Output::Table | Output::Csv => emit(&text(&document))?,
    }
    match report.count(Severity::Error) {
        0 => Ok(()),
        errors => Err(Failure::new(Exit::Failed, format!("{errors} errors found"))),
    }
}

fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_prefix(progress.stage);
    // How much there is may be known roughly only.
    bar.set_length(progress.of.max(progress.done));
    bar.set_position(progress.done);
}

fn text(document: &Document) -> String {
    let mut out = String::new();
    let mut part = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    if let Some(pool) = &document.pool {
        let row = |name: &str, value: String| (name.to_owned(), value);
        part(facts(pool_rows(pool, document).into_iter().map(|(n, v)| row(n, v))).to_string());
    }
    part(drive_table(document));
    if !document.volumes.is_empty() {
        part(volume_table(document));
    }
    if !document.segments.is_empty() {
        part(segment_table(document));
    }
    if document.shards.iter().any(|shard| !shard.log_records.is_empty()) {
        part(record_table(document));
    }
    for finding in &document.findings {
        let mut words = format!("{}: {}", finding.severity, finding.structure);
        if !finding.place.is_empty() {
            // Writing to a string does not fail.
            let _ = write!(words, ", {}", finding.place);
        }
        let _ = write!(words, "\n  {}", finding.what);
        if let Some(advice) = finding.advice {
            let _ = write!(words, "\n  -> {advice}");
        }
        part(words);
    }
    let summary = &document.summary;
    for (severity, count) in [("errors", summary.errors), ("warnings", summary.warnings)] {
        let told = document.findings.iter().filter(|f| severity.starts_with(f.severity)).count();
        let more = count.saturating_sub(stdx::num::u64_of(told));
        if more > 0 {
            part(format!("and {more} {severity} more"));
        }
    }
    for what in &document.not_checked {
        part(format!("not checked: {what}"));
    }
    part(format!(
        "{}: {} errors, {} warnings, {} notes; {} were read",
        match (summary.errors, summary.warnings) {
            (0, 0) => "clean",
            (0, _) => "nothing is lost, but not all is well",
            _ => "NOT CLEAN",
        },
        summary.errors,
        summary.warnings,
        summary.notes,
        Size::new(summary.bytes_read)
    ));
    out
}

fn pool_rows(pool: &document::Pool, document: &Document) -> Vec<(&'static str, String)> {
    let mut rows = vec![
        ("pool", pool.name.clone()),
        ("id", pool.id.clone()),
        ("state", format!("{}, epoch {}", pool.state, pool.epoch)),
        ("redundancy", format!("{}+{}", pool.data, pool.parity)),
        (
            "layout",
            format!(
                "{} shards, units of {}, allocation units of {}",
                pool.shards,
                Size::new(pool.unit_bytes),
                Size::new(pool.au_bytes)
            ),
        ),
        ("log", pool.log.to_owned()),
    ];
    for shard in &document.shards {
        rows.push((
            "shard",
            format!(
                "{}: checkpoint {} with the map up to stripe {}, {} stripes rolled forward",
                shard.shard, shard.generation, shard.cut, shard.rolled
            ),
        ));
        rows.push((
            "holds",
            format!(
                "{} of contents and {} of metadata in {} segments, {} in use no more",
                Size::new(shard.content_bytes),
                Size::new(shard.metadata_bytes),
                shard.segments,
                Size::new(shard.surplus_bytes)
            ),
        ));
        if let Some(log) = &shard.log {
            rows.push((
                "commit log",
                format!(
                    "{} records in {} of {}, {} of contents the drives need not have",
                    log.records,
                    Size::new(log.bytes),
                    Size::new(log.ring_bytes),
                    Size::new(log.content_bytes)
                ),
            ));
        }
    }
    rows
}

fn drive_table(document: &Document) -> String {
    let header = ["drive", "path", "state", "epoch", "units", "taken"];
    let mut table = table(&header, &[0, 3, 4, 5]);
    for drive in &document.drives {
        table.add_row([
            or_dash(drive.index),
            or_dash(drive.path.as_ref()),
            drive.state.to_owned(),
            or_dash(drive.epoch),
            drive.units.to_string(),
            drive.taken.to_string(),
        ]);
    }
    table.to_string()
}

fn volume_table(document: &Document) -> String {
    let mut table =
        table(&["volume", "group", "view", "size", "block", "used", "uuid"], &[2, 3, 4, 5]);
    for volume in &document.volumes {
        let deleted = if volume.deleted { " (deleted)" } else { "" };
        table.add_row([
            format!("{}{deleted}", volume.name),
            or_dash(volume.group.as_ref()),
            volume.view.to_string(),
            Size::new(volume.bytes).to_string(),
            volume.block_size.to_string(),
            Size::new(volume.used_bytes).to_string(),
            volume.id.clone(),
        ]);
    }
    table.to_string()
}

fn segment_table(document: &Document) -> String {
    let header =
        ["segment", "shard", "generation", "stream", "rolled", "counted", "in use", "members"];
    let mut table = table(&header, &[0, 1, 2, 4, 5, 6]);
    for segment in &document.segments {
        table.add_row([
            segment.number.to_string(),
            segment.shard.to_string(),
            segment.generation.to_string(),
            segment.stream.to_owned(),
            match segment.roll_from {
                Some(from) => format!("{} from {from} on", segment.rolled),
                None => "-".to_owned(),
            },
            segment.counted_blocks.to_string(),
            segment.used_blocks.to_string(),
            segment.members.join(" "),
        ]);
    }
    table.to_string()
}

fn record_table(document: &Document) -> String {
    let header = ["shard", "record", "position", "epoch", "what", "view", "block", "blocks"];
    let mut table = table(&header, &[0, 1, 2, 3, 5, 6, 7]);
    for shard in &document.shards {
        for record in &shard.log_records {
            table.add_row([
                shard.shard.to_string(),
                record.sequence.to_string(),
                record.position.to_string(),
                record.epoch.to_string(),
                record.what.to_owned(),
                or_dash(record.view),
                or_dash(record.block),
                or_dash(record.blocks),
            ]);
        }
    }
    table.to_string()
}
