//! The paths of a namespace that a command uses: which they are, and what becomes of them.

use initiator::{Error, Namespace, PathInfo, PathState, Remote};

use crate::cli::ConnectArgs;

/// All paths that are asked for, the first one first.
pub async fn remotes(args: &ConnectArgs) -> Result<Vec<Remote>, Error> {
    let mut remotes = args.remotes();
    if args.all_paths
        && let Some(first) = remotes.first()
    {
        for found in first.paths().await? {
            if !remotes.contains(&found) {
                remotes.push(found);
            }
        }
    }
    Ok(remotes)
}

/// Attaches the namespace over all paths that are asked for, and logs what becomes of them.
pub async fn attach(args: &ConnectArgs) -> Result<Namespace, Error> {
    let remotes = remotes(args).await?;
    let namespace = Namespace::attach_paths(&remotes, args.nsid, args.path_policy.into()).await?;
    if remotes.len() > 1 {
        drop(reactor::spawn(follow(namespace.clone())));
    }
    Ok(namespace)
}

/// Logs what becomes of the paths.
async fn follow(namespace: Namespace) {
    let mut seen = Vec::new();
    loop {
        let now = namespace.paths_changed(&seen).await;
        for path in now.iter().filter(|path| !seen.contains(path)) {
            tell(path);
        }
        seen = now;
    }
}

fn tell(path: &PathInfo) {
    let place = format!("{}:{}", path.traddr, path.trsvcid);
    let why = path.why.as_deref().unwrap_or_default();
    match (path.state, path.access) {
        (PathState::Live, Some(access)) => tracing::info!("path {place}: connected, {access}"),
        (PathState::Live, None) => tracing::info!("path {place}: connected"),
        (PathState::Connecting, _) => tracing::warn!("path {place}: connecting: {why}"),
        (PathState::Over, _) => tracing::warn!("path {place}: given up: {why}"),
    }
}
