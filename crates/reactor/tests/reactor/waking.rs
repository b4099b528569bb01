//! Sleeping and waking: no wake is lost, and an idle reactor costs nothing.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use darter_reactor::{Config, Reactor, process};

use crate::rig::{Rig, on_both_drivers};

on_both_drivers! {
    /// Four threads post one piece of work at a time and wait for it to be done. A lost wake would stall its poster
    /// until the sleep's own end, which the test takes for a failure.
    fn no_wake_is_lost(choice) {
        for spin_us in [0, 20] {
            let config = Config { spin_us, ..Config::default() };
            let mut reactor = Reactor::new(choice, &config).unwrap();
            let (posted, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let posters: Vec<_> = (0..POSTERS)
                .map(|_| {
                    let (posted, done, waker) = (posted.clone(), done.clone(), reactor.waker());
                    thread::spawn(move || {
                        for round in 0..POSTS {
                            let mine = posted.fetch_add(1, Ordering::Release) + 1;
                            waker.wake();
                            while done.load(Ordering::Acquire) < mine {
                                if round % 3 == 0 { thread::yield_now() } else { std::hint::spin_loop() }
                            }
                        }
                    })
                })
                .collect();
            let mut seen = 0;
            while seen < POSTERS * POSTS {
                let start = Instant::now();
                let idle = || posted.load(Ordering::Acquire) == seen;
                reactor.turn(Some(STALL), idle, |_| {}).unwrap();
                assert!(start.elapsed() < STALL, "a wake was lost after {seen}");
                seen = posted.load(Ordering::Acquire);
                done.store(seen, Ordering::Release);
            }
            for poster in posters {
                poster.join().unwrap();
            }
        }
    }

    fn an_idle_reactor_sleeps(choice) {
        let mut rig = Rig::new(choice);
        let _connections: Vec<_> = (0..10).map(|_| rig.connect()).collect();
        rig.rest(Duration::from_millis(20));
        let before = process::thread_cpu_times();
        rig.turns = 0;
        rig.rest(Duration::from_millis(500));
        let after = process::thread_cpu_times();
        let spent = (after.user + after.system).saturating_sub(before.user + before.system);
        assert!(spent < Duration::from_millis(10), "{spent:?}");
        assert!(rig.turns <= 5, "{} turns", rig.turns);
    }

    fn a_sleep_ends_at_its_timeout(choice) {
        let mut rig = Rig::new(choice);
        rig.turn(Duration::ZERO);
        let start = Instant::now();
        assert_eq!(rig.turn(Duration::from_millis(40)), 0);
        let slept = start.elapsed();
        // The kernel counts the timeout in whole milliseconds; a busy machine wakes the thread later.
        assert!(slept >= Duration::from_millis(38) && slept < STALL, "{slept:?}");
        let start = Instant::now();
        rig.reactor.turn(None, || false, |_| {}).unwrap();
        assert!(start.elapsed() < STALL);
    }

    fn a_caller_that_never_sleeps_is_served(choice) {
        let mut rig = Rig::new(choice);
        let (mut client, token) = rig.connect();
        rig.turn(Duration::ZERO);
        client.write_all(b"busy").unwrap();
        let start = Instant::now();
        while rig.bytes(token) != b"busy" {
            assert!(start.elapsed() < STALL);
            rig.turn(Duration::ZERO);
        }
    }

    fn an_interrupt_is_kept_for_the_next_sleep(choice) {
        let mut reactor = Reactor::new(choice, &Config::default()).unwrap();
        for _ in 0..3 {
            reactor.waker().interrupt();
            let start = Instant::now();
            reactor.turn(Some(STALL), || true, |_| {}).unwrap();
            assert!(start.elapsed() < STALL);
        }
    }
}

const POSTERS: usize = 4;
const POSTS: usize = 4_000;
const STALL: Duration = Duration::from_secs(60);
