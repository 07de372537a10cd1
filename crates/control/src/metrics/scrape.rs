//! Answering scrapes of `/metrics`, whatever the node is doing.

use std::sync::Arc;

use array::node::Node;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use tokio::sync::Semaphore;

use super::{CONTENT_TYPE, Documents, text};
use crate::extract::{Answer, blocking};
use crate::limits::SCRAPE;

/// What scrapes share.
#[derive(Clone)]
pub struct Scrapes {
    /// For the one thread that asks for documents: when those do not come, the next scrape's thread would wait, too.
    asking: Arc<Semaphore>,
}

impl Default for Scrapes {
    fn default() -> Self {
        Self { asking: Arc::new(Semaphore::new(1)) }
    }
}

impl Scrapes {
    /// Counters, and the node's documents if they are to be had in time.
    pub async fn answer(&self, State(node): State<Arc<Node>>) -> Answer<impl IntoResponse + use<>> {
        let documents = tokio::time::timeout(SCRAPE, self.documents(Arc::clone(&node)));
        let metrics = blocking(move || Ok(node.metrics()));
        let (documents, metrics) = tokio::join!(documents, metrics);
        let documents = documents.ok().transpose()?.flatten();
        Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text(documents.as_ref(), &metrics?)))
    }

    async fn documents(&self, node: Arc<Node>) -> Answer<Option<Documents>> {
        // Never closed.
        let Ok(turn) = Arc::clone(&self.asking).acquire_owned().await else { return Ok(None) };
        let ask = move || {
            let _turn = turn;
            let (status, health, jobs) = (node.status()?, node.health()?, node.jobs());
            let (pools, volumes, groups) = (node.pools()?, node.volumes()?, node.groups(None)?);
            let subsystems = node.subsystems()?;
            let (schedules, now_ms) = (node.schedules(None)?, array::events::now_ms());
            Ok(Some(Documents {
                status,
                health,
                jobs,
                pools,
                volumes,
                groups,
                schedules,
                now_ms,
                subsystems,
            }))
        };
        blocking(ask).await
    }
}
