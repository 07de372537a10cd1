use super::super::{Drive, FaultPlan, Simulated, SimulatedOptions};
use super::*;
use crate::error::Operation;
use reactor::buffer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use stdx::num::u64_of;

const LEN: u64 = 1 << 20;

/// Somebody else's drive, who answers or does not.
#[derive(Debug)]
struct Elsewhere {
    drive: Arc<Simulated>,
    answers: AtomicBool,
    known: AtomicU64,
    asked: AtomicU64,
}

impl Elsewhere {
    fn new(answers: bool) -> Arc<Self> {
        let options = SimulatedOptions { capacity: LEN, ..SimulatedOptions::default() };
        Arc::new(Self {
            drive: Simulated::new(options),
            answers: AtomicBool::new(answers),
            known: AtomicU64::new(0),
            asked: AtomicU64::new(0),
        })
    }

    /// The drive, if it answers to this range.
    fn ask(&self, operation: Operation, offset: u64, len: u64) -> Result<Drive, Error> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if !self.answers.load(Ordering::Relaxed) {
            return Err(Error::new(Kind::Gone, operation, offset, len));
        }
        self.known.store(self.drive.capacity(), Ordering::Relaxed);
        Ok(Drive::Simulated(Arc::clone(&self.drive)))
    }
}

impl Remote for Elsewhere {
    fn capacity(&self) -> u64 {
        self.known.load(Ordering::Relaxed)
    }

    fn logical_block(&self) -> u32 {
        512
    }

    fn has_volatile_cache(&self) -> bool {
        true
    }

    fn failure(&self) -> Option<Kind> {
        None
    }

    fn has_late_changes(&self) -> bool {
        false
    }

    fn connection(&self) -> Option<u64> {
        Some(1)
    }

    fn read(
        &self,
        _: Option<u64>,
        offset: u64,
        len: usize,
        buffer: Buffer,
    ) -> Answer<'_, Result<Buffer, Refused>> {
        Box::pin(async move {
            let drive = self.ask(Operation::Read, offset, u64_of(len))?;
            Ok(drive.fill(offset, len, buffer).await?)
        })
    }

    fn write(
        &self,
        _: Option<u64>,
        offset: u64,
        data: Buffer,
        fua: bool,
    ) -> Answer<'_, Result<(), Refused>> {
        Box::pin(async move {
            let drive = self.ask(Operation::Write, offset, u64_of(data.len()))?;
            drive.write_or_return(offset, data, fua).await
        })
    }

    fn flush(&self) -> Answer<'_, Result<(), Error>> {
        Box::pin(async move { self.ask(Operation::Flush, 0, 0)?.flush().await })
    }

    fn deallocate(&self, offset: u64, len: u64) -> Answer<'_, Result<(), Error>> {
        Box::pin(async move {
            self.ask(Operation::Deallocate, offset, len)?.deallocate(offset, len).await
        })
    }

    fn write_zeroes(
        &self,
        _: Option<u64>,
        offset: u64,
        len: u64,
        deallocate: bool,
    ) -> Answer<'_, Result<(), Error>> {
        Box::pin(async move {
            let drive = self.ask(Operation::WriteZeroes, offset, len)?;
            drive.write_zeroes(offset, len, deallocate).await
        })
    }
}

async fn filled(len: usize, with: u8) -> Buffer {
    let mut buffer = buffer::alloc(len).await;
    buffer.fill(with);
    buffer
}

fn go<F: Future<Output = ()> + 'static>(future: F) {
    reactor::run(reactor::Config::default(), future).unwrap();
}

#[test]
fn what_is_asked_of_it_goes_there_and_comes_back() {
    go(async {
        let plain = Drive::Remote(Elsewhere::new(true));
        let faulty = Drive::Remote(Elsewhere::new(true)).with_faults(FaultPlan::default());
        for drive in [plain, faulty] {
            assert!(drive.is_remote() && drive.is_alone() && drive.is_direct());
            drive.write(8192, filled(8192, 7).await, true).await.unwrap();
            drive.write_zeroes(8192, 4096, false).await.unwrap();
            drive.flush().await.unwrap();
            let read = drive.read(8192, 8192).await.unwrap();
            assert!(read[..4096].iter().all(|&byte| byte == 0));
            assert!(read[4096..].iter().all(|&byte| byte == 7));
            drive.deallocate(8192, 8192).await.unwrap();
            drive.preallocate(0, LEN).await.unwrap();
            assert_eq!(drive.resize(2 * LEN).unwrap_err().kind, Kind::Unsupported);
        }
    });
}

#[test]
fn any_range_is_asked_for_until_its_capacity_is_known() {
    go(async {
        let elsewhere = Elsewhere::new(false);
        let drive = Drive::Remote(Arc::clone(&elsewhere) as Arc<dyn Remote>);
        assert_eq!((drive.capacity(), drive.capacity_now()), (0, Some(0)));
        assert_eq!(drive.read(LEN, 4096).await.unwrap_err().kind, Kind::Gone);
        assert_eq!(drive.read(u64::MAX, 4096).await.unwrap_err().kind, Kind::OutOfRange);
        // An error of the connection is told at once, not waited out.
        assert_eq!(elsewhere.asked.load(Ordering::Relaxed), 1);

        elsewhere.answers.store(true, Ordering::Relaxed);
        drive.read(0, 4096).await.unwrap();
        assert_eq!((drive.capacity(), drive.capacity_now()), (LEN, Some(LEN)));
        assert_eq!(drive.write_zeroes(LEN, 4096, false).await.unwrap_err().kind, Kind::OutOfRange);
        assert_eq!(elsewhere.asked.load(Ordering::Relaxed), 2);
    });
}
