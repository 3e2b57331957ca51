//! What clients can make the server do: what each of it costs, who gets which share of it when several want it, and which test
//! has a greedy neighbour. `docs/limits.md` has the same rows for operators.

/// One thing that clients can ask for.
struct Limit {
    /// What it is, as `docs/limits.md` calls it.
    what: &'static str,
    /// The file and the name of the test.
    test: (&'static str, &'static str),
}

const fn limit(what: &'static str, file: &'static str, test: &'static str) -> Limit {
    Limit { what, test: (file, test) }
}

const LIMITS: &[Limit] = &[
    limit("Commands", "edge/src/turns.rs", "a_thousand_busy_connections_delay_another_network_by_one_turn"),
    limit("Commands in frames", "tidings/tests/abuse/shares.rs", "full_frames_of_commands"),
    limit(
        "Calls of hooks",
        "server/src/hooks/tests.rs",
        "a_client_is_asked_about_before_a_thousand_calls_of_another_network",
    ),
    limit("Publications into memory", "edge/tests/it/shares.rs", "who_publishes_too_fast_waits_for_the_readers"),
    limit("New channels by publishing", "edge/src/creations.rs", "each_user_has_its_share_of_every_minute"),
    limit("New channels by subscribing", "edge/tests/it/shares.rs", "one_network_does_not_get_all_channels"),
    limit("Reading slowly", "tidings/tests/abuse/shares.rs", "readers_that_want_few_bytes"),
    limit("Filters", "edge/src/wanted.rs", "a_filter_is_asked_once_for_each_publication_of_a_turn"),
    limit("Forms of a publication", "stream/src/tail.rs", "readers_of_other_forms_do_not_make_the_tail_shorter"),
    limit("Histories in memory", "hub/tests/it/room.rs", "histories_have_a_budget_and_the_largest_pay_first"),
    limit("Recovery and history", "tidings/tests/abuse.rs", "clients_that_recover_and_read_nothing"),
    limit("Unread replies", "tidings/tests/abuse.rs", "a_thousand_presence_commands_in_one_frame"),
    limit("Commands that wait", "tidings/tests/abuse.rs", "commands_that_wait_behind_a_slow_hook"),
    limit("Connections", "tidings/tests/abuse.rs", "websockets_of_one_address"),
    limit("Unfinished bodies", "tidings/tests/abuse.rs", "unfinished_bodies_of_one_user"),
];

#[test]
fn each_limit_has_its_test_and_its_row_in_the_documentation() {
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read =
        |path: &str| std::fs::read_to_string(crates.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let documentation = read("../docs/limits.md");
    for Limit { what, test: (file, test) } in LIMITS {
        assert!(read(file).contains(&format!("fn {test}(")), "{what}: {file} has no test {test}");
        assert!(documentation.contains(&format!("| {what} |")), "docs/limits.md has no row for {what}");
    }
    let rows = documentation.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| What")).count();
    assert_eq!(rows, LIMITS.len(), "docs/limits.md has a row that is not here");
}
