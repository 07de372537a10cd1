//! The server on the management socket.

use std::fs;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use array::node::Node;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use tokio::net::{TcpListener, UnixListener};
use utoipa::openapi::OpenApi;

use crate::bounded::{Bounded, Caller};
use crate::limits::{CONNECTIONS, READER_SILENCE, READERS, REQUEST_BYTES, SILENCE};
use crate::routes;
use crate::{describe, extract};

/// The management socket, bound and ready to be served.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
}

/// A socket for readers of metrics, bound and ready to be served.
#[derive(Debug)]
pub struct MetricsServer(TcpListener);

impl MetricsServer {
    /// Binds `address`.
    ///
    /// # Errors
    /// When it cannot be had.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        TcpListener::bind(address).await.map(Self)
    }

    /// Where it is bound: port 0 has become one.
    ///
    /// # Errors
    /// As getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Serves `/metrics` and nothing else, for ever.
    ///
    /// # Errors
    /// When the socket fails.
    pub async fn serve(self, node: Arc<Node>) -> io::Result<()> {
        let listener = Bounded::new(self.0, READERS, READER_SILENCE);
        let routes = routes::metrics().fallback(routes::unknown).with_state(node);
        axum::serve(listener, routes.into_make_service_with_connect_info::<Caller>()).await
    }
}

/// The description of the API, generated from the code.
pub fn openapi() -> OpenApi {
    describe::complete(routes::api().into_openapi())
}

/// The routes over `node`.
pub(crate) fn router(node: Arc<Node>) -> Router {
    let (router, description) = routes::api().split_for_parts();
    router
        .merge(routes::plain(describe::complete(description)))
        .fallback(routes::unknown)
        .method_not_allowed_fallback(routes::wrong_method)
        .layer(DefaultBodyLimit::max(REQUEST_BYTES))
        .layer(axum::middleware::from_fn(extract::name_caller))
        .with_state(node)
}

impl Server {
    /// Binds the socket at `path`, for the owner and the members of `group` only. A socket that is there already is
    /// what an earlier daemon left behind: the caller holds the state directory. Where the group cannot be given it, it is
    /// for the owner only, and why comes with it.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn bind(path: &Path, group: Option<u32>) -> io::Result<(Self, Option<io::Error>)> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        // Until then nobody else has got at it: the caller's umask leaves it to the owner.
        let given = group.map_or(Ok(()), |group| chown(path, None, Some(group)));
        let mode = if group.is_some() && given.is_ok() { 0o660 } else { 0o600 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        Ok((Self { listener, path: path.to_owned() }, given.err()))
    }

    /// Serves until `end` completes; requests under way are answered first.
    ///
    /// # Errors
    /// When the socket fails.
    pub async fn serve(
        self,
        node: Arc<Node>,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let listener = Bounded::new(self.listener, CONNECTIONS, SILENCE);
        let routes = router(node).into_make_service_with_connect_info::<Caller>();
        let result = axum::serve(listener, routes).with_graceful_shutdown(end).await;
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("cannot remove {}: {error}", self.path.display());
            }
            _ => {}
        }
        result
    }
}
