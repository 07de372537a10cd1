//! Two listeners of one target as paths of a namespace: their ANA states change and their connections end under a
//! load that reads back what it wrote. No command fails.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use initiator::{AnaState, HostIdentity, Namespace, PathInfo, PathPolicy, PathState, Remote};
use media::memory::{Region, RegionOptions};
use nvme::nqn::Nqn;
use reactor::{Config, Handle, PollPolicy, Reactor};
use target::listener::ListenerId;
use target::namespace::{Backend, NamespaceSpec};
use target::subsystem::SubsystemSpec;
use target::testing::serve;
use target::{Identity, Target as Served};

use super::namespace::{busy, grows, impatient, on_reactor, until};
use super::{BLOCK, SUBNQN};

/// A target with two listeners on a reactor of its own.
struct Ways {
    handle: Handle,
    served: Arc<Served>,
    ports: [u16; 2],
}

impl Ways {
    fn start() -> Self {
        let options = RegionOptions { block_size: BLOCK, shared: true, committed: false };
        let region = Arc::new(Region::new(1 << 20, options).unwrap());
        let served = Served::new(Identity::default());
        let nqn = Nqn::new(SUBNQN).unwrap();
        served.add_subsystem(SubsystemSpec::new(nqn.clone())).unwrap();
        let spec = NamespaceSpec::new(Backend::Memory(region), BLOCK);
        served.add_namespace(&nqn, &spec).unwrap();
        let config = Config { cpu: None, poll: PollPolicy::Interrupt, name: "target".to_owned() };
        let handle = Reactor::start(config).unwrap();
        let ports = [0, 1].map(|_| {
            let served = Arc::clone(&served);
            handle.call(move || serve(served, 0)).wait().unwrap()
        });
        Self { handle, served, ports }
    }

    fn listener(&self, way: usize) -> ListenerId {
        let listeners = self.served.snapshot().listeners;
        let own = listeners.iter().find(|(_, info)| info.trsvcid == self.ports[way]);
        own.unwrap().0
    }

    fn set(&self, states: [AnaState; 2]) {
        for (way, state) in states.into_iter().enumerate() {
            drop(self.served.set_listener_ana(self.listener(way), state).unwrap());
        }
    }

    /// Ends every connection that came through a listener.
    fn cut(&self, way: usize) {
        let listener = self.listener(way);
        for controller in self.served.controllers() {
            if controller.path().listener == listener {
                controller.close_queues();
            }
        }
    }

    fn remotes(&self) -> [Remote; 2] {
        self.ports.map(|trsvcid| Remote {
            traddr: "127.0.0.1".to_owned(),
            trsvcid,
            subnqn: SUBNQN.to_owned(),
            host: HostIdentity::of_machine(),
            options: impatient(),
        })
    }
}

impl Drop for Ways {
    fn drop(&mut self) {
        self.handle.stop();
        let _ = self.handle.join();
    }
}

#[test]
fn no_command_fails_while_paths_change_and_are_lost() {
    use AnaState::{Change, Inaccessible, NonOptimized, Optimized, PersistentLoss};
    for policy in [PathPolicy::Numa, PathPolicy::RoundRobin, PathPolicy::QueueDepth] {
        let ways = Ways::start();
        on_reactor(async move {
            let namespace = Namespace::attach_paths(&ways.remotes(), 1, policy).await.unwrap();
            until(&namespace, |paths| paths.iter().all(|p| p.state == PathState::Live)).await;
            let stop = Rc::new(Cell::new(false));
            let (done, tasks) = busy(&namespace, 32, &stop);
            for states in [
                [Optimized, Optimized],
                [NonOptimized, Optimized],
                [Inaccessible, Optimized],
                [Optimized, Inaccessible],
                [PersistentLoss, NonOptimized],
                [NonOptimized, Change],
            ] {
                // No way at all for a moment.
                ways.set([Inaccessible, Inaccessible]);
                let closed = |path: &PathInfo| path.access == Some(Inaccessible);
                until(&namespace, |paths| paths.iter().all(closed)).await;
                ways.set(states);
                grows(&done).await;
            }
            ways.set([Optimized, NonOptimized]);
            for lost in [vec![0], vec![1], vec![0, 1]] {
                lost.iter().for_each(|&way| ways.cut(way));
                grows(&done).await;
                until(&namespace, |paths| paths.iter().all(|p| p.state == PathState::Live)).await;
            }
            stop.set(true);
            for task in tasks {
                task.await.expect("a task failed");
            }
            namespace.shut_down().await.unwrap();
        });
    }
}

#[test]
fn discovery_finds_every_way() {
    let ways = Ways::start();
    on_reactor(async move {
        let [first, _] = ways.remotes();
        let found = first.paths().await.unwrap();
        let mut ports: Vec<_> = found.iter().map(|remote| remote.trsvcid).collect();
        ports.sort_unstable();
        let mut expected = ways.ports;
        expected.sort_unstable();
        assert_eq!(ports, expected);
        let namespace = Namespace::attach_paths(&found, 1, PathPolicy::Numa).await.unwrap();
        until(&namespace, |paths| paths.iter().all(|p| p.state == PathState::Live)).await;
        let ids: Vec<_> = namespace.paths().iter().map(|path| path.cntlid).collect();
        assert!(ids[0].is_some() && ids[1].is_some() && ids[0] != ids[1]);
        namespace.shut_down().await.unwrap();
    });
}
