//! How many bytes the commands of a job move: one size, or a mix of them.

use stdx::prng::Prng;

use crate::Error;
use crate::limits::SIZES_MAX;

/// Sizes of the commands of one direction, each with its share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix(Vec<(u32, u8)>);

impl Mix {
    /// Only commands of `bytes`.
    #[must_use]
    pub fn one(bytes: u32) -> Self {
        Self(vec![(bytes, 100)])
    }

    /// Sizes in bytes and their shares in percent. Sizes without a share have what the others leave in equal
    /// parts, as in fio.
    ///
    /// # Errors
    /// [`Error::Job`] when there is no size or too many, or the shares are not 100 together.
    pub fn new(sizes: &[(u32, Option<u8>)]) -> Result<Self, Error> {
        let fail = |what: String| Err(Error::Job(what));
        if sizes.is_empty() || sizes.len() > SIZES_MAX {
            return fail(format!("a mix has 1 to {SIZES_MAX} sizes"));
        }
        let said: u32 = sizes.iter().filter_map(|(_, share)| share.map(u32::from)).sum();
        let silent = u32::try_from(sizes.iter().filter(|(_, share)| share.is_none()).count());
        let silent = silent.unwrap_or(u32::MAX);
        if said > 100 || (silent == 0 && said != 100) {
            return fail(format!("the shares of the sizes are {said} % together, not 100"));
        }
        let (each, mut over) = ((100 - said) / silent.max(1), (100 - said) % silent.max(1));
        let share = |share: &Option<u8>| {
            share.unwrap_or_else(|| {
                let more = u32::from(over > 0);
                over -= more;
                u8::try_from(each + more).unwrap_or(100)
            })
        };
        let mut share = share;
        Ok(Self(sizes.iter().map(|(bytes, said)| (*bytes, share(said))).collect()))
    }

    /// The sizes, bytes, and their shares, percent.
    #[must_use]
    pub fn sizes(&self) -> &[(u32, u8)] {
        &self.0
    }

    /// In fio's words: `4096`, or `4096/70:65536/30`.
    #[must_use]
    pub fn show(&self) -> String {
        match self.0.as_slice() {
            [(bytes, _)] => bytes.to_string(),
            sizes => {
                let each = sizes.iter().map(|(bytes, share)| format!("{bytes}/{share}"));
                each.collect::<Vec<_>>().join(":")
            }
        }
    }
}

/// The sizes of a job's commands. All are multiples of the smallest, its block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Of reads.
    pub read: Mix,
    /// Of writes.
    pub write: Mix,
}

impl Sizes {
    /// Only commands of `bytes`.
    #[must_use]
    pub fn one(bytes: u32) -> Self {
        Self::both(Mix::one(bytes))
    }

    /// The same mix both ways.
    #[must_use]
    pub fn both(mix: Mix) -> Self {
        Self { read: mix.clone(), write: mix }
    }

    fn all(&self) -> impl Iterator<Item = u32> {
        self.read.0.iter().chain(&self.write.0).map(|(bytes, _)| *bytes)
    }

    /// The smallest, bytes: what addresses are multiples of, and what is verified as one.
    #[must_use]
    pub fn block(&self) -> u32 {
        self.all().min().unwrap_or(0)
    }

    /// The largest, bytes.
    #[must_use]
    pub fn largest(&self) -> u32 {
        self.all().max().unwrap_or(0)
    }

    /// A size that is no multiple of the smallest.
    pub(crate) fn odd(&self) -> Option<u32> {
        let block = self.block();
        self.all().find(|bytes| block == 0 || !bytes.is_multiple_of(block))
    }
}

impl From<u32> for Sizes {
    fn from(bytes: u32) -> Self {
        Self::one(bytes)
    }
}

/// Draws sizes of one direction, in blocks.
#[derive(Clone, Debug)]
pub struct Draw {
    /// Blocks of a command, and the percentage below which it is drawn.
    upto: Vec<(u32, u64)>,
}

impl Draw {
    pub fn new(mix: &Mix, block: u32) -> Self {
        let mut sum = 0;
        let upto = mix.0.iter().map(|(bytes, share)| {
            sum += u64::from(*share);
            (bytes / block, sum)
        });
        Self { upto: upto.collect() }
    }

    /// Blocks of the next command.
    #[inline]
    pub fn next(&self, prng: &mut Prng) -> u32 {
        if let [(blocks, _)] = self.upto.as_slice() {
            return *blocks;
        }
        let drawn = prng.below(100);
        self.upto.iter().find(|(_, upto)| drawn < *upto).map_or(1, |(blocks, _)| *blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_come_in_their_shares() {
        let mix = Mix::new(&[(4096, Some(70)), (65536, Some(30))]).unwrap();
        assert_eq!(mix.show(), "4096/70:65536/30");
        let draw = Draw::new(&mix, 4096);
        let mut prng = Prng::new(4);
        let large = (0..100_000).filter(|_| draw.next(&mut prng) == 16).count();
        assert!((29_500..30_500).contains(&large), "{large}");
    }

    #[test]
    fn silent_sizes_share_the_rest() {
        let mix = Mix::new(&[(512, Some(49)), (1024, None), (2048, None)]).unwrap();
        assert_eq!(mix.sizes(), [(512, 49), (1024, 26), (2048, 25)]);
        assert_eq!(Mix::new(&[(512, None)]).unwrap(), Mix::one(512));
    }

    #[test]
    fn shares_are_a_hundred() {
        for wrong in [&[(512, Some(60)), (1024, Some(60))][..], &[(512, Some(99))], &[]] {
            assert!(Mix::new(wrong).is_err(), "{wrong:?}");
        }
        let odd = Sizes { read: Mix::one(4096), write: Mix::one(6144) };
        assert_eq!((odd.block(), odd.largest(), odd.odd()), (4096, 6144, Some(6144)));
    }
}
