//! Values with a syntax of their own: parsed once at the door, printed the way they are read.

mod address;
mod ana;
mod backend;
mod member;
mod name;
mod nqn;
mod period;
mod remote;
mod size;
mod template;

pub use address::{Address, Advertise, Transport};
pub use ana::AnaState;
pub use backend::Backend;
pub use member::{DrivePath, LogPlace, PoolDrive};
pub use name::{GroupPath, GroupSnapshotPath, Name, SnapshotPath, VolumePath};
pub use nqn::Nqn;
pub use period::Period;
pub use remote::RemoteNamespace;
pub use size::Size;
pub use template::NameTemplate;

/// A value that was refused: what is wrong with it, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wrong}")]
pub struct Refused {
    /// What is wrong, without a full stop.
    pub wrong: String,
    /// What would be right: a sentence with an example.
    pub right: String,
}

impl Refused {
    /// A refusal of what is `wrong`, with what would be `right`.
    pub fn new(wrong: impl Into<String>, right: impl Into<String>) -> Self {
        Self { wrong: wrong.into(), right: right.into() }
    }
}

/// Both sentences on one line, as the command line and serde print them.
pub(crate) fn one_line(refused: &Refused) -> String {
    format!("{}; {}", refused.wrong, refused.right)
}

/// `Display`-ed text in documents: serde and OpenAPI for a type that has `FromStr` and `Display`.
macro_rules! text_value {
    ($type:ident, $example:literal, $description:literal) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                out.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                let text = String::deserialize(input)?;
                text.parse()
                    .map_err(|refused| serde::de::Error::custom($crate::value::one_line(&refused)))
            }
        }

        impl utoipa::PartialSchema for $type {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::schema::Type::String)
                    .description(Some($description))
                    .examples([serde_json::Value::from($example)])
                    .into()
            }
        }

        impl utoipa::ToSchema for $type {}
    };
}
pub(crate) use text_value;

#[cfg(test)]
mod tests;
