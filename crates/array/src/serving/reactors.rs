//! The reactors, and which of them gets the next connection.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;
use std::time::Duration;

use api::v1;
use fabric::controller::Detached;
use reactor::{Call, Handle};
use target::Target;
use target::limits::QUEUE_CHARGE_MIN;
use target::listener::ListenerId;

use super::lobby::Lobby;
use super::seldom::Seldom;
use crate::config::Settings;
use crate::limits::{
    ANSWER, LEAVING, LEAVING_LOOK, NEWCOMERS, NEWCOMERS_OF_ADDRESS, QUEUE_ENTRIES_LEAST,
    REACTOR_FAILED, REACTORS_UNASKED,
};
use crate::{Error, Result};

/// The reactors of a node.
#[derive(Debug)]
pub struct Reactors {
    members: Vec<Member>,
    poll: v1::PollPolicy,
    connections_max: usize,
    load: Mutex<Load>,
    lobby: Arc<Lobby>,
    full: Seldom,
    crowded: Seldom,
    /// Given whenever a connection ends.
    ended: Condvar,
}

#[derive(Debug)]
struct Member {
    handle: Handle,
    cpu: Option<usize>,
}

/// Open connections.
#[derive(Debug)]
struct Load {
    /// By reactor.
    connections: Vec<usize>,
    /// Where the search for the least loaded begins: moves on, so that equals take turns.
    next: usize,
}

/// A connection's place on a reactor; given back when dropped.
struct Seat {
    reactors: Arc<Reactors>,
    member: usize,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.reactors.load().connections[self.member] -= 1;
        self.reactors.ended.notify_all();
    }
}

impl Reactors {
    /// Starts one reactor on each CPU asked for, or on none in particular.
    pub fn start(settings: &Settings) -> Result<Self> {
        let cpus: Vec<Option<usize>> = if settings.cpus.is_empty() {
            // Half of them: the other half is for what uses the array, or for the network.
            let count = available_parallelism().map_or(1, |count| count.get() / 2);
            vec![None; count.clamp(1, REACTORS_UNASKED)]
        } else {
            settings.cpus.iter().copied().map(Some).collect()
        };
        let mut members = Vec::new();
        for (index, cpu) in cpus.into_iter().enumerate() {
            let name = format!("flashloom-{index}");
            let config = reactor::Config { cpu, poll: policy(settings), name };
            let handle = reactor::Reactor::start_watched(config, fail_stop).map_err(|error| {
                let place = cpu.map_or_else(String::new, |cpu| format!(" on CPU {cpu}"));
                Error::failed(format!("cannot start a reactor{place}"), error)
            });
            match handle {
                Ok(handle) => members.push(Member { handle, cpu }),
                Err(error) => {
                    members.iter().for_each(|member: &Member| member.handle.stop());
                    return Err(error);
                }
            }
        }
        // Connections of the whole node that are no newcomers are as many as the reactors' entries allow.
        let seats = settings.bounds.connections.saturating_sub(NEWCOMERS) / members.len().max(1);
        let entries = seats * usize::from(QUEUE_CHARGE_MIN);
        let entries = entries.clamp(QUEUE_ENTRIES_LEAST, settings.bounds.queue_entries);
        for member in &members {
            // Before any connection.
            let bound = move || async move { target::budget::set_queue_entries(entries) };
            let _ = member.handle.spawn(bound);
        }
        let load = Load { connections: vec![0; members.len()], next: 0 };
        let poll = settings.poll;
        Ok(Self {
            members,
            poll,
            connections_max: settings.bounds.connections,
            load: Mutex::new(load),
            lobby: Arc::default(),
            full: Seldom::default(),
            crowded: Seldom::default(),
            ended: Condvar::new(),
        })
    }

    fn load(&self) -> MutexGuard<'_, Load> {
        self.load.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of reactors.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// The reactor that accepts for the `index`th listener.
    pub fn acceptor(&self, index: usize) -> &Handle {
        &self.members[index % self.members.len()].handle
    }

    /// All of them.
    pub fn handles(&self) -> impl Iterator<Item = &Handle> {
        self.members.iter().map(|member| &member.handle)
    }

    /// A seat on the reactor with the fewest connections; `None` when the node is full, or each of them.
    fn seat(self: &Arc<Self>) -> Option<Seat> {
        let mut load = self.load();
        let count = load.connections.len();
        let from = load.next;
        let order = (0..count).map(|step| (from + step) % count);
        let member = order.min_by_key(|member| load.connections[*member])?;
        let full = load.connections.iter().sum::<usize>() >= self.connections_max;
        if full || load.connections[member] >= reactor::CONNECTIONS_MAX {
            return None;
        }
        load.connections[member] += 1;
        load.next = (member + 1) % count;
        Some(Seat { reactors: Arc::clone(self), member })
    }

    /// Gives an accepted connection to the reactor with the fewest, which serves it to its end.
    pub fn hand_over(
        self: &Arc<Self>,
        connection: Detached,
        target: &Arc<Target>,
        listener: ListenerId,
    ) {
        let peer = connection.peer().traddr();
        let Some(stay) = self.lobby.enter(peer) else {
            if let Some(closed) = self.crowded.due(reactor::now()) {
                let many = NEWCOMERS_OF_ADDRESS;
                let more = "more, from there or elsewhere alike, are closed";
                tracing::warn!(
                    "{many} connections from {peer} have sent no Connect: {closed} {more}"
                );
            }
            return;
        };
        let Some(seat) = self.seat() else {
            if let Some(closed) = self.full.due(reactor::now()) {
                let open = self.connections();
                tracing::warn!("{open} connections are open: {closed} more are closed");
            }
            return;
        };
        let handle = &self.members[seat.member].handle;
        let target = Arc::clone(target);
        // Gone is a reactor that stops: the connection closes with the closure.
        let _ = handle.spawn(move || async move {
            let _seat = seat;
            match connection.attach().await {
                Ok(accepted) => {
                    let connected = || stay.leave();
                    let serve = target::serve_connection(target, accepted, listener, connected);
                    // Shown out: closed, and its peer has sent nothing that is kept.
                    let _ = stay.unless_shown_out(serve).await;
                }
                Err(error) => tracing::warn!("a connection is lost: {error}"),
            }
        });
    }

    /// Waits until few of those are open still that were shown out of the lobby for others. While connections came as
    /// fast as they were accepted, the reactor did nothing else: the time ran out that hosts have to connect.
    pub async fn make_room(&self) {
        // On this reactor that is all they wait for.
        reactor::yield_now().await;
        while self.lobby.leaving() >= LEAVING {
            reactor::sleep(LEAVING_LOOK).await;
        }
    }

    /// Open connections.
    fn connections(&self) -> usize {
        self.load().connections.iter().sum()
    }

    /// Waits until no connection is open; false when some are after `limit`.
    pub fn wait_until_idle(&self, limit: Duration) -> bool {
        let busy = |load: &mut Load| load.connections.iter().any(|count| *count > 0);
        let (_load, waited) = self
            .ended
            .wait_timeout_while(self.load(), limit, busy)
            .unwrap_or_else(PoisonError::into_inner);
        !waited.timed_out()
    }

    /// Asks every reactor for a sign of life.
    pub fn pulse(&self) -> Vec<Call<()>> {
        self.members.iter().map(|member| member.handle.call(|| async {})).collect()
    }

    /// Runs `ask` on every reactor at once; those that have stopped, or do not answer in time, give none.
    pub fn ask<T: Send + 'static>(&self, ask: fn() -> T) -> Vec<Option<T>> {
        let call = |member: &Member| member.handle.call(move || async move { ask() });
        let calls = self.members.iter().map(call).collect();
        let answers = reactor::wait_for(calls, ANSWER);
        answers.into_iter().map(|answer| answer?.ok()).collect()
    }

    /// Each reactor's own counters and connections.
    pub fn metrics(&self) -> Vec<(reactor::Metrics, usize)> {
        let connections = self.load().connections.clone();
        let metrics = self.members.iter().map(|member| member.handle.metrics());
        metrics.zip(connections).collect()
    }

    /// The reactors as documents.
    pub fn documents(&self) -> Vec<v1::Reactor> {
        let members = self.members.iter().zip(self.metrics()).enumerate();
        let document =
            |(id, (member, (metrics, connections))): (usize, (&Member, (_, usize)))| v1::Reactor {
                id,
                cpu: member.cpu,
                poll: self.poll,
                connections: stdx::num::u64_of(connections),
                busy: busy(&metrics),
            };
        members.map(document).collect()
    }

    /// Stops the reactors and waits for their threads.
    pub fn stop(&self) {
        self.members.iter().for_each(|member| member.handle.stop());
        for member in &self.members {
            if let Err(error) = member.handle.join() {
                tracing::error!("{} ended badly: {error}", member.handle.name());
            }
        }
    }
}

/// Ends the process: a reactor that cannot go on leaves its hosts, and whoever waits for it, without an answer for
/// ever, and what it was about to do half done. What was acknowledged is in the log.
fn fail_stop(name: &str, why: &str) {
    tracing::error!("{name} cannot go on: {why}: the daemon ends itself");
    std::process::exit(REACTOR_FAILED);
}

/// Share of a reactor's time spent on work.
#[allow(clippy::cast_precision_loss, reason = "a share is an estimate")]
pub fn busy(metrics: &reactor::Metrics) -> f64 {
    let total = metrics.busy_nanos + metrics.spin_nanos + metrics.sleep_nanos;
    if total == 0 { 0.0 } else { metrics.busy_nanos as f64 / total as f64 }
}

fn policy(settings: &Settings) -> reactor::PollPolicy {
    match settings.poll {
        v1::PollPolicy::Adaptive => {
            reactor::PollPolicy::Adaptive { spin: settings.spin.unwrap_or(reactor::ADAPTIVE_SPIN) }
        }
        v1::PollPolicy::Eager => {
            reactor::PollPolicy::Eager { spin: settings.spin.unwrap_or(reactor::EAGER_SPIN) }
        }
        v1::PollPolicy::Busy => reactor::PollPolicy::Busy,
        v1::PollPolicy::Interrupt => reactor::PollPolicy::Interrupt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever accepted went on and on while others connected as fast, and nobody who was shown out for them was closed.
    #[test]
    fn nobody_is_let_in_before_those_shown_out_are_closed() {
        let settings = Settings { cpus: vec![0], ..Settings::default() };
        let reactors = Arc::new(Reactors::start(&settings).unwrap());
        let address = |number: u32| std::net::IpAddr::from(number.to_be_bytes());
        let inside = u32::try_from(NEWCOMERS - LEAVING).unwrap();
        let enter = |number| reactors.lobby.enter(address(number)).unwrap();
        let mut stays: Vec<_> = (0..inside).map(enter).collect();
        let is_ready = || {
            let reactors = Arc::clone(&reactors);
            let room = async move {
                reactor::timeout(Duration::from_millis(20), reactors.make_room()).await.is_ok()
            };
            reactor::run(reactor::Config::default(), room).unwrap()
        };
        assert!(is_ready());
        stays.extend((inside..).take(LEAVING).map(enter));
        assert!(!is_ready());
        drop(stays.remove(0));
        assert!(is_ready());
        reactors.stop();
    }

    /// All of the node's 16 384 connections could be one reactor's, whose ring has fewer slots than that.
    #[test]
    fn a_reactor_takes_no_more_connections_than_its_ring_has_slots_for() {
        let settings = Settings { cpus: vec![0], ..Settings::default() };
        let reactors = Arc::new(Reactors::start(&settings).unwrap());
        let mut seats: Vec<_> = std::iter::from_fn(|| reactors.seat()).collect();
        assert_eq!(seats.len(), reactor::CONNECTIONS_MAX);
        seats.pop();
        assert!(reactors.seat().is_some());
        drop(seats);
        reactors.stop();
    }
}
