//! Cycles: whether there are any, of which shapes, how many, and short ones to show.
//!
//! # Whether
//!
//! Strongly connected components tell it in linear time and exactly:
//!
//! - G0, G1c and G2-item: a component of the edges ww, of ww and wr, or of ww, wr and rw.
//! - G-single or G-nonadjacent, which snapshot isolation forbids: a component of a graph with two states a node, in which rw
//!   never follows rw.
//! - against the order of a session: the same with session edges.
//! - against real time: a cycle with edges of real time can be made one with a single such edge, and no more edges of rw. (Take
//!   the path between such edges that begins with the transaction that starts last. It ends with one that ended before another
//!   started, hence before this one did.) So the question is whether a path leads from a transaction to one that ended before
//!   it started, and that is the least end among what can be reached, computed over the components.
//!
//! # How many
//!
//! Occurrences of a shape are cycles that have no transaction in common with one another, nor with a cycle of a stronger shape.
//! They are taken greedily: edges are tried by the start of their first transaction, and each takes the shortest cycle through
//! it among transactions that are still free. In a long history a search ends after a hundred edges, and all of them together
//! after a fixed multiple of the history's length; if none is found, they are repeated with a hundred times the effort. So the
//! number is that of the independent cycles that were found, and there may be more. If there is a cycle, at least one is found.

use std::collections::BTreeMap;

use crate::{
    Order, Shape,
    graph::{Components, Edge, Graph, Paths, components},
    hash::{Map, Set},
    observed::{NONE, number},
    witness::Step,
};

/// Least and most edges that the search for one cycle may look at: few in a long history, so that all transactions get their turn,
/// and more if that found none.
const EFFORT: (usize, usize) = (100, 10_000);
/// Edges that all searches for a shape may look at together: so many times the edges of the graph, and some more.
const SHARE: usize = 2;
const LEAST: usize = 4_000_000;
/// Most places of a search for which a set is kept: to clear it takes as long as what it once held.
const KEPT: usize = 1_024;

pub(crate) struct Cycles {
    pub(crate) count: u64,
    /// The shortest that was found.
    pub(crate) shortest: Vec<Step>,
    /// Whether the search was cut short.
    pub(crate) is_at_least: bool,
}

pub(crate) struct Found {
    pub(crate) cycles: BTreeMap<(Order, Shape), Cycles>,
    /// Whether no search was cut off.
    pub(crate) exhaustive: bool,
}

/// Finds the cycles of a graph.
pub(crate) fn find(graph: &Graph) -> Found {
    let mut hunter = Hunter::new(graph);
    let all = Paths { up_to: Edge::Rw, session: true, apart: false, sure: false, within: None };
    let whole = components(graph, all, true);
    if whole.any {
        let data = components(graph, Paths { session: false, within: Some(&whole.cyclic), ..all }, false);
        if data.any {
            hunter.circle(Order::Data, &data);
        }
        hunter.circle(Order::Session, &whole);
    }
    if (0..graph.nodes()).any(|node| hunter.too_early(whole.earliest[node], node)) {
        hunter.against_time();
    }
    Found { cycles: hunter.found, exhaustive: hunter.exhaustive }
}

/// The shape of a cycle, and the order that it needs.
pub(crate) fn classify(steps: &[Step]) -> (Shape, Order) {
    let has = |edge| steps.iter().any(|step| step.edge == edge);
    let is_rw = |at: usize| steps[at % steps.len()].edge == Edge::Rw;
    let rw = (0..steps.len()).filter(|&at| is_rw(at)).count();
    let adjacent = (0..steps.len()).any(|at| is_rw(at) && is_rw(at + 1));
    let shape = match rw {
        0 if has(Edge::Wr) => Shape::G1c,
        0 => Shape::G0,
        1 => Shape::GSingle,
        _ if adjacent => Shape::G2Item,
        _ => Shape::GNonadjacent,
    };
    let order = if has(Edge::RealTime) {
        Order::RealTime
    } else if has(Edge::Session) {
        Order::Session
    } else {
        Order::Data
    };
    (shape, order)
}

/// What a walk has come by.
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Come {
    /// Edges of kind rw, up to two.
    rw: u8,
    last_rw: bool,
    adjacent: bool,
    /// Something that only a level forbids which forbids G1: an edge of kind wr, or a transaction that counts because it was
    /// seen.
    seen: bool,
    session: bool,
}

impl Come {
    /// After another edge; `None` if a cycle of this shape has no such edge there.
    fn by(mut self, edge: Edge, shape: Shape) -> Option<Self> {
        if edge == Edge::Rw {
            let fits = match shape {
                Shape::G0 | Shape::G1c => false,
                Shape::GSingle => self.rw == 0,
                Shape::GNonadjacent => !self.last_rw,
                Shape::G2Item => true,
            };
            if !fits {
                return None;
            }
            self.rw = (self.rw + 1).min(2);
            self.adjacent |= self.last_rw;
        }
        if edge == Edge::Wr {
            if shape == Shape::G0 {
                return None;
            }
            self.seen = true;
        }
        self.session |= edge == Edge::Session;
        self.last_rw = edge == Edge::Rw;
        Some(self)
    }

    fn fits(self, shape: Shape) -> bool {
        match shape {
            Shape::G0 => true,
            Shape::G1c => self.seen,
            Shape::GSingle => self.rw == 1,
            Shape::GNonadjacent => self.rw == 2 && !self.adjacent,
            Shape::G2Item => self.rw == 2 && self.adjacent,
        }
    }

    fn key(self, node: u32) -> u64 {
        let bits = self.rw
            | u8::from(self.last_rw) << 2
            | u8::from(self.adjacent) << 3
            | u8::from(self.seen) << 4
            | u8::from(self.session) << 5;
        u64::from(node) << 6 | u64::from(bits)
    }
}

/// A place of a breadth-first search.
#[derive(Clone, Copy)]
struct Place {
    node: u32,
    come: Come,
    /// Where it was reached from, and by what.
    parent: u32,
    edge: Edge,
}

/// What a search is for.
#[derive(Clone, Copy)]
struct Quarry<'a> {
    shape: Shape,
    order: Order,
    /// Nodes that may be on such a cycle: those that are not `NONE`.
    region: &'a [u32],
    /// Where every edge but the first leads to lower numbers, such a number for each node.
    ranks: Option<&'a [u32]>,
    /// The earliest end that can be reached.
    earliest: Option<&'a [u64]>,
}

impl<'a> Quarry<'a> {
    fn of(shape: Shape, order: Order, region: &'a [u32]) -> Self {
        Self { shape, order, region, ranks: None, earliest: None }
    }
}

/// Where a closed walk may go.
#[derive(Clone, Copy)]
struct Walk<'a> {
    order: Order,
    region: &'a [u32],
    /// Whether rw may not follow rw.
    apart: bool,
    /// The weakest kind of edge beside those of sessions.
    up_to: Edge,
}

struct Hunter<'a> {
    graph: &'a Graph,
    /// Of each node the shapes and orders of which it is in a counted cycle.
    taken: Vec<u16>,
    found: BTreeMap<(Order, Shape), Cycles>,
    /// Whether no search was cut short, of those for the shape in hand, and of all.
    complete: bool,
    exhaustive: bool,
    walk: Vec<Place>,
    visited: Set,
}

fn bit(shape: Shape, order: Order) -> u16 {
    1 << (order as u16 * 5 + shape as u16)
}

/// What forbids a cycle also forbids these.
fn stronger(shape: Shape, order: Order) -> u16 {
    let kinds = Order::ALL.into_iter().flat_map(|order| Shape::ALL.map(|shape| (shape, order)));
    kinds.filter(|&(a, b)| a <= shape && b <= order).fold(0, |bits, (shape, order)| bits | bit(shape, order))
}

impl<'a> Hunter<'a> {
    fn new(graph: &'a Graph) -> Self {
        Self {
            graph,
            taken: vec![0; graph.nodes()],
            found: BTreeMap::new(),
            complete: true,
            exhaustive: true,
            walk: Vec::new(),
            visited: Set::default(),
        }
    }

    fn too_early(&self, end: u64, node: usize) -> bool {
        end < self.graph.starts[node]
    }

    /// Whether the shape was found, or one that says more.
    fn implied(&self, shape: Shape, order: Order) -> bool {
        self.found.keys().any(|&(b, a)| a <= shape && b <= order)
    }

    /// Looks for cycles by data, or by data and sessions.
    fn circle(&mut self, order: Order, whole: &Components) {
        let session = order == Order::Session;
        let paths =
            Paths { up_to: Edge::Rw, session, apart: false, sure: false, within: Some(&whole.cyclic) };
        let graph = self.graph;
        let read = components(graph, Paths { up_to: Edge::Wr, ..paths }, false);
        if read.any {
            let written = components(graph, Paths { up_to: Edge::Ww, sure: true, ..paths }, false);
            if written.any {
                self.hunt(Quarry::of(Shape::G0, order, &written.cyclic));
                self.take_any(Shape::G0, order, &written.cyclic);
            }
            self.hunt(Quarry::of(Shape::G1c, order, &read.cyclic));
            self.take_any(Shape::G1c, order, &read.cyclic);
        }
        if order == Order::Data || !self.implied(Shape::GSingle, order) {
            let apart = components(graph, Paths { apart: true, ..paths }, false);
            if apart.any {
                self.hunt(Quarry {
                    ranks: Some(&read.of),
                    ..Quarry::of(Shape::GSingle, order, &apart.cyclic)
                });
                self.hunt(Quarry::of(Shape::GNonadjacent, order, &apart.cyclic));
                self.take_any(Shape::GNonadjacent, order, &apart.cyclic);
            }
        }
        self.hunt(Quarry::of(Shape::G2Item, order, &whole.cyclic));
        self.take_any(Shape::G2Item, order, &whole.cyclic);
    }

    /// Looks for cycles that need an edge of real time.
    fn against_time(&mut self) {
        let paths = Paths { up_to: Edge::Rw, session: false, apart: false, sure: false, within: None };
        let order = Order::RealTime;
        // from what includes most paths to what includes fewest, until there is none that goes back in time
        let mut ways = Vec::new();
        for (shapes, paths) in [
            (&[Shape::G2Item][..], paths),
            (&[Shape::GSingle, Shape::GNonadjacent], Paths { apart: true, ..paths }),
            (&[Shape::G1c], Paths { up_to: Edge::Wr, ..paths }),
            (&[Shape::G0], Paths { up_to: Edge::Ww, sure: true, ..paths }),
        ] {
            if self.implied(shapes[0], order) {
                continue;
            }
            let reached = components(self.graph, paths, true).earliest;
            let Some(first) = (0..self.graph.nodes()).find(|&node| self.too_early(reached[node], node))
            else {
                break;
            };
            ways.push((shapes, paths, reached, first));
        }
        let region = vec![0; self.graph.nodes()];
        for (shapes, paths, reached, first) in ways.into_iter().rev() {
            for &shape in shapes {
                self.hunt(Quarry { shape, order, region: &region, ranks: None, earliest: Some(&reached) });
            }
            let weakest = shapes[shapes.len() - 1];
            if !self.implied(weakest, order) {
                self.take_path(number(first), weakest, &paths, &reached);
            }
        }
    }

    /// Edges that all searches for a shape may look at together.
    fn budget(&self) -> usize {
        SHARE * self.graph.edges() + LEAST
    }

    /// Counts cycles that share no transaction.
    fn hunt(&mut self, quarry: Quarry) {
        let Quarry { shape, order, .. } = quarry;
        if order != Order::Data && self.implied(shape, order) {
            return;
        }
        let share = self.budget() / self.graph.nodes().max(1);
        for effort in [share.clamp(EFFORT.0, EFFORT.1), EFFORT.1] {
            self.complete = true;
            self.hunt_with(quarry, effort);
            if self.complete || self.found.contains_key(&(order, shape)) {
                break;
            }
        }
        self.exhaustive &= self.complete;
        if let Some(cycles) = self.found.get_mut(&(order, shape)) {
            cycles.is_at_least = !self.complete;
        }
    }

    fn hunt_with(&mut self, quarry: Quarry, effort: usize) {
        let Quarry { shape, order, .. } = quarry;
        let blocking = stronger(shape, order);
        let first = match (order, shape) {
            (Order::Data, Shape::G0) => Edge::Ww,
            (Order::Data, Shape::G1c) => Edge::Wr,
            (Order::Session, Shape::G0 | Shape::G1c) => Edge::Session,
            _ => Edge::Rw,
        };
        let mut left = self.budget();
        for node in 0..number(self.graph.nodes()) {
            if quarry.region[node as usize] == NONE || self.taken[node as usize] & blocking != 0 {
                continue;
            }
            if order == Order::RealTime {
                if quarry
                    .earliest
                    .is_some_and(|earliest| self.too_early(earliest[node as usize], node as usize))
                {
                    self.start(node);
                    self.search(node, quarry, effort, &mut left);
                }
            } else {
                for (to, edge) in self.graph.from(node) {
                    if edge != first || !self.free(to, node, &quarry, blocking) {
                        continue;
                    }
                    self.start(node);
                    if let Some(come) = self.walk[0].come.by(edge, shape) {
                        self.step(to, come, 0, edge);
                        if self.search(node, quarry, effort, &mut left) {
                            break;
                        }
                    }
                }
            }
            if left == 0 {
                self.complete = false;
                break;
            }
        }
    }

    fn free(&self, node: u32, start: u32, quarry: &Quarry, blocking: u16) -> bool {
        quarry.region[node as usize] != NONE
            && self.taken[node as usize] & blocking == 0
            && quarry.ranks.is_none_or(|ranks| ranks[node as usize] >= ranks[start as usize])
            && quarry.earliest.is_none_or(|earliest| self.too_early(earliest[node as usize], start as usize))
    }

    fn start(&mut self, node: u32) {
        self.walk.clear();
        if self.visited.capacity() > 2 * KEPT {
            self.visited = Set::default();
        } else {
            self.visited.clear();
        }
        let come = Come { seen: self.graph.recovered[node as usize], ..Come::default() };
        self.walk.push(Place { node, come, parent: NONE, edge: Edge::RealTime });
    }

    fn step(&mut self, node: u32, mut come: Come, parent: usize, edge: Edge) {
        come.seen |= self.graph.recovered[node as usize];
        if self.visited.insert(come.key(node)) {
            self.walk.push(Place { node, come, parent: number(parent), edge });
        }
    }

    /// Goes on from the places that the walk has, breadth first, to the first cycle of the shape, and takes it.
    fn search(&mut self, start: u32, quarry: Quarry, most: usize, left: &mut usize) -> bool {
        let Quarry { shape, order, .. } = quarry;
        let blocking = stronger(shape, order);
        // a walk of one place has not begun: against real time, it goes by any edge
        let mut at = usize::from(self.walk.len() > 1);
        let begins_with_rw = at == 1 && self.walk[1].edge == Edge::Rw;
        let mut effort = most.min(*left);
        while at < self.walk.len() {
            let place = self.walk[at];
            for (to, edge) in self.graph.from(place.node) {
                if effort == 0 {
                    *left = left.saturating_sub(most);
                    self.complete = false;
                    return false;
                }
                effort -= 1;
                if edge == Edge::Session && order != Order::Session {
                    continue;
                }
                let Some(mut come) = place.come.by(edge, shape) else { continue };
                if order == Order::RealTime {
                    if to == start || !self.free(to, start, &quarry, blocking) {
                        continue;
                    }
                    if shape == Shape::G0 && self.graph.recovered[to as usize] {
                        continue;
                    }
                    let seen = come.seen || self.graph.recovered[to as usize];
                    let ends = self.too_early(self.graph.ends[to as usize], start as usize);
                    if ends && (Come { seen, ..come }).fits(shape) {
                        let mut steps = self.steps(at, edge);
                        steps.push(Step { node: to, edge: Edge::RealTime });
                        if is_simple(&steps) {
                            *left = left.saturating_sub(most.saturating_sub(effort));
                            self.take(shape, order, steps);
                            return true;
                        }
                    }
                    self.step(to, come, at, edge);
                    continue;
                }
                if to == start {
                    come.adjacent |= come.last_rw && begins_with_rw;
                    if come.fits(shape) && (order == Order::Data || come.session) {
                        let steps = self.steps(at, edge);
                        if is_simple(&steps) {
                            *left = left.saturating_sub(most.saturating_sub(effort));
                            self.take(shape, order, steps);
                            return true;
                        }
                    }
                } else if self.free(to, start, &quarry, blocking)
                    && !(shape == Shape::G0 && self.graph.recovered[to as usize])
                {
                    self.step(to, come, at, edge);
                }
            }
            at += 1;
        }
        *left = left.saturating_sub(most.saturating_sub(effort).max(1));
        false
    }

    /// The steps of the walk to this place, which is left by the edge.
    fn steps(&self, place: usize, edge: Edge) -> Vec<Step> {
        let mut steps = Vec::new();
        let (mut at, mut edge) = (place, edge);
        loop {
            let place = self.walk[at];
            steps.push(Step { node: place.node, edge });
            if place.parent == NONE {
                steps.reverse();
                return steps;
            }
            (at, edge) = (place.parent as usize, place.edge);
        }
    }

    fn take(&mut self, shape: Shape, order: Order, steps: Vec<Step>) {
        for step in &steps {
            self.taken[step.node as usize] |= bit(shape, order);
        }
        match self.found.get_mut(&(order, shape)) {
            Some(cycles) => {
                cycles.count += 1;
                if steps.len() < cycles.shortest.len() {
                    cycles.shortest = steps;
                }
            }
            None => {
                // a hunt that comes to its end takes that back; what is taken without one need not be all
                self.found.insert((order, shape), Cycles { count: 1, shortest: steps, is_at_least: true });
            }
        }
    }

    /// If there must be a cycle of this shape or a stronger one, and none was found: takes the shortest through some
    /// transaction, however long it is.
    fn take_any(&mut self, shape: Shape, order: Order, region: &[u32]) {
        if self.implied(shape, order) {
            return;
        }
        let up_to = match shape {
            Shape::G0 => Edge::Ww,
            Shape::G1c => Edge::Wr,
            Shape::GSingle | Shape::GNonadjacent | Shape::G2Item => Edge::Rw,
        };
        let walk = Walk { order, region, apart: shape == Shape::GNonadjacent, up_to };
        for node in (0..number(self.graph.nodes())).filter(|&node| region[node as usize] != NONE).take(64) {
            let steps = [false, true].into_iter().find_map(|by_rw| self.circle_through(node, walk, by_rw));
            if let Some(steps) = steps {
                self.take_classified(&simplified(steps));
                return;
            }
        }
    }

    fn take_classified(&mut self, steps: &[Step]) {
        let (mut shape, order) = classify(steps);
        // what needs a transaction to have committed that is only known to have been seen
        if shape == Shape::G0 && steps.iter().any(|step| self.graph.recovered[step.node as usize]) {
            shape = Shape::G1c;
        }
        self.take(shape, order, steps.to_vec());
    }

    /// The shortest closed walk through a node that leaves it by an edge of kind rw, or by another one. Where rw may not follow
    /// rw, it may visit a node twice.
    fn circle_through(&mut self, start: u32, walk: Walk, by_rw: bool) -> Option<Vec<Step>> {
        let Walk { order, region, apart, up_to } = walk;
        self.start(start);
        let mut at = 0;
        while at < self.walk.len() {
            let place = self.walk[at];
            for (to, edge) in self.graph.from(place.node) {
                let rw = edge == Edge::Rw;
                let fits =
                    if place.parent == NONE { rw == by_rw } else { !(apart && rw && place.come.last_rw) };
                if !fits
                    || edge > up_to && !(edge == Edge::Session && order == Order::Session)
                    || region[to as usize] == NONE
                {
                    continue;
                }
                if to != start {
                    self.step(to, Come { last_rw: apart && rw, ..Come::default() }, at, edge);
                } else if !(apart && rw && by_rw) {
                    return Some(self.steps(at, edge));
                }
            }
            at += 1;
        }
        None
    }

    /// The shortest path to a transaction that ended before this one started, however long it is.
    fn take_path(&mut self, start: u32, shape: Shape, paths: &Paths, reached: &[u64]) {
        self.start(start);
        let mut at = 0;
        while at < self.walk.len() {
            let place = self.walk[at];
            for (to, edge) in self.graph.from(place.node) {
                let rw = edge == Edge::Rw;
                let allowed = edge <= paths.up_to
                    && !(paths.apart && rw && place.come.last_rw)
                    && !(paths.sure && self.graph.recovered[to as usize]);
                if !allowed || to == start || !self.too_early(reached[to as usize], start as usize) {
                    continue;
                }
                if self.too_early(self.graph.ends[to as usize], start as usize) {
                    let mut steps = self.steps(at, edge);
                    steps.push(Step { node: to, edge: Edge::RealTime });
                    self.take_classified(&simplified(steps));
                    return;
                }
                self.step(to, Come { last_rw: paths.apart && rw, ..Come::default() }, at, edge);
            }
            at += 1;
        }
        debug_assert!(false, "{start} reaches an earlier end by {shape:?}");
    }
}

fn is_simple(steps: &[Step]) -> bool {
    steps.iter().enumerate().all(|(at, step)| steps[..at].iter().all(|other| other.node != step.node))
}

/// A part of a closed walk that visits each node once. If no edge of kind rw follows another in the walk, none does in the part.
fn simplified(mut steps: Vec<Step>) -> Vec<Step> {
    'again: loop {
        let mut first: Map<usize> = Map::default();
        for end in 0..steps.len() {
            if let Some(from) = first.insert(steps[end].node.into(), end) {
                let part = steps[from..end].to_vec();
                let meets = part[0].edge == Edge::Rw && part[part.len() - 1].edge == Edge::Rw;
                if meets {
                    // then the rest, whose edges meet at the same node, does not
                    steps.drain(from..end);
                } else {
                    steps = part;
                }
                continue 'again;
            }
        }
        return steps;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(node: u32, edge: Edge) -> Step {
        Step { node, edge }
    }

    /// So many transactions that each wrote over the next one's write, the last over that of the first.
    fn ring(length: u32) -> Vec<(u32, u32, Edge)> {
        (0..length).map(|node| (node, (node + 1) % length, Edge::Ww)).collect()
    }

    /// Order, shape, count, length of the shortest, and whether there may be more.
    fn found(graph: &Graph) -> Vec<(Order, Shape, u64, usize, bool)> {
        let told = |((order, shape), Cycles { count, shortest, is_at_least })| {
            (order, shape, count, shortest.len(), is_at_least)
        };
        find(graph).cycles.into_iter().map(told).collect()
    }

    #[test]
    fn a_write_cycle_that_is_longer_than_a_search_may_be_is_found() {
        let length = number(EFFORT.1) * 2;
        let mut edges = ring(length);
        // a shorter cycle says less
        edges.push((1, 0, Edge::Wr));
        let expected = (Order::Data, Shape::G0, 1, length as usize, true);
        assert_eq!(found(&Graph::with(length, edges)), [expected]);
    }

    #[test]
    fn only_what_was_searched_in_part_may_be_more() {
        let length = number(EFFORT.1) * 2;
        let mut edges = ring(length);
        // apart from the ring, two transactions that each read what the other replaced
        edges.extend([(length, length + 1, Edge::Rw), (length + 1, length, Edge::Rw)]);
        let expected =
            [(Order::Data, Shape::G0, 1, length as usize, true), (Order::Data, Shape::G2Item, 1, 2, false)];
        assert_eq!(found(&Graph::with(length + 2, edges)), expected);
    }

    #[test]
    fn a_wide_search_does_not_slow_those_after_it() {
        let graph = Graph::with(20_000, ring(20_000));
        let mut hunter = Hunter::new(&graph);
        hunter.take_any(Shape::G0, Order::Data, &vec![0; graph.nodes()]);
        assert!(hunter.visited.capacity() > 2 * KEPT);
        hunter.start(0);
        assert!(hunter.visited.capacity() <= 2 * KEPT);
    }

    #[test]
    fn cycles_have_the_names_of_their_edges() {
        use Edge::{RealTime, Rw, Session, Wr, Ww};
        for (edges, shape, order) in [
            (&[Ww, Ww][..], Shape::G0, Order::Data),
            (&[Ww, Wr], Shape::G1c, Order::Data),
            (&[Wr, Rw], Shape::GSingle, Order::Data),
            (&[Rw, Wr, Rw, Ww], Shape::GNonadjacent, Order::Data),
            (&[Rw, Wr, Rw], Shape::G2Item, Order::Data),
            (&[Rw, Rw], Shape::G2Item, Order::Data),
            (&[Rw, Session], Shape::GSingle, Order::Session),
            (&[Rw, RealTime, Rw, Session], Shape::GNonadjacent, Order::RealTime),
            (&[Ww, RealTime], Shape::G0, Order::RealTime),
        ] {
            let steps: Vec<_> = (0..).zip(edges).map(|(node, &edge)| step(node, edge)).collect();
            assert_eq!(classify(&steps), (shape, order), "{edges:?}");
        }
    }

    #[test]
    fn a_walk_that_crosses_itself_becomes_a_cycle_that_does_not() {
        use Edge::{Rw, Wr, Ww};
        // 1 is left by rw, and entered again by rw: that part would have two in a row, the rest has not
        let walk = vec![step(0, Wr), step(1, Rw), step(2, Ww), step(3, Rw), step(1, Wr), step(4, Rw)];
        let cycle = simplified(walk);
        assert_eq!(cycle, [step(0, Wr), step(1, Wr), step(4, Rw)]);
        assert_eq!(classify(&cycle).0, Shape::GSingle);
    }

    #[test]
    fn stronger_shapes_take_transactions_from_weaker_ones() {
        assert_eq!(stronger(Shape::G0, Order::Data), 1);
        assert_eq!(stronger(Shape::G1c, Order::Session), 0b11 | 0b11 << 5);
        assert_eq!(stronger(Shape::G2Item, Order::RealTime), 0x7fff);
    }
}
