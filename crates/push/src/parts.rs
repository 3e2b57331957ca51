//! What all notifications of a job to one app share.

use tidings_types::{AppId, CollapseKey, Timestamp};

/// What all notifications of a job to one app share, whatever their text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderingParts {
    /// The application.
    pub app: AppId,
    /// After this moment it is not sent, and the provider does not keep it for a device that is off.
    pub expires_at: Timestamp,
    /// The notification that it replaces on the device; always set, so that a repeat does no harm.
    pub collapse_id: CollapseKey,
}
