//! The collapse id that a provider is given: which notification on the device is replaced.

use tidings_types::{CollapseKey, Event, EventId};
use uuid::Uuid;

/// The event's own key, else its id, or a hash of the id if the id is too long.
pub(crate) fn collapse_id(event: &Event) -> CollapseKey {
    const NAMESPACE: Uuid = Uuid::from_u128(0x3c5e_02a7_8d14_4b6b_9f20_6a1d_e7c3_58b4);
    let derived = |id: &EventId| {
        let uuid = Uuid::new_v5(&NAMESPACE, id.as_str().as_bytes()).to_string();
        CollapseKey::new(&uuid).expect("a UUID is 36 visible characters")
    };
    event
        .collapse_key
        .clone()
        .unwrap_or_else(|| CollapseKey::new(event.id.as_str()).unwrap_or_else(|_| derived(&event.id)))
}
