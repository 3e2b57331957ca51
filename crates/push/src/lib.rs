//! Push providers without connections: requests, answers, outcomes, pacing.
