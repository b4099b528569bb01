//! Models of the real code, run under the shuttle scheduler, which may switch threads at every atomic operation.
//! Shuttle treats all orderings as SeqCst. The thread sanitizer checks that the weaker ones suffice
//! (`tests/stress.rs` says how to run it).

mod cell;
mod drive;
mod mailbox;
mod reads;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

use crate::cell::Cell;

/// Runs `model` under schedules drawn at random, and under ones with few but adversarial preemptions. The environment
/// variable `DARTER_MODEL_TIMES` multiplies their number.
fn explore(schedules: usize, model: impl Fn() + Send + Sync + Clone + 'static) {
    let times = std::env::var("DARTER_MODEL_TIMES").map_or(1, |times| times.parse().expect("a number"));
    let schedules: usize = schedules * times;
    Runner::new(RandomScheduler::new(schedules), quiet()).run(model.clone());
    for preemptions in 2..=4 {
        Runner::new(PctScheduler::new(preemptions, schedules / 4), quiet()).run(model.clone());
    }
}

fn quiet() -> Config {
    let mut config = Config::new();
    config.silence_warnings = true;
    config
}

/// Runs `body` with `len` cells that count as immortal, then checks that each was released, and frees them. `body`
/// must join its threads.
fn with_cells<T: 'static, W: 'static, R>(
    len: u16,
    data: fn() -> T,
    body: impl FnOnce(&'static [Cell<T, W>]) -> R,
) -> (R, Vec<T>) {
    let cells: Box<[_]> = (0..len).map(|id| Cell::new(id, data())).collect();
    let raw = Box::into_raw(cells);
    // SAFETY: just leaked; freed below, after `body` joined whoever else saw it and each cell was found free.
    let result = body(unsafe { &*raw });
    let mut data_of = Vec::new();
    // SAFETY: as above.
    for cell in unsafe { &*raw } {
        assert!(
            cell.try_take().is_some_and(|held| held.release().is_none()),
            "shard {} is not free",
            cell.id()
        );
    }
    // SAFETY: `raw` came from a box, no `Held` and no other thread is left.
    for cell in unsafe { Box::from_raw(raw) } {
        data_of.push(cell.into_data());
    }
    (result, data_of)
}
