use super::*;

fn outcome(name: &str, trace: &Trace, objects: u64) -> f64 {
    let chosen = [name.to_owned()];
    let found = compare(trace, objects, &chosen).into_iter().flatten().next();
    found.expect("one of that name").object_misses
}

#[test]
fn nothing_beats_the_optimum_and_everything_holds_what_fits() {
    let trace = Trace::make(&GRID[1], 60_000, 4000, 3);
    let best = outcome("Belady", &trace, 500);
    for (name, _) in POLICIES.iter().filter(|(name, _)| *name != BEST_GUESS) {
        assert!(outcome(name, &trace, 500) >= best, "{name}");
    }
    // All objects fit: only the first request of each misses.
    let first = outcome("Belady", &trace, 4000);
    for (name, _) in POLICIES.iter().filter(|(name, _)| *name != BEST_GUESS) {
        assert!((outcome(name, &trace, 4000) - first).abs() < 0.02, "{name}");
    }
}

#[test]
fn darters_table_is_never_worse_than_lru_and_near_s3_fifo() {
    for shape in GRID {
        let trace = Trace::make(shape, 400_000, 50_000, 5);
        let (ours, lru, exact) =
            (outcome("Darter", &trace, 5000), outcome("LRU", &trace, 5000), outcome("S3-FIFO", &trace, 5000));
        assert!(ours <= lru, "{}: {ours:.4}, LRU {lru:.4}", shape.name);
        assert!(ours <= exact * 1.03, "{}: {ours:.4}, S3-FIFO {exact:.4}", shape.name);
    }
}

#[test]
fn redis_sampling_is_a_little_worse_than_lru() {
    let trace = Trace::make(&GRID[2], 400_000, 50_000, 5);
    let (sampled, lru) = (outcome("Redis LRU", &trace, 5000), outcome("LRU", &trace, 5000));
    assert!((-0.001..0.02).contains(&(sampled - lru)), "{sampled:.4} {lru:.4}");
}
