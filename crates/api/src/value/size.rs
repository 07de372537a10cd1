//! A number of bytes, written `4096`, `64KiB`, `1.5TiB`, `10GB`.

use std::fmt;
use std::str::FromStr;

use super::Refused;

/// A number of bytes, read and shown as `stdx::size` does. Written to JSON as an integer.
///
/// What has blocks has whole ones: a size in powers of 1000, or with parts of a unit, is rounded up to a multiple of 4096.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(u64);

const RIGHT: &str = "write a number of bytes with a unit, such as 512MiB, 1.5TiB or 10GB";

/// Largest logical block.
const BLOCK: u64 = 4096;

impl Size {
    /// A size of `bytes`.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The size in bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Text that reads back as the same size: with a unit when one divides it.
    pub fn exact(self) -> String {
        let text = stdx::size::show(self.0);
        if text.contains('.') { self.0.to_string() } else { text.replace(' ', "") }
    }
}

impl FromStr for Size {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        let bytes = stdx::size::parse(text).map_err(|wrong| Refused::new(wrong, RIGHT))?;
        match stdx::size::is_decimal(text) {
            true => Ok(Self(bytes.checked_next_multiple_of(BLOCK).unwrap_or(bytes))),
            false => Ok(Self(bytes)),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&stdx::size::show(self.0))
    }
}

impl serde::Serialize for Size {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_u64(self.0)
    }
}

impl<'de> serde::Deserialize<'de> for Size {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Size;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a number of bytes, or text such as \"1GiB\"")
            }
            fn visit_u64<E: serde::de::Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes))
            }
            fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> Result<Size, E> {
                u64::try_from(bytes).map(Size).map_err(|_| E::custom("a size is not negative"))
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(|refused| E::custom(super::one_line(&refused)))
            }
        }
        input.deserialize_any(Visitor)
    }
}

impl utoipa::PartialSchema for Size {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Type};
        OneOfBuilder::new()
            .description(Some("A number of bytes. Text with a unit is accepted in requests."))
            .item(ObjectBuilder::new().schema_type(Type::Integer))
            .item(ObjectBuilder::new().schema_type(Type::String))
            .examples([serde_json::Value::from(1_u64 << 30), serde_json::Value::from("1GiB")])
            .into()
    }
}

impl utoipa::ToSchema for Size {}
