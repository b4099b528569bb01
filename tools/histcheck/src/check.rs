//! Whether a history could have happened one operation at a time, in an order that keeps real time.
//!
//! The order of writes to a list is read off the list. From it follows who must be before whom; with real time added,
//! the history is strictly serializable exactly if these orders have no circle, as long as every list was read whole
//! at the end.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::graph::{Edge, Graph};
use crate::history::{History, Op, Step};

/// An anomaly in a history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Anomaly {
    /// Two reads of a list, neither of which is the beginning of the other.
    Incompatible(String),
    /// A value that is in a list twice.
    Twice(String),
    /// A value that was acknowledged and is in no list at the end.
    Lost(String),
    /// A value that nobody appended, or whose operation was refused.
    FromNowhere(String),
    /// Operations each of which must be before the next.
    Circle(String),
    /// An element that was taken from a queue twice.
    PoppedTwice(u64),
    /// An element that was put into a queue and came out nowhere.
    NeverPopped(u64),
}

/// Everything that is wrong with a history; a few of each kind.
pub fn check(history: &History) -> Vec<Anomaly> {
    let mut anomalies = Vec::new();
    check_queues(history, &mut anomalies);
    let done: Vec<&Op> = history.ops.iter().filter(|op| op.is_done).collect();
    let refused: HashSet<u64> =
        history.ops.iter().filter(|op| !op.is_done).flat_map(appends).map(|(_, value)| value).collect();
    let writers: HashMap<u64, u32> = done
        .iter()
        .enumerate()
        .flat_map(|(n, op)| appends(op).map(move |(_, value)| (value, n as u32)))
        .collect();
    let orders = orders(&done, &mut anomalies);
    for (key, values) in &orders {
        let mut seen = HashSet::new();
        for value in *values {
            if !seen.insert(value) {
                anomalies.push(Anomaly::Twice(format!("{value} in list {key}")));
            }
            if !writers.contains_key(value) {
                let why = if refused.contains(value) { "of a refused operation" } else { "of nobody" };
                anomalies.push(Anomaly::FromNowhere(format!("{value} {why} in list {key}")));
            }
        }
    }
    for op in &done {
        for (key, value) in appends(op) {
            if !orders.get(&key).is_some_and(|order| order.contains(&value)) {
                anomalies.push(Anomaly::Lost(format!("{value} of {} in list {key}", op.name)));
            }
        }
    }
    if anomalies.is_empty() {
        find_circles(&done, &orders, &writers, &mut anomalies);
    }
    anomalies.truncate(ANOMALIES_MAX);
    anomalies
}

const ANOMALIES_MAX: usize = 20;

fn appends(op: &Op) -> impl Iterator<Item = (u32, u64)> + '_ {
    op.steps.iter().filter_map(|step| match step {
        Step::Append { key, value } => Some((*key, *value)),
        Step::Read { .. } => None,
    })
}

fn check_queues(history: &History, anomalies: &mut Vec<Anomaly>) {
    let mut popped = HashSet::new();
    anomalies.extend(history.popped.iter().filter(|n| !popped.insert(**n)).map(|n| Anomaly::PoppedTwice(*n)));
    let pushed: HashSet<u64> = history.pushed.iter().copied().collect();
    anomalies.extend(pushed.difference(&popped).map(|n| Anomaly::NeverPopped(*n)));
    let strange = popped.difference(&pushed).map(|n| Anomaly::FromNowhere(format!("{n} in a queue")));
    anomalies.extend(strange);
}

/// The longest read of each list, of which all others must be beginnings.
fn orders<'a>(done: &[&'a Op], anomalies: &mut Vec<Anomaly>) -> BTreeMap<u32, &'a [u64]> {
    let reads = |op: &'a Op| {
        op.steps.iter().filter_map(|step| match step {
            Step::Read { key, values } => Some((*key, values.as_slice())),
            Step::Append { .. } => None,
        })
    };
    let mut orders: BTreeMap<u32, &[u64]> = BTreeMap::new();
    for (key, values) in done.iter().flat_map(|op| reads(op)) {
        let longest = orders.entry(key).or_default();
        if values.len() > longest.len() {
            *longest = values;
        }
    }
    for op in done {
        for (key, values) in reads(op) {
            let longest = orders.get(&key).copied().unwrap_or_default();
            if !longest.starts_with(values) {
                anomalies.push(Anomaly::Incompatible(format!(
                    "{} read {values:?} of list {key}, which became {longest:?}",
                    op.name
                )));
            }
        }
    }
    orders
}

fn find_circles(
    done: &[&Op],
    orders: &BTreeMap<u32, &[u64]>,
    writers: &HashMap<u64, u32>,
    anomalies: &mut Vec<Anomaly>,
) {
    let mut graph = Graph::new(done.len());
    for order in orders.values() {
        for pair in order.windows(2) {
            graph.add(writers[&pair[0]], writers[&pair[1]], Edge::WriteWrite);
        }
    }
    for (reader, op) in done.iter().enumerate() {
        let reader = reader as u32;
        for step in &op.steps {
            let Step::Read { key, values } = step else { continue };
            if let Some(last) = values.last() {
                graph.add(writers[last], reader, Edge::WriteRead);
            }
            if let Some(next) = orders.get(key).and_then(|order| order.get(values.len())) {
                graph.add(reader, writers[next], Edge::ReadWrite);
            }
        }
        check_own_reads(op, anomalies);
    }
    add_real_time(done, &mut graph);
    for group in graph.circles() {
        let circle = graph.shortest(&group);
        let shown: Vec<String> = circle
            .iter()
            .map(|(n, edge)| format!("{} {:?} -{edge:?}->", done[*n as usize].name, done[*n as usize].steps))
            .collect();
        anomalies.push(Anomaly::Circle(shown.join(" ")));
    }
}

/// An operation sees what it has appended itself.
fn check_own_reads(op: &Op, anomalies: &mut Vec<Anomaly>) {
    let mut own: Vec<(u32, u64)> = Vec::new();
    for step in &op.steps {
        match step {
            Step::Append { key, value } => own.push((*key, *value)),
            Step::Read { key, values } => {
                for (_, value) in own.iter().filter(|(list, value)| list == key && !values.contains(value)) {
                    anomalies.push(Anomaly::Lost(format!("{value}, to {} itself in list {key}", op.name)));
                }
            }
        }
    }
}

/// Adds edges from operations that ended to operations that began later, without those implied by others: only from
/// an ended operation that no other one follows and ends before the new one begins.
fn add_real_time(done: &[&Op], graph: &mut Graph) {
    let mut events: Vec<(u64, bool, u32)> = Vec::with_capacity(done.len() * 2);
    for (n, op) in done.iter().enumerate() {
        events.push((op.begin, false, n as u32));
        events.push((op.end, true, n as u32));
    }
    // At the same instant beginnings come first: such operations overlap.
    events.sort_unstable();
    let mut latest: Vec<u32> = Vec::new();
    let mut before: HashMap<u32, Vec<u32>> = HashMap::new();
    for (_, is_end, n) in events {
        if is_end {
            let behind = before.remove(&n).unwrap_or_default();
            latest.retain(|other| !behind.contains(other));
            latest.push(n);
        } else {
            latest.iter().for_each(|other| graph.add(*other, n, Edge::RealTime));
            before.insert(n, latest.clone());
        }
    }
}
