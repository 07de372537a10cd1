//! What a job is made of, word by word: the same words and the same meaning for the command line, for `--job` and
//! for a job file. Words are fio's where fio has them.

use std::path::PathBuf;
use std::time::Duration;

use api::value::{Refused, Size};
use clap::ValueEnum;
use initiator::{Address, HostIdentity, Optimizations, PathPolicy, Remote, WindowUse};
use load::limits::{JOBS_MAX, KEEP_ALIVE};
use load::{Distribution, Job, Limit, Mix, Pattern, Sizes, Target, Think, Verify};

use crate::cli::ConnectArgs;
use crate::cli::{Cpus, Poll, duration};

/// Every word, for those who ask which there are.
pub const KEYS: [&str; 38] = [
    "name",
    "rw",
    "rwmixread",
    "bs",
    "bssplit",
    "random-distribution",
    "iodepth",
    "nr-io-queues",
    "nr-write-queues",
    "nr-poll-queues",
    "optimizations",
    "numjobs",
    "runtime",
    "ramp-time",
    "offset",
    "size",
    "io-size",
    "rate",
    "rate-iops",
    "thinktime",
    "thinktime-blocks",
    "verify",
    "journal",
    "reconnect",
    "filename",
    "cpus",
    "poll",
    "randseed",
    "log-interval",
    "traddr",
    "trsvcid",
    "subnqn",
    "hostnqn",
    "nsid",
    "hdr-digest",
    "data-digest",
    "queues",
    "window",
];

/// How long the target of a load with a journal may be away, unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(60);

/// One job as it is described, before its parts are put together.
#[derive(Clone, Debug)]
pub struct Spec {
    job: Job,
    remote: Remote,
    /// Its other paths.
    others: Vec<Address>,
    policy: PathPolicy,
    nsid: u32,
    filename: Option<PathBuf>,
    /// Of a set, in place of the namespace.
    members: Vec<(Remote, u32)>,
    rw: String,
    rwmixread: u8,
    numjobs: u16,
    runtime: Option<Duration>,
    size: Option<u64>,
    io_size: Option<u64>,
    think: Option<Duration>,
    think_blocks: u32,
}

/// Words and values of `--job`.
pub type Inline = Vec<(String, String)>;

/// Reads `rw=write,bs=1m,iodepth=16`.
///
/// # Errors
/// What is wrong, and what would be right.
pub fn inline(text: &str) -> Result<Inline, String> {
    let mut found = Inline::new();
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        match part.split_once('=') {
            Some((key, value)) => found.push((key.trim().to_owned(), value.trim().to_owned())),
            // `bs=4k,16k`: what has no name goes on with the value before it.
            None => match found.last_mut() {
                Some((_, value)) => *value = format!("{value},{part}"),
                None => return Err(format!("`{part}` has no value; write {part}=VALUE")),
            },
        }
    }
    let mut spec = Spec::unconnected();
    for (key, value) in &found {
        spec.set(key, value).map_err(|refused| sentence(&refused))?;
    }
    Ok(found)
}

fn sentence(refused: &Refused) -> String {
    format!("{}; {}", refused.wrong, refused.right)
}

/// A parser of the command line for the value of `key`.
pub fn checked(key: &'static str) -> impl Fn(&str) -> Result<String, String> + Clone + Send + Sync {
    move |text| match Spec::unconnected().set(key, text) {
        Ok(()) => Ok(text.to_owned()),
        Err(refused) => Err(sentence(&refused)),
    }
}

fn refuse<T>(wrong: impl Into<String>, right: impl Into<String>) -> Result<T, Refused> {
    Err(Refused::new(wrong, right))
}

fn bytes(text: &str) -> Result<u64, Refused> {
    text.parse::<Size>().map(Size::bytes)
}

fn block(text: &str) -> Result<u32, Refused> {
    let bytes = bytes(text)?;
    match u32::try_from(bytes) {
        Ok(bytes) if bytes > 0 => Ok(bytes),
        _ => {
            refuse(format!("{text} is not the size of a command"), "write a size such as 4k or 1m")
        }
    }
}

fn time(text: &str) -> Result<Duration, Refused> {
    duration(text).map_err(|right| Refused::new(format!("`{text}` is not a time"), right))
}

/// A number from `least` up.
fn number<T: std::str::FromStr + PartialOrd + std::fmt::Display>(
    text: &str,
    least: T,
) -> Result<T, Refused> {
    match text.parse() {
        Ok(number) if number >= least => Ok(number),
        _ => refuse(
            format!("`{text}` is not a number that fits"),
            format!("write one from {least} up"),
        ),
    }
}

fn flag(text: &str) -> Result<bool, Refused> {
    match text {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => refuse(format!("`{text}` is neither true nor false"), "write true or false"),
    }
}

fn load_refused(error: &load::Error, right: &str) -> Refused {
    Refused::new(error.to_string(), right)
}

/// One value for both directions, or one each with a comma between them.
fn both_ways(text: &str, mix: impl Fn(&str) -> Result<Mix, Refused>) -> Result<Sizes, Refused> {
    match text.split_once(',') {
        None => Ok(Sizes::both(mix(text)?)),
        Some((read, write)) => Ok(Sizes { read: mix(read)?, write: mix(write)? }),
    }
}

const SPLIT: &str = "write sizes and their shares in percent, such as 4k/70:64k/30";

fn split(text: &str) -> Result<Mix, Refused> {
    let part = |part: &str| {
        let (size, share) = part.split_once('/').unwrap_or((part, ""));
        let share = match share {
            "" => None,
            text => match text.parse::<u8>() {
                Ok(share) if share <= 100 => Some(share),
                _ => return refuse(format!("`{text}` is not a share in percent"), SPLIT),
            },
        };
        Ok((block(size)?, share))
    };
    let parts = text.split(':').map(part).collect::<Result<Vec<_>, _>>()?;
    Mix::new(&parts).map_err(|error| load_refused(&error, SPLIT))
}

fn remote() -> Remote {
    Remote {
        traddr: "127.0.0.1".to_owned(),
        trsvcid: 4420,
        subnqn: crate::cli::DEFAULT_NQN.to_owned(),
        host: HostIdentity::of_machine(),
        options: initiator::Options { keep_alive: KEEP_ALIVE, ..initiator::Options::default() },
    }
}

impl Spec {
    /// A job as it is when nothing is said of it, at the namespace that `connect` names, with these paths to it
    /// beside the first.
    pub fn new(connect: &ConnectArgs, others: &[Remote]) -> Self {
        let mut remote = connect.remote();
        if connect.keep_alive_tmo.is_none() {
            remote.options.keep_alive = KEEP_ALIVE;
        }
        let mut spec = Self::at(remote, connect.nsid);
        let address = |remote: &Remote| Address {
            traddr: remote.traddr.clone(),
            trsvcid: Some(remote.trsvcid),
        };
        spec.others = others.iter().map(address).collect();
        spec.policy = connect.path_policy.into();
        spec.job.queues = connect.nr_io_queues;
        spec.job.reconnect = connect.ctrl_loss_tmo.and_then(|patience| patience.0);
        spec
    }

    /// A job to try words on.
    fn unconnected() -> Self {
        Self::at(remote(), 1)
    }

    /// A job for tests.
    #[cfg(test)]
    pub fn example() -> Self {
        Self::unconnected()
    }

    fn at(remote: Remote, nsid: u32) -> Self {
        let mut job = Job::new(Target::File(PathBuf::new()));
        job.name = "bench".to_owned();
        job.series = Some(Duration::from_secs(1));
        Self {
            job,
            remote,
            others: Vec::new(),
            policy: PathPolicy::default(),
            nsid,
            filename: None,
            members: Vec::new(),
            rw: "randread".to_owned(),
            rwmixread: 50,
            numjobs: 1,
            runtime: None,
            size: None,
            io_size: None,
            think: None,
            think_blocks: 1,
        }
    }

    /// Gives `key` the meaning `value`.
    ///
    /// # Errors
    /// What is wrong with either, and what would be right.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), Refused> {
        let key = key.replace('_', "-");
        if self.set_amount(&key, value)? || self.set_place(&key, value)? {
            return Ok(());
        }
        let job = &mut self.job;
        match key.as_str() {
            "name" => value.clone_into(&mut job.name),
            "rw" => {
                Pattern::parse(value, 50)
                    .map_err(|error| load_refused(&error, "write one of them, such as randread"))?;
                value.clone_into(&mut self.rw);
            }
            "rwmixread" => {
                self.rwmixread = number(value, 0)?;
                if self.rwmixread > 100 {
                    return refuse(
                        format!("{value} % of the commands"),
                        "write a share from 0 to 100",
                    );
                }
            }
            "bs" => job.sizes = both_ways(value, |text| Ok(Mix::one(block(text)?)))?,
            "bssplit" => job.sizes = both_ways(value, split)?,
            "random-distribution" => {
                job.distribution = Distribution::parse(value)
                    .map_err(|error| load_refused(&error, "write random, or zipf:1.2"))?;
            }
            "rate" => job.rate = Some(bytes(value)?),
            "rate-iops" => job.rate_iops = Some(number(value, 1)?),
            "thinktime" => self.think = Some(time(value)?),
            "thinktime-blocks" => self.think_blocks = number(value, 1)?,
            "verify" => job.verify = if flag(value)? { Verify::On } else { Verify::Off },
            "journal" => job.journal = Some(PathBuf::from(value)),
            "reconnect" => job.reconnect = Some(time(value)?),
            "randseed" => job.seed = number(value, 0)?,
            "log-interval" => job.series = if value == "off" { None } else { Some(time(value)?) },
            "cpus" => {
                let cpus = value.parse::<Cpus>();
                job.cpus = cpus.map_err(|right| Refused::new(format!("cpus `{value}`"), right))?.0;
            }
            "poll" => {
                let poll = <Poll as ValueEnum>::from_str(value, false);
                job.poll = poll
                    .map_err(|_| {
                        Refused::new(
                            format!("poll `{value}`"),
                            "write adaptive, eager, busy or interrupt",
                        )
                    })?
                    .policy();
            }
            _ => {
                let right = array::config::closest(&key, &KEYS);
                return refuse(format!("a job has no `{key}`"), right);
            }
        }
        Ok(())
    }

    /// How much, and how much at once.
    fn set_amount(&mut self, key: &str, value: &str) -> Result<bool, Refused> {
        match key {
            "iodepth" => self.job.io_depth = number(value, 1)?,
            "nr-io-queues" | "queues" => self.job.queues = number(value, 1)?,
            "numjobs" => self.numjobs = number(value, 1)?,
            "runtime" => self.runtime = Some(time(value)?),
            "ramp-time" => self.job.ramp = time(value)?,
            "offset" => self.job.offset = bytes(value)?,
            "size" => self.size = Some(bytes(value)?),
            "io-size" => self.io_size = Some(bytes(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Where to.
    fn set_place(&mut self, key: &str, value: &str) -> Result<bool, Refused> {
        let remote = &mut self.remote;
        match key {
            "traddr" => {
                let address: Result<Address, _> = value.parse();
                remote.go_to(
                    &address.map_err(|right| Refused::new(format!("traddr `{value}`"), right))?,
                );
                // They were those of another place.
                self.others.clear();
            }
            "trsvcid" => {
                remote.trsvcid = number(value, 1)?;
                self.others.clear();
            }
            "subnqn" => value.clone_into(&mut remote.subnqn),
            "hostnqn" => remote.host = HostIdentity::named(value),
            "nsid" => self.nsid = number(value, 1)?,
            "hdr-digest" => remote.options.header_digest = flag(value)?,
            "data-digest" => remote.options.data_digest = flag(value)?,
            "nr-write-queues" => remote.options.write_queues = number(value, 0)?,
            "nr-poll-queues" => remote.options.poll_queues = number(value, 0)?,
            "window" => {
                let window = value.parse::<WindowUse>();
                self.job.window =
                    window.map_err(|right| Refused::new(format!("window `{value}`"), right))?;
            }
            "optimizations" | "cures" => {
                let optimizations = value.parse::<Optimizations>();
                remote.options.optimizations = optimizations
                    .map_err(|right| Refused::new(format!("optimizations `{value}`"), right))?;
            }
            "filename" => self.filename = Some(PathBuf::from(value)),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The job, and its copies if it has some.
    ///
    /// # Errors
    /// What does not go together, and what would.
    pub fn jobs(&self) -> Result<Vec<Job>, Refused> {
        let mut job = self.job.clone();
        let refused = |error: load::Error| load_refused(&error, "see `flashloom bench --help`");
        job.pattern = Pattern::parse(&self.rw, self.rwmixread).map_err(refused)?;
        job.target = match &self.filename {
            Some(path) => Target::File(path.clone()),
            None if !self.members.is_empty() => {
                let claim = crate::raid::claim(&self.remote, false);
                Target::Set { members: self.members.clone(), claim }
            }
            None => Target::Namespace {
                remotes: self.remote.with_paths(&self.others),
                nsid: self.nsid,
                policy: self.policy,
            },
        };
        job.region = self.size;
        job.limit = match (self.runtime, self.io_size.or(self.size)) {
            (Some(runtime), _) => Limit::Runtime(runtime),
            (None, Some(amount)) => Limit::Size(amount),
            (None, None) => Limit::Runtime(Duration::from_secs(10)),
        };
        job.think = self.think.map(|time| Think { time, after: self.think_blocks });
        if job.journal.is_some() && job.reconnect.is_none() && self.filename.is_none() {
            job.reconnect = Some(PATIENCE);
        }
        job.check().map_err(refused)?;
        if usize::from(self.numjobs) > JOBS_MAX {
            return refuse(
                format!("numjobs {} is too many", self.numjobs),
                format!("write at most {JOBS_MAX}"),
            );
        }
        Ok((0..u64::from(self.numjobs))
            .map(|copy| Job { seed: job.seed ^ copy << 56, ..job.clone() })
            .collect())
    }

    /// Has the job work on the set of these.
    pub fn use_set(&mut self, members: Vec<(Remote, u32)>) {
        self.members = members;
    }

    /// Has the job check what a journal says in place of running a load.
    pub fn check_journal(&mut self) {
        self.job.verify = Verify::Check;
    }
}

#[cfg(test)]
mod tests;
