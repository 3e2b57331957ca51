//! Jobs: from an accepted event to settled notifications.
