//! The promises of the types to one thread: grants, chains, tokens, and the stop if jobs would be lost.

use std::collections::VecDeque;
use std::process::Command;
use std::sync::Arc;

use darter_latch::{Cell, Chain, Grant, Held, Mailbox, QueuedJob, Waiter, acquire};

fn cells(len: u16) -> &'static [Cell<u32, u32>] {
    Box::leak((0..len).map(|id| Cell::new(id, u32::from(id) * 10)).collect())
}

#[test]
fn tokens_travel_and_cells_are_shared() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    // `std::cell::Cell` is Send and not Sync: enough for a shard's data.
    type Data = std::cell::Cell<u32>;
    send::<Held<Data, Data>>();
    send::<Grant<Data, Data>>();
    send::<Waiter<Data>>();
    send::<Chain<Data>>();
    send::<Mailbox<Data>>();
    sync::<Cell<Data, Data>>();
    sync::<Mailbox<Data>>();
    sync::<Held<u32, Data>>();
}

#[test]
fn a_cell_stands_alone_on_its_lines() {
    assert_eq!(align_of::<Cell<u8, u8>>(), 128);
    assert_eq!(size_of::<Cell<[u8; 64], u8>>(), 128);
    assert_eq!(align_of::<Mailbox<u8>>(), 128);
    assert_eq!(size_of::<Held<u8, u8>>(), size_of::<usize>());
    assert_eq!(size_of::<Option<(Held<u8, u8>, Box<Waiter<u8>>)>>(), 2 * size_of::<usize>());
    assert_eq!(size_of::<Grant<u8, u8>>(), 3 * size_of::<usize>());
}

#[test]
fn a_token_reads_and_writes_its_shard() {
    let cells = cells(2);
    let mut held = cells[1].try_take().unwrap();
    assert_eq!((held.id(), *held), (1, 10));
    *held += 1;
    assert!(cells[1].try_take().is_none());
    assert!(held.release().is_none());
    assert_eq!(*cells[1].take_spinning(10).unwrap(), 11);
    // The temporary was dropped and no job waited: that is a release.
    assert!(cells[1].try_take().is_some());
}

#[test]
fn a_waiter_comes_back_when_the_shard_is_free() {
    let cells = cells(1);
    let (held, first) = cells[0].take_or_queue(Waiter::new(1)).unwrap();
    assert_eq!(**first, 1);
    for job in 2..5 {
        assert_eq!(cells[0].take_or_queue(Waiter::new(job)).map(|_| ()), Err(QueuedJob));
    }
    let (held, second) = held.release().unwrap();
    // Behind the jobs already in the owner's queue.
    assert_eq!(cells[0].take_or_queue(Waiter::new(5)).map(|_| ()), Err(QueuedJob));
    let mut order = vec![second.into_inner()];
    let mut next = held.release();
    while let Some((held, job)) = next {
        order.push(job.into_inner());
        next = held.release();
    }
    assert_eq!(order, [2, 3, 4, 5]);
    assert!(cells[0].try_take().is_some());
}

#[test]
fn a_grant_knows_what_it_owns() {
    let cells = cells(8);
    for wanted in [&[][..], &[3], &[1, 6], &[0, 2, 3, 7], &[0, 1, 2, 3, 4, 5, 6, 7]] {
        let mut grant = Grant::empty();
        assert_eq!(acquire(cells, wanted, &mut grant, 0), Ok(()));
        assert_eq!((grant.len(), grant.is_empty()), (wanted.len(), wanted.is_empty()));
        assert!(grant.covers(wanted) && grant.covers(&[]));
        for id in 0..9 {
            let expected = wanted.contains(&id).then(|| u32::from(id) * 10);
            assert_eq!(grant.get(id).copied(), expected);
            assert_eq!(grant.get_mut(id).copied(), expected);
            assert_eq!(grant.covers(&[id]), expected.is_some());
        }
        assert_eq!(grant.iter_mut().map(|held| held.id()).collect::<Vec<_>>(), wanted);
        for &id in wanted.iter().rev() {
            let held = grant.pop().unwrap();
            assert_eq!(held.id(), id);
            assert!(held.release().is_none());
        }
        assert!(grant.pop().is_none());
    }
}

#[test]
fn acquiring_goes_on_where_it_stopped() {
    let cells = cells(6);
    let wanted = [0, 2, 4, 5];
    let in_the_way = cells[4].try_take().unwrap();
    let mut grant = Grant::empty();
    assert_eq!(acquire(cells, &wanted, &mut grant, 3), Err(4));
    assert!(grant.covers(&[0, 2]) && !grant.covers(&[4]) && grant.len() == 2);
    assert!(cells[2].try_take().is_none() && cells[5].try_take().is_some());
    assert_eq!(acquire(cells, &wanted, &mut grant, 3), Err(4));
    grant.push(in_the_way);
    assert_eq!(acquire(cells, &wanted, &mut grant, 3), Ok(()));
    assert!(grant.covers(&wanted));
}

#[test]
fn a_shard_that_was_free_joins_a_grant_anywhere() {
    let cells = cells(6);
    let mut grant = Grant::from(cells[3].try_take().unwrap());
    for id in [1, 5, 0, 4] {
        grant.insert(cells[id].try_take().unwrap());
    }
    assert_eq!(grant.iter_mut().map(|held| held.id()).collect::<Vec<_>>(), [0, 1, 3, 4, 5]);
    assert!(grant.covers(&[0, 1, 3, 4, 5]) && !grant.covers(&[2]));
}

#[test]
fn a_grant_is_divided_and_put_together_again() {
    let cells = cells(7);
    let mut grant = Grant::empty();
    assert_eq!(acquire(cells, &[0, 2, 3, 5, 6], &mut grant, 0), Ok(()));
    let ids = |grant: &mut Grant<u32, u32>| grant.iter_mut().map(|held| held.id()).collect::<Vec<_>>();
    let mut high = grant.split_off(3);
    assert_eq!((ids(&mut grant), ids(&mut high)), (vec![0, 2], vec![3, 5, 6]));
    let mut none = high.split_off(7);
    assert!(none.is_empty());
    high.append(none);
    grant.append(high);
    assert_eq!(ids(&mut grant), [0, 2, 3, 5, 6]);
    none = grant.split_off(0);
    assert!(grant.is_empty() && none.covers(&[0, 2, 3, 5, 6]));
}

#[test]
#[should_panic(expected = "ascending order")]
fn a_grant_refuses_the_shards_of_one_that_lies_lower() {
    let cells = cells(2);
    let mut grant = Grant::from(cells[1].try_take().unwrap());
    grant.append(Grant::from(cells[0].try_take().unwrap()));
}

#[test]
#[should_panic(expected = "ascending order")]
fn a_grant_refuses_a_lower_shard() {
    let cells = cells(2);
    let mut grant = Grant::from(cells[1].try_take().unwrap());
    grant.push(cells[0].try_take().unwrap());
}

#[test]
#[should_panic(expected = "ascending order")]
fn shards_wanted_out_of_order_are_refused() {
    let _ = acquire(cells(3), &[2, 1], &mut Grant::empty(), 0);
}

#[test]
fn a_chain_is_a_queue() {
    let mut chain = Chain::new();
    let mut oracle = VecDeque::new();
    let mut step = 12_345_u32;
    for number in 0..2_000 {
        step = step.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Runs of either kind, so that it gets long and gets empty.
        if (step >> 16) % 8 < if number / 100 % 2 == 0 { 6 } else { 2 } {
            chain.push_back(Waiter::new(number));
            oracle.push_back(number);
        } else {
            assert_eq!(chain.pop_front().map(Waiter::into_inner), oracle.pop_front());
        }
        assert_eq!(chain.is_empty(), oracle.is_empty());
    }
    assert!(chain.map(Waiter::into_inner).eq(oracle));
}

#[test]
fn what_is_dropped_is_freed() {
    let witness = Arc::new(());
    let mut chain = Chain::new();
    let mailbox = Mailbox::new();
    for _ in 0..3 {
        chain.push_back(Waiter::new(witness.clone()));
        mailbox.push(witness.clone());
    }
    drop((chain, mailbox));
    assert_eq!(Arc::strong_count(&witness), 1);
}

#[test]
fn a_mailbox_says_when_it_was_empty() {
    let mailbox = Mailbox::new();
    assert!(mailbox.is_empty() && mailbox.drain_nodes().is_empty());
    assert!(mailbox.push(1));
    assert!(!mailbox.push(2) && !mailbox.push_node(Waiter::new(3)));
    let mut out = vec![0];
    mailbox.drain(&mut out);
    assert_eq!(out, [0, 1, 2, 3]);
    assert!(mailbox.is_empty() && mailbox.push(4));
}

const CHILD: &str = "DARTER_LATCH_TEST_CHILD";

/// Runs in a separate process, which the next test starts.
#[test]
fn child_drops_a_wanted_shard() {
    let Ok(queue) = std::env::var(CHILD) else { return };
    let cells = cells(4);
    let held = cells[3].try_take().unwrap();
    if queue == "owner" {
        // One in the owner's queue, none on the word.
        for job in 0..2 {
            assert!(cells[3].take_or_queue(Waiter::new(job)).is_err());
        }
        drop(held.release().unwrap().0);
    } else {
        assert!(cells[3].take_or_queue(Waiter::new(1)).is_err());
        drop(held);
    }
}

#[test]
fn dropping_a_wanted_shard_stops_the_process() {
    for queue in ["word", "owner"] {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_drops_a_wanted_shard", "--nocapture"])
            .env(CHILD, queue)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&child.stderr);
        assert!(!child.status.success(), "{queue}: {stderr}");
        assert!(stderr.contains("shard 3 was dropped while jobs wait for it"), "{queue}: {stderr}");
    }
}
