//! Durable devices, subscriptions, journal and jobs.
