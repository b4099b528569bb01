//! Doubly linked lists over the numbers of objects: an object is in at most one list of a set.

const NONE: u32 = u32::MAX;

/// The links of all objects.
pub struct Links {
    next: Vec<u32>,
    prev: Vec<u32>,
}

/// One list: its newest and its oldest object, and how many there are.
#[derive(Clone, Copy)]
pub struct List {
    head: u32,
    tail: u32,
    /// Objects in it.
    pub len: usize,
    /// Their sizes added up.
    pub bytes: u64,
}

impl List {
    /// An empty list.
    pub const EMPTY: List = List { head: NONE, tail: NONE, len: 0, bytes: 0 };

    /// The oldest object.
    pub fn oldest(&self) -> Option<u32> {
        (self.tail != NONE).then_some(self.tail)
    }
}

impl Links {
    /// Links for `objects` objects.
    pub fn new(objects: usize) -> Links {
        Links { next: vec![NONE; objects], prev: vec![NONE; objects] }
    }

    /// Adds an object as the newest.
    pub fn push(&mut self, list: &mut List, id: u32, bytes: u32) {
        (self.next[id as usize], self.prev[id as usize]) = (list.head, NONE);
        if list.head != NONE {
            self.prev[list.head as usize] = id;
        } else {
            list.tail = id;
        }
        list.head = id;
        list.len += 1;
        list.bytes += u64::from(bytes);
    }

    /// Takes an object out.
    pub fn remove(&mut self, list: &mut List, id: u32, bytes: u32) {
        let (next, prev) = (self.next[id as usize], self.prev[id as usize]);
        if next != NONE {
            self.prev[next as usize] = prev;
        } else {
            list.tail = prev;
        }
        if prev != NONE {
            self.next[prev as usize] = next;
        } else {
            list.head = next;
        }
        list.len -= 1;
        list.bytes -= u64::from(bytes);
    }

    /// The object that came after `id`.
    pub fn newer(&self, id: u32) -> Option<u32> {
        let prev = self.prev[id as usize];
        (prev != NONE).then_some(prev)
    }
}
