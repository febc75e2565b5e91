//! What the crate `adya` says of the same history, in the words of this one.

use std::collections::{BTreeMap, BTreeSet};

use acidtest_history::{Anomaly, History, Operation, Order, Outcome, Report, Shape};
use adya::{
    Opts, Workload,
    history::{Interner, Mop, Op, OpType, ReadValue, Scalar},
};

/// What a verdict says, with all that follows from it: a G-single is also a G2-item against real time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) cycles: BTreeSet<(Order, Shape)>,
    pub(crate) others: BTreeSet<&'static str>,
}

impl Verdict {
    fn cycle(&mut self, order: Order, shape: Shape) {
        for weaker in Shape::ALL.into_iter().filter(|&weaker| weaker >= shape) {
            self.cycles.extend(
                Order::ALL.into_iter().filter(|&weaker| weaker >= order).map(|order| (order, weaker)),
            );
        }
    }
}

/// `registers`: `adya` takes the order of writes from reads in the same transaction, so that they are edges ww. They are wr
/// here, too, and no G0 is said to follow from them.
pub(crate) fn of_adya(history: &History, registers: bool) -> Verdict {
    let converted = convert(history);
    let workload = if registers { Workload::RwRegister } else { Workload::ListAppend };
    let mut verdict = Verdict::default();
    // only one of the orders is in its graph at a time
    for model in ["strict-serializable", "strong-session-serializable"] {
        let options = Opts { models: vec![model.to_owned()], wfr_keys: true, ..Opts::default() };
        for kind in adya::check(&converted, workload, &options).anomalies.keys() {
            note(&mut verdict, kind, registers);
        }
    }
    verdict
}

fn note(verdict: &mut Verdict, kind: &str, registers: bool) {
    let (base, order) = if let Some(base) = kind.strip_suffix("-realtime") {
        (base, Order::RealTime)
    } else if let Some(base) = kind.strip_suffix("-process") {
        (base, Order::Session)
    } else {
        (kind, Order::Data)
    };
    let shape = match base {
        "G0" if registers => Shape::G1c,
        "G0" => Shape::G0,
        "G1c" => Shape::G1c,
        "G-single-item" => Shape::GSingle,
        "G-nonadjacent-item" => Shape::GNonadjacent,
        "G2-item" => Shape::G2Item,
        "empty-transaction-graph" => return,
        other => {
            let name = [
                "G1a",
                "G1b",
                "internal",
                "duplicate-elements",
                "dirty-update",
                "lost-update",
                "future-read",
            ];
            let name =
                name.iter().chain(&["incompatible-order", "cyclic-versions"]).find(|name| **name == other);
            verdict.others.insert(name.unwrap_or_else(|| panic!("{other}: unexpected")));
            return;
        }
    };
    verdict.cycle(order, shape);
}

/// What this crate says. Two anomalies have no name there: OTV and wrong totals. Both are seen otherwise in what is compared.
pub(crate) fn of(report: &Report) -> Verdict {
    let mut verdict = Verdict::default();
    for finding in &report.findings {
        let name = match finding.anomaly {
            Anomaly::Cycle(shape, order) => {
                verdict.cycle(order, shape);
                continue;
            }
            Anomaly::ObservedTransactionVanishes
            | Anomaly::ObservedTransactionVanishesAfterWrite
            | Anomaly::WrongTotal
            | Anomaly::WrongTotalAfterWrite => continue,
            Anomaly::Internal | Anomaly::NonRepeatableRead | Anomaly::NonRepeatableReadAfterWrite => {
                "internal"
            }
            Anomaly::G1a => "G1a",
            Anomaly::G1b => "G1b",
            Anomaly::DirtyUpdate => "dirty-update",
            Anomaly::LostUpdate => "lost-update",
            Anomaly::DuplicateElements => "duplicate-elements",
            Anomaly::IncompatibleOrder => "incompatible-order",
            Anomaly::FutureRead => "future-read",
            Anomaly::GarbageRead => "garbage-read",
        };
        verdict.others.insert(name);
    }
    verdict
}

/// The history in `adya`'s words: a beginning and an end of each transaction, in the order of their times. Transactions
/// without an end end after all others.
pub(crate) fn convert(history: &History) -> adya::History {
    let mut interner = Interner::default();
    let mut id = |value: u64| interner.intern(Scalar::Int(i64::try_from(value).unwrap_or(i64::MAX)));
    let mut events: BTreeMap<(u64, u64), Op> = BTreeMap::new();
    for (number, transaction) in (0..).zip(&history.transactions) {
        let value: Vec<_> = transaction
            .operations
            .iter()
            .filter_map(|operation| {
                Some(match operation {
                    Operation::Append { key, value } => {
                        Mop::Append { key: id(u64::from(*key) | 1 << 40), value: id(*value) }
                    }
                    Operation::Write { key, value } => {
                        Mop::Write { key: id(u64::from(*key) | 1 << 41), value: id(*value) }
                    }
                    Operation::ReadList { key, values } => Mop::Read {
                        key: id(u64::from(*key) | 1 << 40),
                        value: ReadValue::List(values.iter().map(|&value| id(value)).collect()),
                    },
                    Operation::ReadRegister { key, value } => Mop::Read {
                        key: id(u64::from(*key) | 1 << 41),
                        value: value.map_or(ReadValue::Nil, |value| ReadValue::Scalar(id(value))),
                    },
                    Operation::Transfer { .. } => return None,
                })
            })
            .collect();
        let kind = match transaction.outcome {
            Outcome::Committed => OpType::Ok,
            Outcome::Aborted => OpType::Fail,
            Outcome::Unknown => OpType::Info,
        };
        let process = Some(i64::from(transaction.session));
        let op = |kind| Op { index: 0, kind, process, value: value.clone(), time: None };
        events.insert((transaction.start, number), op(OpType::Invoke));
        events.insert((transaction.end.unwrap_or(u64::MAX), number), op(kind));
    }
    let ops = events.into_values().zip(0..).map(|(op, index)| Op { index, ..op }).collect();
    adya::History::from_ops(ops, interner)
}
