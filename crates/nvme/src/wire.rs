//! Macros that declare layouts and closed sets of wire values once.

/// Asserts at compile time the size of a wire structure and the offset of its fields.
macro_rules! layout {
    ($type:ty, $size:expr $(, $($field:ident).+ @ $offset:expr)* $(,)?) => {
        const _: () = {
            assert!(size_of::<$type>() == $size);
            $(assert!(core::mem::offset_of!($type, $($field).+) == $offset);)*
        };
    };
}

/// Declares an enum over a wire integer: raw value, name in the specification's words, both ways.
macro_rules! wire_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident: $raw:ty {
            $($(#[$vmeta:meta])* $variant:ident = $value:literal, $text:literal;)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$vmeta])* $variant,)+
        }

        impl $name {
            /// Every value, in the order of the specification's table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The value for a raw field; `None` when it is reserved or unknown.
            #[must_use]
            pub const fn from_raw(raw: $raw) -> Option<Self> {
                match raw {
                    $($value => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// The value as it stands on the wire.
            #[must_use]
            pub const fn raw(self) -> $raw {
                match self {
                    $(Self::$variant => $value,)+
                }
            }

            /// The specification's name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

/// Declares named raw codes of one table, and the function from a code to its name.
macro_rules! codes {
    ($raw:ty; $($(#[$meta:meta])* $name:ident = $value:literal, $text:literal;)+) => {
        $($(#[$meta])* #[doc = $text] pub const $name: $raw = $value;)+

        /// The specification's name of a code; `None` when it is reserved or unknown.
        #[must_use]
        pub const fn known(code: $raw) -> Option<&'static str> {
            match code {
                $($value => Some($text),)+
                _ => None,
            }
        }

        /// Every code of the table with its name.
        pub const ALL: &[($raw, &str)] = &[$(($value, $text),)+];
    };
}
