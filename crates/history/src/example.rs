//! Examples of anomalies, for people to read.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Anomaly, Error, Operation, Outcome, Source, Transaction,
    graph::Edge,
    hash::Map,
    observed::{NONE, Observed, without_own},
    picture,
    witness::{Step, Witness},
};

/// Most transactions and operations of one that an example shows.
const TRANSACTIONS: usize = 12;
const OPERATIONS: usize = 12;
/// Most values of a list that are shown.
const VALUES: usize = 6;

/// An occurrence of an anomaly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Example {
    /// The anomaly, with its name in words.
    pub title: String,
    /// The transactions; those of a cycle in its order.
    pub transactions: Vec<Shown>,
    /// What makes one of them come before another.
    pub arrows: Vec<Arrow>,
    /// What is wrong about it.
    pub conclusion: String,
}

/// A transaction of an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shown {
    /// Its name in the example, such as `T1`.
    pub name: String,
    /// Session, number, outcome and time.
    pub about: String,
    /// Its operations in order.
    pub operations: Vec<String>,
}

/// Why a transaction comes before another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Arrow {
    /// Position of the first in [`Example::transactions`].
    pub from: usize,
    /// Position of the second.
    pub to: usize,
    /// Kind of the dependency, such as `rw`.
    pub kind: String,
    /// Why, in a sentence.
    pub reason: String,
}

impl Example {
    /// The example as lines of text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        // writing to a string cannot fail
        for Shown { name, about, operations } in &self.transactions {
            let _ = writeln!(text, "{name}: {about}");
            for operation in operations {
                let _ = writeln!(text, "    {operation}");
            }
        }
        for Arrow { from, to, kind, reason } in &self.arrows {
            let (from, to) = (&self.transactions[*from].name, &self.transactions[*to].name);
            let _ = writeln!(text, "{from} -{kind}-> {to}: {reason}");
        }
        for line in [Some(self.conclusion.clone()), self.legend()].into_iter().flatten() {
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    /// What the kinds of its arrows mean.
    pub(crate) fn legend(&self) -> Option<String> {
        let meanings = [
            ("wr", "read what the other wrote"),
            ("ww", "wrote over what the other wrote"),
            ("rw", "read what the other then replaced"),
        ];
        let occurs = |kind: &str| self.arrows.iter().any(|arrow| arrow.kind == kind);
        let of = meanings.into_iter().filter(|(kind, _)| occurs(kind));
        let lines: Vec<_> = of.map(|(kind, meaning)| format!("{kind}: {meaning}.")).collect();
        (!lines.is_empty()).then(|| lines.join(" "))
    }

    /// The example as a picture: SVG that stands alone, in the colour of the text around it.
    #[must_use]
    pub fn picture(&self) -> String {
        picture::draw(self)
    }
}

/// Reads the transactions of all examples in one pass, and writes these.
pub(crate) fn examples(
    source: &mut dyn Source,
    observed: &Observed,
    witnesses: &[(Anomaly, &Witness)],
) -> Result<Vec<Example>, Error> {
    let mut wanted: Map<u32> = Map::default();
    for (_, witness) in witnesses {
        for node in witness.nodes() {
            wanted.insert(observed.position[node as usize].into(), node);
        }
    }
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let mut transactions: Map<Transaction> = Map::default();
    let mut at = 0;
    source.pass(&mut |transaction| {
        if let Some(&node) = wanted.get(&at) {
            transactions.insert(node.into(), transaction.clone());
        }
        at += 1;
    })?;
    Ok(witnesses
        .iter()
        .map(|(anomaly, witness)| Teller::new(observed, &transactions, witness).example(*anomaly))
        .collect())
}

struct Teller<'a> {
    observed: &'a Observed,
    transactions: &'a Map<Transaction>,
    witness: &'a Witness,
    nodes: Vec<u32>,
}

impl<'a> Teller<'a> {
    fn new(observed: &'a Observed, transactions: &'a Map<Transaction>, witness: &'a Witness) -> Self {
        Self { observed, transactions, witness, nodes: witness.nodes() }
    }

    fn example(&self, anomaly: Anomaly) -> Example {
        let zero = self.nodes.iter().map(|&node| self.transactions[&node.into()].start).min().unwrap_or(0);
        let shown: Vec<_> =
            self.nodes.iter().take(TRANSACTIONS).map(|&node| self.shown(node, zero)).collect();
        let (arrows, mut conclusion) = self.told(anomaly);
        let left_out = self.nodes.len() - shown.len();
        if left_out > 0 {
            conclusion = format!("{left_out} more transactions follow in this cycle. {conclusion}");
        }
        let arrows = arrows.into_iter().filter(|arrow| arrow.from.max(arrow.to) < TRANSACTIONS).collect();
        Example { title: anomaly.label(), transactions: shown, arrows, conclusion }
    }

    fn name(&self, node: u32) -> String {
        let at = self.nodes.iter().position(|&other| other == node).unwrap_or(0);
        format!("T{}", at + 1)
    }

    fn transaction(&self, node: u32) -> &Transaction {
        &self.transactions[&node.into()]
    }

    fn shown(&self, node: u32, zero: u64) -> Shown {
        let transaction = self.transaction(node);
        let outcome = match transaction.outcome {
            Outcome::Committed => "committed",
            Outcome::Aborted => "aborted",
            Outcome::Unknown => "outcome unknown",
        };
        let from = milliseconds(transaction.start - zero);
        let time = match transaction.end {
            Some(end) => format!("at {from}–{} ms of this example", milliseconds(end.saturating_sub(zero))),
            None => format!("from {from} ms of this example on"),
        };
        let about = format!(
            "session {}, transaction {}, {outcome}, {time}",
            transaction.session, transaction.sequence
        );
        let mut operations: Vec<_> = transaction.operations.iter().take(OPERATIONS).map(in_words).collect();
        if transaction.operations.len() > OPERATIONS {
            operations.push(format!("… and {} more", transaction.operations.len() - OPERATIONS));
        }
        if let Some(total) = transaction.total {
            // where among them is not known
            operations.push(format!("read total: {}", grouped(total.observed)));
        }
        Shown { name: self.name(node), about, operations }
    }

    fn told(&self, anomaly: Anomaly) -> (Vec<Arrow>, String) {
        match *self.witness {
            Witness::Cycle(ref steps) => (self.arrows(steps), self.circle()),
            Witness::Value { reader, writer, other, object, value } => {
                (Vec::new(), self.about_value(anomaly, [reader, writer, other], object, value))
            }
            Witness::Own { node, object } => (Vec::new(), self.about_own(anomaly, node, object)),
            Witness::Orders { one, other, object } => (Vec::new(), self.about_orders(one, other, object)),
            Witness::Lost { one, other, object } => (Vec::new(), self.about_lost(one, other, object)),
            Witness::Vanishes { observer, writer, first, missed } => {
                let (observer, writer) = (self.name(observer), self.name(writer));
                let (first, missed) = (self.object(first), self.object(missed));
                let saw = match anomaly {
                    Anomaly::ObservedTransactionVanishesAfterWrite => {
                        format!("{observer} wrote to {first} itself and saw there what {writer} had written")
                    }
                    _ => format!("{observer} saw what {writer} had written in {first}"),
                };
                let text = format!("{saw}, and afterwards read {missed} without what {writer} wrote there.");
                (Vec::new(), text)
            }
            Witness::Total { node } => {
                let total = self.transaction(node).total;
                let (observed, expected) = total.map_or((0, 0), |total| (total.observed, total.expected));
                let read = match anomaly {
                    Anomaly::WrongTotalAfterWrite => {
                        "moved money, which cannot change the total, and then read"
                    }
                    _ => "read",
                };
                let (name, observed, expected) = (self.name(node), grouped(observed), grouped(expected));
                (Vec::new(), format!("{name} {read} a total of {observed} instead of {expected}."))
            }
        }
    }

    fn object(&self, object: u32) -> String {
        let object = &self.observed.objects[object as usize];
        format!("{} {}", if object.is_list() { "list" } else { "register" }, object.key())
    }

    fn about_value(
        &self,
        anomaly: Anomaly,
        [reader, writer, other]: [u32; 3],
        object: u32,
        value: u64,
    ) -> String {
        let is_list = self.observed.objects[object as usize].is_list();
        let (wrote, object) = (if is_list { "appended" } else { "wrote" }, self.object(object));
        let reads = self.name(reader);
        let by = if writer == NONE { "nobody".to_owned() } else { self.name(writer) };
        match anomaly {
            Anomaly::G1a => {
                format!("{reads} read {value} in {object}, which {by} {wrote}, but {by} aborted.")
            }
            Anomaly::G1b => {
                format!(
                    "{reads} read {value} in {object} as the last that {by} had written there, but {by} wrote more there \
                     before it committed."
                )
            }
            Anomaly::DirtyUpdate if other == reader && !is_list => {
                format!(
                    "{by} wrote {value} in {object} and aborted, but {reads} replaced that value and committed."
                )
            }
            Anomaly::DirtyUpdate => {
                let other = self.name(other);
                format!(
                    "{by} appended {value} to {object} and aborted, but {other} appended after it and committed: \
                     {reads} read both."
                )
            }
            Anomaly::DuplicateElements => {
                format!("{reads} read {value} twice in {object}, to which {by} appended it once.")
            }
            _ if writer == NONE => format!("{reads} read {value} in {object}, but nobody wrote that value."),
            _ => format!("{reads} read {value} in {object}, but {by} wrote that value elsewhere."),
        }
    }

    fn about_own(&self, anomaly: Anomaly, node: u32, object: u32) -> String {
        let (name, object) = (self.name(node), self.object(object));
        match anomaly {
            Anomaly::FutureRead => {
                format!("{name} read a value in {object} that it wrote there itself only afterwards.")
            }
            Anomaly::Internal => format!("{name} wrote to {object} and then read it without its own write."),
            Anomaly::NonRepeatableReadAfterWrite => format!(
                "{name} wrote to {object}, and when it read it after that, others had changed it, too."
            ),
            _ => format!("{name} read {object} twice, and between its reads others changed it."),
        }
    }

    fn about_lost(&self, one: u32, other: u32, object: u32) -> String {
        let known = &self.observed.objects[object as usize];
        let (is_list, key) = (known.is_list(), known.key());
        let written = |node: u32| {
            let operations = self.transaction(node).operations.iter().enumerate();
            let mut own = operations.filter_map(|(at, operation)| match operation {
                Operation::Append { key: to, value } if is_list && u64::from(*to) == key => {
                    Some((at, *value))
                }
                Operation::Write { key: to, value } if !is_list && u64::from(*to) == key => {
                    Some((at, *value))
                }
                _ => None,
            });
            own.next().unwrap_or_default()
        };
        let before = &self.transaction(one).operations[..written(one).0];
        let read = before.iter().rev().find_map(|operation| match operation {
            Operation::ReadList { key: of, values } if is_list && u64::from(*of) == key => {
                Some(in_brief(values, None))
            }
            Operation::ReadRegister { key: of, value } if !is_list && u64::from(*of) == key => {
                Some(value.map_or_else(|| "nothing".to_owned(), |value| value.to_string()))
            }
            _ => None,
        });
        let read = read.unwrap_or_default();
        let (a, b, name) = (self.name(one), self.name(other), self.object(object));
        if !is_list {
            return format!(
                "{a} and {b} both read {read} in {name} and then wrote to it: one write erased the other unseen."
            );
        }
        let rank = |node| known.order.iter().position(|&value| value == written(node).1);
        let rest = match (rank(one), rank(other)) {
            (Some(first), Some(second)) => {
                let later = if first < second { b.as_str() } else { a.as_str() };
                format!("Both values are kept, but {later}'s append was decided on an outdated read.")
            }
            // whether an append that nobody read is kept is not known
            _ => "The second append was decided on an outdated read.".to_owned(),
        };
        format!("{a} and {b} both read {name} as {read} and then appended to it. {rest}")
    }

    fn about_orders(&self, one: u32, other: u32, object: u32) -> String {
        let key = self.observed.objects[object as usize].key();
        let reads = |node| {
            let of_list = |operation: &'a Operation| match operation {
                Operation::ReadList { key: of, values } if u64::from(*of) == key => Some(values.as_slice()),
                _ => None,
            };
            self.transactions[&u64::from(node)].operations.iter().filter_map(of_list)
        };
        let contradict = |a: &[u64], b: &[u64]| !a.starts_with(b) && !b.starts_with(a);
        let pair = reads(one).find_map(|a| reads(other).find(|b| contradict(a, b)).map(|b| (a, b)));
        let (a, b) = pair.unwrap_or_default();
        let differs = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(0);
        let (a, b) = (in_brief(a, a.get(differs).copied()), in_brief(b, b.get(differs).copied()));
        let (one, other, object) = (self.name(one), self.name(other), self.object(object));
        format!("{one} read {object} as {a}, and {other} as {b}: no order of appends has both.")
    }

    fn circle(&self) -> String {
        match self.nodes.len() {
            2 => "So T1 must come before T2, and T2 before T1.".to_owned(),
            3 => "So T1 must come before T2, T2 before T3, and T3 before T1.".to_owned(),
            n => format!("So each must come before the next, and T{n} before T1."),
        }
    }

    fn arrows(&self, steps: &[Step]) -> Vec<Arrow> {
        let arrow = |at: usize| {
            let to = (at + 1) % steps.len();
            let reason = self.reason(steps[at].node, steps[to].node, steps[at].edge);
            Arrow { from: at, to, kind: steps[at].edge.name().to_owned(), reason }
        };
        (0..steps.len()).map(arrow).collect()
    }

    fn reason(&self, from: u32, to: u32, edge: Edge) -> String {
        let (a, b) = (self.name(from), self.name(to));
        let reason = match edge {
            Edge::Ww => self.overwrote(from, to),
            Edge::Wr => self.read_from(from, to),
            Edge::Rw => self.missed(from, to),
            Edge::Session => Some(format!("{b} came later in session {}", self.transaction(from).session)),
            Edge::RealTime => {
                let end = self.transaction(from).end.unwrap_or(0);
                let gap = milliseconds(self.transaction(to).start.saturating_sub(end));
                Some(format!("{a} had ended {gap} ms before {b} started"))
            }
        };
        reason.unwrap_or_else(|| format!("{a} came before {b}"))
    }

    /// Where a value stands in the order of its list; after all others if it was not read.
    fn rank(&self, node: u32, key: u32, value: u64) -> usize {
        let order = self.observed.order_of(node, key);
        order.iter().position(|&other| other == value).unwrap_or(usize::MAX)
    }

    fn overwrote(&self, from: u32, to: u32) -> Option<String> {
        let mut best: Option<(usize, String)> = None;
        for (key, first) in appends(self.transaction(from)) {
            for (_, second) in appends(self.transaction(to)).filter(|&(other, _)| other == key) {
                let (one, two) = (self.rank(from, key, first), self.rank(to, key, second));
                let distance = two.saturating_sub(one);
                if one < two && best.as_ref().is_none_or(|(least, _)| distance < *least) {
                    let (a, b) = (self.name(from), self.name(to));
                    best = Some((
                        distance,
                        format!("{a} appended {first} to list {key}, and {b} appended {second} after it"),
                    ));
                }
            }
        }
        best.map(|(_, reason)| reason)
    }

    fn read_from(&self, from: u32, to: u32) -> Option<String> {
        let (a, b) = (self.name(from), self.name(to));
        let (writer, reader) = (self.transaction(from), self.transaction(to));
        let register = reader.operations.iter().find_map(|operation| match operation {
            Operation::ReadRegister { key, value: Some(value) } => {
                let wrote = writer.operations.contains(&Operation::Write { key: *key, value: *value });
                wrote.then(|| format!("{b} read {value} in register {key}, which {a} wrote"))
            }
            _ => None,
        });
        // of lists, the value that is closest to the end of what was read
        let lists = reader.operations.iter().filter_map(|operation| {
            let Operation::ReadList { key, values } = operation else { return None };
            let before = without_own(values, *key, reader);
            let of = appends(writer).filter(|&(to, _)| to == *key);
            let at = of.filter_map(|(_, value)| before.iter().rposition(|&other| other == value)).max()?;
            Some((before.len() - at, key, values, before[at]))
        });
        register.or_else(|| {
            let (_, key, values, value) = lists.min_by_key(|&(distance, ..)| distance)?;
            let list = in_brief(values, Some(value));
            Some(format!("{b} read list {key} as {list}, with the {value} that {a} appended"))
        })
    }

    fn missed(&self, from: u32, to: u32) -> Option<String> {
        let (a, b) = (self.name(from), self.name(to));
        let (reader, writer) = (self.transaction(from), self.transaction(to));
        reader.operations.iter().find_map(|operation| match operation {
            Operation::ReadList { key, values } => {
                let of = appends(writer).filter(|&(to, value)| to == *key && !values.contains(&value));
                let (_, value) = of.min_by_key(|&(_, value)| self.rank(to, *key, value))?;
                Some(format!(
                    "{a} read list {key} as {}, without the {value} that {b} appended",
                    in_brief(values, None)
                ))
            }
            Operation::ReadRegister { key, value } => {
                let same = writer.operations.contains(&Operation::ReadRegister { key: *key, value: *value });
                let new = writer.operations.iter().find_map(|operation| match operation {
                    Operation::Write { key: to, value } if to == key => Some(*value),
                    _ => None,
                });
                let new = new.filter(|_| same)?;
                Some(match value {
                    Some(old) => format!("{a} read {old} in register {key}, which {b} replaced by {new}"),
                    None => format!("{a} read nothing in register {key}, in which {b} then wrote {new}"),
                })
            }
            _ => None,
        })
    }
}

fn appends(transaction: &Transaction) -> impl Iterator<Item = (u32, u64)> + '_ {
    transaction.operations.iter().filter_map(|operation| match operation {
        Operation::Append { key, value } => Some((*key, *value)),
        _ => None,
    })
}

fn in_words(operation: &Operation) -> String {
    match operation {
        Operation::Append { key, value } => format!("append {value} to list {key}"),
        Operation::ReadList { key, values } => format!("read list {key}: {}", in_brief(values, None)),
        Operation::Write { key, value } => format!("write {value} to register {key}"),
        Operation::ReadRegister { key, value: Some(value) } => format!("read register {key}: {value}"),
        Operation::ReadRegister { key, value: None } => format!("read register {key}: nothing"),
        Operation::Transfer { from, to, amount } => {
            format!("move {amount} from account {from} to account {to}")
        }
    }
}

/// The end of a list, and a value that must be seen.
fn in_brief(values: &[u64], must: Option<u64>) -> String {
    let from = values.len().saturating_sub(VALUES);
    let mut parts: Vec<String> = values[from..].iter().map(u64::to_string).collect();
    if from > 0 {
        parts.insert(0, "…".to_owned());
        if let Some(must) = must.filter(|must| values[..from].contains(must)) {
            parts.insert(0, must.to_string());
            if values[0] != must {
                parts.insert(0, "…".to_owned());
            }
        }
    }
    format!("[{}]", parts.join(" "))
}

/// With commas between thousands.
fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = if number < 0 { "-".to_owned() } else { String::new() };
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn milliseconds(nanoseconds: u64) -> String {
    let exact = format!("{:.3}", nanoseconds as f64 / 1e6);
    exact.trim_end_matches('0').trim_end_matches('.').to_owned()
}
