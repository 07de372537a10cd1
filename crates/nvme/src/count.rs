//! 0's based counts (section 1.4.2): the wire value 0 stands for one.

macro_rules! zero_based {
    ($(#[$meta:meta])* $name:ident($raw:ty) => $count:ty) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($raw);

        impl $name {
            /// From the wire's value.
            #[must_use]
            pub const fn from_raw(raw: $raw) -> Self {
                Self(raw)
            }

            /// From a count; `None` for 0 and for what the field cannot hold.
            #[must_use]
            pub fn new(count: $count) -> Option<Self> {
                <$raw>::try_from(count.checked_sub(1)?).ok().map(Self)
            }

            /// The wire's value.
            #[must_use]
            pub const fn raw(self) -> $raw {
                self.0
            }

            /// How many are meant: at least 1.
            #[must_use]
            pub const fn count(self) -> $count {
                self.0 as $count + 1
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.count().fmt(f)
            }
        }
    };
}

zero_based! {
    /// A 0's based count in 8 bits: 1 to 256.
    ZeroBased8(u8) => u16
}
zero_based! {
    /// A 0's based count in 16 bits: 1 to 65,536.
    ZeroBased16(u16) => u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_stands_for_one() {
        assert_eq!(ZeroBased16::from_raw(0).count(), 1);
        assert_eq!(ZeroBased16::from_raw(u16::MAX).count(), 65_536);
        assert_eq!(ZeroBased16::new(0), None);
        assert_eq!(ZeroBased16::new(65_537), None);
        assert_eq!(ZeroBased8::new(256).map(ZeroBased8::raw), Some(255));
        assert_eq!(ZeroBased8::new(257), None);
    }
}
