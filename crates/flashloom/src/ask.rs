//! `flashloom discover`, `id-ctrl`, `id-ns`: one question to a target.

use initiator::Remote;
use nvme::discovery::Entry;
use nvme::identify::{IdentifyController, IdentifyNamespace};
use nvme::nqn::DISCOVERY;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::cli::{AskArgs, DiscoverArgs, Global, IdNsArgs, Output};
use crate::exit::Outcome;
use crate::output::{emit, json as print_json, print, table};

fn controller_of(args: &AskArgs) -> Remote {
    args.to.remote(&args.subnqn)
}

/// `flashloom discover`
pub fn discover(global: &Global, args: &DiscoverArgs) -> Outcome {
    let log = initiator::discover(&args.to.remote(DISCOVERY))?;
    let document =
        Log { genctr: log.generation, records: log.entries.iter().map(Record::of).collect() };
    print(global.output, &document, |document| {
        let header = ["subsystem", "type", "transport", "address", "port", "portid", "cntlid"];
        let mut table = table(&header, &[4, 5, 6]);
        for record in &document.records {
            table.add_row([
                record.subnqn.clone(),
                record.subtype.to_owned(),
                record.trtype.to_owned(),
                record.traddr.clone(),
                record.trsvcid.clone(),
                record.portid.to_string(),
                record.cntlid.to_string(),
            ]);
        }
        table
    })
}

/// A discovery log, with nvme-cli's names.
#[derive(Serialize)]
struct Log {
    genctr: u64,
    records: Vec<Record>,
}

/// A record of it.
#[derive(Serialize)]
struct Record {
    trtype: &'static str,
    adrfam: &'static str,
    subtype: &'static str,
    portid: u16,
    cntlid: u16,
    trsvcid: String,
    subnqn: String,
    traddr: String,
    eflags: u16,
}

impl Record {
    fn of(entry: &Entry) -> Self {
        Self {
            trtype: match entry.trtype {
                1 => "rdma",
                2 => "fc",
                3 => "tcp",
                254 => "loop",
                _ => "unknown",
            },
            adrfam: match entry.adrfam {
                1 => "ipv4",
                2 => "ipv6",
                3 => "ib",
                4 => "fc",
                _ => "unknown",
            },
            subtype: match entry.subtype {
                1 => "discovery referral",
                2 => "nvme subsystem",
                3 => "current discovery subsystem",
                _ => "unknown",
            },
            portid: entry.portid.get(),
            cntlid: entry.cntlid.get(),
            trsvcid: entry.trsvcid(),
            subnqn: entry.subnqn(),
            traddr: entry.traddr(),
            eflags: entry.eflags.get(),
        }
    }
}

/// A field of an Identify structure: the specification's short name, its value, what it means.
struct Field(&'static str, Value, String);

/// `flashloom id-ctrl`
pub fn id_ctrl(global: &Global, args: &AskArgs) -> Outcome {
    let identity = initiator::identify_controller(&controller_of(args))?;
    show(global.output, &controller_fields(&identity))
}

/// `flashloom id-ns`
pub fn id_ns(global: &Global, args: &IdNsArgs) -> Outcome {
    let identity = initiator::identify_namespace(&controller_of(&args.ask), args.nsid)?;
    show(global.output, &namespace_fields(&identity))
}

fn show(format: Output, fields: &[Field]) -> Outcome {
    match format {
        Output::Json => {
            let pairs =
                fields.iter().map(|Field(name, value, _)| ((*name).to_owned(), value.clone()));
            print_json(&Value::Object(Map::from_iter(pairs)))
        }
        Output::Table | Output::Csv => {
            let mut table = table(&["field", "value", "meaning"], &[]);
            for Field(name, value, meaning) in fields {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                table.add_row([(*name).to_owned(), value, meaning.clone()]);
            }
            emit(&format!("{table}\n"))
        }
    }
}

/// A padded ASCII field.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim_end().to_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn controller_fields(id: &IdentifyController) -> Vec<Field> {
    let plain = |name, value: u64, meaning: &str| Field(name, value.into(), meaning.to_owned());
    let bits = |name, value: u64, meaning: &str| {
        Field(name, value.into(), format!("{value:#x}: {meaning}"))
    };
    let version = id.ver.get();
    let transfer = match id.mdts {
        0 => "largest transfer: no limit".to_owned(),
        shift => format!("largest transfer: {} KiB", 4_u64 << shift),
    };
    let kind = match id.cntrltype {
        1 => "I/O controller",
        2 => "discovery controller",
        3 => "administrative controller",
        _ => "controller type not reported",
    };
    vec![
        Field("subnqn", text(&id.subnqn).into(), "subsystem".into()),
        Field("sn", text(&id.sn).into(), "serial number".into()),
        Field("mn", text(&id.mn).into(), "model number".into()),
        Field("fr", text(&id.fr).into(), "firmware revision".into()),
        plain("cntlid", id.cntlid.get().into(), "controller identifier"),
        plain("cntrltype", id.cntrltype.into(), kind),
        Field(
            "ver",
            version.into(),
            format!("NVMe {}.{}.{}", version >> 16, version >> 8 & 0xff, version & 0xff),
        ),
        Field("mdts", id.mdts.into(), transfer),
        bits("cmic", id.cmic.into(), "multiple ports, controllers, ANA"),
        bits("oaes", id.oaes.get().into(), "asynchronous events"),
        bits("ctratt", id.ctratt.get().into(), "controller attributes"),
        bits("oacs", id.oacs.get().into(), "optional admin commands"),
        bits("oncs", id.oncs.get().into(), "optional NVM commands"),
        bits("fuses", id.fuses.get().into(), "fused operations"),
        bits("vwc", id.vwc.into(), "volatile write cache"),
        bits("lpa", id.lpa.into(), "log page attributes"),
        bits("sgls", id.sgls.get().into(), "SGL support"),
        plain("nn", id.nn.get().into(), "highest NSID"),
        plain("mnan", id.mnan.get().into(), "most namespaces allowed"),
        plain("aerl", id.aerl.into(), "asynchronous events outstanding, 0's based"),
        plain("acl", id.acl.into(), "aborts outstanding, 0's based"),
        plain("elpe", id.elpe.into(), "error log entries, 0's based"),
        plain("kas", id.kas.get().into(), "keep alive granularity, 100 ms"),
        plain("maxcmd", id.maxcmd.get().into(), "commands outstanding on a queue"),
        plain("awun", id.awun.get().into(), "atomic write unit, blocks, 0's based"),
        plain("awupf", id.awupf.get().into(), "the same over power failure"),
        plain("acwu", id.acwu.get().into(), "atomic compare and write unit, 0's based"),
        plain("ioccsz", id.ioccsz.get().into(), "command capsule, 16 bytes"),
        plain("iorcsz", id.iorcsz.get().into(), "response capsule, 16 bytes"),
        plain("icdoff", id.icdoff.get().into(), "in-capsule data offset, 16 bytes"),
        bits("fcatt", id.fcatt.into(), "fabrics controller attributes"),
        plain("msdbd", id.msdbd.into(), "SGL data block descriptors"),
        bits("ofcs", id.ofcs.get().into(), "optional fabrics commands"),
    ]
}

fn namespace_fields(id: &IdentifyNamespace) -> Vec<Field> {
    let plain = |name, value: u64, meaning: &str| Field(name, value.into(), meaning.to_owned());
    let bits = |name, value: u64, meaning: &str| {
        Field(name, value.into(), format!("{value:#x}: {meaning}"))
    };
    let format = usize::from(id.flbas & 0xf);
    let block = id.lbaf.get(format).map_or(0, |format| 1_u64 << format.lbads.min(63));
    let size = api::value::Size::new(id.nsze.get().saturating_mul(block));
    vec![
        Field("nsze", id.nsze.get().into(), format!("size in blocks: {size}")),
        plain("ncap", id.ncap.get(), "capacity in blocks"),
        plain("nuse", id.nuse.get(), "blocks in use"),
        Field("flbas", id.flbas.into(), format!("format {format}: blocks of {block} bytes")),
        plain("nlbaf", id.nlbaf.into(), "formats, 0's based"),
        bits("nsfeat", id.nsfeat.into(), "features"),
        bits("nmic", id.nmic.into(), "shared with other controllers"),
        bits("nsattr", id.nsattr.into(), "bit 0: write protected"),
        bits("rescap", id.rescap.into(), "reservations"),
        bits("dlfeat", id.dlfeat.into(), "what deallocated blocks read as"),
        plain("nawun", id.nawun.get().into(), "atomic write unit, blocks, 0's based"),
        plain("nawupf", id.nawupf.get().into(), "the same over power failure"),
        plain("nacwu", id.nacwu.get().into(), "atomic compare and write unit, 0's based"),
        plain("npwg", id.npwg.get().into(), "preferred write granularity, 0's based"),
        plain("npda", id.npda.get().into(), "preferred deallocate alignment, 0's based"),
        plain("mssrl", id.mssrl.get().into(), "blocks of one copy source range"),
        plain("mcl", id.mcl.get().into(), "blocks of one copy"),
        plain("msrc", id.msrc.into(), "copy source ranges, 0's based"),
        Field("nguid", hex(&id.nguid).into(), "globally unique identifier".into()),
        Field("eui64", hex(&id.eui64).into(), "IEEE extended unique identifier".into()),
    ]
}
