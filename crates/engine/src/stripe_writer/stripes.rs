//! Stripes on their way: begun, given to be written, written.

use std::rc::Rc;

use super::{Open, UNORDERED, Writer, index, kept_from};
use crate::error::{Error, Kind, Result};
use crate::segment::{SegmentInfo, Stream, StripeHeader};
use crate::segment_table::{Segment, State};

impl Writer {
    /// Makes room: the stripe is given to be written, the next one begun. False where that takes a segment and
    /// there is none.
    pub(super) async fn next_stripe(self: &Rc<Self>, stream: Stream) -> Result<bool> {
        if self.has_partial(stream) {
            self.submit(stream).await;
        }
        assert_eq!(self.turns[index(stream)].available(), 0, "who begins a stripe has the turn");
        let place = &self.open[index(stream)];
        let spent =
            |open: &mut Open| open.builder.is_none() && open.next >= open.info.geometry.stripes();
        let ended = place.borrow_mut().take_if(spent);
        if let Some(ended) = ended {
            self.table.borrow_mut().seal(ended.info.id);
        }
        if place.borrow().is_none() {
            let Some(info) = self.open_segment(stream)? else { return Ok(false) };
            self.segments.write_member_headers(&info).await.inspect_err(|e| self.fail(e))?;
            *place.borrow_mut() = Some(Open { info, builder: None, next: 0 });
        }
        let next = place.borrow().as_ref().map(|open| (Rc::clone(&open.info), open.next));
        if let Some((info, stripe)) = next {
            let builder = self.segments.begin(info, stripe).await;
            if let Some(open) = place.borrow_mut().as_mut() {
                assert!(open.builder.is_none(), "one stripe of a stream is filled at a time");
                open.builder = Some(builder);
                open.next = stripe + 1;
            }
        }
        Ok(true)
    }

    /// Nothing more is written to these segments: those that are being filled end, and those reserved are not begun.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub async fn leave(self: &Rc<Self>, is_left: impl Fn(&SegmentInfo) -> bool) -> Result<()> {
        for stream in [Stream::User, Stream::Reclaim, Stream::Metadata] {
            self.leave_of(stream, &is_left).await?;
        }
        self.table.borrow_mut().withdraw(is_left);
        self.look_for_shortage();
        Ok(())
    }

    /// As [`leave`](Self::leave), of metadata alone: who waits for a checkpoint may hold what contents wait for.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub async fn leave_metadata(
        self: &Rc<Self>,
        is_left: impl Fn(&SegmentInfo) -> bool,
    ) -> Result<()> {
        self.leave_of(Stream::Metadata, &is_left).await
    }

    async fn leave_of(
        self: &Rc<Self>,
        stream: Stream,
        is_left: &impl Fn(&SegmentInfo) -> bool,
    ) -> Result<()> {
        self.check()?;
        let _turn = self.turns[index(stream)].hold(1).await;
        let is_there = |open: &Open| is_left(&open.info);
        if !self.open[index(stream)].borrow().as_ref().is_some_and(is_there) {
            return Ok(());
        }
        if self.has_partial(stream) {
            self.submit(stream).await;
        }
        // A stripe that is begun and empty was not given to be written.
        let ended = self.open[index(stream)].borrow_mut().take();
        if let Some(ended) = ended {
            self.table.borrow_mut().seal(ended.info.id);
        }
        Ok(())
    }

    fn open_segment(&self, stream: Stream) -> Result<Option<Rc<SegmentInfo>>> {
        if stream == Stream::Metadata {
            return self.open_for_metadata().map(Some);
        }
        let opened = self.table.borrow_mut().open(stream, kept_from(stream));
        self.look_for_shortage();
        Ok(opened)
    }

    /// Metadata takes what is free, and where nothing is, what was kept for contents: without it
    /// nothing could ever be won back.
    fn open_for_metadata(&self) -> Result<Rc<SegmentInfo>> {
        if !self.has_spare() {
            // What died since the last checkpoint comes back with the next.
            self.need_segments();
        }
        let Some(info) = self.allocate(Stream::Metadata) else {
            let reserved = self.table.borrow_mut().open(Stream::Metadata, 0);
            return reserved.ok_or_else(|| Error::new(Kind::Full, "no space is left for metadata"));
        };
        let info = Rc::new(info);
        self.table.borrow_mut().insert(Segment::new(Rc::clone(&info), State::Open));
        Ok(info)
    }

    /// Gives the stream's stripe to be written, in the background.
    pub(super) async fn submit(self: &Rc<Self>, stream: Stream) {
        assert_eq!(self.turns[index(stream)].available(), 0, "who ends a stripe has the turn");
        self.in_flight.acquire(1).await;
        let builder = {
            let mut open = self.open[index(stream)].borrow_mut();
            open.as_mut().and_then(|open| open.builder.take())
        };
        let Some(mut builder) = builder else { return self.in_flight.release(1) };
        builder.note_log(self.log.get());
        let sequence = if stream == Stream::Metadata {
            self.metadata_in_flight.set(self.metadata_in_flight.get() + 1);
            UNORDERED
        } else {
            self.sequence.set(self.sequence.get() + 1);
            self.sequence.get()
        };
        let info = Rc::clone(builder.info());
        assert!(info.stream == stream && !builder.is_empty(), "what is given out is the stream's");
        self.table.borrow_mut().stripe_begun(info.id, builder.stripe());
        let this = Rc::clone(self);
        reactor::spawn_behind(async move {
            let done = this.segments.write(builder.seal(sequence).await).await;
            this.in_flight.release(1);
            this.dirty.borrow_mut().insert(info.id, info);
            match done {
                Ok(header) if header.sequence == UNORDERED => {
                    assert_eq!(header.stream, Stream::Metadata, "only metadata has no order");
                    this.metadata_written(&header);
                }
                Ok(header) => this.stripe_written(header),
                Err(error) => this.fail(&error),
            }
            this.progress.raise();
        });
    }

    fn metadata_written(&self, header: &StripeHeader) {
        assert!(self.metadata_in_flight.get() > 0, "a stripe is written once");
        self.metadata_in_flight.set(self.metadata_in_flight.get() - 1);
        self.table.borrow_mut().stripe_applied(header.segment, None);
        let mut pending = self.pending.borrow_mut();
        for record in header.placed() {
            for at in 0..stdx::num::u32_of(record.crcs.len()) {
                let was_pending = pending.remove(&record.location.offset(at)).is_some();
                assert!(was_pending, "metadata is readable until it is written");
            }
        }
    }

    fn stripe_written(&self, header: StripeHeader) {
        let mut early = self.early.borrow_mut();
        let is_due = self.written.get() < header.sequence && header.sequence <= self.numbered();
        assert!(is_due, "a stripe is numbered, then written, once");
        let before = early.insert(header.sequence, header);
        assert!(before.is_none(), "a stripe is written once");
        while let Some(header) = early.remove(&(self.written.get() + 1)) {
            self.written.set(header.sequence);
            self.ready.borrow_mut().push_back(header);
        }
    }
}
