//! What a host that is gone, or is let in no more, had under way.
//!
//! A discard went on piece by piece after its association had ended, and its host had written there by another path.

use std::sync::Arc;

use nvme::nvm::{LbaRange, WriteZeroes};
use stdx::Lba;

use super::{until_empty, with_target};
use crate::namespace::{Backend, NamespaceSpec};
use crate::rig::{SUBSYSTEM, backend, nqn};
use crate::testing::peer::{PLAIN, admin, io};

#[test]
fn what_a_lost_host_has_under_way_ends_with_the_piece_that_the_backend_has() {
    const BYTES: u64 = 32 << 20;
    with_target(|address, target| async move {
        let Backend::Memory(region) = backend(BYTES) else { unreachable!() };
        region.copy_in(BYTES - 512, &[1; 512]).unwrap();
        region.copy_in(0, &[1; 512]).unwrap();
        let spec = NamespaceSpec::new(Backend::Memory(Arc::clone(&region)), 512);
        assert_eq!(target.add_namespace(&nqn(SUBSYSTEM), &spec), Ok(2));
        let (admin, cntlid) = admin(address).await;
        let mut queue = io(address, cntlid, PLAIN, 32).await;
        let range = LbaRange::new(Lba::new(0), 65_536).unwrap();
        let zeroes = WriteZeroes { range, fua: false, limited_retry: false, deallocate: true };
        queue.command(&zeroes.to_sqe(1, 2), &[]).await;
        while region.mismatch(0, &[0; 512]).unwrap().is_some() {
            reactor::yield_now().await;
        }
        drop((queue, admin));
        until_empty(&target).await;
        assert_eq!(region.mismatch(BYTES - 512, &[1; 512]).unwrap(), None, "it went on");
    });
}
