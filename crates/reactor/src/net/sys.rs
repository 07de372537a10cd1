//! Socket calls, none of which blocks.
#![allow(unsafe_code, reason = "system calls without a safe wrapper")]

use super::Behind;
use crate::driver::require_real;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;
use stdx::num::{low16, u32_of, usize32};

pub(super) use crate::sys::set_nonblocking;

fn bytes(rc: isize) -> io::Result<usize> {
    usize::try_from(rc).map_err(|_| io::Error::last_os_error())
}

fn done(rc: i32) -> io::Result<()> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[inline]
pub(super) fn recv(fd: &OwnedFd, buf: &mut [u8]) -> io::Result<usize> {
    // SAFETY: `buf` is writable for its length during the call.
    bytes(unsafe {
        libc::recv(fd.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len(), libc::MSG_DONTWAIT)
    })
}

/// Descriptors that one message may bring; the kernel's own bound is 253.
pub(super) const FDS_MAX: usize = 16;

/// Room for the control data of that many descriptors, aligned as its headers are.
#[repr(C, align(8))]
struct Control([u8; 16 + 4 * FDS_MAX]);

/// Whether a call waits for what is not there yet, as long as its socket has patience.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    No,
    Yes,
}

impl Wait {
    const fn flag(self) -> i32 {
        match self {
            Self::No => libc::MSG_DONTWAIT,
            Self::Yes => 0,
        }
    }
}

/// As [`recv`], with the descriptors that come along. Those beyond [`FDS_MAX`] are closed.
pub(super) fn recv_fds(
    fd: &OwnedFd,
    buf: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    wait: Wait,
) -> io::Result<usize> {
    let mut control = Control([0; _]);
    let mut part = IoSliceMut::new(buf);
    let mut message = header((&raw mut part).cast(), 1);
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len();
    let flags = wait.flag() | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the header names memory writable during the call.
    let received = bytes(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) })?;
    // SAFETY: the kernel filled the control data in.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give headers within the control data, or null.
    while let Some(head) = unsafe { next.as_ref() } {
        if (head.cmsg_level, head.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            // SAFETY: CMSG_LEN takes no pointer.
            let empty = usize32(unsafe { libc::CMSG_LEN(0) });
            let count = (head.cmsg_len - empty) / size_of::<RawFd>();
            // SAFETY: `count` descriptors follow the header.
            let first = unsafe { libc::CMSG_DATA(next) }.cast::<RawFd>();
            for at in 0..count {
                // SAFETY: as above; the kernel made each for us, and nobody else has it.
                fds.push(unsafe { OwnedFd::from_raw_fd(first.add(at).read_unaligned()) });
            }
        }
        // SAFETY: `next` is a header within the control data.
        next = unsafe { libc::CMSG_NXTHDR(&raw const message, next) };
    }
    Ok(received)
}

/// Sends bytes, and copies of descriptors with the first of them: [`FDS_MAX`] at most.
pub(super) fn send_fds(
    fd: &OwnedFd,
    buf: &[u8],
    sent: &[BorrowedFd<'_>],
    wait: Wait,
) -> io::Result<usize> {
    const _: () = assert!(size_of::<RawFd>() == 4);
    if sent.len() > FDS_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let bytes_sent = u32_of(size_of_val(sent));
    let mut control = Control([0; _]);
    let part = IoSlice::new(buf);
    let mut message = header((&raw const part).cast(), 1);
    if !sent.is_empty() {
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: CMSG_SPACE takes no pointer.
        message.msg_controllen = usize32(unsafe { libc::CMSG_SPACE(bytes_sent) });
        // SAFETY: the control data has room for a header and the descriptors, and is aligned for them.
        unsafe {
            let head = libc::CMSG_FIRSTHDR(&raw const message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = usize32(libc::CMSG_LEN(bytes_sent));
            let first = libc::CMSG_DATA(head).cast::<RawFd>();
            for (at, one) in sent.iter().enumerate() {
                first.add(at).write_unaligned(one.as_raw_fd());
            }
        }
    }
    let flags = wait.flag() | libc::MSG_NOSIGNAL;
    // SAFETY: the header names memory that is there during the call.
    bytes(unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, flags) })
}

fn header(iov: *const libc::iovec, count: usize) -> libc::msghdr {
    // SAFETY: all zeroes is a message header with no name, vector or control data.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = iov.cast_mut();
    message.msg_iovlen = count;
    message
}

#[inline]
pub(super) fn recv_vectored(fd: &OwnedFd, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    let mut message = header(bufs.as_ptr().cast(), bufs.len());
    // SAFETY: IoSliceMut has the layout of iovec, and each names memory writable during the call.
    bytes(unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) })
}

#[inline]
pub(super) fn send_vectored(
    fd: &OwnedFd,
    bufs: &[IoSlice<'_>],
    behind: Behind,
) -> io::Result<usize> {
    let hint = match behind {
        Behind::Unknown => 0,
        Behind::More => libc::MSG_MORE,
        Behind::Nothing => libc::MSG_EOR,
    };
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | hint;
    if let [one] = bufs {
        // SAFETY: `one` is readable for its length during the call.
        return bytes(unsafe { libc::send(fd.as_raw_fd(), one.as_ptr().cast(), one.len(), flags) });
    }
    let message = header(bufs.as_ptr().cast(), bufs.len());
    // SAFETY: IoSlice has the layout of iovec, and each names memory readable during the call.
    bytes(unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, flags) })
}

pub(super) fn socket(addr: &SocketAddr) -> io::Result<OwnedFd> {
    require_real()?;
    let family = if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the call takes no pointers.
    let fd = unsafe { libc::socket(family, kind, 0) };
    done(fd)?;
    // SAFETY: the descriptor is new and ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// An address in the file system.
fn path_address(path: &Path) -> io::Result<libc::sockaddr_un> {
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: all zeroes is an address without a name.
    let mut address: libc::sockaddr_un = unsafe { MaybeUninit::zeroed().assume_init() };
    address.sun_family = low16(u64::from(libc::AF_UNIX.unsigned_abs()));
    // The last byte of the name is a zero.
    if bytes.is_empty() || bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = from.cast_signed();
    }
    Ok(address)
}

/// A Unix socket that keeps messages apart, whose calls wait for `patience` at most.
pub(super) fn packet_socket(patience: Duration) -> io::Result<OwnedFd> {
    require_real()?;
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    done(fd)?;
    // SAFETY: the descriptor is new and ours alone.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    set_patience(&fd, patience)?;
    Ok(fd)
}

/// How long calls of a socket wait.
pub(super) fn set_patience(fd: &OwnedFd, patience: Duration) -> io::Result<()> {
    let time = libc::timeval {
        tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
        tv_usec: i64::from(patience.subsec_micros()),
    };
    for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        let length = u32_of(size_of_val(&time));
        // SAFETY: `time` is there, of the length given, during the call.
        done(unsafe {
            let place = (&raw const time).cast();
            libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, option, place, length)
        })?;
    }
    Ok(())
}

pub(super) fn connect_path(fd: &OwnedFd, path: &Path) -> io::Result<()> {
    let address = path_address(path)?;
    let length = u32_of(size_of_val(&address));
    // SAFETY: `address` is there, of the length given, during the call.
    done(unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), length) })
}

pub(super) fn bind_path(fd: &OwnedFd, path: &Path) -> io::Result<()> {
    let address = path_address(path)?;
    let length = u32_of(size_of_val(&address));
    // SAFETY: as in `connect_path`.
    done(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) })
}

/// Accepts, waiting as long as the socket has patience.
pub(super) fn accept_waiting(fd: &OwnedFd) -> io::Result<OwnedFd> {
    let null = std::ptr::null_mut();
    // SAFETY: no address is asked for, so no pointer is used.
    let new =
        unsafe { libc::accept4(fd.as_raw_fd(), null, std::ptr::null_mut(), libc::SOCK_CLOEXEC) };
    done(new)?;
    // SAFETY: the descriptor is new and ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(new) })
}

/// A socket in the file system that keeps the borders of messages.
pub(super) fn unix_packets() -> io::Result<OwnedFd> {
    require_real()?;
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the call takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    done(fd)?;
    // SAFETY: the descriptor is new and ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The user that the other end of a Unix socket acted as when it connected.
pub(super) fn peer_user(fd: &OwnedFd) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = u32_of(size_of::<libc::ucred>());
    // SAFETY: `peer` has room for the `len` bytes announced, and both live through the call.
    done(unsafe {
        let place = (&raw mut peer).cast();
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place, &raw mut len)
    })?;
    Ok(peer.uid)
}

pub(super) fn set_int(fd: &OwnedFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    let len = u32_of(size_of::<i32>());
    // SAFETY: `value` is an int and lives through the call.
    done(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const value).cast(), len) })
}

pub(super) fn set_congestion(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let (option, len) = (libc::TCP_CONGESTION, u32_of(name.len()));
    // SAFETY: `name` is readable for its length during the call; the kernel needs no final zero.
    done(unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, option, name.as_ptr().cast(), len)
    })
}

pub(super) fn get_int(fd: &OwnedFd, level: i32, option: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut len = u32_of(size_of::<i32>());
    // SAFETY: `value` has room for the `len` bytes announced, and both live through the call.
    done(unsafe {
        let place = (&raw mut value).cast();
        libc::getsockopt(fd.as_raw_fd(), level, option, place, &raw mut len)
    })?;
    Ok(value)
}

const FAMILY_V4: libc::sa_family_t = low16(libc::AF_INET.cast_unsigned() as u64);
const FAMILY_V6: libc::sa_family_t = low16(libc::AF_INET6.cast_unsigned() as u64);

/// A socket address in the kernel's form.
struct RawAddr {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl RawAddr {
    const fn empty() -> Self {
        Self {
            // SAFETY: all zeroes is a valid (unspecified) address.
            storage: unsafe { MaybeUninit::zeroed().assume_init() },
            len: u32_of(size_of::<libc::sockaddr_storage>()),
        }
    }

    fn new(addr: &SocketAddr) -> Self {
        let mut raw = Self::empty();
        match addr {
            SocketAddr::V4(v4) => {
                let sin = libc::sockaddr_in {
                    sin_family: FAMILY_V4,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                };
                // SAFETY: sockaddr_storage is large and aligned enough for every address.
                unsafe { (&raw mut raw.storage).cast::<libc::sockaddr_in>().write(sin) };
                raw.len = u32_of(size_of::<libc::sockaddr_in>());
            }
            SocketAddr::V6(v6) => {
                let sin6 = libc::sockaddr_in6 {
                    sin6_family: FAMILY_V6,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: sockaddr_storage is large and aligned enough for every address.
                unsafe { (&raw mut raw.storage).cast::<libc::sockaddr_in6>().write(sin6) };
                raw.len = u32_of(size_of::<libc::sockaddr_in6>());
            }
        }
        raw
    }

    fn parse(&self) -> io::Result<SocketAddr> {
        match i32::from(self.storage.ss_family) {
            libc::AF_INET => {
                // SAFETY: the family says which address this is.
                let sin = unsafe { (&raw const self.storage).cast::<libc::sockaddr_in>().read() };
                let ip = Ipv4Addr::from(sin.sin_addr.s_addr.to_ne_bytes());
                Ok(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(sin.sin_port))))
            }
            libc::AF_INET6 => {
                // SAFETY: the family says which address this is.
                let s = unsafe { (&raw const self.storage).cast::<libc::sockaddr_in6>().read() };
                let ip = Ipv6Addr::from(s.sin6_addr.s6_addr);
                let port = u16::from_be(s.sin6_port);
                Ok(SocketAddr::V6(SocketAddrV6::new(ip, port, s.sin6_flowinfo, s.sin6_scope_id)))
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

pub(super) fn bind(fd: &OwnedFd, addr: &SocketAddr) -> io::Result<()> {
    let raw = RawAddr::new(addr);
    // SAFETY: `raw` holds an address of the length given.
    done(unsafe { libc::bind(fd.as_raw_fd(), (&raw const raw.storage).cast(), raw.len) })
}

pub(super) fn listen(fd: &OwnedFd, backlog: i32) -> io::Result<()> {
    // SAFETY: the call takes no pointers.
    done(unsafe { libc::listen(fd.as_raw_fd(), backlog) })
}

pub(super) fn connect(fd: &OwnedFd, addr: &SocketAddr) -> io::Result<()> {
    let raw = RawAddr::new(addr);
    // SAFETY: `raw` holds an address of the length given.
    done(unsafe { libc::connect(fd.as_raw_fd(), (&raw const raw.storage).cast(), raw.len) })
}

pub(super) fn accept(fd: &OwnedFd) -> io::Result<(OwnedFd, SocketAddr)> {
    let mut raw = RawAddr::empty();
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: `raw` has room for the length it announces.
    let new = unsafe {
        let place = (&raw mut raw.storage).cast();
        libc::accept4(fd.as_raw_fd(), place, &raw mut raw.len, flags)
    };
    done(new)?;
    // SAFETY: the descriptor is new and ours alone.
    let new = unsafe { OwnedFd::from_raw_fd(new) };
    Ok((new, raw.parse()?))
}

/// Accepts without asking who it is.
pub(super) fn accept_unnamed(fd: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no address is asked for, so no pointer is used.
    let new =
        unsafe { libc::accept4(fd.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags) };
    done(new)?;
    // SAFETY: the descriptor is new and ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(new) })
}

pub(super) fn local_addr(fd: &OwnedFd) -> io::Result<SocketAddr> {
    let mut raw = RawAddr::empty();
    // SAFETY: `raw` has room for the length it announces.
    done(unsafe {
        libc::getsockname(fd.as_raw_fd(), (&raw mut raw.storage).cast(), &raw mut raw.len)
    })?;
    raw.parse()
}

pub(super) fn peer_addr(fd: &OwnedFd) -> io::Result<SocketAddr> {
    let mut raw = RawAddr::empty();
    // SAFETY: `raw` has room for the length it announces.
    done(unsafe {
        libc::getpeername(fd.as_raw_fd(), (&raw mut raw.storage).cast(), &raw mut raw.len)
    })?;
    raw.parse()
}

pub(super) fn shutdown(fd: &OwnedFd, how: i32) -> io::Result<()> {
    // SAFETY: the call takes no pointers.
    done(unsafe { libc::shutdown(fd.as_raw_fd(), how) })
}
