//! The engine on folders after a crash, a failing disk or a careless operator.

use super::*;

/// With fjall's defaults, neither new rows nor a filled table would be compressed.
#[test]
fn rows_are_compressed_from_the_beginning() {
    for table in [Table::Device, Table::Subscription, Table::Change] {
        let row =
            |number: u32| ([&number.to_be_bytes()[..], b"team:42\0goal"].concat(), b"com.example.app\x02en\x02GB");
        let all = || (0..2000).map(row);
        let plain: usize = all().map(|(key, value)| key.len() + value.len()).sum();
        let folder = tempfile::tempdir().unwrap();
        let open = |name| Engine::open(&folder.path().join(name), 1 << 20, Rows::default).unwrap();
        let [written, filled] = ["written", "filled"].map(open);
        let mut rows = Rows::default();
        all().for_each(|(key, value)| rows.put(table, key, value));
        written.commit(rows, Durability::Handed).unwrap();
        written.flush(table);
        let fill = filled.fill(table, |write| all().try_for_each(|(key, value)| write(&key, value)));
        fill.unwrap_or_else(|error: EngineError| panic!("{error}"));
        for engine in [written, filled] {
            let disk = engine.keyspace(table).disk_space();
            assert!(disk < plain as u64 / 2, "{}: {disk} of {plain} bytes", table.name());
            let mut read = all();
            let scanned = engine.scan(Place::Open, table, &Span::all(), |key, value| {
                assert_eq!(read.next(), Some((key.to_vec(), value.try_into().unwrap())));
                Ok(true)
            });
            scanned.unwrap();
            assert_eq!(read.next(), None);
        }
    }
}

/// The folder is as fjall leaves it right after it began a new log file: the older one has rows that are in no table.
#[test]
fn a_missing_log_file_that_the_tables_still_need_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Engine::open(folder.path(), 1 << 20, Rows::default);
    let write = |engine: &Engine, key: u8| {
        let mut rows = Rows::default();
        rows.put(Table::Device, [key], "a row");
        engine.commit(rows, Durability::Handed).unwrap();
    };
    let place = folder.path().join(PLACE);
    let (first, aside) = (place.join("0.jnl"), folder.path().join("aside"));
    let engine = open().unwrap();
    write(&engine, 1);
    File::create(place.join("1.jnl")).unwrap();
    write(&engine, 2);
    drop(engine);
    fs::rename(&first, &aside).unwrap();
    let error = open().err().expect("rows are lost").to_string();
    assert!(error.contains("has rows of table device in a log file (*.jnl) that is missing"), "{error}");
    fs::rename(&aside, &first).unwrap();
    let engine = open().unwrap();
    assert!([1, 2].iter().all(|key| engine.get(Table::Device, &[*key]).unwrap().is_some()));
    assert!(engine.flush_all().unwrap());
    drop(engine);
    // Now the tables have these rows, and fjall deletes the file itself.
    if first.exists() {
        fs::remove_file(&first).unwrap();
    }
    let engine = open().unwrap();
    assert!([1, 2].iter().all(|key| engine.get(Table::Device, &[*key]).unwrap().is_some()));
}

/// When files are merged, a deletion disappears together with the deleted row, and so does its sequence number.
#[test]
fn merged_files_are_not_taken_for_lost_ones() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Engine::open(folder.path(), 1 << 20, Rows::default);
    let commit = |engine: &Engine, change: fn(&mut Rows)| {
        let mut rows = Rows::default();
        change(&mut rows);
        engine.commit(rows, Durability::Handed).unwrap();
    };
    let place = folder.path().join(PLACE);
    let engine = open().unwrap();
    commit(&engine, |rows| rows.put(Table::Brake, "everything", "a row"));
    assert!(engine.flush_all().unwrap());
    commit(&engine, |rows| rows.delete(Table::Brake, "everything"));
    File::create(place.join("1.jnl")).unwrap();
    commit(&engine, |rows| rows.put(Table::Device, "1", "a row"));
    assert!(engine.flush_all().unwrap());
    engine.keyspace(Table::Brake).major_compact().unwrap();
    assert_eq!(engine.keyspace(Table::Brake).tree.get_highest_persisted_seqno(), None, "both are gone");
    drop(engine);
    if place.join("0.jnl").exists() {
        fs::remove_file(place.join("0.jnl")).unwrap(); // As fjall does.
    }
    let engine = open().unwrap();
    assert!(engine.get(Table::Brake, b"everything").unwrap().is_none());
    assert!(engine.get(Table::Device, b"1").unwrap().is_some());
}

/// After a power failure, any pages that were not synced may be missing.
#[test]
fn a_torn_end_that_was_not_acknowledged_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Engine::open(folder.path(), 1 << 20, Rows::default);
    let log = folder.path().join(PLACE).join("0.jnl");
    let write = |engine: &Engine, commit: u64| {
        let mut rows = Rows::default();
        rows.put(Table::Meta, STATE_KEY, format!("{{\"commit\":{commit}}}"));
        rows.put(Table::Device, [commit as u8], "a row of some length");
        engine.commit(rows, Durability::Synced).unwrap();
    };
    let engine = open().unwrap();
    write(&engine, 1);
    engine.acknowledge(1);
    let torn_at = usize::try_from(log::read(&log, None).unwrap().bytes).unwrap();
    write(&engine, 2);
    drop(engine);
    let mut bytes = fs::read(&log).unwrap();
    bytes[torn_at..torn_at + 8].fill(0);
    fs::write(&log, &bytes).unwrap();
    let engine = open().unwrap();
    assert!(engine.get(Table::Device, &[1]).unwrap().is_some() && engine.get(Table::Device, &[2]).unwrap().is_none());
    // If the second commit was acknowledged, its loss is noticed.
    engine.acknowledge(2);
    drop(engine);
    fs::write(&log, &bytes).unwrap();
    let error = open().err().expect("a commit is lost").to_string();
    assert!(error.contains("is damaged at byte"), "{error}");
}

#[test]
fn a_log_without_a_synced_commit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Engine::open(folder.path(), 1 << 20, Rows::default);
    let engine = open().unwrap();
    engine.check_acknowledged(7).unwrap(); // The store of an earlier version gets its number.
    engine.acknowledge(8);
    drop(engine);
    let engine = open().unwrap();
    let error = engine.check_acknowledged(7).unwrap_err().to_string();
    assert!(error.contains("ends with commit 7, and commit 8 was acknowledged"), "{error}");
    engine.check_acknowledged(9).unwrap();
    drop(engine);
    fs::write(folder.path().join(PLACE).join("acknowledged"), [0; 16]).unwrap();
    open().unwrap().check_acknowledged(7).unwrap();
}
