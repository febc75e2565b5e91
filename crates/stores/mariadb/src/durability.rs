//! Durability levels: the crash that an acknowledged write survives under given settings, on each engine.

use acidtest_model::Durability;

use crate::engine::Engine;

/// The durability level that the settings amount to on an engine, and the reason in words.
pub(crate) fn durability<'a>(engine: Engine, value: impl Fn(&str) -> &'a str) -> (Durability, String) {
    match engine {
        Engine::InnoDb => innodb(value),
        Engine::MyIsam => myisam(value),
        Engine::Aria => aria(value),
        Engine::Memory => (Durability::None, "MEMORY: nothing is kept on disk".to_owned()),
        Engine::Csv => (
            Durability::Process,
            "CSV: a row is written to the file before the answer, and an inserted one never synced"
                .to_owned(),
        ),
        Engine::Archive => (
            Durability::None,
            "ARCHIVE: a row waits in the server's memory until the table is next read".to_owned(),
        ),
        Engine::Blackhole => (Durability::None, "BLACKHOLE: nothing is kept".to_owned()),
    }
}

fn innodb<'a>(value: impl Fn(&str) -> &'a str) -> (Durability, String) {
    let flush = value("innodb_flush_log_at_trx_commit");
    let (binlog, sync) = (value("log_bin") == "ON", value("sync_binlog"));
    let mut because = format!("innodb_flush_log_at_trx_commit={flush}, log_bin={}", value("log_bin"));
    if binlog {
        because = format!("{because}, sync_binlog={sync}");
    }
    let (durability, why) = match flush {
        "1" | "3" if binlog && sync != "1" => (
            Durability::Process,
            "a commit that the unsynced binary log loses with the power is rolled back on recovery",
        ),
        "1" | "3" if value("innodb_flush_method") == "nosync" => {
            (Durability::Process, "innodb_flush_method=nosync: nothing is ever synced")
        }
        "1" | "3" => (Durability::Disk, "the log is synced before the answer"),
        "2" => (Durability::Process, "the log is written before the answer, and synced once a second"),
        _ => (Durability::None, "the log is written once a second"),
    };
    because = format!("{because}: {why}");
    if value("innodb_doublewrite") == "OFF" {
        because.push_str("; innodb_doublewrite=OFF: a page torn by losing power is not recovered");
    }
    (durability, because)
}

/// Rows are written to their file before the answer. A kill between writing a row, its keys and the file's header
/// leaves a table that must be repaired from its rows, which a server does by itself only if its settings say so. With
/// QUICK it does not look at the rows of a table of which nothing was deleted: for a file that is longer than its header
/// says it only warns (`chk_size` in `storage/myisam/mi_check.c`, `check_and_repair` in `ha_myisam.cc`), and a row
/// without its keys stays in the table.
fn myisam<'a>(value: impl Fn(&str) -> &'a str) -> (Durability, String) {
    let recover = value("myisam_recover_options");
    let because = format!("MyISAM, myisam_recover_options={recover}");
    let (durability, why) = if matches!(recover, "" | "OFF") {
        (Durability::None, "a table that a kill left half written is used as it is")
    } else if recover.split(',').any(|option| option == "QUICK") {
        (Durability::None, "a row that a kill left without its keys is not looked for")
    } else {
        (Durability::Process, "rows are written before the answer, and their index is made again from them")
    };
    (durability, format!("{because}: {why}"))
}

fn aria<'a>(value: impl Fn(&str) -> &'a str) -> (Durability, String) {
    let group = value("aria_group_commit");
    let because = format!("Aria, aria_group_commit={group}");
    let (durability, why) = match group {
        "none" | "hard" => (Durability::Disk, "the log is synced before the answer"),
        _ => (Durability::Process, "the log is written before the answer, and synced later"),
    };
    (durability, format!("{because}: {why}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn durability_of(engine: Engine, settings: &[(&str, &'static str)]) -> Durability {
        let settings: BTreeMap<&str, &'static str> = settings.iter().copied().collect();
        durability(engine, |name| settings.get(name).copied().unwrap_or("")).0
    }

    fn innodb(flush: &'static str, binlog: &'static str, sync: &'static str) -> Durability {
        let settings =
            [("innodb_flush_log_at_trx_commit", flush), ("log_bin", binlog), ("sync_binlog", sync)];
        durability_of(Engine::InnoDb, &settings)
    }

    #[test]
    fn each_of_innodb_s_durability_levels_has_its_settings() {
        assert_eq!(innodb("1", "OFF", "0"), Durability::Disk);
        assert_eq!(innodb("1", "ON", "1"), Durability::Disk);
        assert_eq!(innodb("1", "ON", "0"), Durability::Process);
        assert_eq!(innodb("1", "ON", "100"), Durability::Process);
        assert_eq!(innodb("2", "ON", "1"), Durability::Process);
        assert_eq!(innodb("0", "OFF", "0"), Durability::None);
        assert_eq!(innodb("", "", ""), Durability::None);
    }

    #[test]
    fn aria_s_durability_is_when_its_log_is_synced() {
        for (group, expected) in
            [("none", Durability::Disk), ("hard", Durability::Disk), ("soft", Durability::Process)]
        {
            assert_eq!(durability_of(Engine::Aria, &[("aria_group_commit", group)]), expected);
        }
        assert_eq!(durability_of(Engine::Aria, &[]), Durability::Process);
    }

    #[test]
    fn myisam_keeps_rows_where_it_makes_their_index_again() {
        let of = |recover| durability_of(Engine::MyIsam, &[("myisam_recover_options", recover)]);
        assert_eq!(of("BACKUP"), Durability::Process);
        assert_eq!(of("DEFAULT"), Durability::Process);
        assert_eq!((of("QUICK"), of("BACKUP,QUICK")), (Durability::None, Durability::None));
        assert_eq!((of("OFF"), of("")), (Durability::None, Durability::None));
    }
}
