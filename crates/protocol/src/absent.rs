//! How JSON says that a field is absent: it leaves the field out, or says `null`.

use serde::{Deserialize, Deserializer};

/// Reads `null` as the default.
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}
