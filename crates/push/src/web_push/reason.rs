//! Why a push service refuses a request. The names are ours, because push services share only status codes.

use tidings_types::words;

words! {
    /// Why a push service refused a request, or why it was not asked.
    pub enum Reason {
        /// The browser's public key is not a point on the curve P-256.
        BadSubscriptionKey = "bad_subscription_key",
        /// The endpoint's host or port is not allowed (`allowed_hosts`, `allowed_ports`).
        ForbiddenEndpoint = "forbidden_endpoint",
        /// The host of the endpoint has no public address.
        AddressNotPublic = "address_not_public",
        /// The push service is dead: it takes nothing, while others below the same wildcard do. The half of the queue that dead services may fill is full.
        OriginOverloaded = "origin_overloaded",
        /// 404 or 410: the subscription does not exist any more. It is removed.
        SubscriptionGone = "subscription_gone",
        /// 401 or 403: the push service refuses our signature.
        VapidRefused = "vapid_refused",
        /// The subscription was made with another VAPID key.
        VapidKeyMismatch = "vapid_key_mismatch",
        /// 413: the notification is too large.
        PayloadTooLarge = "web_push_payload_too_large",
        /// 406 or 429: too many requests.
        TooManyRequests = "web_push_too_many_requests",
        /// Any other status of 4xx.
        BadRequest = "web_push_bad_request",
        /// 408 or 5xx: the push service has an error.
        ServiceError = "web_push_service_error",
        /// Any other status.
        Other = "web_push_other",
    }
}
