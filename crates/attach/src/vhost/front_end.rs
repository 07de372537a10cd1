//! A front end: its messages are taken one by one, and obeyed.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use reactor::event::Event;
use reactor::net::TcpStream;
use stdx::num::{u32_of, u64_of, usize32};
use zerocopy::{FromZeros, IntoBytes};

use super::inflight::Inflight;
use super::memory::Memory;
use super::message::{Broken, Head, INFLIGHT_PADDING, Message};
use super::queue::Corrupt;
use super::ring::{Ring, Shared};
use super::wire::{
    ConfigHead, Header, InflightHead, RingState, feature, flag, notice, protocol_feature,
};
use crate::limits::{MESSAGE_BYTES_MAX, QUEUES_MAX};

/// Features of the protocol that are offered.
const PROTOCOL: u64 = protocol_feature::MQ
    | protocol_feature::REPLY_ACK
    | protocol_feature::BACKEND_REQ
    | protocol_feature::CONFIG
    | protocol_feature::INFLIGHT;

/// Why a front end is served no longer.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    #[error("socket: {0}")]
    Socket(#[from] io::Error),
    #[error(transparent)]
    Broken(#[from] Broken),
}

/// Why a message was not obeyed.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    #[error("the memory or an event cannot be had: {0}")]
    Io(#[from] io::Error),
    #[error("features {0:#x} were not offered")]
    Features(u64),
    #[error("nothing in the configuration can be written")]
    ReadOnly,
}

/// What a message is answered.
enum Answer {
    Word(u64),
    Ring(RingState),
    /// Bytes of the configuration space.
    Config(ConfigHead, Vec<u8>),
    Inflight(InflightHead, OwnedFd),
    Done,
}

/// Where a front end is told of changes.
pub struct Channel(TcpStream);

impl Channel {
    /// Tells that the configuration has changed.
    pub async fn config_changed(&self) {
        let header = Header {
            request: notice::CONFIG_CHANGE.into(),
            flags: flag::VERSION.into(),
            size: 0.into(),
        };
        // A front end that is gone is noticed elsewhere.
        let _ = self.0.send_all(header.as_bytes()).await;
    }
}

/// A front end.
pub struct FrontEnd {
    stream: TcpStream,
    shared: Rc<Shared>,
    memory: RefCell<Rc<Memory>>,
    rings: Vec<Rc<Ring>>,
    features: Cell<u64>,
    protocol_features: Cell<u64>,
}

impl FrontEnd {
    pub fn new(stream: TcpStream, shared: &Rc<Shared>) -> Self {
        Self {
            stream,
            shared: Rc::clone(shared),
            memory: RefCell::default(),
            rings: (0..QUEUES_MAX).map(|index| Ring::new(index, shared)).collect(),
            features: Cell::default(),
            protocol_features: Cell::default(),
        }
    }

    /// Obeys its messages until it leaves. `opened` gets where to tell it of changes.
    ///
    /// # Errors
    /// [`Ended`].
    pub async fn serve(&self, opened: impl Fn(Rc<Channel>)) -> Result<(), Ended> {
        let mut payload = [0; MESSAGE_BYTES_MAX];
        loop {
            let mut fds = Vec::new();
            let Some(header) = self.header(&mut fds).await? else { return Ok(()) };
            let head = Head::parse(&header)?;
            let payload = &mut payload[..head.size];
            self.stream.recv_exact(payload).await?;
            let message = Message::parse(head.request, payload, fds)?;
            let question = message.is_question();
            let obeyed = match message {
                Message::SetChannel(fd) => {
                    TcpStream::from_fd(fd).map_err(Refused::Io).map(|stream| {
                        opened(Rc::new(Channel(stream)));
                        Answer::Done
                    })
                }
                message => self.obey(message).await,
            };
            let wanted = self.protocol_features.get() & protocol_feature::REPLY_ACK != 0;
            let acknowledge = !question && head.acknowledge && wanted;
            self.answer(head.request, obeyed, acknowledge).await?;
        }
    }

    /// Ends its requests.
    pub async fn end(&self) {
        for ring in &self.rings {
            ring.end().await;
        }
    }

    /// The next message's head; none when the front end has left.
    async fn header(&self, fds: &mut Vec<OwnedFd>) -> io::Result<Option<Header>> {
        let mut header = Header::new_zeroed();
        let mut filled = 0;
        while filled < size_of::<Header>() {
            match self.stream.recv_fds(&mut header.as_mut_bytes()[filled..], fds).await? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => filled += n,
            }
        }
        Ok(Some(header))
    }

    async fn answer(
        &self,
        request: u32,
        obeyed: Result<Answer, Refused>,
        acknowledge: bool,
    ) -> io::Result<()> {
        if let Err(refused) = &obeyed {
            tracing::warn!("message {request} of a front end was not obeyed: {refused}");
        }
        let mut payload = Vec::with_capacity(MESSAGE_BYTES_MAX);
        let mut file = None;
        match obeyed {
            Ok(Answer::Word(word)) => payload.extend(word.to_le_bytes()),
            Ok(Answer::Ring(state)) => payload.extend(state.as_bytes()),
            Ok(Answer::Config(head, bytes)) => {
                payload.extend(head.as_bytes());
                payload.extend(bytes);
            }
            Ok(Answer::Inflight(head, memory)) => {
                payload.extend(head.as_bytes());
                payload.extend([0; INFLIGHT_PADDING]);
                file = Some(memory);
            }
            Ok(Answer::Done) if acknowledge => payload.extend(0u64.to_le_bytes()),
            Err(_) if acknowledge => payload.extend(1u64.to_le_bytes()),
            Ok(Answer::Done) | Err(_) => return Ok(()),
        }
        let header = Header {
            request: request.into(),
            flags: (flag::VERSION | flag::REPLY).into(),
            size: u32_of(payload.len()).into(),
        };
        let message = [header.as_bytes(), &payload].concat();
        match file {
            Some(file) => self.stream.send_fd(&message, &file).await,
            None => self.stream.send_all(&message).await,
        }
    }

    async fn obey(&self, message: Message) -> Result<Answer, Refused> {
        let device = self.shared.device.get();
        match message {
            Message::GetFeatures => return Ok(Answer::Word(device.features())),
            Message::SetFeatures(features) => self.set_features(features)?,
            Message::SetOwner | Message::SetChannel(_) => {}
            Message::ResetOwner => {
                for ring in &self.rings {
                    ring.stop().await;
                    ring.setup.take();
                }
            }
            Message::SetMemory(regions) => {
                *self.memory.borrow_mut() = Rc::new(Memory::map(regions)?);
                for ring in &self.rings {
                    self.update(ring)?;
                }
            }
            Message::SetSize(ring, size) => self.rings[ring].setup.borrow_mut().size = size,
            Message::SetAddress(ring, address) => {
                self.rings[ring].setup.borrow_mut().address = Some(address);
                self.update(&self.rings[ring])?;
            }
            Message::SetBase(ring, base) => {
                self.rings[ring].stop().await;
                self.rings[ring].set_base(base);
            }
            Message::GetBase(index) => {
                let ring = &self.rings[index];
                ring.setup.borrow_mut().kick = None;
                ring.stop().await;
                let state = RingState { index: u32_of(index).into(), number: ring.base().into() };
                return Ok(Answer::Ring(state));
            }
            Message::SetKick(ring, fd) => {
                let kick = fd.map(Event::from_fd).transpose()?.map(Rc::new);
                self.rings[ring].setup.borrow_mut().kick = kick;
                self.update(&self.rings[ring])?;
            }
            Message::SetCall(ring, fd) => {
                *self.rings[ring].call.borrow_mut() = fd.map(Event::from_fd).transpose()?;
            }
            Message::SetErr(ring, fd) => {
                *self.rings[ring].err.borrow_mut() = fd.map(Event::from_fd).transpose()?;
            }
            Message::Enable(ring, enabled) => {
                self.rings[ring].setup.borrow_mut().enabled = enabled;
                self.update(&self.rings[ring])?;
            }
            Message::GetProtocolFeatures => return Ok(Answer::Word(PROTOCOL)),
            Message::SetProtocolFeatures(features) => {
                if features & !PROTOCOL != 0 {
                    return Err(Refused::Features(features));
                }
                self.protocol_features.set(features);
            }
            Message::GetQueueCount => return Ok(Answer::Word(u64_of(QUEUES_MAX))),
            Message::GetConfig(head) => return Ok(self.config(head)),
            Message::SetConfig => return Err(Refused::ReadOnly),
            Message::GetInflight(queues, size) => {
                let (head, file) = Inflight::create(queues, size)?;
                return Ok(Answer::Inflight(head, file));
            }
            Message::SetInflight(head, file) => self.track(&Inflight::map(&head, &file)?),
        }
        Ok(Answer::Done)
    }

    fn set_features(&self, features: u64) -> Result<(), Refused> {
        if features & !self.shared.device.get().features() != 0 {
            return Err(Refused::Features(features));
        }
        self.features.set(features);
        if features & feature::PROTOCOL == 0 {
            // There is no message to enable rings with, then.
            self.rings.iter().for_each(|ring| ring.setup.borrow_mut().enabled = true);
        }
        Ok(())
    }

    /// Says in this memory from now on what is in flight.
    fn track(&self, inflight: &Inflight) {
        for (index, ring) in self.rings.iter().enumerate() {
            *ring.tracker.borrow_mut() = inflight.queue(index);
        }
    }

    fn update(&self, ring: &Rc<Ring>) -> Result<(), Corrupt> {
        let memory = Rc::clone(&self.memory.borrow());
        ring.update(&memory, self.features.get())
    }

    /// Bytes of the configuration space, zero beyond what is known.
    fn config(&self, head: ConfigHead) -> Answer {
        let config = self.shared.device.get().config();
        let known = config.as_bytes();
        let from = usize32(head.offset.get());
        let byte = |at: usize| known.get(at).copied().unwrap_or(0);
        Answer::Config(head, (from..from + usize32(head.size.get())).map(byte).collect())
    }
}
