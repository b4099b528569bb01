use super::*;

#[test]
fn blocks_keep_their_bytes() {
    let mut arena = Arena::with_reserve(64 << 20).unwrap();
    let handles: Vec<Handle> = (1..2000).map(|n| arena.alloc(n).unwrap()).collect();
    for (n, &h) in (1..2000).zip(&handles) {
        arena.block_mut(h).fill(n as u8);
    }
    for (n, &h) in (1..2000).zip(&handles) {
        assert!(arena.size(h) >= n && arena.size(h) == Arena::fits(n));
        assert!(arena.block(h).iter().all(|&b| b == n as u8));
    }
    for &h in &handles {
        arena.free(h);
    }
    assert_eq!((arena.used_bytes(), arena.committed_bytes()), (0, 0));
}
