//! The part of rdma-core's interface that is used, as its headers (version 17 and later) lay it out.
#![allow(unsafe_code, reason = "functions of C libraries")]

use core::ffi::{c_int, c_uint, c_void};
use core::mem::offset_of;

/// Of structures that only the libraries look into.
#[repr(C)]
pub struct Opaque {
    _private: [u8; 0],
}

/// `struct ibv_context`, its beginning. The functions of the data path are in its table: they are the driver's.
#[repr(C)]
pub struct Context {
    pub device: *mut Opaque,
    pub ops: [*const c_void; 32],
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
}
/// Places in [`Context::ops`].
pub const POLL_CQ: usize = 11;
pub const REQ_NOTIFY_CQ: usize = 12;
pub const POST_SEND: usize = 25;
pub const POST_RECV: usize = 26;
const _: () = assert!(offset_of!(Context, ops) == 8 && offset_of!(Context, cmd_fd) == 264);

pub type PollCq = unsafe extern "C" fn(*mut CompletionQueue, c_int, *mut WorkCompletion) -> c_int;
pub type ReqNotifyCq = unsafe extern "C" fn(*mut CompletionQueue, c_int) -> c_int;
pub type PostSend =
    unsafe extern "C" fn(*mut QueuePair, *mut SendRequest, *mut *mut SendRequest) -> c_int;
pub type PostRecv =
    unsafe extern "C" fn(*mut QueuePair, *mut ReceiveRequest, *mut *mut ReceiveRequest) -> c_int;

/// `struct ibv_cq`, its beginning.
#[repr(C)]
pub struct CompletionQueue {
    pub context: *mut Context,
}

/// `struct ibv_qp`, its beginning.
#[repr(C)]
pub struct QueuePair {
    pub context: *mut Context,
}

/// `struct ibv_comp_channel`.
#[repr(C)]
pub struct CompletionChannel {
    pub context: *mut Context,
    pub fd: c_int,
    pub refcnt: c_int,
}
const _: () = assert!(size_of::<CompletionChannel>() == 16);

/// `struct ibv_mr`.
#[repr(C)]
pub struct MemoryRegion {
    pub context: *mut Context,
    pub pd: *mut Opaque,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}
const _: () = assert!(size_of::<MemoryRegion>() == 48 && offset_of!(MemoryRegion, lkey) == 36);

/// `struct ibv_wc`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct WorkCompletion {
    pub wr_id: u64,
    pub status: c_uint,
    pub opcode: c_uint,
    pub vendor_err: u32,
    pub byte_len: u32,
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}
const _: () =
    assert!(size_of::<WorkCompletion>() == 48 && offset_of!(WorkCompletion, wc_flags) == 36);

/// `IBV_WC_WR_FLUSH_ERR`: the queue pair is in error, and this was not done.
pub const WC_FLUSHED: c_uint = 5;

/// `struct ibv_sge`.
#[repr(C)]
pub struct Sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// `struct ibv_send_wr`, with the union `wr` as RDMA_READ and RDMA_WRITE have it.
#[repr(C)]
pub struct SendRequest {
    pub wr_id: u64,
    pub next: *mut Self,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
    pub opcode: c_uint,
    pub send_flags: c_uint,
    /// Immediate data, or the key to invalidate.
    pub key_to_invalidate: u32,
    pub remote_addr: u64,
    pub rkey: u32,
    pub unused: [u32; 19],
}
const _: () =
    assert!(size_of::<SendRequest>() == 128 && offset_of!(SendRequest, remote_addr) == 40);

pub const WR_RDMA_WRITE: c_uint = 0;
pub const WR_SEND: c_uint = 2;
pub const WR_RDMA_READ: c_uint = 4;
pub const WR_SEND_WITH_INV: c_uint = 9;
pub const SEND_SIGNALED: c_uint = 2;

/// `struct ibv_recv_wr`.
#[repr(C)]
pub struct ReceiveRequest {
    pub wr_id: u64,
    pub next: *mut Self,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
}
const _: () = assert!(size_of::<ReceiveRequest>() == 32);

/// `struct ibv_qp_init_attr`, with its `struct ibv_qp_cap`.
#[repr(C)]
pub struct QueuePairInit {
    pub qp_context: *mut c_void,
    pub send_cq: *mut CompletionQueue,
    pub recv_cq: *mut CompletionQueue,
    pub srq: *mut Opaque,
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
    pub qp_type: c_uint,
    pub sq_sig_all: c_int,
}
const _: () = assert!(size_of::<QueuePairInit>() == 64 && offset_of!(QueuePairInit, qp_type) == 52);

/// `IBV_QPT_RC`: a reliable connection.
pub const QPT_RC: c_uint = 2;
/// `IBV_ACCESS_LOCAL_WRITE`, `IBV_ACCESS_REMOTE_WRITE` and `IBV_ACCESS_REMOTE_READ`.
pub const ACCESS_LOCAL_WRITE: c_int = 1;
/// `IBV_ACCESS_REMOTE_WRITE`.
pub const ACCESS_REMOTE_WRITE: c_int = 1 << 1;
/// `IBV_ACCESS_REMOTE_READ`.
pub const ACCESS_REMOTE_READ: c_int = 1 << 2;

/// `struct ibv_device_attr`.
#[repr(C)]
pub struct DeviceAttributes {
    pub fw_ver: [u8; 64],
    pub guids: [u64; 2],
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub versions: [u32; 3],
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: c_uint,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    pub rest: [u32; 18],
}
const _: () = assert!(size_of::<DeviceAttributes>() == 232);
const _: () = assert!(offset_of!(DeviceAttributes, max_qp_wr) == 112);
const _: () = assert!(offset_of!(DeviceAttributes, max_qp_rd_atom) == 144);
const _: () = assert!(offset_of!(DeviceAttributes, max_qp_init_rd_atom) == 156);

/// `IBV_DEVICE_MEM_MGT_EXTENSIONS`: among others, a send can invalidate a key.
pub const DEVICE_MEM_MGT_EXTENSIONS: c_uint = 1 << 21;

/// `struct rdma_event_channel`.
#[repr(C)]
pub struct EventChannel {
    pub fd: c_int,
}

/// `struct rdma_cm_id`, its beginning, `route.addr` included.
#[repr(C)]
pub struct CmId {
    pub verbs: *mut Context,
    pub channel: *mut EventChannel,
    pub context: *mut c_void,
    pub qp: *mut QueuePair,
    /// `route.addr.src_addr` and `route.addr.dst_addr`: each a union of the size of `sockaddr_storage`.
    pub src_addr: libc::sockaddr_storage,
    pub dst_addr: libc::sockaddr_storage,
}
const _: () = assert!(offset_of!(CmId, src_addr) == 32 && offset_of!(CmId, dst_addr) == 160);

/// `struct rdma_conn_param`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ConnectionParameters {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}
const _: () = assert!(size_of::<ConnectionParameters>() == 24);

/// `struct rdma_cm_event`, its beginning: of the union `param` what connections have.
#[repr(C)]
pub struct CmEvent {
    pub id: *mut CmId,
    pub listen_id: *mut CmId,
    pub event: c_uint,
    pub status: c_int,
    pub param: ConnectionParameters,
}
const _: () = assert!(size_of::<CmEvent>() <= 80 && offset_of!(CmEvent, param) == 24);

/// Values of [`CmEvent::event`].
pub const EVENT_ADDRESS_RESOLVED: c_uint = 0;
pub const EVENT_ADDRESS_ERROR: c_uint = 1;
pub const EVENT_ROUTE_RESOLVED: c_uint = 2;
pub const EVENT_ROUTE_ERROR: c_uint = 3;
pub const EVENT_CONNECT_REQUEST: c_uint = 4;
pub const EVENT_CONNECT_ERROR: c_uint = 6;
pub const EVENT_UNREACHABLE: c_uint = 7;
pub const EVENT_REJECTED: c_uint = 8;
pub const EVENT_ESTABLISHED: c_uint = 9;
pub const EVENT_DISCONNECTED: c_uint = 10;
pub const EVENT_DEVICE_REMOVAL: c_uint = 11;
pub const EVENT_TIMEWAIT_EXIT: c_uint = 15;

/// Values of [`CmEvent::status`] of a refusal, by a connection manager of InfiniBand or RoCE: nobody listens there, and
/// who does refused.
pub const REFUSED_NO_SERVICE: c_int = 8;
pub const REFUSED_BY_CONSUMER: c_int = 28;

/// `RDMA_PS_TCP`.
pub const PORT_SPACE_TCP: c_uint = 0x0106;
/// `RDMA_OPTION_ID` and `RDMA_OPTION_ID_REUSEADDR`.
pub const OPTION_ID: c_int = 0;
pub const OPTION_ID_REUSEADDR: c_int = 1;

/// The library that a function is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Verbs,
    Cm,
}

impl Which {
    pub const fn file(self) -> &'static core::ffi::CStr {
        match self {
            Self::Verbs => c"libibverbs.so.1",
            Self::Cm => c"librdmacm.so.1",
        }
    }
}

/// Declares the functions that are looked up, each with the library it is in.
macro_rules! functions {
    ($($library:ident: $name:ident($($argument:ty),*) $(-> $result:ty)?;)+) => {
        /// The functions of both libraries.
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)+
        }

        impl Functions {
            /// Looks each up with `find`, which is given its library and its name.
            ///
            /// # Safety
            /// What is found must be the function of that name, of rdma-core.
            pub unsafe fn find<E>(
                mut find: impl FnMut(Which, &core::ffi::CStr) -> Result<*mut c_void, E>,
            ) -> Result<Self, E> {
                use Which::{Cm, Verbs};
                Ok(Self {
                    $($name: {
                        // SAFETY: the name ends with the only NUL there is.
                        let name = unsafe {
                            core::ffi::CStr::from_bytes_with_nul_unchecked(
                                concat!(stringify!($name), "\0").as_bytes(),
                            )
                        };
                        let found = find($library, name)?;
                        // SAFETY: a function of that name has this type, as the caller promises.
                        unsafe {
                            core::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            >(found)
                        }
                    },)+
                })
            }
        }
    };
}

functions! {
    Verbs: ibv_query_device(*mut Context, *mut DeviceAttributes) -> c_int;
    Verbs: ibv_alloc_pd(*mut Context) -> *mut Opaque;
    Verbs: ibv_dealloc_pd(*mut Opaque) -> c_int;
    Verbs: ibv_reg_mr(*mut Opaque, *mut c_void, usize, c_int) -> *mut MemoryRegion;
    Verbs: ibv_dereg_mr(*mut MemoryRegion) -> c_int;
    Verbs: ibv_create_comp_channel(*mut Context) -> *mut CompletionChannel;
    Verbs: ibv_destroy_comp_channel(*mut CompletionChannel) -> c_int;
    Verbs: ibv_create_cq(*mut Context, c_int, *mut c_void, *mut CompletionChannel, c_int) -> *mut CompletionQueue;
    Verbs: ibv_destroy_cq(*mut CompletionQueue) -> c_int;
    Verbs: ibv_get_cq_event(*mut CompletionChannel, *mut *mut CompletionQueue, *mut *mut c_void) -> c_int;
    Verbs: ibv_ack_cq_events(*mut CompletionQueue, c_uint);
    Cm: rdma_create_event_channel() -> *mut EventChannel;
    Cm: rdma_destroy_event_channel(*mut EventChannel);
    Cm: rdma_create_id(*mut EventChannel, *mut *mut CmId, *mut c_void, c_uint) -> c_int;
    Cm: rdma_destroy_id(*mut CmId) -> c_int;
    Cm: rdma_set_option(*mut CmId, c_int, c_int, *mut c_void, usize) -> c_int;
    Cm: rdma_bind_addr(*mut CmId, *mut libc::sockaddr) -> c_int;
    Cm: rdma_listen(*mut CmId, c_int) -> c_int;
    Cm: rdma_resolve_addr(*mut CmId, *mut libc::sockaddr, *mut libc::sockaddr, c_int) -> c_int;
    Cm: rdma_resolve_route(*mut CmId, c_int) -> c_int;
    Cm: rdma_connect(*mut CmId, *mut ConnectionParameters) -> c_int;
    Cm: rdma_migrate_id(*mut CmId, *mut EventChannel) -> c_int;
    Cm: rdma_create_qp(*mut CmId, *mut Opaque, *mut QueuePairInit) -> c_int;
    Cm: rdma_destroy_qp(*mut CmId);
    Cm: rdma_accept(*mut CmId, *mut ConnectionParameters) -> c_int;
    Cm: rdma_reject(*mut CmId, *const c_void, u8) -> c_int;
    Cm: rdma_disconnect(*mut CmId) -> c_int;
    Cm: rdma_get_cm_event(*mut EventChannel, *mut *mut CmEvent) -> c_int;
    Cm: rdma_ack_cm_event(*mut CmEvent) -> c_int;
}
