//! Durability levels: the crash that an acknowledged write survives under given settings, on each engine.

use acidtest_model::{Durability, EffectiveDurability};

use crate::engine::Engine;

/// The durability level that the settings amount to on an engine, and the reason in words.
pub(crate) fn durability<'a>(
    engine: Engine,
    value: impl Fn(&str) -> &'a str,
) -> (EffectiveDurability, String) {
    let (level, because) = match engine {
        Engine::InnoDb => return innodb(value),
        Engine::MyIsam => myisam(value),
        Engine::Aria => return aria(value),
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
    };
    (level.into(), because)
}

fn innodb<'a>(value: impl Fn(&str) -> &'a str) -> (EffectiveDurability, String) {
    let flush = value("innodb_flush_log_at_trx_commit");
    let mut because = format!("innodb_flush_log_at_trx_commit={flush}, log_bin={}", value("log_bin"));
    if value("log_bin") == "ON" {
        because = format!("{because}, sync_binlog={}", value("sync_binlog"));
    }
    let (level, why) = match flush {
        "1" | "3" => (EffectiveDurability::Disk, "the log is synced before the answer"),
        "2" => {
            (EffectiveDurability::Process, "the log is written before the answer, and synced once a second")
        }
        "0" => (EffectiveDurability::None, "the log is written once a second"),
        _ => (EffectiveDurability::Unknown, "the server does not tell when the log is written"),
    };
    let limits = limits(&value);
    let least = limits.iter().fold(level, |least, (limit, _)| least.min(*limit));
    let whys: Vec<&str> = [why].into_iter().chain(limits.iter().map(|(_, why)| &**why)).collect();
    (least, format!("{because}: {}", whys.join("; ")))
}

/// What other settings leave of it: the durability levels above which they do not go, each with the reason.
fn limits<'a>(value: impl Fn(&str) -> &'a str) -> Vec<(EffectiveDurability, String)> {
    let mut limits = Vec::new();
    let mut limit = |level, why: String| limits.push((level, why));
    if value("wsrep_on") == "ON" {
        let why = "wsrep_on=ON: a node of a Galera cluster takes its data from the others when it comes back"
            .to_owned();
        limit(EffectiveDurability::Unknown, why);
    }
    if value("Innodb_redo_log_enabled") == "OFF" {
        let why = "Innodb_redo_log_enabled=OFF: without a redo log nothing recovers from a crash".to_owned();
        limit(EffectiveDurability::None, why);
    }
    match value("innodb_doublewrite") {
        // spelled so by one product and version or the other
        "ON" | "1" | "TRUE" | "DETECT_AND_RECOVER" => {}
        "fast" => limit(
            EffectiveDurability::Process,
            "innodb_doublewrite=fast: data files are not synced".to_owned(),
        ),
        other => limit(
            EffectiveDurability::None,
            format!(
                "innodb_doublewrite={other}: there is no copy of a page that a kill or a loss of power leaves half \
                 written; whether any is left so depends on the file system (on ZFS none is), which is not read back"
            ),
        ),
    }
    if matches!(value("innodb_checksum_algorithm"), "none" | "strict_none") {
        let why = "innodb_checksum_algorithm=none: not every page that a loss of power leaves half written is noticed";
        limit(EffectiveDurability::Process, why.to_owned());
    }
    match value("innodb_flush_method") {
        // without a value it is the default, which syncs; the last three are those of Windows, where files are synced whatever
        // they say of its cache (`fil_buffering_disabled`)
        "" | "fsync" | "fdatasync" | "O_DSYNC" | "O_DIRECT" | "ALL_O_DIRECT" | "unbuffered"
        | "async_unbuffered" | "normal" => {}
        other => limit(
            EffectiveDurability::Process,
            format!("innodb_flush_method={other}: not all that is written is known to be synced"),
        ),
    }
    if value("log_bin") == "ON" && value("sync_binlog") != "1" {
        let why = "a commit that the unsynced binary log loses with the power is rolled back on recovery"
            .to_owned();
        limit(EffectiveDurability::Process, why);
    }
    limits
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

/// The log is written before the answer in any case. What it recovers are the changes of a page, which is no help if the
/// page itself was left half written: there is no copy of it, as InnoDB's doublewrite buffer has one.
fn aria<'a>(value: impl Fn(&str) -> &'a str) -> (EffectiveDurability, String) {
    let group = value("aria_group_commit");
    let because = format!("Aria, aria_group_commit={group}");
    let (durability, why) = match group {
        "none" | "hard" => (
            EffectiveDurability::Process,
            "the log is synced before the answer, but there is no copy of a page that a loss of power leaves half written",
        ),
        "soft" => (EffectiveDurability::Process, "the log is written before the answer, and synced later"),
        _ => (EffectiveDurability::Unknown, "the server does not tell when the log is written"),
    };
    (durability, format!("{because}: {why}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn durability_of(engine: Engine, settings: &[(&str, &'static str)]) -> (EffectiveDurability, String) {
        let settings: BTreeMap<&str, &'static str> = settings.iter().copied().collect();
        durability(engine, |name| settings.get(name).copied().unwrap_or(""))
    }

    /// `InnoDB` with these settings, and others as `MySQL` has them by default.
    fn innodb(changed: &[(&str, &'static str)]) -> (EffectiveDurability, String) {
        let default = [
            ("innodb_flush_log_at_trx_commit", "1"),
            ("log_bin", "OFF"),
            ("sync_binlog", "1"),
            ("innodb_doublewrite", "ON"),
            ("innodb_flush_method", "O_DIRECT"),
            ("innodb_checksum_algorithm", "crc32"),
            ("Innodb_redo_log_enabled", "ON"),
        ];
        durability_of(Engine::InnoDb, &[&default[..], changed].concat())
    }

    #[test]
    fn each_of_innodb_s_durability_levels_has_its_settings() {
        for (flush, binlog, sync, expected) in [
            ("1", "OFF", "0", EffectiveDurability::Disk),
            ("3", "OFF", "0", EffectiveDurability::Disk),
            ("1", "ON", "1", EffectiveDurability::Disk),
            ("1", "ON", "0", EffectiveDurability::Process),
            ("1", "ON", "100", EffectiveDurability::Process),
            ("2", "ON", "1", EffectiveDurability::Process),
            ("0", "OFF", "0", EffectiveDurability::None),
            ("", "OFF", "0", EffectiveDurability::Unknown),
        ] {
            let changed =
                [("innodb_flush_log_at_trx_commit", flush), ("log_bin", binlog), ("sync_binlog", sync)];
            assert_eq!(innodb(&changed).0, expected, "{changed:?}");
        }
    }

    #[test]
    fn a_synced_log_is_worth_what_the_data_files_and_its_own_settings_leave_of_it() {
        for (name, value, expected) in [
            ("innodb_doublewrite", "DETECT_AND_RECOVER", EffectiveDurability::Disk),
            ("innodb_doublewrite", "DETECT_ONLY", EffectiveDurability::None),
            ("innodb_doublewrite", "OFF", EffectiveDurability::None),
            ("innodb_doublewrite", "", EffectiveDurability::None),
            ("innodb_doublewrite", "fast", EffectiveDurability::Process),
            ("innodb_flush_method", "", EffectiveDurability::Disk),
            ("innodb_flush_method", "fsync", EffectiveDurability::Disk),
            ("innodb_flush_method", "O_DSYNC", EffectiveDurability::Disk),
            ("innodb_flush_method", "O_DIRECT_NO_FSYNC", EffectiveDurability::Process),
            ("innodb_flush_method", "littlesync", EffectiveDurability::Process),
            ("innodb_flush_method", "nosync", EffectiveDurability::Process),
            ("innodb_flush_method", "unbuffered", EffectiveDurability::Disk),
            ("innodb_flush_method", "normal", EffectiveDurability::Disk),
            ("innodb_flush_method", "another", EffectiveDurability::Process),
            ("innodb_checksum_algorithm", "full_crc32", EffectiveDurability::Disk),
            ("innodb_checksum_algorithm", "none", EffectiveDurability::Process),
            ("Innodb_redo_log_enabled", "", EffectiveDurability::Disk),
            ("Innodb_redo_log_enabled", "OFF", EffectiveDurability::None),
            ("wsrep_on", "OFF", EffectiveDurability::Disk),
            ("wsrep_on", "ON", EffectiveDurability::Unknown),
        ] {
            let (durability, because) = innodb(&[(name, value)]);
            assert_eq!(durability, expected, "{name}={value}: {because}");
            if expected != EffectiveDurability::Disk {
                let setting = name.trim_end_matches("_algorithm");
                assert!(because.contains(setting), "{because} does not name {name}");
            }
        }
        let (durability, because) =
            innodb(&[("innodb_doublewrite", "OFF"), ("innodb_flush_method", "nosync")]);
        assert_eq!(durability, EffectiveDurability::None);
        assert!(because.contains("doublewrite=OFF") && because.contains("method=nosync"), "{because}");
        assert!(because.contains("depends on the file system"), "{because}");
        let weak = [("innodb_flush_log_at_trx_commit", "0"), ("innodb_flush_method", "nosync")];
        assert_eq!(innodb(&weak).0, EffectiveDurability::None);
    }

    #[test]
    fn aria_s_log_does_not_mend_a_page_that_losing_power_tore() {
        for group in ["none", "hard", "soft"] {
            let (durability, _) = durability_of(Engine::Aria, &[("aria_group_commit", group)]);
            assert_eq!(durability, EffectiveDurability::Process, "{group}");
        }
        assert_eq!(durability_of(Engine::Aria, &[]).0, EffectiveDurability::Unknown);
    }

    #[test]
    fn myisam_keeps_rows_where_it_makes_their_index_again() {
        let of = |recover| durability_of(Engine::MyIsam, &[("myisam_recover_options", recover)]).0;
        assert_eq!(of("BACKUP"), Durability::Process);
        assert_eq!(of("DEFAULT"), Durability::Process);
        for weak in ["QUICK", "BACKUP,QUICK", "OFF", ""] {
            assert_eq!(of(weak), Durability::None, "{weak}");
        }
    }
}
