//! The kind of a push and its urgency, in the form of APNs.

/// The kind of a push (`apns-push-type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PushType {
    /// Shown to the user.
    Alert,
    /// Wakes the app without showing anything; its priority must be [`Priority::Considerate`].
    Background,
    /// An incoming call; always [`Priority::Immediate`].
    Voip,
    /// Somebody speaks in a push-to-talk channel; always [`Priority::Immediate`].
    PushToTalk,
    /// New data for a complication of a watch face.
    Complication,
    /// Something changed in the folder of a file provider.
    FileProvider,
    /// Asks where the device is.
    Location,
    /// A widget must be reloaded.
    Widgets,
    /// A control must be reloaded.
    Controls,
}

impl PushType {
    /// The header's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alert => "alert",
            Self::Background => "background",
            Self::Voip => "voip",
            Self::PushToTalk => "pushtotalk",
            Self::Complication => "complication",
            Self::FileProvider => "fileprovider",
            Self::Location => "location",
            Self::Widgets => "widgets",
            Self::Controls => "controls",
        }
    }
}

/// How urgently APNs delivers (`apns-priority`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Priority {
    /// At once: 10.
    Immediate,
    /// When it suits the device's battery: 5.
    Considerate,
    /// Saves the battery and does not wake the device: 1.
    PowerFirst,
}

impl Priority {
    /// The header's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Immediate => "10",
            Self::Considerate => "5",
            Self::PowerFirst => "1",
        }
    }
}
