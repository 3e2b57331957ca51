//! Which clients may do what in a channel.

use tidings_types::ChannelName;

use crate::NamespaceOptions;

/// One of the four permissions of a namespace.
pub(super) struct Allowed {
    for_client: bool,
    for_subscriber: bool,
    for_anonymous: bool,
}

impl Allowed {
    pub(super) fn subscribe(options: &NamespaceOptions, channel: &ChannelName) -> Self {
        let is_for_users = options.allow_user_limited_channels && channel.as_str().contains('#');
        Self {
            for_client: options.allow_subscribe_for_client || is_for_users,
            for_subscriber: false,
            for_anonymous: options.allow_subscribe_for_anonymous,
        }
    }

    pub(super) fn publish(options: &NamespaceOptions) -> Self {
        Self {
            for_client: options.allow_publish_for_client,
            for_subscriber: options.allow_publish_for_subscriber,
            for_anonymous: options.allow_publish_for_anonymous,
        }
    }

    pub(super) fn history(options: &NamespaceOptions) -> Self {
        Self {
            for_client: options.allow_history_for_client,
            for_subscriber: options.allow_history_for_subscriber,
            for_anonymous: options.allow_history_for_anonymous,
        }
    }

    pub(super) fn presence(options: &NamespaceOptions) -> Self {
        Self {
            for_client: options.allow_presence_for_client,
            for_subscriber: options.allow_presence_for_subscriber,
            for_anonymous: options.allow_presence_for_anonymous,
        }
    }

    /// Whether `user` ("" for an anonymous one) has the permission in `channel`. `is_subscriber`: the client is
    /// subscribed to the channel.
    pub(super) fn to(&self, user: &str, is_subscriber: bool, channel: &ChannelName) -> bool {
        let known = !user.is_empty() || self.for_anonymous;
        let for_client = self.for_client && is_among_users_of(channel.as_str(), user);
        known && (for_client || self.for_subscriber && is_subscriber)
    }
}

/// `dialog#42,43` is for the users 42 and 43. In Centrifugo `#` is an ordinary character unless
/// `allow_user_limited_channels` is on; here it always limits.
pub(super) fn is_among_users_of(channel: &str, user: &str) -> bool {
    match channel.rsplit_once('#') {
        None => true,
        Some((_, users)) => !user.is_empty() && users.split(',').any(|listed| listed == user),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_sign_limits_a_channel_to_the_users_behind_it() {
        for (channel, user, expected) in [
            ("news", "", true),
            ("dialog#42,43", "42", true),
            ("dialog#42,43", "43", true),
            ("dialog#42,43", "4", false),
            ("dialog#42,43", "", false),
            ("dialog#42#7", "42", false),
            ("dialog#42#7", "7", true),
            ("dialog#", "", false),
        ] {
            assert_eq!(is_among_users_of(channel, user), expected, "{channel} for {user:?}");
        }
    }
}
