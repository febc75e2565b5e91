//! Transactions and what makes one come before another.

use crate::observed::{Dependency, NONE, Observed, number};

/// Why a transaction comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Edge {
    /// The other replaced what it wrote.
    Ww,
    /// The other read what it wrote.
    Wr,
    /// The other replaced what it read.
    Rw,
    /// The other came later in the same session.
    Session,
    /// The other started after its end. Not stored: see [`Graph::starts`].
    RealTime,
}

impl Edge {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ww => "ww",
            Self::Wr => "wr",
            Self::Rw => "rw",
            Self::Session => "session",
            Self::RealTime => "realtime",
        }
    }

    fn packed(self) -> u32 {
        (self as u32) << 30
    }

    fn unpacked(packed: u32) -> Self {
        [Self::Ww, Self::Wr, Self::Rw, Self::Session][(packed >> 30) as usize]
    }
}

/// The bits of a packed edge that say where it leads.
const TARGET: u32 = (1 << 30) - 1;

/// Edges by the node that they begin at. Of those between two nodes there is the strongest, and that of the session beside an
/// edge of kind rw: a cycle with the former says more, though of another order.
pub(crate) struct Graph {
    offsets: Vec<u32>,
    /// Each with its kind in the upper two bits.
    targets: Vec<u32>,
    pub(crate) starts: Vec<u64>,
    /// `u64::MAX` for a transaction whose end is not known, or that is no node.
    pub(crate) ends: Vec<u64>,
    /// Whether it counts only because it was seen.
    pub(crate) recovered: Vec<bool>,
}

impl Graph {
    pub(crate) fn of(observed: &Observed, after: &[u32]) -> Self {
        let nodes = observed.headers.len();
        let mut edges: Vec<(u32, u32)> = Vec::new();
        observed.dependencies(|from, to, dependency| {
            let edge = match dependency {
                Dependency::Ww => Edge::Ww,
                Dependency::Wr => Edge::Wr,
                Dependency::Rw => Edge::Rw,
            };
            edges.push((from, to | edge.packed()));
        });
        for (from, &to) in after.iter().enumerate().filter(|&(_, &to)| to != NONE) {
            edges.push((number(from), to | Edge::Session.packed()));
        }
        let (offsets, targets) = grouped(nodes, edges);
        Self {
            offsets,
            targets,
            starts: observed.headers.iter().map(|header| header.start).collect(),
            ends: observed
                .headers
                .iter()
                .map(|header| if header.is_sure() { header.end } else { u64::MAX })
                .collect(),
            recovered: observed.headers.iter().map(|header| header.recovered).collect(),
        }
    }

    /// Transactions that all overlap, with these edges.
    #[cfg(test)]
    pub(crate) fn with(nodes: u32, edges: Vec<(u32, u32, Edge)>) -> Self {
        let nodes = nodes as usize;
        let edges = edges.into_iter().map(|(from, to, edge)| (from, to | edge.packed())).collect();
        let (offsets, targets) = grouped(nodes, edges);
        let (starts, ends, recovered) = (vec![0; nodes], vec![u64::MAX; nodes], vec![false; nodes]);
        Self { offsets, targets, starts, ends, recovered }
    }

    pub(crate) fn nodes(&self) -> usize {
        self.starts.len()
    }

    pub(crate) fn edges(&self) -> usize {
        self.targets.len()
    }

    pub(crate) fn from(&self, node: u32) -> impl Iterator<Item = (u32, Edge)> + '_ {
        let range = self.offsets[node as usize] as usize..self.offsets[node as usize + 1] as usize;
        self.targets[range].iter().map(|&packed| (packed & TARGET, Edge::unpacked(packed)))
    }

    /// The edge with this number, counted over all nodes.
    fn edge(&self, at: u32) -> (u32, Edge) {
        let packed = self.targets[at as usize];
        (packed & TARGET, Edge::unpacked(packed))
    }
}

/// Sorts edges by where they begin and, there, by where they end, and leaves of those between the same nodes what [`Graph`] has.
fn grouped(nodes: usize, edges: Vec<(u32, u32)>) -> (Vec<u32>, Vec<u32>) {
    let mut ends = vec![0_u32; nodes + 1];
    for &(from, _) in &edges {
        ends[from as usize] += 1;
    }
    let mut sum = 0;
    for end in &mut ends {
        sum += std::mem::replace(end, sum);
    }
    let mut targets = vec![0_u32; edges.len()];
    for (from, to) in edges {
        let place = &mut ends[from as usize];
        targets[*place as usize] = to;
        *place += 1;
    }
    let mut offsets = Vec::with_capacity(nodes + 1);
    let (mut read, mut write) = (0, 0);
    for &end in &ends[..nodes] {
        offsets.push(number(write));
        let of_node = &mut targets[read..end as usize];
        of_node.sort_unstable_by_key(|&packed| (packed & TARGET, packed));
        let first = write;
        for at in read..end as usize {
            let packed = targets[at];
            let last = targets[first..write].last().copied();
            let same = last.filter(|last| (last ^ packed) & TARGET == 0).map(Edge::unpacked);
            let is_needed = match same {
                None => true,
                Some(last) => last == Edge::Rw && Edge::unpacked(packed) == Edge::Session,
            };
            if is_needed {
                targets[write] = packed;
                write += 1;
            }
        }
        read = end as usize;
    }
    offsets.push(number(write));
    targets.truncate(write);
    targets.shrink_to_fit();
    (offsets, targets)
}

/// Which paths a search for components may go.
#[derive(Clone, Copy)]
pub(crate) struct Paths<'a> {
    /// The weakest kind of edge.
    pub(crate) up_to: Edge,
    /// Whether session edges are included, whatever `up_to` is.
    pub(crate) session: bool,
    /// Whether an edge of kind rw may not follow another.
    pub(crate) apart: bool,
    /// Whether transactions are left out that count only because they were seen.
    pub(crate) sure: bool,
    /// If given, only edges between nodes of the same component, which is not `NONE`.
    pub(crate) within: Option<&'a [u32]>,
}

impl Paths<'_> {
    fn allow(&self, graph: &Graph, from: u32, to: u32, edge: Edge) -> bool {
        (edge <= self.up_to || self.session && edge == Edge::Session)
            && !(self.sure && (graph.recovered[from as usize] || graph.recovered[to as usize]))
            && self.within.is_none_or(|within| within[from as usize] == within[to as usize])
    }
}

/// Strongly connected components (Tarjan 1972, without recursion).
///
/// Where edges of kind rw may not follow each other, a node stands for two states: reached by such an edge, or not.
pub(crate) struct Components {
    /// Of each node the component, in an order in which edges between components lead to lower numbers. Where a node is two
    /// states, that of the one that was not reached by rw.
    pub(crate) of: Vec<u32>,
    /// Of each node the component if it is on a cycle, otherwise `NONE`.
    pub(crate) cyclic: Vec<u32>,
    /// Of each node the earliest end of those that can be reached from it, itself included; empty unless asked for.
    pub(crate) earliest: Vec<u64>,
    pub(crate) any: bool,
}

pub(crate) fn components(graph: &Graph, paths: Paths, with_ends: bool) -> Components {
    let states = if paths.apart { 2 } else { 1 };
    let mut search = Search {
        graph,
        paths,
        states,
        index: vec![0; graph.nodes() * states as usize],
        low: vec![0; graph.nodes() * states as usize],
        next: 0,
        open: Vec::new(),
        calls: Vec::new(),
        component: 0,
        earliest: if with_ends { vec![u64::MAX; graph.nodes() * states as usize] } else { Vec::new() },
        cyclic: vec![NONE; graph.nodes()],
        any: false,
    };
    for node in 0..number(graph.nodes()) {
        if paths.within.is_none_or(|within| within[node as usize] != NONE)
            && search.index[(node * states) as usize] == 0
        {
            search.visit(node * states);
        }
    }
    let pick = states as usize;
    Components {
        of: search.low.iter().step_by(pick).copied().collect(),
        cyclic: search.cyclic,
        earliest: search.earliest.iter().step_by(pick).copied().collect(),
        any: search.any,
    }
}

struct Search<'a> {
    graph: &'a Graph,
    paths: Paths<'a>,
    states: u32,
    /// 0 before a state is visited, `NONE` once its component is complete.
    index: Vec<u32>,
    /// The lowest index that is reached; once the component is complete, its number.
    low: Vec<u32>,
    next: u32,
    open: Vec<u32>,
    calls: Vec<(u32, u32)>,
    component: u32,
    earliest: Vec<u64>,
    cyclic: Vec<u32>,
    any: bool,
}

impl Search<'_> {
    fn enter(&mut self, state: u32) {
        self.next += 1;
        self.index[state as usize] = self.next;
        self.low[state as usize] = self.next;
        self.open.push(state);
        self.calls.push((state, self.graph.offsets[(state / self.states) as usize]));
    }

    /// Where an edge leads, if it may be gone.
    fn target(&self, state: u32, at: u32) -> Option<u32> {
        let node = state / self.states;
        let (to, edge) = self.graph.edge(at);
        if !self.paths.allow(self.graph, node, to, edge) {
            return None;
        }
        if self.states == 1 {
            return Some(to);
        }
        let rw = edge == Edge::Rw;
        (!(rw && state & 1 == 1)).then_some(to * 2 + u32::from(rw))
    }

    fn visit(&mut self, root: u32) {
        self.enter(root);
        while let Some(&(state, at)) = self.calls.last() {
            let node = state / self.states;
            if at < self.graph.offsets[node as usize + 1] {
                if let Some(last) = self.calls.last_mut() {
                    last.1 += 1;
                }
                let Some(to) = self.target(state, at) else { continue };
                match self.index[to as usize] {
                    0 => self.enter(to),
                    NONE => {}
                    index => self.low[state as usize] = self.low[state as usize].min(index),
                }
                continue;
            }
            self.calls.pop();
            let low = self.low[state as usize];
            if low == self.index[state as usize] {
                self.complete(state);
            } else if let Some(&(parent, _)) = self.calls.last() {
                self.low[parent as usize] = self.low[parent as usize].min(low);
            }
        }
    }

    /// Takes a component from the open states.
    fn complete(&mut self, root: u32) {
        // the root lies where its component begins
        let from = self.open.iter().rposition(|&state| state == root).unwrap_or(0);
        let mut earliest = u64::MAX;
        if !self.earliest.is_empty() {
            for at in from..self.open.len() {
                let state = self.open[at];
                let node = state / self.states;
                earliest = earliest.min(self.graph.ends[node as usize]);
                for edge in self.graph.offsets[node as usize]..self.graph.offsets[node as usize + 1] {
                    if let Some(to) = self.target(state, edge) {
                        earliest = earliest.min(self.earliest[to as usize]);
                    }
                }
            }
        }
        let alone = self.open.len() - from == 1;
        for at in from..self.open.len() {
            let state = self.open[at];
            self.index[state as usize] = NONE;
            self.low[state as usize] = self.component;
            if !alone {
                self.any = true;
                self.cyclic[(state / self.states) as usize] = self.component;
            }
            if !self.earliest.is_empty() {
                self.earliest[state as usize] = earliest;
            }
        }
        self.open.truncate(from);
        self.component += 1;
    }
}
