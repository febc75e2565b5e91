//! What tells the cells of a grid apart.

use acidtest_workloads::Values;
use serde_json::Value;

use crate::{CellResult, rate};

/// Names of the dimensions that every cell has, in the order in which readers see them; after them come the
/// workload's parameters.
pub const STORE: &str = "store";
/// The address of a user's own server; `private` for a private one.
pub const ADDRESS: &str = "address";
/// The lock mode.
pub const LOCK: &str = "lock";
/// The rung asked for; `as it is` on a user's own server.
pub const DURABILITY: &str = "durability";
/// How many clients.
pub const CLIENTS: &str = "clients";
/// Operations a second that were offered; `closed` in a closed loop.
pub const RATE: &str = "rate";

/// What is shown of a parameter that a cell has not.
pub(crate) const NOT_THERE: &str = "–";

const OWN: [&str; 6] = [STORE, ADDRESS, LOCK, DURABILITY, CLIENTS, RATE];

/// Names and values of a cell's dimensions.
pub type Dimensions = Vec<(String, String)>;

impl CellResult {
    /// Everything that tells the cell from others, by name.
    #[must_use]
    pub fn dimensions(&self) -> Dimensions {
        let own = OWN.map(|name| (name.to_owned(), self.own(name)));
        own.into_iter()
            .chain(self.parameters.iter().map(|(name, value)| (name.clone(), text(value))))
            .collect()
    }

    /// The value of a dimension; `–` of one that the cell has not.
    #[must_use]
    pub fn dimension(&self, name: &str) -> String {
        if OWN.contains(&name) { self.own(name) } else { parameter(&self.parameters, name) }
    }

    fn own(&self, name: &str) -> String {
        match name {
            STORE => self.store.clone(),
            ADDRESS => self.address.clone().unwrap_or_else(|| "private".to_owned()),
            LOCK => self.lock.to_string(),
            DURABILITY => {
                self.durability_asked.map_or_else(|| "as it is".to_owned(), |rung| rung.to_string())
            }
            CLIENTS => self.clients.to_string(),
            // two rates that differ must not look alike
            _ => self.rate.map_or_else(|| "closed".to_owned(), |offered| offered.to_string()),
        }
    }

    /// Whether the other cell is the same but for these dimensions.
    #[must_use]
    pub fn same_but(&self, other: &Self, names: &[&str]) -> bool {
        let differs = |name: &str| !names.contains(&name) && self.dimension(name) != other.dimension(name);
        !OWN.into_iter().any(differs)
            && !self.parameters.keys().chain(other.parameters.keys()).any(|name| differs(name))
    }
}

fn parameter(values: &Values, name: &str) -> String {
    values.get(name).map_or_else(|| NOT_THERE.to_owned(), text)
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Names of the dimensions in which some of the cells differ, in the order of readers.
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
        // a parameter that only the first one has
        let missing = base.iter().map(|(name, _)| name).filter(|name| cell.dimension(name) == NOT_THERE);
        for name in missing {
            if !differ.contains(name) {
                differ.push(name.clone());
            }
        }
    }
    let place = |name: &String| OWN.iter().position(|own| own == name).unwrap_or(OWN.len());
    differ.sort_by_key(|name| (place(name), name.clone()));
    differ
}

/// A value as a reader sees it, apart from its name: `16 clients`, `2,000/s`, `items 10`.
#[must_use]
pub fn spoken(cell: &CellResult, name: &str) -> String {
    match name {
        STORE => cell.address.as_ref().unwrap_or(&cell.store).clone(),
        LOCK => format!("lock {}", cell.lock),
        CLIENTS => format!("{} {}", cell.clients, if cell.clients == 1 { "client" } else { "clients" }),
        RATE => cell.rate.map_or_else(|| "closed loop".to_owned(), |offered| rate(offered) + "/s"),
        DURABILITY => format!("durability {}", cell.dimension(DURABILITY)),
        _ => format!("{name} {}", cell.dimension(name)),
    }
}

/// A cell by its store, its lock and what else varies in the result.
#[must_use]
pub fn name(cell: &CellResult, varying: &[String]) -> String {
    let others = varying.iter().map(String::as_str).filter(|name| ![STORE, ADDRESS, LOCK].contains(name));
    let lock = if cell.decides { format!(" {}", cell.lock) } else { String::new() };
    let head = spoken(cell, STORE) + &lock;
    std::iter::once(head).chain(others.map(|name| spoken(cell, name))).collect::<Vec<_>>().join(", ")
}
