//! What all notifications of a job to one app share.

use tidings_types::{AppId, CollapseKey, Timestamp};

/// What all notifications of a job to one app share, whatever they say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderingParts {
    /// The application.
    pub app: AppId,
    /// After this moment it is neither sent nor kept by the provider for a device that is off.
    pub expires_at: Timestamp,
    /// What it replaces on the device; always set, which is what makes a repeat harmless.
    pub collapse_id: CollapseKey,
}
