use api::v1::Losses;

use super::*;
use crate::config;

const NQN: &str = "nqn.2026-11.io.flashloom:a";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:6f0a2c9e-7c7e-4c55-9c3c-2f0f0f1f9a11";

/// A subsystem for one host, with 64 MiB of memory and a drive.
fn served() -> Desired {
    let text = format!(
        "[[listener]]\naddress = \"127.0.0.1:4420\"\n[[subsystem]]\nnqn = \"{NQN}\"\nhosts = [\"{HOST}\"]\n\
         [[subsystem.namespace]]\nnsid = 1\nbackend = \"memory:64MiB\"\n\
         [[subsystem.namespace]]\nnsid = 2\nbackend = \"drive:/d\"\n"
    );
    config::parse(std::path::Path::new("test"), &text).unwrap().desired
}

fn connected() -> Vec<Controller> {
    vec![Controller {
        subsystem: NQN.to_owned(),
        cntlid: 1,
        host: HOST.to_owned(),
        peer: None,
        io_queues: 1,
        kato_ms: 0,
        ana: Some(AnaState::Optimized),
    }]
}

/// What `edit` takes away of [`served`].
fn of(edit: impl Fn(&mut Desired), controllers: &[Controller]) -> Vec<String> {
    let (old, mut new) = (served(), served());
    edit(&mut new);
    let Losses { losses } = losses(&old, &new, |_| 64 << 20, controllers);
    losses
}

fn subsystem(wanted: &mut Desired) -> &mut crate::desired::SubsystemDef {
    wanted.subsystems.values_mut().next().unwrap()
}

#[test]
fn data_that_goes_is_told_whoever_is_connected() {
    let gone = of(|wanted| drop(subsystem(wanted).namespaces.remove(&1)), &[]);
    assert_eq!(gone, [format!("the 64 MiB in memory of namespace 1 of {NQN} would be lost")]);
    let cut = |nsid: u32, mib: u64| {
        let edit = move |wanted: &mut Desired| {
            let def = subsystem(wanted).namespaces.get_mut(&nsid).unwrap();
            def.backend = def.backend.clone().with_size(Size::new(mib << 20)).unwrap();
        };
        of(edit, &[])
    };
    let told =
        format!("what /d has beyond 32 MiB of the 64 MiB of namespace 2 of {NQN} would be lost");
    assert_eq!(cut(2, 32), [told]);
    assert_eq!(cut(1, 32).len(), 1);
    assert!(cut(1, 128).is_empty() && cut(2, 64).is_empty(), "nothing is cut off");
}

#[test]
fn what_hosts_lose_is_told_while_they_are_connected() {
    type Edit = (&'static str, fn(&mut Desired));
    let edits: [Edit; 5] = [
        ("namespace 2", |wanted| drop(subsystem(wanted).namespaces.remove(&2))),
        ("host", |wanted| subsystem(wanted).hosts.clear()),
        ("the last listener", |wanted| wanted.listeners.clear()),
        ("the last listener", |wanted| {
            wanted.listeners.values_mut().for_each(|def| def.ana = AnaState::Inaccessible);
        }),
        ("subsystem", |wanted| drop(std::mem::take(&mut wanted.subsystems))),
    ];
    for (what, edit) in edits {
        let told = of(edit, &connected());
        assert!(told.iter().any(|one| one.starts_with(what) && one.contains(HOST)), "{told:?}");
        let nobody = of(edit, &[]);
        assert!(!nobody.iter().any(|one| one.contains(HOST)), "{nobody:?}");
    }
    let open = |wanted: &mut Desired| {
        subsystem(wanted).allow_any_host = true;
        subsystem(wanted).hosts.clear();
    };
    assert!(of(open, &connected()).is_empty(), "any host may connect");
}

#[test]
fn what_is_added_takes_nothing_away() {
    let edit = |wanted: &mut Desired| {
        wanted.listeners.insert("127.0.0.1:4421".parse().unwrap(), Default::default());
        subsystem(wanted).hosts.insert("nqn.2026-11.io.flashloom:b".parse().unwrap());
    };
    assert!(of(edit, &connected()).is_empty());
    assert!(check_meant(&Losses::default(), false).is_ok());
    let some = Losses { losses: vec!["all of it".to_owned()] };
    assert_eq!(check_meant(&some, false).unwrap_err().kind, Kind::Conflict);
    assert!(check_meant(&some, true).is_ok());
}
