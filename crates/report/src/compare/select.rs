//! Pairs the cells of two results that are to be compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use acidtest_results::{
    CellResult, RunResult,
    dimensions::{ADDRESS, Names, STORE, varying},
};

use super::Side;
use crate::NamedResult;

/// Selects the cells of a result that have all of these values; an empty selector fits every cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Choice>);

/// A dimension and its value, written `lock=none`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    name: String,
    value: String,
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.trim().is_empty() => {
                Ok(Self { name: name.trim().to_owned(), value: value.trim().to_owned() })
            }
            _ => Err(format!("\"{text}\" selects nothing: write NAME=VALUE, such as lock=none or clients=8")),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

impl FromIterator<Choice> for Selector {
    fn from_iter<I: IntoIterator<Item = Choice>>(choices: I) -> Self {
        Self(choices.into_iter().collect())
    }
}

impl Selector {
    pub(super) fn words(&self) -> Vec<String> {
        self.0.iter().map(Choice::to_string).collect()
    }

    fn fits(&self, cell: &CellResult) -> bool {
        self.0.iter().all(|choice| choice.fits(cell))
    }
}

impl Choice {
    fn fits(&self, cell: &CellResult) -> bool {
        let value = cell.dimension(&self.name);
        let number = |text: &str| text.parse::<f64>().ok();
        value == self.value
            // an address is accepted as the value of `store` too
            || (self.name == STORE && cell.dimension(ADDRESS) == self.value)
            || matches!((number(&value), number(&self.value)), (Some(one), Some(other)) if one.total_cmp(&other).is_eq())
    }
}

/// The cells of a result by their names, each with the choices that select it alone.
#[must_use]
pub fn selectors(result: &RunResult) -> Vec<(String, String)> {
    let names = Names::of(&result.cells);
    let varying = varying(&result.cells);
    let of = |cell: &CellResult| {
        let choices = varying.iter().map(|name| format!("{name}={}", cell.dimension(name)));
        (names.cell(cell), choices.collect::<Vec<_>>().join(","))
    };
    result.cells.iter().map(of).collect()
}

/// A selector that fits no cell, or does not pair cells one to one; the text says which and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectionError(String);

impl SelectionError {
    pub(super) fn of(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

/// The pairs of cells that were found, and the cells that have no partner.
pub(super) struct CellPairs<'a> {
    pub(super) pairs: Vec<(&'a CellResult, &'a CellResult)>,
    pub(super) only_a: Vec<&'a CellResult>,
    pub(super) only_b: Vec<&'a CellResult>,
}

/// Finds for every cell of B the one of A that is equal in everything that no selector names, or, where several are,
/// in everything that not both selectors name.
pub(super) fn pairs<'a>(a: Side<'a>, b: Side<'a>) -> Result<CellPairs<'a>, SelectionError> {
    let first_a = first(a)?;
    for other in a.runs.iter().chain(b.runs) {
        let (one, other_one) = (&first_a.result.plan.workload, &other.result.plan.workload);
        if one != other_one {
            return Err(SelectionError(format!(
                "{} ran {one} and {} ran {other_one}: different workloads cannot be compared",
                first_a.name, other.name
            )));
        }
    }
    let ids = |side: Side<'a>| side.runs.iter().map(|each| each.result.run.as_str()).collect::<Vec<_>>();
    let one_result = ids(a) == ids(b);
    once(a.runs.iter())?;
    if !one_result {
        once(a.runs.iter().chain(b.runs))?;
    }
    if one_result && a.selector == b.selector {
        let varying = varying(&first_a.result.cells);
        let example = varying.first().map_or("lock", String::as_str);
        return Err(SelectionError(format!(
            "A and B are the same cells: tell them apart, as in {}{example}=… {}{example}=…{}",
            a.choose,
            b.choose,
            if varying.is_empty() {
                String::new()
            } else {
                format!("\n  its cells differ in {}", varying.join(", "))
            }
        )));
    }
    let (of_a, of_b) = (selected(a)?, selected(b)?);
    let mut free: Vec<&str> =
        a.selector.0.iter().chain(&b.selector.0).map(|choice| choice.name.as_str()).collect();
    if free.contains(&STORE) {
        free.push(ADDRESS);
    }
    let free = &free[..];
    let named = |choices: &Selector, name: &str| choices.0.iter().any(|choice| choice.name == name);
    let of_both = |name: &str| named(a.selector, name) && named(b.selector, name);
    let mut both: Vec<&str> = free.iter().copied().filter(|name| of_both(name)).collect();
    if both.contains(&STORE) {
        both.push(ADDRESS);
    }
    let mut matched = CellPairs { pairs: Vec::new(), only_a: Vec::new(), only_b: Vec::new() };
    for &cell in &of_b {
        let mut fitting: Vec<&CellResult> =
            of_a.iter().copied().filter(|other| other.same_but(cell, free)).collect();
        if fitting.len() > 1 {
            // a choice that only one side names then holds for both
            fitting.retain(|other| other.same_but(cell, &both));
        }
        match fitting[..] {
            // a cell of A is not compared with itself
            [one] if one_result && std::ptr::eq(one, cell) => {}
            [one] if one_result && one.dimensions() == cell.dimensions() => {}
            [one] => matched.pairs.push((one, cell)),
            [] if of_a.iter().any(|other| other.same_but(cell, free)) => {
                return Err(ambiguous(a, &of_a, cell, free));
            }
            [] => matched.only_b.push(cell),
            _ => return Err(ambiguous(a, &of_a, cell, free)),
        }
    }
    // cells of A that B's own selector excludes count as excluded, not as left without a partner
    let meant = |cell: &CellResult| {
        b.selector.0.iter().all(|choice| both.contains(&choice.name.as_str()) || choice.fits(cell))
    };
    let alone = |cell: &CellResult| !matched.pairs.iter().any(|(one, _)| std::ptr::eq(*one, cell));
    matched.only_a = of_a.iter().copied().filter(|cell| alone(cell) && meant(cell)).collect();
    if matched.pairs.is_empty() {
        return Err(SelectionError(format!(
            "no cell of B matches a cell of A in everything that no selector names: compare results of the same grid, or \
             name what differs with {} and {}",
            a.option(),
            b.option()
        )));
    }
    Ok(matched)
}

fn ambiguous(a: Side<'_>, of_a: &[&CellResult], cell: &CellResult, free: &[&str]) -> SelectionError {
    let fitting: Vec<&CellResult> = of_a.iter().copied().filter(|other| other.same_but(cell, free)).collect();
    let differ = varying(fitting.iter().copied());
    let name = differ.first().cloned().unwrap_or_default();
    let values: BTreeSet<String> = fitting.iter().map(|cell| cell.dimension(&name)).collect();
    let values = values.into_iter().collect::<Vec<_>>();
    SelectionError(format!(
        "several cells of A fit one of B: they differ in {} ({}); name one, such as {}{name}={}",
        differ.join(", "),
        values.join(", "),
        a.choose,
        values.first().map_or("", String::as_str)
    ))
}

impl Side<'_> {
    /// The option, or the key, by which its cells are chosen.
    fn option(&self) -> &str {
        self.choose.trim_end_matches([' ', '='])
    }
}

/// The first of a side's runs, by which its cells are chosen.
pub(super) fn first(side: Side<'_>) -> Result<NamedResult<'_>, SelectionError> {
    side.runs.first().copied().ok_or_else(|| SelectionError(format!("there is no result in {}", side.name)))
}

/// Checks that no run is given twice: a copy is no other run.
fn once<'a>(runs: impl Iterator<Item = &'a NamedResult<'a>>) -> Result<(), SelectionError> {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for NamedResult { name, result } in runs {
        if let Some(before) = seen.insert(&result.run, name) {
            return Err(SelectionError(format!(
                "{before} and {name} are the same run, {}: give each run once, or one result alone with --a and --b",
                result.run
            )));
        }
    }
    Ok(())
}

/// The cell as it is in each run of its side.
pub(super) fn in_each_run<'a>(
    side: Side<'a>,
    cell: &CellResult,
) -> Result<Vec<&'a CellResult>, SelectionError> {
    let dimensions = cell.dimensions();
    let of_run = |run: &NamedResult<'a>| -> Result<&'a CellResult, SelectionError> {
        let cells = &run.result.cells;
        let is_of_grid = side.runs.first().is_some_and(|first| first.result.cells.len() == cells.len());
        let twin = cells.iter().find(|other| other.dimensions() == dimensions);
        twin.filter(|_| is_of_grid).ok_or_else(|| {
            SelectionError(format!(
                "{} has other cells than {}: several results of a side must be runs of one plan",
                run.name,
                side.runs.first().map_or("", |first| first.name)
            ))
        })
    };
    side.runs.iter().map(of_run).collect()
}

/// The cells that a side's selector fits, in the first of its runs.
fn selected(side: Side<'_>) -> Result<Vec<&CellResult>, SelectionError> {
    for choice in &side.selector.0 {
        known(choice, side)?;
    }
    let cells: Vec<&CellResult> =
        first(side)?.result.cells.iter().filter(|cell| side.selector.fits(cell)).collect();
    if cells.is_empty() {
        let asked = side.selector.words().join(" and ");
        return Err(SelectionError(format!("{}: no cell of {} has {asked}", side.option(), side.name)));
    }
    Ok(cells)
}

/// Checks that some cell has the dimension, and that some cell has this value of it.
fn known(choice: &Choice, side: Side<'_>) -> Result<(), SelectionError> {
    let (result, option) = (first(side)?.result, side.option());
    let names: BTreeSet<String> =
        result.cells.iter().flat_map(CellResult::dimensions).map(|(name, _)| name).collect();
    if !names.contains(&choice.name) {
        let hint = acidtest_model::hint(&choice.name, names.iter().map(String::as_str));
        let names: Vec<String> = names.into_iter().collect();
        return Err(SelectionError(format!(
            "{option}: cells have no \"{}\"{hint}\n  they have {}",
            choice.name,
            names.join(", ")
        )));
    }
    if !result.cells.iter().any(|cell| choice.fits(cell)) {
        let mut values: Vec<String> = Vec::new();
        for value in result.cells.iter().map(|cell| cell.dimension(&choice.name)) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        return Err(SelectionError(format!(
            "{option}: no cell has {}={}\n  there are {}",
            choice.name,
            choice.value,
            values.join(", ")
        )));
    }
    Ok(())
}
