//! What an NVMe drive gets that gets commands as they are: by a script in its place.

use std::io;
use std::sync::{Arc, Mutex};

use media::Passthrough;
use media::passthrough::Sent;
use nvme::identify::{
    Cns, IdentifyController, IdentifyNamespace, LbaFormat, NvmIdentifyController, bits,
};
use nvme::nvm::{CopyFormat, CopyRange0, DsmRange};
use nvme::opcode::{admin, io as nvm};
use nvme::sqe::Sqe;
use nvme::status::Status;
use reactor::passthrough::{Command, Completion};
use stdx::num::usize32;
use zerocopy::{FromBytes, IntoBytes};

use super::double::*;
use super::io::{copy_sqe, dsm, send, sources0};
use crate::namespace::Backend;

/// Blocks of 4 KiB that scripted drives have.
pub const BLOCKS: u64 = 4096;

/// What a drive says of itself.
#[derive(Clone, Default)]
pub struct Says {
    pub namespace: IdentifyNamespace,
    pub controller: IdentifyController,
    pub limits: NvmIdentifyController,
}

impl Says {
    pub fn new() -> Self {
        let mut says = Self::default();
        says.namespace.nsze = BLOCKS.into();
        says.namespace.lbaf[0] = LbaFormat { lbads: 12, ..LbaFormat::default() };
        says.namespace.mssrl = 16.into();
        says.namespace.mcl = 64.into();
        says.controller.oncs = (bits::ONCS_DATASET_MANAGEMENT | bits::ONCS_COPY).into();
        says.controller.cdfs = 1.into();
        says
    }

    fn page(&self, cns: u8) -> Option<&[u8]> {
        match Cns::from_raw(cns)? {
            Cns::Namespace => Some(self.namespace.as_bytes()),
            Cns::Controller => Some(self.controller.as_bytes()),
            Cns::CommandSetController => Some(self.limits.as_bytes()),
            _ => None,
        }
    }
}

/// A command that a drive got: whether it is an admin command, the namespace that it names, and what came with it.
#[derive(Clone, Debug)]
pub struct Got {
    pub is_admin: bool,
    pub nsid: u32,
    pub command: Command,
    pub data: Vec<u8>,
}

/// How a command ends; `Ok` with a status.
pub type End = io::Result<Status>;
type Answers = Box<dyn FnMut(&mut Sent<'_>) -> Option<End> + Send>;

/// A drive by a script, which answers Identify by what it says, with success otherwise.
#[derive(Clone)]
pub struct Scripted {
    pub says: Arc<Mutex<Says>>,
    got: Arc<Mutex<Vec<Got>>>,
    answers: Arc<Mutex<Answers>>,
    pub drive: Arc<Passthrough>,
}

impl Scripted {
    /// `answers` is asked of what is no Identify.
    pub fn new(
        says: Says,
        answers: impl FnMut(&mut Sent<'_>) -> Option<End> + Send + 'static,
    ) -> Self {
        let says = Arc::new(Mutex::new(says));
        let got: Arc<Mutex<Vec<Got>>> = Arc::default();
        let answers: Arc<Mutex<Answers>> = Arc::new(Mutex::new(Box::new(answers)));
        let (its_says, its_got, its_answers) = (says.clone(), got.clone(), answers.clone());
        let script = move |mut sent: Sent<'_>| {
            let (is_admin, nsid, command) = (sent.is_admin, sent.nsid, *sent.command);
            its_got.lock().unwrap().push(Got { is_admin, nsid, command, data: sent.data.to_vec() });
            let end = if is_admin && command.opcode == admin::IDENTIFY {
                let cns = u8::try_from(command.cdw10[0] & 0xff).unwrap();
                match its_says.lock().unwrap().page(cns) {
                    Some(page) => {
                        sent.data.copy_from_slice(page);
                        Ok(Status::SUCCESS)
                    }
                    None => Ok(Status::INVALID_FIELD.with_dnr()),
                }
            } else {
                (its_answers.lock().unwrap())(&mut sent).unwrap_or(Ok(Status::SUCCESS))
            };
            end.map(|status| Completion { status: status.to_field() >> 1, result: 0 })
        };
        let drive = Arc::new(Passthrough::scripted(Arc::new(script), 1 << 20).unwrap());
        got.lock().unwrap().clear();
        Self { says, got, answers, drive }
    }

    pub fn answer_with(&self, answers: impl FnMut(&mut Sent<'_>) -> Option<End> + Send + 'static) {
        *self.answers.lock().unwrap() = Box::new(answers);
    }

    /// What it got since this was asked.
    pub fn got(&self) -> Vec<Got> {
        std::mem::take(&mut self.got.lock().unwrap())
    }

    pub fn backend(&self) -> Backend {
        Backend::Passthrough(Arc::clone(&self.drive))
    }

    pub fn place(&self) -> Place {
        Place::on(self.backend(), 1, BLOCKS, 4096)
    }
}

/// The ranges of each Dataset Management.
fn freed(drive: &Scripted) -> Vec<Vec<(u64, u32)>> {
    let ranges = drive.got().into_iter().map(|got| {
        assert_eq!((got.command.opcode, got.command.cdw10[1]), (nvm::DATASET_MANAGEMENT, 1 << 2));
        let ranges = <[DsmRange]>::ref_from_bytes(&got.data).unwrap();
        assert_eq!(ranges.len(), usize32(got.command.cdw10[0]) + 1);
        ranges.iter().map(|range| (range.slba.get(), range.blocks.get())).collect()
    });
    ranges.collect()
}

/// Each range was a command, and waited for the one before.
#[test]
fn a_drive_gets_the_ranges_of_a_dataset_management_together() {
    on_reactor(async {
        let drive = Scripted::new(Says::new(), |_| None);
        let place = drive.place();
        let at = place.attach(HOST);
        let all: Vec<_> = (0..256).map(|n| (n * 16, 8)).collect();
        let (sqe, list) = dsm(true, &all);
        assert_eq!(send(&at, sqe, &list).await.status, Status::SUCCESS);
        assert_eq!(freed(&drive), std::slice::from_ref(&all));
        // Ranges may overlap, be none, and come in any order.
        let (sqe, list) = dsm(true, &[(7, 3), (0, 0), (5, 4), (5, 4)]);
        assert_eq!(send(&at, sqe, &list).await.status, Status::SUCCESS);
        assert_eq!(freed(&drive), [[(7, 3), (5, 4), (5, 4)]]);
        // Nothing is sent of a command that is refused, or that has nothing to be freed.
        let (sqe, list) = dsm(true, &[(0, 1), (BLOCKS - 1, 2)]);
        let refused = send(&at, sqe, &list).await.status;
        assert_eq!(refused, Status::LBA_OUT_OF_RANGE.with_dnr());
        for (frees, ranges) in [(true, [(0, 0)]), (false, [(0, 1)])] {
            let (sqe, list) = dsm(frees, &ranges);
            assert_eq!(send(&at, sqe, &list).await.status, Status::SUCCESS);
        }
        assert!(drive.got().is_empty());
        drive.answer_with(|_| Some(Ok(Status::WRITE_FAULT)));
        let (sqe, list) = dsm(true, &all);
        assert_eq!(send(&at, sqe, &list).await.status, Status::WRITE_FAULT);
    });
}

#[test]
fn a_drives_limits_of_dataset_management_are_kept() {
    on_reactor(async {
        let mut says = Says::new();
        (says.limits.dmrl, says.limits.dmrsl, says.limits.dmsl) = (3, 10.into(), 25.into());
        let drive = Scripted::new(says, |_| None);
        let place = drive.place();
        let at = place.attach(HOST);
        let (sqe, list) = dsm(true, &[(0, 32), (100, 1), (200, 1), (300, 1), (400, 10)]);
        assert_eq!(send(&at, sqe, &list).await.status, Status::SUCCESS);
        let expected = [
            vec![(0, 10), (10, 10)],
            vec![(20, 10), (30, 2), (100, 1)],
            vec![(200, 1), (300, 1), (400, 10)],
        ];
        assert_eq!(freed(&drive), expected);
        let without = Scripted::new(
            Says { controller: IdentifyController::default(), ..Says::new() },
            |_| None,
        );
        let place = without.place();
        let at = place.attach(HOST);
        let (sqe, list) = dsm(true, &[(0, 32)]);
        assert_eq!(send(&at, sqe, &list).await.status, Status::SUCCESS);
        assert!(without.got().is_empty());
    });
}

/// A host was gone, and wrote by another path, and the rest of what it had asked for came over that.
#[test]
fn a_drive_gets_no_more_commands_of_a_host_that_is_gone() {
    on_reactor(async {
        let mut says = Says::new();
        // Small units for all of them.
        (says.limits.dmrl, says.limits.dmrsl) = (3, 10.into());
        (says.limits.wzsl, says.limits.wusl) = (1, 1);
        let can = bits::ONCS_WRITE_ZEROES | bits::ONCS_WRITE_UNCORRECTABLE;
        says.controller.oncs = (says.controller.oncs.get() | can).into();
        let drive = Scripted::new(says, |_| None);
        let place = drive.place();
        let at = place.attach(HOST);
        let (deallocate, list) = dsm(true, &[(0, 1000)]);
        let ranged = |opcode| {
            let mut sqe = Sqe::new(opcode, 1, 1);
            sqe.cdw12 = 0xff.into();
            sqe
        };
        let all = [deallocate, ranged(nvm::WRITE_ZEROES), ranged(nvm::WRITE_UNCORRECTABLE)];
        for mut sqe in all {
            let host = Double::with(&list, By::Capsule);
            host.pieces.set(2);
            if sqe.opcode == nvm::DATASET_MANAGEMENT {
                host.describe(&mut sqe, list.len());
            }
            assert_eq!(host.run(&at, &sqe).await.status, Status::ABORTED_SQ_DELETION);
            let got: Vec<_> = drive.got().iter().map(|got| got.command.opcode).collect();
            assert_eq!(got, [sqe.opcode; 2]);
        }
    });
}

fn copy(destination: u64, ranges: &[(u64, u32)]) -> (Sqe, Vec<u8>) {
    (copy_sqe(destination, ranges.len(), CopyFormat::Format0), sources0(ranges))
}

/// Each Copy of a drive: from where, how many blocks, to where. The Flush behind is that of FUA.
fn copied(drive: &Scripted) -> Vec<(u64, u64, u32)> {
    let mut got = drive.got();
    got.pop_if(|got| got.command.opcode == nvm::FLUSH);
    let copies = got.into_iter().map(|got| {
        assert_eq!((got.command.opcode, got.command.cdw10[1..3].to_vec()), (nvm::COPY, vec![0, 0]));
        let range = CopyRange0::read_from_bytes(&got.data).unwrap();
        let blocks = u64::from(range.head.nlb.get()) + 1;
        (range.head.slba.get(), blocks, got.command.cdw10[0])
    });
    copies.collect()
}

#[test]
fn a_drive_copies_within_itself_and_one_that_refuses_is_read_and_written() {
    on_reactor(async {
        let drive = Scripted::new(Says::new(), |_| None);
        let place = drive.place();
        let at = place.attach(HOST);
        let (sqe, list) = copy(1000, &[(0, 40), (100, 1)]);
        assert_eq!(send(&at, sqe, &list).await.status, Status::SUCCESS);
        let (mut sources, mut to) = (Vec::new(), 1000);
        for (source, blocks, destination) in copied(&drive) {
            assert!(blocks <= 16 && destination == to, "{blocks} blocks to {destination}");
            sources.extend(source..source + blocks);
            to += u32::try_from(blocks).unwrap();
        }
        assert_eq!(sources, (0..40).chain(100..101).collect::<Vec<_>>());

        // Its failures are the host's, and what it copied is not copied again.
        drive.answer_with(|_| Some(Ok(Status::UNRECOVERED_READ_ERROR)));
        let (sqe, list) = copy(1000, &[(0, 8)]);
        assert_eq!(send(&at, sqe, &list).await.status, Status::UNRECOVERED_READ_ERROR);
        assert_eq!(copied(&drive), [(0, 8, 1000)]);

        // It says that it copies, and does not.
        drive.answer_with(|sent| {
            let is_copy = sent.command.opcode == nvm::COPY;
            is_copy.then(|| Ok(Status::INVALID_OPCODE.with_dnr()))
        });
        let by_hand = [nvm::READ, nvm::WRITE, nvm::FLUSH];
        for opcodes in [[&[nvm::COPY], &by_hand[..]].concat(), by_hand.to_vec()] {
            let (sqe, list) = copy(1000, &[(0, 8)]);
            assert_eq!(send(&at, sqe, &list).await.status, Status::SUCCESS);
            let got: Vec<_> = drive.got().into_iter().map(|got| got.command.opcode).collect();
            assert_eq!(got, opcodes);
        }
    });
}
