//! Who is to be told: device numbers and sets per subject and topic.
