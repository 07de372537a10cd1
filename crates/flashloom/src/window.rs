//! Direct write windows of what `attach` serves.

use std::sync::Arc;

use initiator::{Namespace, SharedWindow, WindowUse};

use crate::cli::AttachArgs;
use crate::exit::{Exit, Failure};

/// The window to ask for.
///
/// # Errors
/// One is asked for that cannot be.
pub fn of(args: &AttachArgs) -> Result<WindowUse, Failure> {
    match args.window {
        wanted if !args.read_only => Ok(wanted),
        WindowUse::Off | WindowUse::Auto => Ok(WindowUse::Off),
        _ => {
            let why = "nothing is written with --read-only: there is no direct write window then";
            Err(Failure::new(Exit::Failed, why).help("leave --window out, or give it off or auto"))
        }
    }
}

/// The namespace with its writes going by a window, as far as that is wanted and can be. The window is asked for again
/// when it has ended, for as long as this reactor runs.
///
/// # Errors
/// There is none, and one is required.
pub async fn open(namespace: Namespace, wanted: WindowUse) -> Result<Namespace, Failure> {
    if wanted == WindowUse::Off {
        return Ok(namespace);
    }
    let place = Place::of(namespace, wanted);
    place.fill().await?;
    match place.window.stands() {
        true => tracing::info!("writes go by a direct write window"),
        false => {
            tracing::info!("writes go as commands: there is no direct write window at the moment")
        }
    }
    let written = place.namespace();
    place.keep();
    Ok(written)
}

/// A namespace and the place of its window, which is asked for later.
pub struct Place {
    namespace: Namespace,
    window: Arc<SharedWindow>,
    wanted: WindowUse,
}

impl Place {
    pub fn of(namespace: Namespace, wanted: WindowUse) -> Self {
        Self { namespace, window: Arc::default(), wanted }
    }

    /// The namespace with its writes going by what is there.
    pub fn namespace(&self) -> Namespace {
        self.namespace.with_window(Arc::clone(&self.window))
    }

    /// Asks for one.
    ///
    /// # Errors
    /// There is none, and one is required.
    pub async fn fill(&self) -> Result<(), Failure> {
        self.namespace.fill_window(&self.window, self.wanted).await.map_err(|error| {
            let failure = Failure::from(error);
            let message = format!("there is no direct write window: {}", failure.message);
            Failure { message, ..failure }
        })
    }

    /// Has there be one as far as that can be, for as long as this reactor runs.
    pub fn keep(self) {
        let Self { namespace, window, wanted } = self;
        drop(reactor::spawn(async move { namespace.keep_window(&window, wanted, 0).await }));
    }
}
