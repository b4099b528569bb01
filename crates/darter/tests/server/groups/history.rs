//! A history of what clients saw of a group, and the check that one server without faults could have shown it.
//!
//! Each value is appended once, to one list, so a list that is read tells the order of all appends before. An append whose
//! outcome is not known may be seen or not; once it was seen it stays.

use std::collections::HashMap;

/// The end of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was answered: the list after it.
    Seen(Vec<u64>),
    /// It was refused: nothing was appended.
    Refused,
    /// The connection ended, or nothing came.
    Unknown,
}

/// An operation of a client.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The list.
    pub list: u64,
    /// The value that it appends; `None`: it only reads.
    pub appends: Option<u64>,
    /// When it was sent, microseconds.
    pub began_us: u64,
    /// When the outcome was known.
    pub ended_us: u64,
    /// Its end.
    pub outcome: Outcome,
}

/// Counts of a history that is sound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HistoryCounts {
    /// Operations that were answered.
    pub answered: u64,
    /// Operations whose outcome is not known.
    pub unknown: u64,
}

/// Checks a history.
///
/// Errors: what no server without faults shows.
pub fn check(operations: &[Operation]) -> Result<HistoryCounts, String> {
    let mut lists: HashMap<u64, Vec<&Operation>> = HashMap::new();
    for operation in operations {
        lists.entry(operation.list).or_default().push(operation);
    }
    let mut counts = HistoryCounts::default();
    for (list, operations) in lists {
        check_list(&operations, &mut counts).map_err(|why| format!("list {list}: {why}"))?;
    }
    Ok(counts)
}

fn check_list(operations: &[&Operation], counts: &mut HistoryCounts) -> Result<(), String> {
    let longest = operations.iter().filter_map(|one| seen(one)).max_by_key(|list| list.len());
    let Some(longest) = longest else { return Ok(()) };
    let places: HashMap<u64, usize> = longest.iter().enumerate().map(|(at, value)| (*value, at)).collect();
    if places.len() != longest.len() {
        return Err(format!("a value is there twice: {longest:?}"));
    }
    let appended: HashMap<u64, &&Operation> =
        operations.iter().filter_map(|one| Some((one.appends?, one))).collect();
    for value in longest {
        match appended.get(value) {
            None => return Err(format!("{value} was never sent")),
            Some(one) if one.outcome == Outcome::Refused => {
                return Err(format!("{value} was refused, and is there"));
            }
            Some(_) => {}
        }
    }
    for one in operations {
        match &one.outcome {
            Outcome::Seen(list) if !longest.starts_with(list) => {
                return Err(format!("two orders: {list:?} and {longest:?}"));
            }
            Outcome::Seen(list) if one.appends.is_some_and(|value| list.last() != Some(&value)) => {
                return Err(format!("{:?} is not at the end of its own answer {list:?}", one.appends));
            }
            Outcome::Seen(_) => counts.answered += 1,
            Outcome::Unknown => counts.unknown += 1,
            Outcome::Refused => {}
        }
    }
    in_time(operations)
}

fn seen(one: &Operation) -> Option<&Vec<u64>> {
    match &one.outcome {
        Outcome::Seen(list) => Some(list),
        Outcome::Refused | Outcome::Unknown => None,
    }
}

/// An answer holds all that was answered before its operation began.
fn in_time(operations: &[&Operation]) -> Result<(), String> {
    let mut ends: Vec<(u64, usize)> =
        operations.iter().filter_map(|one| Some((one.ended_us, seen(one)?.len()))).collect();
    ends.sort_unstable();
    let mut longest = 0;
    for end in &mut ends {
        longest = longest.max(end.1);
        end.1 = longest;
    }
    for one in operations {
        let Some(list) = seen(one) else { continue };
        let before = ends.partition_point(|(ended_us, _)| *ended_us < one.began_us);
        let least = before.checked_sub(1).map_or(0, |at| ends[at].1);
        if list.len() < least {
            return Err(format!(
                "{} values at {} us, and {least} were there before",
                list.len(),
                one.began_us
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(appends: Option<u64>, (began_us, ended_us): (u64, u64), outcome: Outcome) -> Operation {
        Operation { list: 0, appends, began_us, ended_us, outcome }
    }

    fn saw(list: &[u64]) -> Outcome {
        Outcome::Seen(list.to_vec())
    }

    #[test]
    fn a_sound_history_passes() {
        let all = [
            one(Some(1), (0, 5), saw(&[1])),
            one(Some(2), (6, 9), Outcome::Unknown),
            one(Some(3), (7, 8), Outcome::Refused),
            one(None, (10, 12), saw(&[1])),
            one(None, (11, 14), saw(&[1, 2])),
        ];
        assert_eq!(check(&all), Ok(HistoryCounts { answered: 3, unknown: 1 }));
    }

    #[test]
    fn each_fault_is_found() {
        let first = one(Some(1), (0, 5), saw(&[1]));
        let faults = [
            one(None, (6, 9), saw(&[])),
            one(Some(2), (6, 9), saw(&[2])),
            one(None, (6, 9), saw(&[1, 7])),
            one(Some(2), (6, 9), saw(&[1, 2, 1])),
        ];
        for fault in faults {
            assert!(check(&[first.clone(), fault.clone()]).is_err(), "{fault:?}");
        }
        let refused = one(Some(2), (6, 7), Outcome::Refused);
        assert!(check(&[first.clone(), refused, one(None, (8, 9), saw(&[1, 2]))]).is_err());
        // What was seen once vanishes.
        let unknown = one(Some(2), (6, 7), Outcome::Unknown);
        let vanishes = [first, unknown, one(None, (8, 9), saw(&[1, 2])), one(None, (10, 11), saw(&[1]))];
        assert!(check(&vanishes).is_err());
    }
}
