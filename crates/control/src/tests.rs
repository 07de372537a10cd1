//! Round trips over a real socket and a node of its own.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use api::v1::{
    Changed, Consent, Kind, ListenerChange, NamespaceChange, NewHost, NewListener, NewNamespace,
    NewSubsystem, SubsystemChange,
};
use api::value::{AnaState, Nqn, Size};
use array::node::{Node, Options, Source};

use crate::client::{Client, Error};
use crate::server::{Server, openapi};

/// Runs `test` against a node that serves nothing yet.
fn with_node<F: Future<Output = ()>>(dir: &Path, test: impl FnOnce(Client) -> F) {
    let options = Options {
        state_dir: dir.to_owned(),
        source: Source::State,
        fresh: false,
        cpus: None,
        poll: Some(api::v1::PollPolicy::Interrupt),
    };
    let node = Node::start(options).unwrap();
    let socket = dir.join("api.sock");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (server, _) = Server::bind(&socket, None).unwrap();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let ended = async { ended.await.unwrap_or(()) };
        let server = tokio::spawn(server.serve(Arc::clone(&node), ended));
        test(Client::new(&socket)).await;
        drop(end);
        server.await.unwrap().unwrap();
    });
    node.stop();
    assert!(!socket.exists(), "the socket goes with the daemon");
}

fn nqn(name: &str) -> Nqn {
    format!("nqn.2026-11.io.flashloom:{name}").parse().unwrap()
}

fn new_subsystem(name: &str) -> NewSubsystem {
    NewSubsystem {
        nqn: nqn(name),
        serial: None,
        model: None,
        allow_any_host: false,
        hosts: vec![nqn("host")],
    }
}

fn new_namespace(backend: &str) -> NewNamespace {
    NewNamespace {
        nsid: None,
        backend: backend.parse().unwrap(),
        block_size: None,
        uuid: None,
        force: false,
    }
}

/// A change that was made.
fn made<T: std::fmt::Debug>(result: Result<Changed<T>, Error>) -> T {
    match result.unwrap() {
        Changed::Made(made) => made,
        other => panic!("{other:?}"),
    }
}

/// The kind of a refusal.
fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> Kind {
    match result.unwrap_err() {
        Error::Refused(problem) => problem.kind,
        other => panic!("{other}"),
    }
}

#[test]
fn what_is_added_is_listed_until_it_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    with_node(dir.path(), async |client: Client| {
        let added = client.add_subsystem(&new_subsystem("a")).await.unwrap();
        assert_eq!((added.serial.len(), added.model.as_str()), (20, "Flashloom"));
        assert_eq!(added.hosts, [nqn("host")]);

        let first = client.add_namespace(&nqn("a"), &new_namespace("memory:16MiB")).await.unwrap();
        assert_eq!((first.nsid, first.block_size, first.size.bytes()), (1, 4096, 16 << 20));
        assert_eq!(first.nguid, first.uuid.simple().to_string());
        let change = NamespaceChange { size: Size::new(32 << 20) };
        let grown = made(client.resize_namespace(&nqn("a"), 1, &change, Consent::NONE).await);
        assert_eq!((grown.size, grown.uuid), (change.size, first.uuid));

        let other = NewHost { nqn: nqn("other") };
        client.add_host(&nqn("a"), &other).await.unwrap();
        assert_eq!(client.hosts(&nqn("a")).await.unwrap().len(), 2);
        client.remove_host(&nqn("a"), &nqn("host"), Consent::NONE).await.unwrap();
        assert_eq!(client.hosts(&nqn("a")).await.unwrap()[0].nqn, nqn("other"));

        let change = SubsystemChange { allow_any_host: Some(true) };
        let changed = made(client.change_subsystem(&nqn("a"), &change, Consent::NONE).await);
        assert!(changed.allow_any_host);

        let listener = any_listener();
        let address = listener.address;
        assert_eq!(client.add_listener(&listener).await.unwrap().ana, AnaState::Optimized);
        let change = ListenerChange { ana: Some(AnaState::NonOptimized) };
        let changed = made(client.change_listener(address, &change, Consent::NONE).await);
        assert_eq!(changed.ana, AnaState::NonOptimized);
        let none = "127.0.0.1:1".parse().unwrap();
        assert_eq!(
            kind(client.change_listener(none, &change, Consent::NONE).await),
            Kind::NotFound
        );
        let status = client.status().await.unwrap();
        assert_eq!((status.subsystems, status.namespaces, status.listeners.len()), (1, 1, 1));

        client.remove_listener(address, Consent::NONE).await.unwrap();
        client.remove_namespace(&nqn("a"), 1, Consent::FORCE).await.unwrap();
        client.remove_subsystem(&nqn("a"), Consent::NONE).await.unwrap();
        assert!(client.subsystems().await.unwrap().is_empty());
        assert!(client.events(0).await.unwrap().len() >= 9);
    });
}

/// A listener on any free port.
fn any_listener() -> NewListener {
    NewListener {
        address: "127.0.0.1:0".parse().unwrap(),
        advertise: None,
        discovery_only: false,
        ana: AnaState::default(),
    }
}

/// What has to be the same after a restart.
async fn kept(client: &Client) -> (Vec<api::v1::Subsystem>, String, Vec<api::v1::Listener>) {
    let status = client.status().await.unwrap();
    (client.subsystems().await.unwrap(), status.node.to_string(), status.listeners)
}

#[test]
fn identities_and_changes_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut before = None;
    with_node(dir.path(), async |client: Client| {
        client.add_subsystem(&new_subsystem("a")).await.unwrap();
        client.add_namespace(&nqn("a"), &new_namespace("memory:16MiB")).await.unwrap();
        client.add_listener(&any_listener()).await.unwrap();
        let change = ListenerChange { ana: Some(AnaState::Inaccessible) };
        made(client.change_listener(any_listener().address, &change, Consent::NONE).await);
        before = Some(kept(&client).await);
    });
    with_node(dir.path(), async |client: Client| {
        assert_eq!(kept(&client).await.2[0].ana, AnaState::Inaccessible);
        assert_eq!(Some(kept(&client).await), before);
    });
}

#[test]
fn refusals_have_a_kind_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    with_node(dir.path(), async |client: Client| {
        client.add_subsystem(&new_subsystem("a")).await.unwrap();
        client.add_namespace(&nqn("a"), &new_namespace("memory:16MiB")).await.unwrap();
        let before = client.subsystems().await.unwrap();

        assert_eq!(kind(client.add_subsystem(&new_subsystem("a")).await), Kind::Conflict);
        let discovery = NewSubsystem {
            nqn: "nqn.2014-08.org.nvmexpress.discovery".parse().unwrap(),
            ..new_subsystem("x")
        };
        assert_eq!(kind(client.add_subsystem(&discovery).await), Kind::Invalid);
        let serial = NewSubsystem { serial: Some("x".repeat(21)), ..new_subsystem("b") };
        assert_eq!(kind(client.add_subsystem(&serial).await), Kind::Invalid);
        assert_eq!(
            kind(client.remove_subsystem(&nqn("none"), Consent::NONE).await),
            Kind::NotFound
        );
        for (kind_of, new) in [
            (Kind::Conflict, NewNamespace { nsid: Some(1), ..new_namespace("memory:1MiB") }),
            (Kind::Invalid, NewNamespace { nsid: Some(0), ..new_namespace("memory:1MiB") }),
            (Kind::Invalid, NewNamespace { block_size: Some(520), ..new_namespace("memory:1MiB") }),
            (Kind::Invalid, new_namespace("memory:1048577")),
            (Kind::Invalid, new_namespace("drive:relative")),
            (Kind::Invalid, new_namespace("drive:/nowhere/drive")),
        ] {
            assert_eq!(kind(client.add_namespace(&nqn("a"), &new).await), kind_of, "{new:?}");
        }
        let odd = NamespaceChange { size: Size::new((1 << 20) + 1) };
        assert_eq!(
            kind(client.resize_namespace(&nqn("a"), 1, &odd, Consent::FORCE).await),
            Kind::Invalid
        );
        let none = NamespaceChange { size: Size::new(0) };
        assert_eq!(
            kind(client.resize_namespace(&nqn("a"), 1, &none, Consent::FORCE).await),
            Kind::Invalid
        );
        assert_eq!(
            kind(client.remove_host(&nqn("a"), &nqn("x"), Consent::NONE).await),
            Kind::NotFound
        );
        let elsewhere = NewListener {
            address: "192.0.2.1:4420".parse().unwrap(),
            advertise: None,
            discovery_only: false,
            ana: AnaState::default(),
        };
        assert_eq!(kind(client.add_listener(&elsewhere).await), Kind::Failed);
        assert!(client.listeners().await.unwrap().is_empty());
        assert_eq!(client.subsystems().await.unwrap(), before);
    });
}

/// Sends `request` as it is; returns the whole answer.
async fn raw(socket: &Path, request: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::UnixStream::connect(socket).await.unwrap();
    // The server may have answered and closed before it has read all of it.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    answer
}

fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\
         \r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn documents_that_do_not_fit_are_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    with_node(dir.path(), async |_| {
        let socket = dir.path().join("api.sock");
        for (request, status, reason) in [
            (post("/v1/subsystems", "{"), "400", "EOF while parsing"),
            (post("/v1/subsystems", "{}"), "422", "missing field `nqn`"),
            (post("/v1/subsystems", "{\"nqn\":\"x\"}"), "422", "does not begin with"),
            (
                post("/v1/subsystems", "{\"nqn\":\"nqn.2026-11.io.x:a\",\"colour\":1}"),
                "422",
                "unknown field `colour`",
            ),
            (post("/v1/subsystems/x/hosts", "{}"), "422", "nqn"),
            (post("/v1/subsystems/%ff/hosts", "{}"), "400", "Invalid UTF-8"),
            (
                "GET /v1/events?from=x HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_owned(),
                "400",
                "from",
            ),
            (post("/v2/subsystems", "{}"), "404", "there is no such path"),
            (post("/v1/status", "{}"), "405", "does not take that method"),
        ] {
            let answer = raw(&socket, &request).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}\n{answer}");
            assert!(answer.contains(reason), "{request}\n{answer}");
            assert!(answer.contains("\"kind\":"), "{request}\n{answer}");
        }
        let huge = format!("{{\"nqn\":\"{}\"}}", "x".repeat(1 << 20));
        let answer = raw(&socket, &post("/v1/subsystems", &huge)).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    });
}

#[test]
fn lists_are_answered_in_parts() {
    let dir = tempfile::tempdir().unwrap();
    with_node(dir.path(), async |client: Client| {
        for name in ["a", "b", "c"] {
            client.add_subsystem(&new_subsystem(name)).await.unwrap();
        }
        let socket = dir.path().join("api.sock");
        let get = async |path: &str| {
            let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
            raw(&socket, &request).await
        };
        let page = get("/v1/subsystems?offset=1&limit=1").await;
        assert!(page.contains("x-total-count: 3") && page.contains("flashloom:b\""), "{page}");
        assert!(!page.contains("flashloom:a\"") && !page.contains("flashloom:c\""), "{page}");
        let events = get("/v1/events?severity=warning&limit=1").await;
        assert!(events.contains("x-total-count: 0") && events.ends_with("[]"), "{events}");
        for path in ["/v1/volumes?pool=fast", "/v1/jobs?state=done", "/v1/controllers?host=h"] {
            assert!(get(path).await.contains("x-total-count: 0"), "{path}");
        }
        let wrong = get("/v1/jobs?state=lost").await;
        assert!(wrong.starts_with("HTTP/1.1 400") && wrong.contains("question mark"), "{wrong}");
    });
}

/// RFC 7240, 4.3: a caller who waits is answered as without a job, unless it takes longer.
#[test]
fn a_job_that_is_over_in_time_is_answered_with_what_came_of_it() {
    let dir = tempfile::tempdir().unwrap();
    with_node(dir.path(), async |_| {
        let socket = dir.path().join("api.sock");
        let ask = async |path: &str, body: &str, prefer: &str| {
            let line = format!("prefer: respond-async{prefer}\r\ncontent-type");
            raw(&socket, &post(path, body).replacen("content-type", &line, 1)).await
        };
        let drive = dir.path().join("d0").display().to_string();
        let pool = format!(
            "{{\"name\":\"fast\",\"drives\":[\"{drive},size=192MiB\"],\"log_size\":\"16MiB\"}}"
        );
        let made = ask("/v1/pools", &pool, ", wait=60").await;
        assert!(made.starts_with("HTTP/1.1 201") && !made.contains("preference-applied"), "{made}");
        assert!(made.contains("\"name\":\"fast\"") && !made.contains("\"progress\":"), "{made}");
        let refused = ask("/v1/pools", &pool, ", wait=60").await;
        assert!(refused.starts_with("HTTP/1.1 4") && refused.contains("\"kind\":"), "{refused}");
        let volume = "{\"name\":\"v\",\"size\":\"1MiB\"}";
        let job = ask("/v1/pools/fast/volumes", volume, "").await;
        assert!(job.starts_with("HTTP/1.1 202") && job.contains("location: /v1/jobs/"), "{job}");
        assert!(job.contains("preference-applied: respond-async"), "{job}");
    });
}

#[test]
fn metrics_are_prometheus_text() {
    let dir = tempfile::tempdir().unwrap();
    with_node(dir.path(), async |client: Client| {
        let text = client.metrics().await.unwrap();
        assert!(text.contains("\nflashloom_subsystems 0\n"), "{text}");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with("flashloom_"), "{line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    });
}

#[test]
fn the_description_is_whole() {
    let text = serde_json::to_value(openapi()).unwrap();
    assert!(text["openapi"].as_str().unwrap().starts_with("3.1"));
    let paths = text["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 69, "{:?}", paths.keys());
    // Every reference leads somewhere.
    let whole = text.to_string();
    for part in whole.split("\"$ref\":\"#").skip(1) {
        let pointer = part.split('"').next().unwrap();
        assert!(text.pointer(pointer).is_some(), "{pointer}");
    }
    // Operation names are unique, and every operation says what it answers.
    let mut names = std::collections::BTreeSet::new();
    for (path, item) in paths {
        for (method, operation) in item.as_object().unwrap() {
            assert!(names.insert(operation["operationId"].to_string()), "{method} {path}");
            assert!(!operation["summary"].as_str().unwrap().is_empty(), "{method} {path}");
            let answers = operation["responses"].as_object().unwrap();
            assert!(!answers.is_empty(), "{method} {path}");
            for (status, answer) in answers {
                let what = answer["description"].as_str();
                assert!(what.is_some_and(|what| !what.is_empty()), "{method} {path} {status}");
            }
        }
    }
}

#[test]
fn the_socket_is_for_its_owner_and_a_stale_one_is_replaced() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    drop(std::os::unix::net::UnixListener::bind(dir.path().join("api.sock")).unwrap());
    with_node(dir.path(), async |_| {
        let mode = fs::metadata(dir.path().join("api.sock")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    });
}

#[test]
fn without_a_daemon_the_client_says_where_it_looked() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let result = runtime.block_on(Client::new(Path::new("/nowhere/api.sock")).status());
    let text = result.unwrap_err().to_string();
    assert!(text.starts_with("no daemon answers at /nowhere/api.sock: No such file"), "{text}");
}
