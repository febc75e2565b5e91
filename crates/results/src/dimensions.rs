//! Dimensions: the properties that tell the cells of a grid apart.

use std::sync::LazyLock;

use acidtest_model::{Consistency, figure::offered};
use serde_json::Value;

use crate::{CellResult, OPTIONS, distinct};

pub const STORE: &str = "store";
/// The address of a user's own server; its value is `private` for a private one.
pub const ADDRESS: &str = "address";
pub const LOCK: &str = "lock";
/// The durability level asked for; its value is `as it is` on a user's own server.
pub const DURABILITY: &str = "durability";
/// Whether connections are encrypted by TLS.
pub const TLS: &str = "tls";
/// How many nodes of the store there are.
pub const NODES: &str = "nodes";
/// The replication level asked for; that of a single server is `none`.
pub const REPLICATION: &str = "replication";
/// Which members of a cluster answer reads.
pub const READS: &str = "reads";
/// Which of them a client asks; its value is `–` where the leader alone answers.
pub const ROUTE: &str = "route";
/// What reads at replicas were asked to be promised; its value is `–` where the leader alone answers.
pub const CONSISTENCY: &str = "consistency";
/// The faults that its trials have.
pub const FAULT: &str = "fault";
pub const CLIENTS: &str = "clients";
/// The offered rate in operations a second; its value is `closed` in a closed loop.
pub const RATE: &str = "rate";

/// Shown for a parameter that a cell does not have.
pub const NOT_THERE: &str = "–";

/// A dimension that every cell has, and its value.
type Own = (&'static str, fn(&CellResult) -> String);

/// The axes of a plan that are options, and beside its store a cell's address.
static OWN: LazyLock<Vec<Own>> = LazyLock::new(|| {
    let axes = OPTIONS.iter().filter_map(|option| Some((option.long, option.of_cell?)));
    let mut all: Vec<Own> = axes.collect();
    let after = all.iter().position(|(name, _)| *name == STORE).map_or(0, |place| place + 1);
    all.insert(after, (ADDRESS, |cell| cell.address.clone().unwrap_or_else(|| "private".to_owned())));
    all
});

/// Names of the dimensions that every cell has, in the order in which readers see them.
pub fn dimension_names() -> impl Iterator<Item = &'static str> {
    OWN.iter().map(|(name, _)| *name)
}

/// Names and values of a cell's dimensions.
pub type Dimensions = Vec<(String, String)>;

impl CellResult {
    /// The names and values of everything that tells the cell from others.
    #[must_use]
    pub fn dimensions(&self) -> Dimensions {
        let own = OWN.iter().map(|(name, of)| ((*name).to_owned(), of(self)));
        own.chain(self.parameters.iter().map(|(name, value)| (name.clone(), text(value)))).collect()
    }

    /// The value of a dimension; `–` of one that the cell has not.
    #[must_use]
    pub fn dimension(&self, name: &str) -> String {
        match OWN.iter().find(|(own, _)| *own == name) {
            Some((_, of)) => of(self),
            None => self.parameters.get(name).map_or_else(|| NOT_THERE.to_owned(), text),
        }
    }

    /// The durability level that the cell is named by: the one read back, followed by the one asked for if that is
    /// another; and the one asked for where none was read back.
    #[must_use]
    pub fn durability_in_name(&self) -> String {
        if self.effective.is_some() { self.durability() } else { self.dimension(DURABILITY) }
    }

    /// The replication level that the cell is named by: the one read back, followed by the one asked for if that is another; and the
    /// one asked for where none was read back.
    #[must_use]
    pub fn replication_in_name(&self) -> String {
        match &self.replication_read {
            Some(read) if read.level != self.replication => {
                format!("{} ({} asked)", read.level, self.replication)
            }
            _ => self.replication.to_string(),
        }
    }

    /// The consistency of its reads at replicas: the one read back, or the one asked for where none was; none where the leader alone
    /// answers.
    #[must_use]
    pub fn consistency_of_reads(&self) -> Option<Consistency> {
        let read = self.replication_read.as_ref().map(|read| read.consistency);
        (!self.reads.is_leader()).then(|| read.unwrap_or(self.consistency))
    }

    /// The consistency that the cell is named by: the one that it has, followed by the one asked for if that is another; `–` where the
    /// leader alone answers.
    #[must_use]
    pub fn consistency_in_name(&self) -> String {
        match self.consistency_of_reads() {
            Some(level) if level != self.consistency => format!("{level} ({} asked)", self.consistency),
            Some(level) => level.to_string(),
            None => NOT_THERE.to_owned(),
        }
    }

    /// Whether the other cell has the same values in all dimensions but these.
    #[must_use]
    pub fn same_but(&self, other: &Self, names: &[&str]) -> bool {
        let differs = |name: &str| !names.contains(&name) && self.dimension(name) != other.dimension(name);
        !dimension_names().any(differs)
            && !self.parameters.keys().chain(other.parameters.keys()).any(|name| differs(name))
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Names of the dimensions in which some of the cells differ, in the order in which reports show them.
#[must_use]
pub fn varying<'a>(cells: impl IntoIterator<Item = &'a CellResult>) -> Vec<String> {
    let mut cells = cells.into_iter();
    let Some(first) = cells.next() else { return Vec::new() };
    let base = first.dimensions();
    let mut differ: Vec<String> = Vec::new();
    for cell in cells {
        for (name, value) in cell.dimensions() {
            let same = base.iter().any(|(other, base)| *other == name && *base == value);
            if !same && !differ.contains(&name) {
                differ.push(name);
            }
        }
        // the first cell may have a parameter that the other one lacks
        let missing =
            base.iter().filter(|(name, value)| value != NOT_THERE && cell.dimension(name) == NOT_THERE);
        for (name, _) in missing {
            if !differ.contains(name) {
                differ.push(name.clone());
            }
        }
    }
    let place = |name: &String| dimension_names().position(|own| own == name).unwrap_or(OWN.len());
    differ.sort_by_key(|name| (place(name), name.clone()));
    differ
}

/// Names of cells within one report: the store, the lock and whatever else tells the cells apart. An address of a
/// user's own server is written out once, and stands as a letter from then on.
pub struct Names {
    varying: Vec<String>,
    /// Addresses of users' own servers, in the order in which they turn up: the first is `A`.
    addresses: Vec<String>,
}

impl Names {
    /// Makes names that tell these cells apart.
    #[must_use]
    pub fn of<'a>(cells: impl IntoIterator<Item = &'a CellResult> + Clone) -> Self {
        let addresses = distinct(cells.clone().into_iter().filter_map(|cell| cell.address.clone()));
        Self { varying: varying(cells), addresses }
    }

    /// The same with addresses written out instead of letters.
    #[must_use]
    pub fn in_full<'a>(cells: impl IntoIterator<Item = &'a CellResult>) -> Self {
        Self { varying: varying(cells), addresses: Vec::new() }
    }

    /// The same names without one dimension.
    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        let varying = self.varying.iter().filter(|other| *other != name).cloned().collect();
        Self { varying, addresses: self.addresses.clone() }
    }

    /// One line for each letter, with the address that it stands for.
    pub fn addresses(&self) -> impl Iterator<Item = String> {
        self.addresses.iter().enumerate().map(|(place, address)| format!("{}: {address}", letters(place)))
    }

    /// Dimensions in which the cells differ, without the store and the lock, which are in every name.
    pub fn others(&self) -> impl Iterator<Item = &str> {
        self.varying.iter().map(String::as_str).filter(|name| ![STORE, ADDRESS, LOCK].contains(name))
    }

    /// The same of which a cell has a value: one whose leader alone answers reads has neither a route nor a consistency.
    pub fn others_of(&self, cell: &CellResult) -> impl Iterator<Item = &str> {
        let is_leader = cell.reads.is_leader();
        self.others().filter(move |name| !is_leader || ![ROUTE, CONSISTENCY].contains(name))
    }

    /// The name of a cell's store: `postgres`, or `postgres A` where it is a user's own server.
    #[must_use]
    pub fn store(&self, cell: &CellResult) -> String {
        let Some(address) = &cell.address else { return cell.store.clone() };
        let place = self.addresses.iter().position(|each| each == address);
        place.map_or_else(|| address.clone(), |place| format!("{} {}", cell.store, letters(place)))
    }

    /// The name of a cell: `postgres soft, 16 clients`.
    #[must_use]
    pub fn cell(&self, cell: &CellResult) -> String {
        let lock = if cell.decides { format!(" {}", cell.lock) } else { String::new() };
        let others = self.others_of(cell).map(|name| spoken(cell, name));
        std::iter::once(self.store(cell) + &lock).chain(others).collect::<Vec<_>>().join(", ")
    }
}

/// The letter or letters for the address at this place, from 0: `A` to `Z`, then `AA`.
fn letters(place: usize) -> String {
    let letter = |place: usize| char::from(b'A' + u8::try_from(place % 26).unwrap_or(0)).to_string();
    if place < 26 { letter(place) } else { letters(place / 26 - 1) + &letter(place) }
}

/// A dimension's value in a reader's words: `16 clients`, `2,000/s`, `items 10`.
#[must_use]
pub fn spoken(cell: &CellResult, name: &str) -> String {
    match name {
        CLIENTS => format!("{} {}", cell.clients, if cell.clients == 1 { "client" } else { "clients" }),
        RATE => cell.rate.map_or_else(|| "closed loop".to_owned(), |rate| offered(rate) + "/s"),
        DURABILITY => format!("durability {}", cell.durability_in_name()),
        TLS => format!("TLS {}", cell.tls),
        NODES => format!("{} {}", cell.nodes, if cell.nodes == 1 { "node" } else { "nodes" }),
        REPLICATION => format!("replication {}", cell.replication_in_name()),
        CONSISTENCY => format!("consistency {}", cell.consistency_in_name()),
        _ => format!("{name} {}", cell.dimension(name)),
    }
}

#[cfg(test)]
mod tests {
    use acidtest_model::{EffectiveReplication, Reads, Replication, Route};

    use super::*;
    use crate::sample::Grid;

    /// What none of the cells has does not tell them apart.
    #[test]
    fn what_is_nowhere_varies_nowhere() {
        let mut result = Grid::default().result();
        assert_eq!(varying(&result.cells), [LOCK]);
        result.cells[1].reads = Reads::Any;
        assert_eq!(varying(&result.cells), [LOCK, READS, ROUTE, CONSISTENCY]);
        result.cells.reverse();
        assert_eq!(varying(&result.cells), [LOCK, READS, ROUTE, CONSISTENCY]);
    }

    #[test]
    fn a_cell_is_named_by_who_answers_its_reads() {
        let mut result = Grid::default().result();
        let [leader, replica] = result.cells.as_mut_slice() else { panic!("two cells") };
        (leader.lock, leader.nodes, replica.nodes) = (replica.lock, 3, 3);
        (replica.reads, replica.route) = (Reads::Replica, Route::Spread);
        replica.consistency = Consistency::Strong;
        // what is asked of a cell whose leader answers is nothing that tells it from others
        (leader.route, leader.consistency) = (Route::Spread, Consistency::Strong);
        let name =
            |result: &crate::RunResult, cell: usize| Names::of(&result.cells).cell(&result.cells[cell]);
        assert_eq!(name(&result, 0), "sqlite native, reads leader");
        assert_eq!(name(&result, 1), "sqlite native, reads replica, route spread, consistency strong");
        let read = |consistency| EffectiveReplication {
            level: Replication::All,
            because: String::new(),
            following: 2,
            consistency,
        };
        for cell in &mut result.cells {
            cell.replication_read = Some(read(Consistency::Eventual));
        }
        assert!(name(&result, 1).ends_with(", consistency eventual (strong asked)"), "{}", name(&result, 1));
        assert_eq!(result.cells[0].consistency_of_reads(), None);
        result.cells[1].replication_read = Some(read(Consistency::Strong));
        assert!(name(&result, 1).ends_with(", consistency strong"), "{}", name(&result, 1));
    }
}
