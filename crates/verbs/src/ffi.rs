//! The part of rdma-core's interface that is used, as its headers (version 24 and later) lay it out.
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
    pub mutex: [u64; 5],
    /// [`IS_EXTENDED`], where there is a [`ExtendedContext`] around it.
    pub abi_compat: *mut c_void,
}
/// `__VERBS_ABI_IS_EXTENDED`.
pub const IS_EXTENDED: usize = usize::MAX;
const _: () = assert!(size_of::<Context>() == 328 && offset_of!(Context, abi_compat) == 320);

/// `struct verbs_context`, its end: it grows at its beginning.
#[repr(C)]
pub struct ExtendedContext {
    pub query_device_ex: Option<QueryDeviceEx>,
    pub unused: [*const c_void; 11],
    /// Of all of it: there is what this is enough for.
    pub bytes: usize,
    pub context: Context,
}
const _: () = assert!(size_of::<ExtendedContext>() == 432);
const _: () = assert!(offset_of!(ExtendedContext, context) == 104);

pub type QueryDeviceEx =
    unsafe extern "C" fn(*mut Context, *const c_void, *mut DeviceAttributesEx, usize) -> c_int;

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
    /// Of a [`QueuePairInitEx`]; otherwise padding.
    pub comp_mask: u32,
}
const _: () = assert!(size_of::<QueuePairInit>() == 64 && offset_of!(QueuePairInit, qp_type) == 52);

/// `struct ibv_qp_init_attr_ex`.
#[repr(C)]
pub struct QueuePairInitEx {
    pub init: QueuePairInit,
    pub pd: *mut Opaque,
    pub unused: [u64; 7],
    pub send_ops_flags: u64,
}
const _: () = assert!(size_of::<QueuePairInitEx>() == 136 && offset_of!(QueuePairInitEx, pd) == 64);
/// `IBV_QP_INIT_ATTR_PD` and `IBV_QP_INIT_ATTR_SEND_OPS_FLAGS`.
pub const INIT_PD: u32 = 1;
pub const INIT_SEND_OPS: u32 = 1 << 6;
/// `IBV_QP_EX_WITH_RDMA_WRITE`, and others.
pub const WITH_WRITE: u64 = 1;
pub const WITH_SEND: u64 = 1 << 2;
pub const WITH_READ: u64 = 1 << 4;
pub const WITH_FLUSH: u64 = 1 << 11;

/// `struct ibv_qp_ex`: a queue pair that is posted to by functions of its own.
#[repr(C)]
pub struct QueuePairEx {
    pub base: [u64; 20],
    pub comp_mask: u64,
    pub wr_id: u64,
    pub wr_flags: c_uint,
    pub unused: [*const c_void; 4],
    pub wr_rdma_read: Option<WrRemote>,
    pub wr_rdma_write: Option<WrRemote>,
    pub wr_rdma_write_imm: *const c_void,
    pub wr_send: Option<WrPlain>,
    pub unused_too: [*const c_void; 7],
    pub wr_set_sge: Option<WrSetSge>,
    pub wr_set_sge_list: *const c_void,
    pub wr_start: Option<WrPlain>,
    pub wr_complete: Option<unsafe extern "C" fn(*mut Self) -> c_int>,
    pub wr_abort: Option<WrPlain>,
    pub wr_atomic_write: *const c_void,
    pub wr_flush: Option<WrFlush>,
}
pub type WrPlain = unsafe extern "C" fn(*mut QueuePairEx);
pub type WrRemote = unsafe extern "C" fn(*mut QueuePairEx, u32, u64);
pub type WrSetSge = unsafe extern "C" fn(*mut QueuePairEx, u32, u64, u32);
/// Key, address, length, [placement](FLUSH_PLACEMENT) and [level](FLUSH_RANGE).
pub type WrFlush = unsafe extern "C" fn(*mut QueuePairEx, u32, u64, usize, u8, u8);
const _: () = assert!(size_of::<QueuePairEx>() == 360 && offset_of!(QueuePairEx, wr_flags) == 176);
const _: () = assert!(offset_of!(QueuePairEx, wr_rdma_read) == 216);
const _: () = assert!(offset_of!(QueuePairEx, wr_send) == 240);
const _: () = assert!(offset_of!(QueuePairEx, wr_set_sge) == 304);
const _: () = assert!(offset_of!(QueuePairEx, wr_start) == 320);

/// `IBV_FLUSH_GLOBAL` and `IBV_FLUSH_PERSISTENT`: seen by all, and kept without power.
pub const FLUSH_PLACEMENT: u8 = 3;
/// `IBV_FLUSH_RANGE`: of a region what is named.
pub const FLUSH_RANGE: u8 = 0;

/// `IBV_QPT_RC`: a reliable connection.
pub const QPT_RC: c_uint = 2;
/// `IBV_ACCESS_LOCAL_WRITE`, `IBV_ACCESS_REMOTE_WRITE` and `IBV_ACCESS_REMOTE_READ`.
pub const ACCESS_LOCAL_WRITE: c_int = 1;
/// `IBV_ACCESS_REMOTE_WRITE`.
pub const ACCESS_REMOTE_WRITE: c_int = 1 << 1;
/// `IBV_ACCESS_REMOTE_READ`.
pub const ACCESS_REMOTE_READ: c_int = 1 << 2;

/// `IBV_ACCESS_ON_DEMAND`: pages are looked for when they are touched, none is locked.
pub const ACCESS_ON_DEMAND: c_int = 1 << 6;
/// `IBV_ACCESS_FLUSH_GLOBAL` and `IBV_ACCESS_FLUSH_PERSISTENT`.
pub const ACCESS_FLUSH: c_int = 1 << 8 | 1 << 9;

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

/// `struct ibv_device_attr_ex`.
#[repr(C)]
pub struct DeviceAttributesEx {
    pub original: DeviceAttributes,
    pub comp_mask: u32,
    /// `odp_caps`: what can be done with memory of which no page is locked; of the three transports the reliable connection first.
    pub on_demand: u64,
    pub on_demand_by_transport: [u32; 4],
    pub clocks: [u64; 2],
    pub device_cap_flags: u64,
    pub rest: [u64; 14],
}
const _: () = assert!(size_of::<DeviceAttributesEx>() == 400);
const _: () = assert!(offset_of!(DeviceAttributesEx, on_demand) == 240);
const _: () = assert!(offset_of!(DeviceAttributesEx, device_cap_flags) == 280);
/// `IB_UVERBS_DEVICE_FLUSH_GLOBAL` and `IB_UVERBS_DEVICE_FLUSH_PERSISTENT`.
pub const DEVICE_FLUSH: u64 = 1 << 38 | 1 << 39;
/// `IBV_ODP_SUPPORT`.
pub const ON_DEMAND: u64 = 1;
/// `IBV_ODP_SUPPORT_WRITE`, `IBV_ODP_SUPPORT_READ` and `IB_UVERBS_ODP_SUPPORT_FLUSH`.
pub const ON_DEMAND_FOR_WINDOWS: u32 = 1 << 2 | 1 << 3 | 1 << 6;

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
    Verbs: ibv_qp_to_qp_ex(*mut QueuePair) -> *mut QueuePairEx;
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
    Cm: rdma_create_qp_ex(*mut CmId, *mut QueuePairInitEx) -> c_int;
    Cm: rdma_destroy_qp(*mut CmId);
    Cm: rdma_accept(*mut CmId, *mut ConnectionParameters) -> c_int;
    Cm: rdma_reject(*mut CmId, *const c_void, u8) -> c_int;
    Cm: rdma_disconnect(*mut CmId) -> c_int;
    Cm: rdma_get_cm_event(*mut EventChannel, *mut *mut CmEvent) -> c_int;
    Cm: rdma_ack_cm_event(*mut CmEvent) -> c_int;
}
