//! Queue pairs that can flush what they wrote (RDMA FLUSH): they are posted to by functions of their own, one for each part of
//! a request.
#![allow(unsafe_code, reason = "functions of rdma-core")]

use core::ptr::NonNull;
use std::io;

use crate::channel::Id;
use crate::ffi::{self, Functions, QueuePairEx, QueuePairInit, QueuePairInitEx, SendRequest, Sge};
use crate::library::numbered;
use crate::{Domain, Remote};

/// Makes the identifier's queue pair; none where the library or the device cannot.
///
/// # Safety
/// Identifier, domain and what `init` names are of one device, and outlive the queue pair.
pub unsafe fn create(
    functions: &Functions,
    id: &Id,
    domain: &Domain,
    init: QueuePairInit,
) -> Option<NonNull<QueuePairEx>> {
    let (pd, unused) = (domain.as_ptr(), [0; 7]);
    let send_ops_flags = ffi::WITH_WRITE | ffi::WITH_SEND | ffi::WITH_READ | ffi::WITH_FLUSH;
    let init = QueuePairInit { comp_mask: ffi::INIT_PD | ffi::INIT_SEND_OPS, ..init };
    let mut init = QueuePairInitEx { init, pd, unused, send_ops_flags };
    // SAFETY: as the caller promises.
    let made = unsafe { (functions.rdma_create_qp_ex)(id.as_ptr(), &raw mut init) };
    if made != 0 {
        return None;
    }
    // SAFETY: it was made just now.
    let extended = NonNull::new(unsafe { (functions.ibv_qp_to_qp_ex)(id.get().qp) });
    if extended.is_none() {
        // SAFETY: nobody knows it.
        unsafe { (functions.rdma_destroy_qp)(id.as_ptr()) };
    }
    extended
}

/// Posts a request of one place; nothing of the peer's is invalidated by it.
///
/// # Safety
/// The queue pair is there, and the place is memory of its domain that is kept as long.
pub unsafe fn post(qp: NonNull<QueuePairEx>, request: &SendRequest, sge: &Sge) -> io::Result<()> {
    let remote = |qp: *mut QueuePairEx, function: Option<ffi::WrRemote>| {
        let function = function?;
        // SAFETY: as the caller promises.
        unsafe { function(qp, request.rkey, request.remote_addr) };
        Some(())
    };
    // SAFETY: as the caller promises.
    unsafe {
        posted(qp, request.wr_id, request.send_flags, |qp| {
            match request.opcode {
                ffi::WR_RDMA_WRITE => remote(qp, (*qp).wr_rdma_write)?,
                ffi::WR_RDMA_READ => remote(qp, (*qp).wr_rdma_read)?,
                ffi::WR_SEND => (*qp).wr_send?(qp),
                _ => return None,
            }
            (*qp).wr_set_sge?(qp, sge.lkey, sge.addr, sge.length);
            Some(())
        })
    }
}

/// Posts a flush.
///
/// # Safety
/// The queue pair is there.
pub unsafe fn flush(
    qp: NonNull<QueuePairEx>,
    id: u64,
    of: Remote,
    length: usize,
) -> io::Result<()> {
    let Remote { address, key } = of;
    // SAFETY: as the caller promises.
    unsafe {
        posted(qp, id, ffi::SEND_SIGNALED, |qp| {
            (*qp).wr_flush?(qp, key, address, length, ffi::FLUSH_PLACEMENT, ffi::FLUSH_RANGE);
            Some(())
        })
    }
}

/// Posts what `build` says of one request.
unsafe fn posted(
    qp: NonNull<QueuePairEx>,
    id: u64,
    flags: u32,
    build: impl FnOnce(*mut QueuePairEx) -> Option<()>,
) -> io::Result<()> {
    let qp = qp.as_ptr();
    let absent = || io::Error::from(io::ErrorKind::Unsupported);
    // SAFETY: the queue pair is there, and used by one thread at a time; what is begun is completed, or given up.
    unsafe {
        let (start, complete, abort) = ((*qp).wr_start, (*qp).wr_complete, (*qp).wr_abort);
        let (Some(start), Some(complete), Some(abort)) = (start, complete, abort) else {
            return Err(absent());
        };
        start(qp);
        (*qp).wr_id = id;
        (*qp).wr_flags = flags;
        if build(qp).is_none() {
            abort(qp);
            return Err(absent());
        }
        numbered(complete(qp))
    }
}
