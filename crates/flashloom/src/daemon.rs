//! The way to the running daemon.

use std::future::Future;

use array::state::socket_path;
use control::Client;

use crate::cli::Global;
use crate::exit::{Exit, Failure, Outcome};

/// Asks the daemon and waits for its answer.
pub fn ask<T, F>(global: &Global, question: impl FnOnce(Client) -> F) -> Outcome<T>
where
    F: Future<Output = control::client::Result<T>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failed, error))?;
    Ok(runtime.block_on(question(client(global)))?)
}

/// Who asks the daemon.
pub fn client(global: &Global) -> Client {
    Client::new(&socket_path(&global.state_dir()))
}
