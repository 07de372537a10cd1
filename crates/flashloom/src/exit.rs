//! Why a command failed, and the exit code that says so.

use std::path::Path;
use std::process::ExitCode;

use api::v1::{Kind, Problem};
use serde_json::json;

use crate::cli::Output;

/// Exit codes, as `flashloom --help` documents them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// What was asked for failed.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
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
            Exit::Usage => 2,
            Exit::Config => 3,
            Exit::NoDaemon => 4,
            Exit::Target => 5,
            Exit::Data => 6,
            Exit::Reactor => 7,
        })
    }
}

impl Exit {
    /// What a program acts on, where no refusal of the daemon says it.
    const fn kind(self) -> &'static str {
        match self {
            Self::Failed | Self::Reactor => "failed",
            Self::Usage => "usage",
            Self::Config => "invalid",
            Self::NoDaemon => "no-daemon",
            Self::Target => "target",
            Self::Data => "data",
        }
    }
}

/// A command that failed.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// The kind of a refusal of the daemon, or of what it does.
    pub kind: Option<Kind>,
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
        Self { exit, kind: None, message: message.to_string(), help: None }
    }

    /// With what would be right.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Prints it to standard error, for programs as the API has it.
    pub fn print(&self, output: Output) {
        if output == Output::Json {
            let kind = self.kind.map_or_else(|| self.exit.kind().into(), |kind| json!(kind));
            let document = json!({
                "kind": kind, "message": self.message, "help": self.help, "exit": self.exit as u8,
            });
            eprintln!("{document}");
            return;
        }
        eprintln!("flashloom: {}", self.message);
        if let Some(help) = &self.help {
            eprintln!("  {help}");
        }
    }
}

impl From<array::Error> for Failure {
    fn from(error: array::Error) -> Self {
        let array::Error { kind, context, help, .. } = error;
        Self { exit: Exit::Failed, kind: Some(kind), message: context, help }
    }
}

impl From<api::value::Refused> for Failure {
    fn from(refused: api::value::Refused) -> Self {
        let kind = Some(Kind::Invalid);
        Self { exit: Exit::Failed, kind, message: refused.wrong, help: Some(refused.right) }
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
            Error::Refused(problem) => problem.into(),
            Error::Unreachable { ref path, .. } => {
                let help = elsewhere(path);
                Self::new(Exit::NoDaemon, error).help(help)
            }
            Error::Denied { .. } => Self::new(Exit::Failed, error).help(
                "it is for the user that runs the daemon, and for members of `[node] socket-group` if that is set: run \
                 this as that user, such as with sudo",
            ),
            Error::Garbled(_) => Self::new(Exit::Failed, error),
        }
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let Problem { kind, message, help } = problem;
        Self { exit: Exit::Failed, kind: Some(kind), message, help }
    }
}

/// What to do where no daemon answers at `socket`: the demo's may answer beside it.
fn elsewhere(socket: &Path) -> String {
    let given = socket.parent().unwrap_or(socket);
    let near = [given.join("state"), Path::new("flashloom-data").join("state")];
    match near.iter().find(|dir| array::state::socket_path(dir).exists()) {
        Some(dir) => format!("there is one at --state-dir {}", dir.display()),
        None => "start one with `flashloom serve`, or name its state directory with --state-dir"
            .to_owned(),
    }
}

impl From<initiator::Error> for Failure {
    fn from(error: initiator::Error) -> Self {
        let help = error.advice().map(str::to_owned);
        Self { exit: Exit::Target, kind: None, message: error.to_string(), help }
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
        Self { exit, kind: None, message: error.to_string(), help }
    }
}
