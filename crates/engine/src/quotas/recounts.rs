//! How writers have all shards count what they hold of a volume.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Quotas;
use crate::address::View;

/// How writers have all shards count a volume.
#[derive(Default)]
pub(super) struct Recounts {
    asked: u64,
    wanted: Vec<Recount>,
    /// By shard, whether it answers.
    listeners: Vec<bool>,
}

struct Recount {
    number: u64,
    view: View,
    /// A shard has begun with it: who asks from then on needs another one.
    is_begun: bool,
    /// Shards that have not counted yet, which have begun.
    waits_for: Vec<bool>,
    begun: Vec<bool>,
    failed: Arc<AtomicBool>,
}

impl Quotas {
    /// Has all shards count what they have of a volume, and waits for that. Tells whether each could.
    pub async fn recount(&self, view: View) -> bool {
        let (number, failed) = self.recounts.change(|recounts| recounts.ask(view));
        let is_done = |recounts: &mut Recounts| {
            let is_done = recounts.wanted.iter().all(|wanted| wanted.number != number);
            is_done.then_some(())
        };
        self.recounts.until(is_done).await;
        !failed.load(Ordering::Acquire)
    }

    /// A shard begins to answer.
    pub fn join(&self, shard: u16) {
        self.recounts.change(|recounts| recounts.listeners[usize::from(shard)] = true);
    }

    /// It answers no more.
    pub fn leave(&self, shard: u16) {
        self.recounts.change(|recounts| {
            recounts.listeners[usize::from(shard)] = false;
            for wanted in &mut recounts.wanted {
                if std::mem::take(&mut wanted.waits_for[usize::from(shard)]) {
                    wanted.failed.store(true, Ordering::Release);
                }
            }
            recounts.forget_done();
        });
    }

    /// The next volume that a shard is to count, and the number to be [answered](Self::answer); `None` once it has left.
    pub async fn next(&self, shard: u16) -> Option<(u64, View)> {
        let shard = usize::from(shard);
        let next = |recounts: &mut Recounts| {
            if !recounts.listeners[shard] {
                return Some(None);
            }
            let due = |wanted: &&mut Recount| wanted.waits_for[shard] && !wanted.begun[shard];
            let wanted = recounts.wanted.iter_mut().find(due)?;
            (wanted.is_begun, wanted.begun[shard]) = (true, true);
            Some(Some((wanted.number, wanted.view)))
        };
        self.recounts.until(next).await
    }

    /// A shard has counted what it was asked for, or could not.
    pub fn answer(&self, shard: u16, number: u64, is_counted: bool) {
        self.recounts.change(|recounts| {
            let mut of = recounts.wanted.iter_mut();
            if let Some(wanted) = of.find(|wanted| wanted.number == number) {
                assert!(wanted.begun[usize::from(shard)], "what a shard answers it has begun");
                wanted.waits_for[usize::from(shard)] = false;
                wanted.failed.fetch_or(!is_counted, Ordering::AcqRel);
            }
            recounts.forget_done();
        });
    }
}

impl Recounts {
    /// Of so many shards, none of which answers yet.
    pub(super) fn new(shards: u16) -> Self {
        let listeners = vec![false; usize::from(shards)];
        Self { listeners, ..Self::default() }
    }

    fn ask(&mut self, view: View) -> (u64, Arc<AtomicBool>) {
        let to_come = self.wanted.iter().find(|wanted| wanted.view == view && !wanted.is_begun);
        if let Some(wanted) = to_come {
            return (wanted.number, Arc::clone(&wanted.failed));
        }
        self.asked += 1;
        let failed = Arc::new(AtomicBool::new(!self.listeners.iter().all(|listens| *listens)));
        self.wanted.push(Recount {
            number: self.asked,
            view,
            is_begun: false,
            waits_for: self.listeners.clone(),
            begun: vec![false; self.listeners.len()],
            failed: Arc::clone(&failed),
        });
        self.forget_done();
        (self.asked, failed)
    }

    fn forget_done(&mut self) {
        self.wanted.retain(|wanted| wanted.waits_for.iter().any(|waits| *waits));
    }
}
