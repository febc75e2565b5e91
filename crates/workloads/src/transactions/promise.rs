//! What a store's documentation promises of an isolation level, as anomalies that it rules out.

#![warn(missing_docs)]

use acidtest_history::{Anomaly, Guarantee, Level, Order, Shape};

/// What a store's own documentation promises of one of its levels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The level, in words (`repeatable read`), with what else is set, if that makes another mode of it.
    pub level: String,
    /// The anomalies that it rules out.
    pub rules_out: Vec<Anomaly>,
    /// The sentence that says so, shortened; empty if nothing is promised.
    pub said: String,
    /// Where it stands.
    pub source: String,
}

impl Promise {
    /// The promise that the table of [promises](crate::promises) has of a product in one of its modes (`postgres`, `read committed`).
    /// `told` is what its sessions read back, by which modes of the same level differ. What the table does not have is not
    /// promised.
    #[must_use]
    pub fn documented(product: &str, mode: &str, told: &str) -> Self {
        let level = mode.to_owned();
        match crate::promises::find(product, mode, told) {
            Some(row) => {
                Self { level, rules_out: ruled_out(&row.prevents), said: row.said, source: row.source }
            }
            None => Self { level, rules_out: Vec::new(), said: String::new(), source: String::new() },
        }
    }

    /// Whether the anomaly is ruled out.
    #[must_use]
    pub fn rules_out(&self, anomaly: Anomaly) -> bool {
        self.rules_out.contains(&anomaly)
    }

    /// Whether the definitions of Adya forbid it at the level of this name.
    #[must_use]
    pub fn adya_forbids(&self, anomaly: Anomaly) -> bool {
        let words = crate::promises::level(&self.level);
        let level = Level::ALL.into_iter().find(|level| level.name() == words);
        level.is_some_and(|level| anomaly.forbidden_by(Guarantee { level, order: Order::Data }))
    }
}

/// What a promise is about: the anomalies that show only in the order of the data.
fn of_data() -> Vec<Anomaly> {
    let is_of_data = |anomaly: &Anomaly| match anomaly {
        // no level's business
        Anomaly::GarbageRead | Anomaly::DuplicateElements => false,
        Anomaly::Cycle(_, order) => *order == Order::Data,
        _ => true,
    };
    Anomaly::all().filter(is_of_data).collect()
}

/// The anomalies of the words in the table, most of which are those of the scripts of `acidtest anomalies`. The scripts tell apart
/// what a random history cannot: a G-single among transactions that only read, and one that takes writes. So an anomaly is ruled out
/// only where both are.
fn ruled_out(words: &str) -> Vec<Anomaly> {
    let words: Vec<&str> = words.split(' ').collect();
    if words.contains(&"*") {
        return of_data();
    }
    let is_ruled_out = |anomaly: &Anomaly| {
        let needed: &[&str] = match anomaly {
            Anomaly::Internal | Anomaly::FutureRead | Anomaly::IncompatibleOrder => &["G1a", "G1b", "G1c"],
            Anomaly::G1a => &["G1a"],
            Anomaly::DirtyUpdate => &["G0", "G1a"],
            Anomaly::G1b => &["G1b"],
            Anomaly::ObservedTransactionVanishes => &["OTV"],
            Anomaly::ObservedTransactionVanishesAfterWrite => &["OTV-write"],
            Anomaly::NonRepeatableRead => &["non-repeatable-read"],
            Anomaly::NonRepeatableReadAfterWrite => &["non-repeatable-read-write"],
            Anomaly::LostUpdate => &["P4"],
            Anomaly::WrongTotal => &["wrong-total"],
            Anomaly::WrongTotalAfterWrite => &["wrong-total-write"],
            Anomaly::Cycle(Shape::G0, Order::Data) => &["G0"],
            Anomaly::Cycle(Shape::G1c, Order::Data) => &["G0", "G1c"],
            Anomaly::Cycle(Shape::GSingle, Order::Data) => &["G-single", "G-single-write", "P4"],
            Anomaly::Cycle(Shape::GNonadjacent, Order::Data) => &["G-nonadjacent"],
            Anomaly::Cycle(Shape::G2Item, Order::Data) => &["G2-item"],
            // the first two are no level's business, and of the others no documentation speaks
            Anomaly::GarbageRead
            | Anomaly::DuplicateElements
            | Anomaly::Cycle(_, Order::Session | Order::RealTime) => return false,
        };
        needed.iter().all(|word| words.contains(word))
    };
    of_data().into_iter().filter(is_ruled_out).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules_out(product: &str, mode: &str, told: &str) -> impl Fn(Anomaly) -> bool {
        let promise = Promise::documented(product, mode, told);
        move |anomaly| promise.rules_out(anomaly)
    }

    #[test]
    fn a_level_rules_out_what_its_documentation_says() {
        let g_single = Anomaly::Cycle(Shape::GSingle, Order::Data);
        let write_skew = Anomaly::Cycle(Shape::G2Item, Order::Data);
        let committed = rules_out("postgres", "read committed", "");
        assert!(committed(Anomaly::G1a) && committed(Anomaly::WrongTotal) && !committed(g_single));
        let repeatable = rules_out("postgres", "repeatable read", "");
        assert!(repeatable(g_single) && repeatable(Anomaly::LostUpdate) && !repeatable(write_skew));
        let serializable = rules_out("postgres", "serializable", "");
        assert!(serializable(write_skew));
        assert!(!serializable(Anomaly::Cycle(Shape::G2Item, Order::RealTime)));
        // MySQL's repeatable read loses updates, and says so
        let mysql = rules_out("mysql", "repeatable read", "");
        assert!(mysql(Anomaly::G1b) && !mysql(g_single) && !mysql(Anomaly::LostUpdate));
        // and shows rows that a transaction has written beside those of its snapshot, which are older
        for (of_reader, after_write) in [
            (Anomaly::NonRepeatableRead, Anomaly::NonRepeatableReadAfterWrite),
            (Anomaly::ObservedTransactionVanishes, Anomaly::ObservedTransactionVanishesAfterWrite),
            (Anomaly::WrongTotal, Anomaly::WrongTotalAfterWrite),
        ] {
            assert!(mysql(of_reader) && !mysql(after_write), "{of_reader}");
            assert!(repeatable(of_reader) && repeatable(after_write), "{of_reader}");
        }
        let mariadb = rules_out("mariadb", "repeatable read", "innodb_snapshot_isolation=ON");
        assert!(mariadb(g_single) && mariadb(Anomaly::LostUpdate));
        assert!(!rules_out("mysql", "read uncommitted", "")(Anomaly::WrongTotal));
        assert!(Promise::documented("other", "serializable", "").rules_out.is_empty());
    }

    #[test]
    fn adya_demands_more_of_some_levels_than_their_documentation_promises() {
        let beyond = |product, mode| {
            let promise = Promise::documented(product, mode, "");
            let is_beyond =
                |anomaly: &Anomaly| promise.adya_forbids(*anomaly) && !promise.rules_out(*anomaly);
            of_data().into_iter().filter(is_beyond).collect::<Vec<_>>()
        };
        assert_eq!(beyond("postgres", "repeatable read"), [Anomaly::Cycle(Shape::G2Item, Order::Data)]);
        assert_eq!(beyond("postgres", "read committed"), []);
        assert_eq!(beyond("postgres", "serializable"), []);
        assert!(beyond("mysql", "repeatable read").contains(&Anomaly::LostUpdate));
    }
}
