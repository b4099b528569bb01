//! Histories with each anomaly, and the same without it.

use crate::check::{Anomaly, check};
use crate::history::{History, Op, Step};

/// `a3`: append 3 to the list `a`; `ra:1,2`: read it.
fn op(begin: u64, end: u64, steps: &str) -> Op {
    let key = |letter: u8| u32::from(letter - b'a');
    let steps = steps.split_whitespace().map(|step| match step.strip_prefix('r') {
        Some(read) => {
            let values = read[2..].split(',').filter(|digits| !digits.is_empty());
            let values = values.map(|digits| digits.parse().expect("a value")).collect();
            Step::Read { key: key(read.as_bytes()[0]), values }
        }
        None => Step::Append { key: key(step.as_bytes()[0]), value: step[1..].parse().expect("a value") },
    });
    Op { name: "op", begin, end, steps: steps.collect(), is_done: true }
}

fn found(ops: &[Op]) -> Vec<Anomaly> {
    check(&History { ops: ops.to_vec(), ..History::default() })
}

fn is_circle(ops: &[Op]) -> bool {
    matches!(found(ops).as_slice(), [Anomaly::Circle(_)])
}

#[test]
fn what_can_be_put_in_order_is_fine() {
    assert_eq!(found(&[]), []);
    // All at once, seen in one order.
    let fine = [op(0, 9, "a1 b2"), op(0, 9, "ra: rb:"), op(0, 9, "ra:1 a3"), op(10, 11, "ra:1,3 rb:2")];
    assert_eq!(found(&fine), []);
    // Two readers that overlap a writer may differ.
    assert_eq!(found(&[op(0, 9, "a1"), op(1, 8, "ra:1"), op(1, 8, "ra:"), op(10, 11, "ra:1")]), []);
}

#[test]
fn dirty_writes_make_a_circle() {
    // Two transactions append to both lists, in different orders.
    assert!(is_circle(&[op(0, 9, "a1 b2"), op(0, 9, "a3 b4"), op(10, 11, "ra:1,3 rb:4,2")]));
    // Something comes between the two appends of one transaction.
    assert!(is_circle(&[op(0, 9, "a1 a2"), op(0, 9, "a3"), op(10, 11, "ra:1,3,2")]));
}

#[test]
fn intermediate_and_circular_reads_make_a_circle() {
    assert!(is_circle(&[op(0, 9, "a1 a2"), op(0, 9, "ra:1"), op(10, 11, "ra:1,2")]));
    assert!(is_circle(&[op(0, 9, "a1 rb:2"), op(0, 9, "b2 ra:1"), op(10, 11, "ra:1 rb:2")]));
}

#[test]
fn fractured_reads_make_a_circle() {
    assert!(is_circle(&[op(0, 9, "a1 b2"), op(0, 9, "ra:1 rb:"), op(10, 11, "ra:1 rb:2")]));
}

#[test]
fn write_skew_makes_a_circle() {
    assert!(is_circle(&[op(0, 9, "ra: b2"), op(0, 9, "rb: a1"), op(10, 11, "ra:1 rb:2")]));
}

#[test]
fn a_stale_read_makes_a_circle_with_real_time() {
    assert!(is_circle(&[op(0, 1, "a1"), op(2, 3, "ra:"), op(10, 11, "ra:1")]));
    // Two increments in order, the second of which is seen without the first, by one who overlaps both.
    assert!(is_circle(&[op(0, 1, "a1"), op(2, 3, "b2"), op(0, 9, "ra: rb:2"), op(10, 11, "ra:1 rb:2")]));
    assert!(is_circle(&[op(2, 3, "a1"), op(0, 1, "a2"), op(10, 11, "ra:1,2")]));
}

#[test]
fn reads_that_do_not_agree_are_told() {
    let ops = [op(0, 9, "a1"), op(0, 9, "a2"), op(0, 9, "ra:2"), op(10, 11, "ra:1,2")];
    assert!(matches!(found(&ops)[..], [Anomaly::Incompatible(_)]));
}

#[test]
fn values_are_neither_lost_nor_doubled_nor_invented() {
    assert!(matches!(found(&[op(0, 1, "a1"), op(10, 11, "ra:")])[..], [Anomaly::Lost(_)]));
    assert!(matches!(found(&[op(0, 1, "a1"), op(10, 11, "ra:1,1")])[..], [Anomaly::Twice(_)]));
    assert!(matches!(found(&[op(0, 1, "ra:7")])[..], [Anomaly::FromNowhere(_)]));
    let mut refused = op(0, 1, "a1");
    refused.is_done = false;
    assert!(matches!(found(&[refused.clone(), op(10, 11, "ra:1")])[..], [Anomaly::FromNowhere(_)]));
    assert_eq!(found(&[refused, op(10, 11, "ra:")]), []);
    assert!(matches!(found(&[op(0, 1, "a1 ra:"), op(10, 11, "ra:1")])[..], [Anomaly::Lost(_), ..]));
}

#[test]
fn elements_of_queues_come_out_once() {
    let history = |pushed: &[u64], popped: &[u64]| {
        check(&History { pushed: pushed.to_vec(), popped: popped.to_vec(), ..History::default() })
    };
    assert_eq!(history(&[1, 2], &[2, 1]), []);
    assert_eq!(history(&[1, 2], &[2]), [Anomaly::NeverPopped(1)]);
    assert_eq!(history(&[1], &[1, 1]), [Anomaly::PoppedTwice(1)]);
    assert!(matches!(history(&[], &[1])[..], [Anomaly::FromNowhere(_)]));
}

#[test]
fn a_long_chain_in_real_time_costs_little() {
    let ops: Vec<Op> = (0..100_000).map(|n| op(n * 10, n * 10 + 25, "")).collect();
    assert_eq!(found(&ops), []);
}
