//! Mailbox: nothing lost, each pusher's order kept, no reader left asleep with mail.

use std::sync::Arc;

use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::thread::{self, Thread};

use super::explore;
use crate::mailbox::Mailbox;

type Message = (usize, usize); // pusher, sequence

fn check(messages: &[Message], pushers: usize, each: usize) {
    assert_eq!(messages.len(), pushers * each, "lost or doubled");
    for pusher in 0..pushers {
        let of_pusher: Vec<usize> =
            messages.iter().filter(|(from, _)| *from == pusher).map(|(_, n)| *n).collect();
        assert_eq!(of_pusher, (0..each).collect::<Vec<_>>(), "pusher {pusher} out of order");
    }
}

/// Pushers run `push`, which wakes the reader if it must; the reader runs `sleep` when it finds nothing.
fn model(
    push: fn(&Mailbox<Message>, Message, &AtomicBool, &Thread),
    sleep: fn(&Mailbox<Message>, &AtomicBool),
) {
    const PUSHERS: usize = 3;
    const EACH: usize = 3;
    let mailbox = Arc::new(Mailbox::new());
    let asleep = Arc::new(AtomicBool::new(false));
    let reader = thread::current();
    let pushers: Vec<_> = (0..PUSHERS)
        .map(|pusher| {
            let (mailbox, asleep, reader) = (mailbox.clone(), asleep.clone(), reader.clone());
            thread::spawn(move || {
                for sequence in 0..EACH {
                    push(&mailbox, (pusher, sequence), &asleep, &reader);
                }
            })
        })
        .collect();
    let mut messages = Vec::new();
    while messages.len() < PUSHERS * EACH {
        let before = messages.len();
        mailbox.drain(&mut messages);
        if messages.len() == before {
            sleep(&mailbox, &asleep); // never returns if a wake-up was lost: shuttle reports a deadlock
        }
    }
    for pusher in pushers {
        pusher.join().unwrap();
    }
    assert!(mailbox.is_empty());
    check(&messages, PUSHERS, EACH);
}

#[test]
fn waking_on_was_empty_loses_nothing() {
    explore(4_000, || {
        model(
            |mailbox, message, _, reader| {
                if mailbox.push(message) {
                    reader.unpark();
                }
            },
            |_, _| thread::park(),
        );
    });
}

#[test]
fn waking_only_a_sleeper_loses_nothing() {
    explore(4_000, || {
        model(
            |mailbox, message, asleep, reader| {
                mailbox.push(message);
                if asleep.load(Ordering::SeqCst) {
                    reader.unpark();
                }
            },
            |mailbox, asleep| {
                asleep.store(true, Ordering::SeqCst);
                if mailbox.is_empty() {
                    thread::park();
                }
                asleep.store(false, Ordering::SeqCst);
            },
        );
    });
}

#[test]
fn two_readers_share_without_loss() {
    explore(4_000, || {
        let mailbox = Arc::new(Mailbox::new());
        let threads: Vec<_> = (0..2)
            .map(|pusher| {
                let mailbox = mailbox.clone();
                thread::spawn(move || {
                    let mut got = Vec::new();
                    for sequence in 0..3 {
                        mailbox.push((pusher, sequence));
                        mailbox.drain(&mut got);
                    }
                    got
                })
            })
            .collect();
        let mut got: Vec<Message> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        mailbox.drain(&mut got);
        got.sort_unstable();
        check(&got, 2, 3);
    });
}
