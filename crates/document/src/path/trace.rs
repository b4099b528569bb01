//! The nodes that a path has found, and the blocks and containers that lead to them.

use std::collections::HashSet;

use crate::tree::NodePlace;

/// Nodes to be changed.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    // The place of each node, and the number of containers around it; ascending, each once.
    spots: Vec<NodePlace>,
    levels: Vec<usize>,
    // The same as the path leads to them; a node may occur more than once.
    walked: Vec<NodePlace>,
    // Nodes of containers in pieces that have such a node below, ascending.
    gates: Vec<NodePlace>,
    // Blocks of these that have such a node, or lead to one that does.
    touched: HashSet<u32>,
}

/// Gathers a [`Trace`].
#[derive(Debug, Default)]
pub(super) struct Tracing {
    found: Vec<(NodePlace, usize)>,
    gates: HashSet<NodePlace>,
    touched: HashSet<u32>,
}

impl Tracing {
    /// Notes a node that is `level` levels deep, with the containers in pieces and the blocks on the way to it.
    pub fn note(&mut self, spot: NodePlace, level: usize, gates: &[NodePlace], blocks: &[u32]) {
        self.found.push((spot, level));
        // Whatever leads to one that is known is known.
        let _ = gates.iter().rev().all(|gate| self.gates.insert(*gate));
        let _ = blocks.iter().rev().all(|raw| self.touched.insert(*raw));
    }

    pub fn end(mut self) -> Trace {
        let walked = self.found.iter().map(|(spot, _)| *spot).collect();
        self.found.sort_unstable();
        self.found.dedup();
        let mut gates: Vec<NodePlace> = self.gates.into_iter().collect();
        gates.sort_unstable();
        let (spots, levels) = self.found.into_iter().unzip();
        Trace { spots, levels, walked, gates, touched: self.touched }
    }
}

impl Trace {
    /// The nodes' places, ascending.
    pub fn spots(&self) -> &[NodePlace] {
        &self.spots
    }

    /// The nodes' places in walk order, those that [`Trace::retain`] has left out too.
    pub fn walked(&self) -> &[NodePlace] {
        &self.walked
    }

    /// Containers around node `number`.
    pub fn level(&self, number: usize) -> usize {
        self.levels.get(number).copied().unwrap_or(0)
    }

    /// The number of the node at `spot`.
    pub fn number_of(&self, spot: NodePlace) -> Option<usize> {
        self.spots.binary_search(&spot).ok()
    }

    /// The same with only those nodes for which `keeps` holds; the way to the others stays.
    pub fn retain(&mut self, mut keeps: impl FnMut(NodePlace) -> bool) {
        let kept = self.spots.iter().zip(&self.levels).filter(|(spot, _)| keeps(**spot));
        let (spots, levels) = kept.map(|(spot, level)| (*spot, *level)).unzip();
        (self.spots, self.levels) = (spots, levels);
    }

    /// Returns true if a block has one of the nodes, or leads to one.
    pub(crate) fn touches(&self, block: u32) -> bool {
        self.touched.contains(&block)
    }

    /// Returns true if the node of `len` bytes at `spot` is one of these, or has one below.
    pub(crate) fn leads_to(&self, spot: NodePlace, len: usize) -> bool {
        let end = NodePlace { at: spot.at.saturating_add(len as u32), ..spot };
        [&self.spots, &self.gates].into_iter().any(|all| {
            let next = all.get(all.partition_point(|own| *own < spot));
            next.is_some_and(|next| *next < end)
        })
    }

    /// Returns true if the container of `len` bytes at `spot` has one of the nodes below.
    pub(crate) fn leads_into(&self, spot: NodePlace, len: usize) -> bool {
        let inside = NodePlace { at: spot.at + 1, ..spot };
        self.gates.binary_search(&spot).is_ok() || self.leads_to(inside, len.saturating_sub(1))
    }
}
