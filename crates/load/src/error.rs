//! Why a run could not be made or finished.

/// Why [`crate::run`] gave up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan cannot be run as it stands: what is wrong and what would be right.
    #[error("{0}")]
    Job(String),
    /// A host connection could not be made or was lost.
    #[error("job `{job}`: {source}")]
    Host {
        /// Name of the job.
        job: String,
        /// What went wrong.
        source: initiator::Error,
    },
    /// The target went away and did not come back in time.
    #[error("job `{job}`: the target was away for more than {} s: {source}", patience.as_secs())]
    Away {
        /// Name of the job.
        job: String,
        /// How long it was waited for.
        patience: std::time::Duration,
        /// What went wrong last.
        source: initiator::Error,
    },
    /// The file to measure cannot be opened.
    #[error("job `{job}`: {}: {source}", path.display())]
    File {
        /// Name of the job.
        job: String,
        /// The file.
        path: std::path::PathBuf,
        /// The kernel's word.
        source: std::io::Error,
    },
    /// The journal of acknowledgements cannot be used.
    #[error(transparent)]
    Journal(#[from] crate::journal::Error),
    /// A reactor could not be started.
    #[error("cannot start a reactor{}: {source}", on_cpu(*.cpu))]
    Reactor {
        /// The CPU asked for.
        cpu: Option<usize>,
        /// What went wrong.
        source: reactor::Error,
    },
    /// Commands were outstanding and none completed for as long as [`Plan::patience`](crate::Plan::patience).
    #[error("the target answered no command for {} s; the run was given up", .0.as_secs())]
    Stalled(std::time::Duration),
    /// The progress callback ended the run before it began.
    #[error("stopped while connecting")]
    Stopped,
}

fn on_cpu(cpu: Option<usize>) -> String {
    cpu.map_or_else(String::new, |cpu| format!(" on CPU {cpu}"))
}

impl Error {
    /// What to do about it, where something can be said.
    #[must_use]
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Host { source, .. } | Self::Away { source, .. } => source.advice(),
            Self::Stalled(_) => Some("look at the target's log and at the network path"),
            Self::Journal(_)
            | Self::Job(_)
            | Self::File { .. }
            | Self::Reactor { .. }
            | Self::Stopped => None,
        }
    }
}
