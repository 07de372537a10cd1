//! A set of namespaces, RAID at the host, as what a job works on.

use std::sync::Arc;

use hostraid::{Assemble, Claim, Member, Set};
use initiator::{Namespace, Remote, SharedWindow, WindowUse};
use reactor::join_all;

use crate::Error;

/// A set in use.
#[derive(Clone)]
pub struct Open {
    pub set: Set,
    /// What writes to each member go by, where that is wanted.
    windows: Vec<(Namespace, Arc<SharedWindow>)>,
}

impl Open {
    /// Puts the set together, and asks for a window of each member then: it reserves them, which ends windows.
    ///
    /// # Errors
    /// [`Error::Job`], in words.
    pub async fn of(
        job: &str,
        members: &[(Remote, u32)],
        claim: Claim,
        wanted: WindowUse,
    ) -> Result<Self, Error> {
        let failed = |error: &dyn std::fmt::Display| Error::Job(format!("job `{job}`: {error}"));
        let attach = members.iter().map(|(remote, nsid)| Namespace::attach(remote, *nsid));
        let mut windows = Vec::new();
        let mut all = Vec::new();
        for namespace in join_all(attach).await {
            let namespace = namespace.map_err(|error| failed(&error))?;
            if wanted == WindowUse::Off {
                all.push(Member::Namespace(namespace));
                continue;
            }
            let window = Arc::<SharedWindow>::default();
            all.push(Member::Namespace(namespace.with_window(Arc::clone(&window))));
            windows.push((namespace, window));
        }
        let assemble = Assemble { claim: Some(claim), ..Assemble::default() };
        let set = Set::assemble(all, assemble).await.map_err(|error| failed(&error))?;
        for (namespace, window) in &windows {
            if let Err(error) = namespace.fill_window(window, wanted).await {
                let _ = set.shut_down().await;
                return Err(failed(&format!("there is no direct write window: {error}")));
            }
        }
        Ok(Self { set, windows })
    }

    /// Has each member have a window as far as that can be. Never returns.
    pub async fn keep_windows(&self, wanted: WindowUse) {
        let keep = |(namespace, window): &(Namespace, Arc<SharedWindow>)| {
            let (namespace, window) = (namespace.clone(), Arc::clone(window));
            async move { namespace.keep_window(&window, wanted, 0).await }
        };
        join_all(self.windows.iter().map(keep)).await;
        std::future::pending::<()>().await;
    }

    /// Writes that the window took which took the fewest: what the others have beside them is no more.
    pub fn direct_writes(&self) -> u64 {
        self.windows.iter().map(|(_, window)| window.writes()).min().unwrap_or(0)
    }
}
