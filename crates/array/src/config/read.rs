//! From the file's tables to what they mean; all faults are gathered before giving up.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use api::v1::PollPolicy;
use api::value::{Address, Advertise, AnaState, Backend, Nqn, Refused, Size};
use media::drive::{DEADLINE, Deadline, SPACE_DEADLINES, TRANSFER_DEADLINES};
use stdx::num::{u64_of, usize64};
use target::limits::{ADDRESS_CONTROLLERS_MAX, QUEUE_ENTRIES_MAX};
use toml::Spanned;
use uuid::Uuid;

use super::document::{Document, Drives, Listener, Metrics, Namespace, Node, Serving, Subsystem};
use super::{Bounds, Config, Fault, Faults, Settings, group};
use crate::cpus;
use crate::desired::{self, Desired, ListenerDef, NamespaceDef, SubsystemDef};
use crate::limits::{
    CONNECTIONS, CONNECTIONS_LEAST, DAY, QUEUE_ENTRIES_LEAST, REBUILD_AFTER, REBUILD_SECONDS_MAX,
    SCRUB_DAYS_MAX, SCRUB_EVERY, WAIT_FOR_DRIVES, WINDOW_BYTES, WINDOW_BYTES_BOUNDS,
};
use crate::space::Thresholds;

/// Longest time that an adaptive reactor may spin for: past a second it is `busy`.
const SPIN_US_MAX: u64 = 1_000_000;

/// Longest time that drives may be waited for: past a day nobody waits.
const WAIT_SECONDS_MAX: u64 = 86_400;

pub(super) fn read(path: &Path, text: &str) -> Result<Config, Faults> {
    let mut reader = Reader {
        text,
        faults: Vec::new(),
        passing: Vec::new(),
        drives: BTreeSet::new(),
        of_pools: BTreeSet::new(),
        uuids: BTreeSet::new(),
    };
    let config = match toml::from_str::<Document>(text) {
        Ok(document) => reader.config(&document),
        Err(error) => {
            reader.syntax(&error);
            Config::default()
        }
    };
    if reader.faults.is_empty() {
        return Ok(config);
    }
    let mut faults = reader.faults;
    faults.sort_by_key(|fault| (fault.line, fault.column));
    Err(Faults { file: path.to_owned(), faults })
}

struct Reader<'t> {
    text: &'t str,
    faults: Vec<Fault>,
    /// Those that may pass.
    passing: Vec<Fault>,
    /// Drives that namespaces are on, over all subsystems.
    drives: BTreeSet<PathBuf>,
    /// Volumes that namespaces are, over all subsystems.
    of_pools: BTreeSet<Backend>,
    /// Those that are given, over all subsystems.
    uuids: BTreeSet<Uuid>,
}

impl Reader<'_> {
    fn refuse(&mut self, span: Range<usize>, refused: Refused) {
        self.faults.push(Fault::at(self.text, span, refused));
    }

    /// A fault that the TOML reader found: syntax, a type, a missing or unknown key.
    fn syntax(&mut self, error: &toml::de::Error) {
        let message = error.message().trim().replace('\n', ", ");
        let span = error.span().unwrap_or(0..0);
        let right = match (message.strip_prefix("unknown field "), message.strip_prefix("missing"))
        {
            (Some(_), _) => closest_of(&message),
            (_, Some(_)) => "add it to this table".to_owned(),
            _ => "`flashloom serve --help` shows an example".to_owned(),
        };
        self.refuse(span, Refused::new(message, right));
    }

    /// Reads text that has a syntax of its own.
    fn value<T: FromStr<Err = Refused>>(&mut self, text: &Spanned<String>) -> Option<T> {
        let result = text.get_ref().parse();
        self.checked(text, result)
    }

    fn checked<S, T>(&mut self, place: &Spanned<S>, result: Result<T, Refused>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(refused) => {
                self.refuse(place.span(), refused);
                None
            }
        }
    }

    fn config(&mut self, document: &Document) -> Config {
        let settings = self.settings(document);
        let mut desired = Desired::default();
        for listener in document.listener.iter().flatten() {
            self.listener(listener, &mut desired);
        }
        for subsystem in document.subsystem.iter().flatten() {
            self.subsystem(subsystem, &mut desired.subsystems);
        }
        for referral in &document.referral {
            desired.referrals.extend(self.value::<Address>(&referral.address));
        }
        if let Err(refused) = desired.check() {
            self.refuse(0..0, refused);
        }
        Config {
            settings,
            desired,
            passing: std::mem::take(&mut self.passing),
            has_listeners: document.listener.is_some(),
            has_subsystems: document.subsystem.is_some(),
        }
    }

    fn settings(&mut self, document: &Document) -> Settings {
        let node = &document.node;
        let cpus = node.cpus.as_ref().and_then(|text| {
            let cpus = cpus::parse(text.get_ref());
            let cpus = cpus.and_then(|cpus| cpus::check_online(&cpus).map(|()| cpus));
            self.checked(text, cpus)
        });
        let poll = node.poll.as_ref().and_then(|text| {
            let policy = poll_policy(text.get_ref());
            self.checked(text, policy)
        });
        let spin = node.spin_us.as_ref().and_then(|spin| {
            let within = Some(*spin.get_ref()).filter(|us| *us <= SPIN_US_MAX).ok_or_else(|| {
                Refused::new(
                    format!("{} microseconds is too long to spin", spin.get_ref()),
                    format!("choose at most {SPIN_US_MAX}, or poll = \"busy\""),
                )
            });
            self.checked(spin, within).map(Duration::from_micros)
        });
        let (cpus, poll) = (cpus.unwrap_or_default(), poll.unwrap_or_default());
        let keeps_free_space = node.pool_discard == Some(false);
        let drive_folders =
            node.drive_folders.iter().filter_map(|folder| self.folder(folder)).collect();
        Settings {
            cpus,
            poll,
            spin,
            space: self.space(node),
            wait_for_drives: self.wait_for_drives(node),
            rebuild_after: self.rebuild_after(node),
            scrub_every: self.scrub_every(node),
            drive_folders,
            keeps_free_space,
            strict_host_names: node.strict_host_names,
            socket_group: self.socket_group(node),
            bounds: self.bounds(&document.serving),
            deadline: self.deadline(&document.drives),
            metrics: self.metrics(&document.metrics),
            windows: self.windows(node),
            window_bytes: self.window_bytes(node),
        }
    }

    /// Whether hosts of this machine are granted direct write windows.
    fn windows(&mut self, node: &Node) -> bool {
        let Some(text) = &node.windows else { return true };
        let is_on = match text.get_ref().as_str() {
            "auto" => Ok(true),
            "off" => Ok(false),
            other => {
                let wrong = format!("\"{other}\" says not whether there are direct write windows");
                Err(Refused::new(wrong, "write \"auto\" or \"off\""))
            }
        };
        self.checked(text, is_on).unwrap_or(true)
    }

    /// Bytes of rings that each pool gives for them.
    fn window_bytes(&mut self, node: &Node) -> u64 {
        let Some(text) = &node.window_bytes else { return WINDOW_BYTES };
        let size = text.get_ref().parse::<Size>().and_then(|size| {
            let fits = WINDOW_BYTES_BOUNDS.contains(&size.bytes());
            fits.then_some(size.bytes()).ok_or_else(|| {
                let (least, most) = (WINDOW_BYTES_BOUNDS.start(), WINDOW_BYTES_BOUNDS.end());
                let right = format!("choose {} to {}", Size::new(*least), Size::new(*most));
                Refused::new(format!("{size} of rings for direct write windows"), right)
            })
        });
        self.checked(text, size).unwrap_or(WINDOW_BYTES)
    }

    /// A number within what is sane.
    fn within(
        &mut self,
        asked: Option<&Spanned<u64>>,
        range: RangeInclusive<u64>,
        what: &str,
    ) -> Option<u64> {
        let asked = asked?;
        let value = *asked.get_ref();
        let within = Some(value).filter(|value| range.contains(value)).ok_or_else(|| {
            let right = format!("choose {} to {}", range.start(), range.end());
            Refused::new(format!("{value} {what}"), right)
        });
        self.checked(asked, within)
    }

    fn bounds(&mut self, serving: &Serving) -> Bounds {
        let mut bounds = Bounds::default();
        let mut take = |asked: &Option<Spanned<u64>>, (least, most), what, place: &mut usize| {
            let range = u64_of(least)..=u64_of(most);
            *place = self.within(asked.as_ref(), range, what).map_or(*place, usize64);
        };
        let connections = (CONNECTIONS_LEAST, CONNECTIONS);
        take(&serving.connections, connections, "connections", &mut bounds.connections);
        let (asked, most) = (&serving.host_controllers, ADDRESS_CONTROLLERS_MAX);
        take(asked, (1, most), "controllers of a host", &mut bounds.host_controllers);
        let (asked, range) = (&serving.queue_entries, (QUEUE_ENTRIES_LEAST, QUEUE_ENTRIES_MAX));
        take(asked, range, "entries of queues", &mut bounds.queue_entries);
        bounds
    }

    /// Who may use the management socket beside its owner. A directory service that is away may come: that keeps nobody
    /// from serving hosts.
    fn socket_group(&mut self, node: &Node) -> Option<u32> {
        let name = node.socket_group.as_ref()?;
        let refused = |why: String| {
            Refused::new(
                format!("the group `{}` {why}", name.get_ref()),
                "make it with `groupadd`, or name one that `getent group` shows",
            )
        };
        let found = match group::look_up(name.get_ref()) {
            Ok(Some(group)) => Ok(group),
            Ok(None) => Err(refused("does not exist on this machine".to_owned())),
            Err(error) => Err(refused(format!("cannot be looked up: {error}"))),
        };
        found.map_err(|fault| self.passing.push(Fault::at(self.text, name.span(), fault))).ok()
    }

    /// Where metrics are served: a port alone is on this machine's own address only.
    fn metrics(&mut self, metrics: &Metrics) -> Option<SocketAddr> {
        let text = metrics.listen.as_ref()?;
        let port = text.get_ref().parse().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let address = port.or_else(|_| text.get_ref().parse()).map_err(|_| {
            Refused::new(
                format!("\"{}\" is no address to serve metrics on", text.get_ref()),
                "write a port for this machine alone, or IP:PORT for who reaches that, such as \"9464\" or \
                 \"192.0.2.10:9464\"",
            )
        });
        self.checked(text, address)
    }

    fn deadline(&mut self, drives: &Drives) -> Deadline {
        let mut deadline = DEADLINE;
        let mut take = |asked: &Option<Spanned<u64>>, (least, most), place: &mut Duration| {
            let range = Duration::as_secs(&least)..=Duration::as_secs(&most);
            let seconds = self.within(asked.as_ref(), range, "seconds");
            *place = seconds.map_or(*place, Duration::from_secs);
        };
        take(&drives.answer_within, TRANSFER_DEADLINES, &mut deadline.transfer);
        take(&drives.space_within, SPACE_DEADLINES, &mut deadline.space);
        deadline
    }

    /// Seconds that pools which lack drives are waited for.
    fn wait_for_drives(&mut self, node: &Node) -> Duration {
        let Some(asked) = &node.wait_for_drives else { return WAIT_FOR_DRIVES };
        let seconds = *asked.get_ref();
        let within =
            Some(seconds).filter(|seconds| *seconds <= WAIT_SECONDS_MAX).ok_or_else(|| {
                let right = format!("choose at most {WAIT_SECONDS_MAX}");
                Refused::new(format!("{seconds} seconds is too long to wait for drives"), right)
            });
        self.checked(asked, within).map_or(WAIT_FOR_DRIVES, Duration::from_secs)
    }

    /// Seconds for which a drive is gone before it is rebuilt on the others; `None` for never by itself.
    fn rebuild_after(&mut self, node: &Node) -> Option<Duration> {
        let Some(asked) = &node.rebuild_after else { return Some(REBUILD_AFTER) };
        let seconds = *asked.get_ref();
        let within =
            Some(seconds).filter(|seconds| *seconds <= REBUILD_SECONDS_MAX).ok_or_else(|| {
                let right =
                    format!("choose at most {REBUILD_SECONDS_MAX}, or 0 for never by itself");
                Refused::new(format!("{seconds} seconds is too long for a drive to be gone"), right)
            });
        match self.checked(asked, within) {
            Some(0) => None,
            Some(seconds) => Some(Duration::from_secs(seconds)),
            None => Some(REBUILD_AFTER),
        }
    }

    /// How long after a pool's last scrub the next one begins by itself; `None` for never.
    fn scrub_every(&mut self, node: &Node) -> Option<Duration> {
        let Some(asked) = &node.scrub_days else { return Some(SCRUB_EVERY) };
        let days = *asked.get_ref();
        let within = Some(days).filter(|days| *days <= SCRUB_DAYS_MAX).ok_or_else(|| {
            let right = format!("choose at most {SCRUB_DAYS_MAX}, or 0 for never by itself");
            Refused::new(format!("{days} days is too long for a pool not to be scrubbed"), right)
        });
        match self.checked(asked, within) {
            Some(0) => None,
            Some(days) => Some(Duration::from_secs(days * DAY)),
            None => Some(SCRUB_EVERY),
        }
    }

    fn folder(&mut self, text: &Spanned<String>) -> Option<PathBuf> {
        let path = PathBuf::from(text.get_ref());
        let whole = path.is_absolute().then_some(path).ok_or_else(|| {
            Refused::new(
                format!("\"{}\" is a relative path", text.get_ref()),
                "write it from the root: a daemon has no directory of its own",
            )
        });
        self.checked(text, whole)
    }

    /// From when on pools are low on space: two percentages, the second above the first.
    fn space(&mut self, node: &Node) -> Thresholds {
        let mut space = Thresholds::default();
        let mut take = |percent: &Option<Spanned<u8>>, place: &mut u8| {
            let Some(percent) = percent else { return };
            let value = *percent.get_ref();
            let within = Some(value).filter(|value| (1..100).contains(value)).ok_or_else(|| {
                Refused::new(format!("{value} % of a pool"), "write a number from 1 to 99")
            });
            *place = self.checked(percent, within).unwrap_or(*place);
        };
        take(&node.pool_low_percent, &mut space.low);
        take(&node.pool_critical_percent, &mut space.critical);
        let last = node.pool_critical_percent.as_ref().or(node.pool_low_percent.as_ref());
        if let (Some(last), true) = (last, space.low >= space.critical) {
            let wrong = format!("low from {} %, critical from {} %", space.low, space.critical);
            self.refuse(last.span(), Refused::new(wrong, "write a higher one for critical"));
        }
        space
    }

    fn listener(&mut self, listener: &Listener, desired: &mut Desired) {
        let advertise = listener.advertise.as_ref().and_then(|text| self.value::<Advertise>(text));
        let ana = listener.ana.as_ref().and_then(|text| self.value::<AnaState>(text));
        let Some(address) = self.value(&listener.address) else { return };
        let discovery_only = listener.discovery_only;
        let def = ListenerDef { advertise, discovery_only, ana: ana.unwrap_or_default() };
        if desired.listeners.insert(address, def).is_some() {
            let refused = Refused::new(
                format!("{address} is listened on twice"),
                "remove one of the two [[listener]] tables",
            );
            self.refuse(listener.address.span(), refused);
        }
    }

    fn subsystem(&mut self, table: &Subsystem, subsystems: &mut BTreeMap<Nqn, SubsystemDef>) {
        let nqn = self.value::<Nqn>(&table.nqn);
        let serial = self.text(table.serial.as_ref(), desired::check_serial);
        let model = self.text(table.model.as_ref(), desired::check_model);
        let mut hosts = BTreeSet::new();
        for host in &table.hosts {
            hosts.extend(self.value::<Nqn>(host));
        }
        let namespaces = self.namespaces(&table.namespace);
        let Some(nqn) = nqn else { return };
        if self.checked(&table.nqn, desired::check_subsystem_nqn(&nqn)).is_none() {
            return;
        }
        let allow_any_host = table.allow_any_host;
        let def = SubsystemDef { serial, model, allow_any_host, hosts, namespaces };
        match subsystems.entry(nqn) {
            Entry::Vacant(entry) => {
                entry.insert(def);
            }
            Entry::Occupied(entry) => {
                let refused = Refused::new(
                    format!("subsystem {} is defined twice", entry.key()),
                    "give one of the two another NQN, or join their tables",
                );
                self.refuse(table.nqn.span(), refused);
            }
        }
    }

    fn text(
        &mut self,
        text: Option<&Spanned<String>>,
        check: fn(&str) -> Result<(), Refused>,
    ) -> Option<String> {
        let text = text?;
        self.checked(text, check(text.get_ref())).map(|()| text.get_ref().clone())
    }

    /// Namespaces that name their NSID take it; the others get the lowest free one, in order.
    fn namespaces(&mut self, tables: &[Namespace]) -> BTreeMap<u32, NamespaceDef> {
        let mut namespaces = BTreeMap::new();
        let mut unnumbered = Vec::new();
        for table in tables {
            let Some(def) = self.namespace(table) else { continue };
            let Some(nsid) = &table.nsid else {
                unnumbered.push((table, def));
                continue;
            };
            if self.checked(nsid, desired::check_nsid(*nsid.get_ref())).is_none() {
                continue;
            }
            if namespaces.insert(*nsid.get_ref(), def).is_some() {
                let refused = Refused::new(
                    format!("NSID {} is taken by a namespace above", nsid.get_ref()),
                    "choose another, or leave nsid out to get the lowest free one",
                );
                self.refuse(nsid.span(), refused);
            }
        }
        for (table, def) in unnumbered {
            let free = desired::free_nsid(&namespaces);
            if let Some(nsid) = self.checked(&table.backend, free) {
                namespaces.insert(nsid, def);
            }
        }
        namespaces
    }

    fn namespace(&mut self, table: &Namespace) -> Option<NamespaceDef> {
        let uuid = match &table.uuid {
            Some(text) => {
                let uuid = text.get_ref().parse::<Uuid>().map_err(|error| {
                    Refused::new(
                        format!("{:?} is not a UUID: {error}", text.get_ref()),
                        "leave uuid out to get a stable one, or copy one from \
                         `flashloom namespace list`",
                    )
                });
                let uuid = self.checked(text, uuid)?;
                let refused = match uuid.is_nil() {
                    true => Err(Refused::new(
                        "zeroes are no UUID",
                        "leave uuid out to get a stable one",
                    )),
                    false if !self.uuids.insert(uuid) => Err(Refused::new(
                        format!("a namespace above has the UUID {uuid} already"),
                        "give each namespace one of its own: hosts would take one for the other",
                    )),
                    false => Ok(()),
                };
                self.checked(text, refused)?;
                Some(uuid)
            }
            None => None,
        };
        let backend = self.value::<Backend>(&table.backend)?;
        let block_size = match &table.block_size {
            Some(bytes) => {
                self.checked(bytes, desired::check_block_size(*bytes.get_ref()))?;
                *bytes.get_ref()
            }
            None => crate::generic::own_block_size(&backend).unwrap_or(desired::BLOCK_SIZE),
        };
        let size = match &backend {
            Backend::Memory { size } | Backend::Drive { size: Some(size), .. } => size.bytes(),
            Backend::Drive { size: None, .. }
            | Backend::Passthrough { .. }
            | Backend::Volume(_)
            | Backend::Snapshot(_) => 0,
        };
        self.checked(&table.backend, desired::check_whole_blocks(size, block_size))?;
        self.place(&table.backend, &backend)?;
        Some(NamespaceDef { backend, block_size, uuid })
    }

    /// Notes where a namespace keeps its bytes; `None` where that is no place for it, or another's.
    fn place(&mut self, named: &Spanned<String>, backend: &Backend) -> Option<()> {
        if let Backend::Drive { path, .. } | Backend::Passthrough { path } = backend
            && !path.is_absolute()
        {
            let refused = Refused::new(
                format!("\"{}\" is a relative path", path.display()),
                "write it from the root: a daemon has no directory of its own",
            );
            self.refuse(named.span(), refused);
            return None;
        }
        if let Backend::Drive { path, .. } | Backend::Passthrough { path } = backend
            && !self.drives.insert(path.clone())
        {
            let refused = Refused::new(
                format!("a namespace above is on {} already", path.display()),
                "give each namespace a drive of its own: they would overwrite each other",
            );
            self.refuse(named.span(), refused);
            return None;
        }
        if backend.pool().is_some() && !self.of_pools.insert(backend.clone()) {
            let refused = Refused::new(
                format!("a namespace above is {backend} already"),
                "map each volume, and each snapshot, once: reservations and fused commands are a namespace's own",
            );
            self.refuse(named.span(), refused);
            return None;
        }
        Some(())
    }
}

fn poll_policy(text: &str) -> Result<PollPolicy, Refused> {
    PollPolicy::ALL.into_iter().find(|policy| policy.name() == text).ok_or_else(|| {
        Refused::new(
            format!("\"{text}\" is not a poll policy"),
            "choose \"adaptive\", \"eager\", \"busy\" or \"interrupt\"",
        )
    })
}

/// What was probably meant, from serde's "unknown field `a`, expected one of `b`, `c`".
fn closest_of(message: &str) -> String {
    let mut names = message.split('`').skip(1).step_by(2);
    let given = names.next().unwrap_or_default();
    closest(given, &names.collect::<Vec<_>>())
}

/// What somebody who wrote `given` may have meant of the words there are.
#[must_use]
pub fn closest(given: &str, known: &[&str]) -> String {
    match known.iter().min_by_key(|name| distance(given, name)) {
        Some(name) if distance(given, name) <= 1 + given.len() / 3 => {
            format!("did you mean `{name}`?")
        }
        _ => format!("this table has {}", known.join(", ")),
    }
}

/// Edit distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
