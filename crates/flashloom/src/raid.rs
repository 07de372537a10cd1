//! `flashloom raid`, and sets wherever a namespace can be used.

use std::io::IsTerminal;
use std::time::Duration;

use hostraid::{Assemble, Claim, Create, Found, Health, Level, Member, Set, Volume, inspect};
use indicatif::ProgressBar;
use initiator::{Namespace, Remote, WindowUse};
use reactor::{Config, join_all};
use serde::Serialize;

use crate::cli::{AttachArgs, ConnectArgs, Global, MemberSpec, RaidVerb, SetArgs, UseArgs};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{print, table};
use crate::paths;
use crate::window::Place;

/// After this long without its target a member is gone, where nobody says otherwise: all of the set waits for it.
const FAST_IO_FAIL: Duration = Duration::from_secs(10);

/// How often members that are gone are tried again.
const RETRY: Duration = Duration::from_secs(5);

impl From<hostraid::Error> for Failure {
    fn from(error: hostraid::Error) -> Self {
        let exit = match error {
            hostraid::Error::Refused { .. } | hostraid::Error::Memory(_) => Exit::Failed,
            hostraid::Error::Member { .. } | hostraid::Error::Set(_) => Exit::Target,
        };
        let help = error.help().map(str::to_owned);
        Self { exit, kind: None, message: error.to_string(), help }
    }
}

/// Whom to connect to for a member, and its namespace.
pub fn remote(connect: &ConnectArgs, spec: &MemberSpec) -> (Remote, u32) {
    let mut remote = connect.remote();
    if let Some(traddr) = &spec.traddr {
        remote.go_to(traddr);
    }
    if let Some(subnqn) = &spec.subnqn {
        remote.subnqn.clone_from(subnqn);
    }
    remote.trsvcid = spec.trsvcid.unwrap_or(remote.trsvcid);
    if connect.fast_io_fail_tmo.is_none() {
        remote.options.fast_io_fail = Some(FAST_IO_FAIL);
    }
    if connect.ctrl_loss_tmo.is_none() {
        remote.options.ctrl_loss = None;
    }
    (remote, spec.nsid.unwrap_or(connect.nsid))
}

/// Before a failure of a member.
fn of_member(spec: &MemberSpec) -> impl Fn(Failure) -> Failure {
    move |failure| Failure { message: format!("{spec}: {}", failure.message), ..failure }
}

async fn attach_one(connect: &ConnectArgs, spec: &MemberSpec) -> Result<Namespace, Failure> {
    let (remote, nsid) = remote(connect, spec);
    Namespace::attach(&remote, nsid).await.map_err(|error| of_member(spec)(error.into()))
}

/// Those that answer, and those that do not.
async fn attach_all(
    connect: &ConnectArgs,
    specs: &[MemberSpec],
) -> (Vec<(MemberSpec, Namespace)>, Vec<(MemberSpec, Failure)>) {
    let (mut members, mut gone) = (Vec::new(), Vec::new());
    let attached = join_all(specs.iter().map(|spec| attach_one(connect, spec))).await;
    for (spec, one) in specs.iter().zip(attached) {
        match one {
            Ok(member) => members.push((spec.clone(), member)),
            Err(failure) => gone.push((spec.clone(), failure)),
        }
    }
    (members, gone)
}

/// Attaches all, or none.
async fn attach_every(of: &SetArgs) -> Result<Vec<Member>, Failure> {
    let (members, gone) = attach_all(&of.connect, &of.members).await;
    match gone.into_iter().next() {
        None => Ok(members.into_iter().map(|(_, member)| Member::Namespace(member)).collect()),
        Some((_, failure)) => Err(failure),
    }
}

/// Puts a set together, whose writes go to each member by a direct write window of it, if that is wanted; also the members
/// that did not answer.
async fn assemble(
    connect: &ConnectArgs,
    specs: &[MemberSpec],
    (degraded, take_over): (bool, bool),
    wanted: WindowUse,
) -> Result<(Set, Vec<MemberSpec>), Failure> {
    let (members, gone) = attach_all(connect, specs).await;
    let mut absent = Vec::new();
    for (spec, failure) in gone {
        if !degraded {
            let help = "go on without it with --degraded";
            return Err(failure.help(help));
        }
        tracing::warn!("{}", failure.message);
        absent.push(spec);
    }
    let claim = Some(claim(&connect.remote(), take_over));
    let mut places = Vec::new();
    let windowed = members.into_iter().map(|(spec, namespace)| {
        let (member, place) = windowed(namespace, wanted);
        places.extend(place.map(|place| (spec, place)));
        member
    });
    let set = Set::assemble(windowed.collect(), Assemble { degraded, claim }).await?;
    // Not before: it reserves its members, which ends windows.
    for (spec, place) in places {
        place.fill().await.map_err(of_member(&spec))?;
        place.keep();
    }
    Ok((set, absent))
}

/// As whom this program uses a set.
pub fn claim(remote: &Remote, take_over: bool) -> Claim {
    Claim::new(remote.host.id, new_id(), take_over)
}

/// A member, and the place of its window where one is wanted.
fn windowed(namespace: Namespace, wanted: WindowUse) -> (Member, Option<Place>) {
    if wanted == WindowUse::Off {
        return (Member::Namespace(namespace), None);
    }
    let place = Place::of(namespace, wanted);
    (Member::Namespace(place.namespace()), Some(place))
}

/// What `attach` serves: a namespace, or the set of the members it was given; writes go by direct write windows if that is
/// asked for. Members that are gone are looked after for as long as it is in use.
pub async fn open(args: &AttachArgs) -> Result<Volume, Failure> {
    let wanted = crate::window::of(args)?;
    if args.members.is_empty() {
        let namespace = paths::attach(&args.connect).await?;
        return Ok(crate::window::open(namespace, wanted).await?.into());
    }
    let (set, absent) =
        assemble(&args.connect, &args.members, (args.degraded, args.take_over), wanted).await?;
    // They end with the reactor.
    drop(reactor::spawn(tend(set.clone(), absent, args.connect.clone(), wanted)));
    Ok(set.into())
}

/// Takes members in that come back, and rebuilds them.
async fn tend(set: Set, absent: Vec<MemberSpec>, connect: ConnectArgs, wanted: WindowUse) {
    let own = set.clone();
    drop(reactor::spawn(async move { own.tend(RETRY, None).await }));
    let mut absent = absent;
    while !absent.is_empty() && set.status().broken.is_none() {
        reactor::sleep(RETRY).await;
        let mut still = Vec::new();
        for spec in absent {
            let Ok(namespace) = attach_one(&connect, &spec).await else {
                still.push(spec);
                continue;
            };
            let (member, place) = windowed(namespace, wanted);
            match set.join(member, new_id(), false).await {
                Ok(joined) => {
                    tracing::info!("{spec} is back as member {}", joined.slot);
                    // It has one when it can be had: the set is in use.
                    place.into_iter().for_each(Place::keep);
                }
                Err(error) => tracing::warn!("{spec} is not taken in: {error}"),
            }
        }
        absent = still;
    }
}

fn new_id() -> [u8; 16] {
    uuid::Uuid::new_v4().into_bytes()
}

fn on_reactor<F>(future: F) -> Outcome
where
    F: Future<Output = Outcome> + 'static,
{
    reactor::run(Config { name: "flashloom-raid".to_owned(), ..Config::default() }, future)
        .map_err(|error| Failure::new(Exit::Failed, error))?
}

/// `flashloom raid`
pub fn run(global: &Global, verb: RaidVerb) -> Outcome {
    crate::log::start(crate::log::Format::Auto, "warn");
    let global = global.clone();
    on_reactor(async move {
        match verb {
            RaidVerb::Create { of, name, level, chunk, force } => {
                let create = Create {
                    id: new_id(),
                    member_ids: of.members.iter().map(|_| new_id()).collect(),
                    name,
                    level: level.into(),
                    chunk: u32::try_from(chunk.bytes()).unwrap_or(u32::MAX),
                    records: None,
                    region: None,
                    force,
                };
                let set = Set::create(attach_every(&of).await?, create).await?;
                set.shut_down().await?;
                show(&global, &of).await
            }
            RaidVerb::Show { of } => show(&global, &of).await,
            RaidVerb::Check { of, how, repair } => check(&global, &of, &how, repair).await,
            RaidVerb::Rebuild { of, how, add, force } => {
                rebuild(&of, &how, add.as_ref(), force).await?;
                show_all(&global, &of, add).await
            }
        }
    })
}

/// What a member says.
#[derive(Serialize)]
struct Shown {
    member: String,
    /// What is wrong with it, if it is not one.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
    #[serde(flatten)]
    says: Option<Says>,
}

#[derive(Serialize)]
struct Says {
    set: String,
    name: String,
    level: &'static str,
    /// Bytes of the set.
    size: u64,
    chunk: u32,
    block_size: u32,
    members: usize,
    slot: usize,
    events: u64,
    /// Of this member, by its own word.
    state: String,
    /// Members that it knows to be missing.
    missing: Vec<usize>,
}

fn state(health: Health, stripes: u64) -> String {
    match health {
        Health::InSync => "in sync".to_owned(),
        Health::Missing => "missing".to_owned(),
        Health::Rebuilding { frontier, partial } => {
            let percent = frontier * 100 / stripes.max(1);
            let kind = if partial { "partial rebuild" } else { "rebuild" };
            format!("{kind}, {percent} %")
        }
    }
}

fn shown(member: String, found: Result<Found, hostraid::Error>) -> Shown {
    let fault = |text: String| Shown { member: member.clone(), fault: Some(text), says: None };
    let superblock = match found {
        Ok(Found::Member { says, .. }) => says,
        Ok(Found::Blank) => return fault("blank".to_owned()),
        Ok(Found::Foreign(why)) => return fault(format!("no member of a set: {why}")),
        Err(error) => return fault(error.to_string()),
    };
    let layout = superblock.layout;
    let level = match layout.level {
        Level::Stripe => "raid0",
        Level::Mirror => "raid1",
        Level::Raid5 => "raid5",
        Level::Raid6 => "raid6",
    };
    let out = (0..).zip(&superblock.seats).filter(|(_, seat)| seat.health == Health::Missing);
    let missing = out.map(|(slot, _)| slot).collect();
    let says = Says {
        set: uuid::Uuid::from_bytes(superblock.set).to_string(),
        name: superblock.name.clone(),
        level,
        size: layout.size(),
        chunk: layout.chunk,
        block_size: layout.block,
        members: layout.width(),
        slot: superblock.slot,
        events: superblock.events,
        state: state(superblock.seats[superblock.slot].health, layout.stripes),
        missing,
    };
    Shown { member, fault: None, says: Some(says) }
}

async fn show(global: &Global, of: &SetArgs) -> Outcome {
    let mut all = Vec::new();
    for (index, spec) in of.members.iter().enumerate() {
        all.push(match attach_one(&of.connect, spec).await {
            Ok(namespace) => {
                let member = Member::Namespace(namespace);
                let found = inspect(index, &member).await;
                member.shut_down().await;
                shown(spec.to_string(), found)
            }
            Err(failure) => {
                Shown { member: spec.to_string(), fault: Some(failure.message), says: None }
            }
        });
    }
    print(global.output, &all, |all| {
        let header = ["member", "set", "level", "size", "slot", "events", "state", "missing"];
        let mut table = table(&header, &[3, 4, 5]);
        for one in all {
            let mut row = vec![one.member.clone()];
            match &one.says {
                None => row.push(one.fault.clone().unwrap_or_default()),
                Some(says) => row.extend([
                    says.name.clone(),
                    says.level.to_owned(),
                    api::value::Size::new(says.size).to_string(),
                    says.slot.to_string(),
                    says.events.to_string(),
                    says.state.clone(),
                    says.missing.iter().map(usize::to_string).collect::<Vec<_>>().join(" "),
                ]),
            }
            table.add_row(row);
        }
        table
    })
}

async fn show_all(global: &Global, of: &SetArgs, add: Option<MemberSpec>) -> Outcome {
    let mut of = of.clone();
    of.members.extend(add);
    show(global, &of).await
}

/// Progress for people who watch.
fn bar(stripes: u64) -> ProgressBar {
    if std::io::stderr().is_terminal() { ProgressBar::new(stripes) } else { ProgressBar::hidden() }
}

/// What a check found.
#[derive(Serialize)]
struct Checked {
    stripes: u64,
    mismatched: u64,
    degraded: u64,
    repaired: bool,
}

async fn check(global: &Global, of: &SetArgs, how: &UseArgs, repair: bool) -> Outcome {
    let (set, _) =
        assemble(&of.connect, &of.members, (how.degraded, how.take_over), WindowUse::Off).await?;
    let bar = bar(set.layout().stripes);
    let rate = how.rate.map(|rate| rate.bytes());
    let found = set.check(repair, rate, |done, _| bar.set_position(done)).await;
    bar.finish_and_clear();
    set.shut_down().await?;
    let found = found?;
    let hostraid::Checked { stripes, mismatched, degraded } = found;
    let document = Checked { stripes, mismatched, degraded, repaired: repair };
    print(global.output, &document, |found| {
        let mut table = table(&["stripes", "mismatched", "degraded"], &[0, 1, 2]);
        let row = [found.stripes, found.mismatched, found.degraded];
        table.add_row(row.map(|number| number.to_string()));
        table
    })?;
    if mismatched > 0 && !repair {
        let what = format!("{mismatched} stripes differ from what their data says");
        return Err(Failure::new(Exit::Data, what).help("--repair makes parity and copies agree"));
    }
    Ok(())
}

async fn rebuild(of: &SetArgs, how: &UseArgs, add: Option<&MemberSpec>, force: bool) -> Outcome {
    let (set, _) =
        assemble(&of.connect, &of.members, (how.degraded, how.take_over), WindowUse::Off).await?;
    let done = async {
        for (_, member) in set.lost_members() {
            set.join(member, new_id(), force).await?;
        }
        if let Some(spec) = add {
            let member = Member::Namespace(attach_one(&of.connect, spec).await?);
            set.join(member, new_id(), force).await?;
        }
        let rate = how.rate.map(|rate| rate.bytes());
        for slot in set.to_rebuild() {
            let bar = bar(set.layout().stripes);
            let rebuilt = set.rebuild(slot, rate, |progress| bar.set_position(progress.done)).await;
            bar.finish_and_clear();
            rebuilt?;
        }
        Ok::<(), Failure>(())
    };
    let done = done.await;
    set.shut_down().await?;
    done
}
