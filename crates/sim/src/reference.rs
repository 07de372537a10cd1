//! The simplest pool there can be, in memory: what the model and the workload are tested against.
//! It tells the truth, or one of a few lies that the model must find out.

use crate::contents::{BLOCK, bytes_of};
use crate::store::{Refusal, Volumes};
use reactor::{random, sleep, spawn};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// What a reference pool does wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lie {
    #[default]
    None,
    /// A write is acknowledged before it would survive.
    AcknowledgesEarly,
    /// Opening brings back what the last write replaced.
    ReplaysInWrongOrder,
    /// Now and then a write goes to the next block.
    Misplaces,
    /// Deallocated blocks come back when the pool is opened.
    ForgetsZeroes,
    /// A deleted volume comes back.
    ForgetsDeletion,
    /// A read may show what was there before the last write.
    ReadsStale,
}

type Block = Box<[u8]>;

#[derive(Default)]
struct Content {
    size: u64,
    blocks: BTreeMap<u64, Block>,
    /// What the last write replaced.
    before: Option<(u64, Option<Block>)>,
    zeroed: BTreeMap<u64, Block>,
}

/// What survives crashes.
#[derive(Default)]
pub struct Disk {
    volumes: RefCell<BTreeMap<String, Content>>,
    deleted: RefCell<Option<(String, Content)>>,
    pub lie: Cell<Lie>,
}

/// An open reference pool.
pub struct Reference {
    disk: Rc<Disk>,
    /// Acknowledged and not yet on the disk: of a liar only.
    early: Rc<RefCell<BTreeMap<(String, u64), Block>>>,
}

async fn pause() {
    sleep(Duration::from_nanos(random() % 50_000)).await;
}

impl Reference {
    pub async fn open(disk: Rc<Disk>) -> Self {
        pause().await;
        let lie = disk.lie.get();
        for content in disk.volumes.borrow_mut().values_mut() {
            if let (Lie::ReplaysInWrongOrder, Some((block, before))) = (lie, content.before.take())
            {
                content.put(block, before);
            }
            if lie == Lie::ForgetsZeroes {
                let zeroed = std::mem::take(&mut content.zeroed);
                zeroed.into_iter().for_each(|(block, data)| content.put(block, Some(data)));
            }
        }
        if lie == Lie::ForgetsDeletion
            && let Some((name, content)) = disk.deleted.take()
        {
            disk.volumes.borrow_mut().insert(name, content);
        }
        Self { disk, early: Rc::default() }
    }

    pub fn volumes(&self) -> Volumes {
        self.disk.volumes.borrow().iter().map(|(name, v)| (name.clone(), v.size)).collect()
    }

    /// Runs `f` on a volume that is there and has all of the range.
    fn with<R>(
        &self,
        name: &str,
        end: u64,
        f: impl FnOnce(&mut Content) -> R,
    ) -> Result<R, Refusal> {
        let mut volumes = self.disk.volumes.borrow_mut();
        let content = volumes.get_mut(name).ok_or(Refusal::NotFound)?;
        if end > content.size { Err(Refusal::OutOfRange) } else { Ok(f(content)) }
    }

    pub async fn create(&self, name: &str, size: u64) -> Result<(), Refusal> {
        pause().await;
        let content = Content { size, ..Content::default() };
        self.disk.volumes.borrow_mut().insert(name.to_owned(), content);
        pause().await;
        Ok(())
    }

    pub async fn rename(&self, name: &str, to: &str) -> Result<(), Refusal> {
        pause().await;
        let mut volumes = self.disk.volumes.borrow_mut();
        let content = volumes.remove(name).ok_or(Refusal::NotFound)?;
        volumes.insert(to.to_owned(), content);
        Ok(())
    }

    pub async fn delete(&self, name: &str) -> Result<(), Refusal> {
        pause().await;
        let content = self.disk.volumes.borrow_mut().remove(name).ok_or(Refusal::NotFound)?;
        self.disk.deleted.replace(Some((name.to_owned(), content)));
        pause().await;
        Ok(())
    }

    pub async fn resize(&self, name: &str, size: u64) -> Result<(), Refusal> {
        pause().await;
        self.with(name, 0, |content| {
            content.size = size;
            content.blocks.split_off(&size);
        })?;
        pause().await;
        Ok(())
    }

    pub async fn read(&self, name: &str, first: u64, count: u64) -> Result<Vec<u8>, Refusal> {
        pause().await;
        let stale = self.disk.lie.get() == Lie::ReadsStale && random().is_multiple_of(50);
        let out = self.with(name, first + count, |content| {
            let mut out = vec![0; bytes_of(count)];
            for (block, to) in (first..).zip(out.chunks_exact_mut(BLOCK)) {
                let early = self.early.borrow().get(&(name.to_owned(), block)).cloned();
                let before = content.before.as_ref().filter(|(at, _)| stale && *at == block);
                let data = match before {
                    Some((_, before)) => before.clone(),
                    None => early.or_else(|| content.blocks.get(&block).cloned()),
                };
                if let Some(data) = data {
                    to.copy_from_slice(&data);
                }
            }
            out
        })?;
        pause().await;
        Ok(out)
    }

    pub async fn write(&self, name: &str, first: u64, data: &[u8]) -> Result<(), Refusal> {
        pause().await;
        let lie = self.disk.lie.get();
        let count = stdx::num::u64_of(data.len() / BLOCK);
        let blocks = (first..).zip(data.chunks_exact(BLOCK)).map(|(b, d)| (b, Block::from(d)));
        let blocks: Vec<(u64, Block)> = blocks.collect();
        self.with(name, first + count, |content| {
            if lie == Lie::AcknowledgesEarly {
                return;
            }
            let shift = u64::from(lie == Lie::Misplaces && random().is_multiple_of(100));
            for (block, data) in blocks.clone() {
                let at = (block + shift).min(content.size - 1);
                content.zeroed.remove(&at);
                content.before = Some((at, content.blocks.get(&at).cloned()));
                content.put(at, Some(data));
            }
        })?;
        if lie == Lie::AcknowledgesEarly {
            self.write_late(name, blocks);
        }
        pause().await;
        Ok(())
    }

    fn write_late(&self, name: &str, blocks: Vec<(u64, Block)>) {
        for (block, data) in blocks {
            self.early.borrow_mut().insert((name.to_owned(), block), data);
        }
        let (disk, early) = (Rc::clone(&self.disk), Rc::clone(&self.early));
        drop(spawn(async move {
            pause().await;
            for ((name, block), data) in early.take() {
                if let Some(content) = disk.volumes.borrow_mut().get_mut(&name) {
                    content.put(block, Some(data));
                }
            }
        }));
    }

    pub async fn zero(&self, name: &str, first: u64, count: u64) -> Result<(), Refusal> {
        pause().await;
        self.with(name, first + count, |content| {
            for block in first..first + count {
                let old = content.blocks.remove(&block);
                self.early.borrow_mut().remove(&(name.to_owned(), block));
                content.zeroed.extend(old.map(|old| (block, old)));
            }
        })?;
        pause().await;
        Ok(())
    }
}

impl Content {
    fn put(&mut self, block: u64, data: Option<Block>) {
        match data {
            Some(data) if data.iter().any(|&byte| byte != 0) => self.blocks.insert(block, data),
            _ => self.blocks.remove(&block),
        };
    }
}
