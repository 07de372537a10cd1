//! Direct write windows of what `attach` serves.

use std::sync::Arc;

use initiator::{Namespace, WindowUse};

use crate::cli::AttachArgs;
use crate::exit::{Exit, Failure};

/// The window to ask for. A set has none: its writes go to several volumes, in an order of their own.
///
/// # Errors
/// One is asked for that cannot be.
pub fn of(args: &AttachArgs) -> Result<WindowUse, Failure> {
    let why = if !args.members.is_empty() {
        "a RAID set is written to by commands: it has no direct write window"
    } else if args.read_only {
        "nothing is written with --read-only: there is no direct write window then"
    } else {
        return Ok(args.window);
    };
    match args.window {
        WindowUse::Off | WindowUse::Auto => Ok(WindowUse::Off),
        _ => {
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
    let opened = namespace.open_window(wanted).await.map_err(|error| {
        let failure = Failure::from(error);
        let message = format!("there is no direct write window: {}", failure.message);
        Failure { message, ..failure }
    });
    let Some(window) = opened? else { return Ok(namespace) };
    match window.stands() {
        true => tracing::info!("writes go by a direct write window"),
        false => {
            tracing::info!("writes go as commands: there is no direct write window at the moment")
        }
    }
    let written = namespace.with_window(Arc::clone(&window));
    drop(reactor::spawn(async move { namespace.keep_window(&window, wanted, 0).await }));
    Ok(written)
}
