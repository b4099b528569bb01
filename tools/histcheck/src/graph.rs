//! A graph of operations, and its circles.

/// Why one operation is before another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Edge {
    /// It ended before the other began.
    RealTime,
    /// Its value is before the other's.
    WriteWrite,
    /// The other has read its value.
    WriteRead,
    /// It has not seen the other's value.
    ReadWrite,
}

/// Operations by number, and what is before what.
#[derive(Debug, Default)]
pub struct Graph {
    edges: Vec<Vec<(u32, Edge)>>,
}

impl Graph {
    /// A graph of `len` operations.
    pub fn new(len: usize) -> Graph {
        Graph { edges: vec![Vec::new(); len] }
    }

    /// `from` is before `to`; an operation is not before itself.
    pub fn add(&mut self, from: u32, to: u32, edge: Edge) {
        if from != to {
            self.edges[from as usize].push((to, edge));
        }
    }

    /// The groups of operations each of which is before every other: Tarjan's, without recursion. Cost: O(edges).
    pub fn circles(&self) -> Vec<Vec<u32>> {
        const NEW: u32 = u32::MAX;
        let len = self.edges.len();
        let (mut index, mut low, mut is_open) = (vec![NEW; len], vec![0u32; len], vec![false; len]);
        let (mut open, mut found, mut next) = (Vec::new(), Vec::new(), 0u32);
        let mut path: Vec<(u32, usize)> = Vec::new();
        for root in 0..len as u32 {
            if index[root as usize] != NEW {
                continue;
            }
            path.push((root, 0));
            while let Some((node, at)) = path.pop() {
                let here = node as usize;
                if at == 0 {
                    (index[here], low[here], is_open[here]) = (next, next, true);
                    next += 1;
                    open.push(node);
                }
                if let Some(&(to, _)) = self.edges[here].get(at) {
                    path.push((node, at + 1));
                    if index[to as usize] == NEW {
                        path.push((to, 0));
                    } else if is_open[to as usize] {
                        low[here] = low[here].min(index[to as usize]);
                    }
                    continue;
                }
                if low[here] == index[here] {
                    let mut group = Vec::new();
                    while let Some(member) = open.pop() {
                        is_open[member as usize] = false;
                        group.push(member);
                        if member == node {
                            break;
                        }
                    }
                    if group.len() > 1 {
                        found.push(group);
                    }
                }
                if let Some(&(parent, _)) = path.last() {
                    low[parent as usize] = low[parent as usize].min(low[here]);
                }
            }
        }
        found
    }

    /// A shortest circle within a group: each operation with the edge that leads on from it.
    pub fn shortest(&self, group: &[u32]) -> Vec<(u32, Edge)> {
        let mut best: Vec<(u32, Edge)> = Vec::new();
        for &start in group.iter().take(STARTS_MAX) {
            let mut came: std::collections::HashMap<u32, (u32, Edge)> = std::collections::HashMap::new();
            let mut queue = std::collections::VecDeque::from([start]);
            'search: while let Some(node) = queue.pop_front() {
                for &(to, edge) in &self.edges[node as usize] {
                    if !group.contains(&to) || came.contains_key(&to) {
                        continue;
                    }
                    came.insert(to, (node, edge));
                    if to == start {
                        break 'search;
                    }
                    queue.push_back(to);
                }
            }
            let mut circle = Vec::new();
            let mut at = start;
            while let Some(&(from, edge)) = came.get(&at) {
                circle.push((from, edge));
                at = from;
                if at == start {
                    break;
                }
            }
            circle.reverse();
            if !circle.is_empty() && (best.is_empty() || circle.len() < best.len()) {
                best = circle;
            }
        }
        best
    }
}

/// Operations from which a circle is looked for.
const STARTS_MAX: usize = 50;
