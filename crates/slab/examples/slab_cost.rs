//! Measures the arena: bytes per block, and instructions per operation.
//!
//! `slab_cost` prints used and committed bytes when filled, churned, half freed, compacted. `alloc`, `free` (after as
//! many allocs), `churn` run a million of one operation (less the loop: `nothing`) for `valgrind --tool=callgrind
//! --toggle-collect='slab_cost::measured_*' --callgrind-out-file=/dev/null`.

use darter_slab::{Arena, Handle};

const OPS: usize = 1_000_000;

fn bytes(n: usize) -> usize {
    16 + (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 112
}

#[inline(never)]
fn measured_alloc(arena: &mut Arena, handles: &mut [Handle]) {
    for (n, h) in handles.iter_mut().enumerate() {
        *h = arena.alloc(bytes(n)).unwrap_or_default();
    }
}

#[inline(never)]
fn measured_free(arena: &mut Arena, handles: &[Handle]) {
    for &h in handles {
        arena.free(h);
    }
}

/// A free and an alloc of another size, in no order.
#[inline(never)]
fn measured_churn(arena: &mut Arena, handles: &mut [Handle]) {
    let mut at = 1;
    for n in 0..OPS {
        at = at * 69_069 % 999_983;
        arena.free(handles[at]);
        handles[at] = arena.alloc(bytes(n + 7)).unwrap_or_default();
    }
}

#[inline(never)]
fn measured_nothing(handles: &mut [Handle]) {
    for (n, h) in handles.iter_mut().enumerate() {
        *h = Handle::from_raw(bytes(n) as u32);
    }
}

fn main() -> std::io::Result<()> {
    let mut arena = Arena::new()?;
    let mut handles = vec![Handle::NONE; OPS];
    let print = |arena: &Arena, what: &str| {
        let (used, committed, empty) = (arena.used_bytes(), arena.committed_bytes(), arena.empty_bytes());
        println!(
            "{what}: used {used} committed {committed} ({:.3}) empty {empty}",
            committed as f64 / used as f64
        );
    };
    match std::env::args().nth(1).unwrap_or_default().as_str() {
        "alloc" => measured_alloc(&mut arena, &mut handles),
        "nothing" => measured_nothing(&mut handles),
        "free" => {
            measured_alloc(&mut arena, &mut handles);
            measured_free(&mut arena, &handles);
        }
        "churn" => {
            measured_alloc(&mut arena, &mut handles);
            measured_churn(&mut arena, &mut handles);
        }
        _ => {
            measured_alloc(&mut arena, &mut handles);
            print(&arena, "filled");
            measured_churn(&mut arena, &mut handles);
            print(&arena, "churned");
            handles.iter().step_by(2).for_each(|&h| arena.free(h));
            print(&arena, "half freed");
            arena.start_compaction();
            let start = std::time::Instant::now();
            for h in handles.iter_mut().skip(1).step_by(2) {
                *h = arena.compact(*h).unwrap_or(*h);
            }
            println!("compacting took {:?}", start.elapsed());
            arena.end_compaction();
            print(&arena, "compacted");
            arena.release_empty(usize::MAX);
            print(&arena, "released");
        }
    }
    Ok(())
}
