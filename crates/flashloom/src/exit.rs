//! Why a command failed, and the exit code that says so.

use std::process::ExitCode;

/// Exit codes, as `flashloom --help` documents them. Code 2, a wrong command line, is clap's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// What was asked for failed.
    Failed = 1,
    /// The configuration file has faults; nothing was started or changed.
    Config = 3,
    /// No daemon answers on the management socket.
    NoDaemon = 4,
    /// The target could not be reached, or refused.
    Target = 5,
    /// Commands failed, or data read back was not what was written.
    Data = 6,
    /// The daemon ended itself: a reactor could not go on.
    Reactor = 7,
}

const _: () = assert!(Exit::Reactor as i32 == array::limits::REACTOR_FAILED);

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Failed => 1,
            Exit::Config => 3,
            Exit::NoDaemon => 4,
            Exit::Target => 5,
            Exit::Data => 6,
            Exit::Reactor => 7,
        })
    }
}

/// A command that failed.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub help: Option<String>,
}

/// What every command returns.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// A failure with the exit code `exit`.
    pub fn new(exit: Exit, message: impl std::fmt::Display) -> Self {
        Self { exit, message: message.to_string(), help: None }
    }

    /// With what would be right.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Prints it to standard error.
    pub fn print(&self) {
        eprintln!("flashloom: {}", self.message);
        if let Some(help) = &self.help {
            eprintln!("  {help}");
        }
    }
}

impl From<array::Error> for Failure {
    fn from(error: array::Error) -> Self {
        Self { exit: Exit::Failed, message: error.context, help: error.help }
    }
}

impl From<api::value::Refused> for Failure {
    fn from(refused: api::value::Refused) -> Self {
        Self { exit: Exit::Failed, message: refused.wrong, help: Some(refused.right) }
    }
}

impl From<array::config::Faults> for Failure {
    fn from(faults: array::config::Faults) -> Self {
        Self::new(Exit::Config, format!("the job file has faults\n{faults}"))
    }
}

impl From<array::node::StartError> for Failure {
    fn from(error: array::node::StartError) -> Self {
        match error {
            array::node::StartError::Config(faults) => {
                Self::new(Exit::Config, format!("the configuration has faults\n{faults}"))
            }
            array::node::StartError::Node(error) => error.into(),
        }
    }
}

impl From<control::client::Error> for Failure {
    fn from(error: control::client::Error) -> Self {
        use control::client::Error;
        match error {
            Error::Refused(problem) => {
                Self { exit: Exit::Failed, message: problem.message, help: problem.help }
            }
            Error::Unreachable { .. } => Self::new(Exit::NoDaemon, error).help(
                "start one with `flashloom serve`, or name its state directory with --state-dir",
            ),
            Error::Garbled(_) => Self::new(Exit::Failed, error),
        }
    }
}

impl From<initiator::Error> for Failure {
    fn from(error: initiator::Error) -> Self {
        let help = error.advice().map(str::to_owned);
        Self { exit: Exit::Target, message: error.to_string(), help }
    }
}

impl From<load::Error> for Failure {
    fn from(error: load::Error) -> Self {
        let exit = match error {
            load::Error::Host { .. } | load::Error::Away { .. } | load::Error::Stalled(_) => {
                Exit::Target
            }
            load::Error::Job(_)
            | load::Error::File { .. }
            | load::Error::Journal(_)
            | load::Error::Reactor { .. }
            | load::Error::Stopped => Exit::Failed,
        };
        let help = error.advice().map(str::to_owned);
        Self { exit, message: error.to_string(), help }
    }
}
