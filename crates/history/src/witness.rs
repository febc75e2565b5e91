//! What an example is made from: numbers of transactions, from which their operations are found in another pass.

use crate::graph::Edge;

/// A step of a cycle: from here, by this edge, to the next step, or from the last step to the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) node: u32,
    pub(crate) edge: Edge,
}

#[derive(Clone, Debug)]
pub(crate) enum Witness {
    /// A reader, a value of an object that it read, who wrote it, and another transaction; `NONE` for those that are missing.
    Value { reader: u32, writer: u32, other: u32, object: u32, value: u64 },
    /// A transaction, and the object of which it saw what it should not have seen.
    Own { node: u32, object: u32 },
    /// Two readers of a list.
    Orders { one: u32, other: u32, object: u32 },
    /// Two transactions that replaced the same version.
    Lost { one: u32, other: u32, object: u32 },
    /// The observer saw a write of the writer to the first object, and none to the one it read then.
    Vanishes { observer: u32, writer: u32, first: u32, missed: u32 },
    /// A transaction that read a wrong total.
    Total { node: u32 },
    /// A cycle.
    Cycle(Vec<Step>),
}

impl Witness {
    /// The transactions, in the order of the cycle.
    pub(crate) fn nodes(&self) -> Vec<u32> {
        let mut nodes = match self {
            Self::Value { reader, writer, other, .. } => vec![*writer, *other, *reader],
            Self::Own { node, .. } | Self::Total { node } => vec![*node],
            Self::Orders { one, other, .. } | Self::Lost { one, other, .. } => vec![*one, *other],
            Self::Vanishes { observer, writer, .. } => vec![*writer, *observer],
            Self::Cycle(steps) => steps.iter().map(|step| step.node).collect(),
        };
        nodes.retain(|&node| node != crate::observed::NONE);
        let mut seen = Vec::new();
        nodes.retain(|node| {
            !seen.contains(node) && {
                seen.push(*node);
                true
            }
        });
        nodes
    }
}
