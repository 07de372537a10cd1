//! Whom to connect to and how, also by the names that nvme-cli has for it.

use std::time::Duration;

use initiator::{Address, DiscoveryLog, Fencing, HostIdentity, Optimizations, PathPolicy, Remote};
use reactor::PollPolicy;

use crate::{Error, WindowUse};

/// The discovery service's port, and that of most targets.
const PORT: u16 = 4420;

/// Whom to connect to, how, and how the thread that does it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The subsystem and the connections to it.
    pub remote: Remote,
    /// Further addresses of the subsystem: other paths to the namespace.
    pub paths: Vec<Address>,
    /// How commands are spread over paths of the same access.
    pub path_policy: PathPolicy,
    /// CPU of the thread that serves a namespace; `None` leaves that to the scheduler.
    pub cpu: Option<usize>,
    /// How that thread waits for work, and how those do that wait for completions.
    pub poll: PollPolicy,
    /// Whether writes go by a direct write window.
    pub window: WindowUse,
}

impl Default for Options {
    /// Port 4420 of this machine, as the machine's own host, and no subsystem.
    fn default() -> Self {
        let remote = Remote {
            traddr: "127.0.0.1".to_owned(),
            trsvcid: PORT,
            subnqn: String::new(),
            host: HostIdentity::of_machine(),
            options: initiator::Options::default(),
        };
        Self {
            remote,
            paths: Vec::new(),
            path_policy: PathPolicy::default(),
            cpu: None,
            poll: PollPolicy::default(),
            window: WindowUse::default(),
        }
    }
}

impl Options {
    /// Sets an option by its name, mostly nvme-cli's; `_` is as good as `-`. Times are in seconds unless they end
    /// in `ms`, `s` or `m`; switches take `1`, `0`, `true`, `false`, `on` or `off`.
    ///
    /// | name | value |
    /// |---|---|
    /// | `traddr` | IP address or host name, of NVMe/RDMA with `rdma://` before it; a port in it is `trsvcid` |
    /// | `trsvcid` | port |
    /// | `subnqn` | NQN of the subsystem |
    /// | `hostnqn` | NQN to connect as |
    /// | `hostid` | Host Identifier to connect with, a UUID; after `hostnqn`, which brings one of its own |
    /// | `path` | one more address of the subsystem, `ADDR` or `ADDR:PORT`, of NVMe/RDMA with `rdma://` before it: another path. Each adds one |
    /// | `path-policy` | how commands are spread over paths: `numa` (the first one), `round-robin` or `queue-depth` |
    /// | `nr-io-queues` | I/O queues, for reads only when there are write queues |
    /// | `nr-write-queues` | I/O queues beside them for what is no read |
    /// | `nr-poll-queues` | I/O queues beside them for whoever waits for one command: blocking calls, queues of depth 1 |
    /// | `queue-size` | commands outstanding on each queue |
    /// | `keep-alive-tmo` | Keep Alive Timeout |
    /// | `reconnect-delay` | time between attempts to connect again |
    /// | `ctrl-loss-tmo` | how long it is tried to connect again; `off` is for ever |
    /// | `fast-io-fail-tmo` | after so long without the controller commands fail; `off` has them wait |
    /// | `io-timeout` | how long a command may go unanswered before it is aborted; `off` is for ever |
    /// | `timeout` | how long a connection or an admin command may take |
    /// | `hdr-digest`, `data-digest` | switches |
    /// | `tos` | type of service, or traffic class |
    /// | `so-priority` | priority of the connections |
    /// | `fencing` | `proven` or `trusted`, see [`Fencing`] |
    /// | `cqt` | Command Quiesce Time of a controller that reports none; 30 s unless set |
    /// | `optimizations` | what makes it fast: `default`, `all`, `none` or names with commas between; `-NAME` takes one off |
    /// | `cpu` | CPU of the serving thread |
    /// | `poll` | `adaptive`, `busy` or `interrupt` |
    /// | `window` | whether writes go by a direct write window: `off`, `auto`, `shm`, `rdma` or `require`, see [`WindowUse`] |
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let wrong = |right: &str| Error::invalid(format!("{name} is not `{value}`: {right}"));
        let connect = &mut self.remote.options;
        let canonical = name.replace('_', "-");
        match canonical.as_str() {
            "traddr" => {
                let address = value.parse().map_err(|why: String| wrong(&why))?;
                self.remote.go_to(&address);
            }
            "subnqn" => value.clone_into(&mut self.remote.subnqn),
            "hostnqn" => self.remote.host = HostIdentity::named(value),
            "hostid" => {
                self.remote.host.id = HostIdentity::parse_id(value).map_err(|why| wrong(&why))?;
            }
            "path" => self.paths.push(value.parse().map_err(|why: String| wrong(&why))?),
            "path-policy" => {
                self.path_policy = match value {
                    "numa" => PathPolicy::Numa,
                    "round-robin" => PathPolicy::RoundRobin,
                    "queue-depth" => PathPolicy::QueueDepth,
                    _ => return Err(wrong("numa, round-robin or queue-depth")),
                }
            }
            "trsvcid" => self.remote.trsvcid = number(value).ok_or_else(|| wrong("a port"))?,
            "nr-io-queues" => {
                connect.io_queues =
                    number(value).filter(|&count| count > 0).ok_or_else(|| wrong("a count"))?;
            }
            "nr-write-queues" => {
                connect.write_queues = number(value).ok_or_else(|| wrong("a count"))?;
            }
            "nr-poll-queues" => {
                connect.poll_queues = number(value).ok_or_else(|| wrong("a count"))?;
            }
            "optimizations" | "cures" => {
                connect.optimizations = value.parse::<Optimizations>().map_err(|why| wrong(&why))?
            }
            "queue-size" => {
                connect.queue_size =
                    number(value).filter(|&count| count > 1).ok_or_else(|| wrong("2 or more"))?;
            }
            "tos" => connect.tos = Some(number(value).ok_or_else(|| wrong("0 to 255"))?),
            "so-priority" => {
                connect.priority = Some(number(value).ok_or_else(|| wrong("a priority"))?);
            }
            "cpu" => self.cpu = Some(number(value).ok_or_else(|| wrong("a CPU"))?),
            "hdr-digest" => connect.header_digest = switch(value).ok_or_else(|| wrong(SWITCH))?,
            "data-digest" => connect.data_digest = switch(value).ok_or_else(|| wrong(SWITCH))?,
            "fencing" => {
                connect.fencing = match value {
                    "proven" => Fencing::Proven,
                    "trusted" => Fencing::Trusted,
                    _ => return Err(wrong("proven or trusted")),
                }
            }
            "poll" => {
                self.poll = match value {
                    "adaptive" => PollPolicy::ADAPTIVE,
                    "eager" => PollPolicy::EAGER,
                    "busy" => PollPolicy::Busy,
                    "interrupt" => PollPolicy::Interrupt,
                    _ => return Err(wrong("adaptive, eager, busy or interrupt")),
                }
            }
            "window" => self.window = value.parse().map_err(|why: String| wrong(&why))?,
            time => return self.set_time(time, value),
        }
        Ok(())
    }

    fn set_time(&mut self, name: &str, value: &str) -> Result<(), Error> {
        const RIGHT: &str = "a time such as 10, 10s, 500ms or 2m";
        let connect = &mut self.remote.options;
        let wrong = || Error::invalid(format!("{name} is not `{value}`: {RIGHT}"));
        let or_off = || if value == "off" { Some(None) } else { time(value).map(Some) };
        match name {
            "keep-alive-tmo" => connect.keep_alive = time(value).ok_or_else(wrong)?,
            "reconnect-delay" => connect.reconnect_delay = time(value).ok_or_else(wrong)?,
            "timeout" => connect.timeout = time(value).ok_or_else(wrong)?,
            "ctrl-loss-tmo" => connect.ctrl_loss = or_off().ok_or_else(wrong)?,
            "cqt" => connect.cqt = time(value).ok_or_else(wrong)?,
            "fast-io-fail-tmo" => connect.fast_io_fail = or_off().ok_or_else(wrong)?,
            "io-timeout" => connect.io_timeout = or_off().ok_or_else(wrong)?.unwrap_or_default(),
            _ => return Err(Error::invalid(format!("there is no option `{name}`"))),
        }
        Ok(())
    }

    /// All paths, the first one first.
    pub(crate) fn remotes(&self) -> Vec<Remote> {
        self.remote.with_paths(&self.paths)
    }

    /// Reads the discovery log of the service at this address. The subsystem is the well-known discovery subsystem
    /// when none is set.
    ///
    /// # Errors
    /// [`Error::Host`].
    pub fn discover(&self) -> Result<DiscoveryLog, Error> {
        let mut remote = self.remote.clone();
        if remote.subnqn.is_empty() {
            nvme::nqn::DISCOVERY.clone_into(&mut remote.subnqn);
        }
        Ok(initiator::discover(&remote)?)
    }
}

const SWITCH: &str = "on or off";

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "1" | "true" | "on" | "yes" => Some(true),
        "0" | "false" | "off" | "no" => Some(false),
        _ => None,
    }
}

fn time(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|char: char| char.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    match &text[digits.len()..] {
        "" | "s" => Some(Duration::from_secs(number)),
        "ms" => Some(Duration::from_millis(number)),
        "m" => Some(Duration::from_secs(number.saturating_mul(60))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_set_by_name() {
        let mut options = Options::default();
        for (name, value) in [
            ("traddr", "192.0.2.1"),
            ("trsvcid", "8009"),
            ("nr_io_queues", "4"),
            ("hdr-digest", "on"),
            ("ctrl-loss-tmo", "off"),
            ("keep-alive-tmo", "1500ms"),
            ("fencing", "trusted"),
            ("cqt", "250ms"),
            ("hostid", "00112233-4455-6677-8899-aabbccddeeff"),
            ("nr-poll-queues", "2"),
            // What it was called before.
            ("cures", "all,-batching"),
            ("path", "192.0.2.2"),
            ("path", "[fd00::1]:4421"),
            ("path-policy", "queue-depth"),
            ("poll", "busy"),
            ("window", "require"),
        ] {
            options.set(name, value).unwrap();
        }
        let connect = &options.remote.options;
        assert_eq!((options.remote.traddr.as_str(), options.remote.trsvcid), ("192.0.2.1", 8009));
        assert_eq!((connect.io_queues, connect.header_digest), (4, true));
        assert_eq!((connect.ctrl_loss, connect.keep_alive), (None, Duration::from_millis(1500)));
        assert_eq!((connect.fencing, options.poll), (Fencing::Trusted, PollPolicy::Busy));
        assert_eq!(connect.cqt, Duration::from_millis(250));
        assert_eq!((connect.poll_queues, options.remote.host.id[15]), (2, 0xff));
        assert_eq!(
            connect.optimizations,
            Optimizations::all().without(initiator::Optimization::Batching)
        );
        let remotes = options.remotes();
        let places: Vec<_> = remotes.iter().map(|r| (&*r.traddr, r.trsvcid)).collect();
        assert_eq!(places, [("192.0.2.1", 8009), ("192.0.2.2", 8009), ("[fd00::1]", 4421)]);
        assert_eq!(options.path_policy, PathPolicy::QueueDepth);
        assert_eq!(options.window, WindowUse::Require);
    }

    #[test]
    fn a_wrong_value_and_an_unknown_name_are_told() {
        let mut options = Options::default();
        let before = options.clone();
        for (name, value, word) in [
            ("trsvcid", "nvme", "port"),
            ("queue-size", "1", "2 or more"),
            ("data-digest", "maybe", "on or off"),
            ("io-timeout", "soon", "a time"),
            ("hostid", "17", "UUID"),
            ("optimizations", "speed", "busy-poll"),
            ("path", "array:nvme", "an address"),
            ("path-policy", "best", "round-robin"),
            ("window", "open", "off, auto"),
            ("colour", "blue", "no option `colour`"),
        ] {
            let told = options.set(name, value).unwrap_err().to_string();
            assert!(told.contains(word), "{told}");
        }
        assert_eq!(options, before);
    }
}
