//! Places of an element in a long list, searched in slices: LPOS, and LREM and LINSERT before they change anything.
//!
//! Called by these commands, and by `Incremental` with the items read.

use std::sync::Arc;

use darter_pack::entry::Item;
use darter_pack::tree::Direction;
use darter_pack::tree::list::ListEnd;
use darter_pack::tree::window::{SeenLeaf, Tell};
use darter_store::reads::Stretch;
use darter_wire::{Args, Reply};

use crate::Ctx;
use crate::incremental::StagedForm;
use crate::incremental::operation::{FoundValue, Operation};

/// The element searched in a list, and the part of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Search {
    /// Matches to pass over first.
    pub skip: u64,
    /// The direction: `Back` is towards the back, from the front.
    pub towards: ListEnd,
    /// Matches wanted.
    pub wanted: u64,
    /// Items to look at.
    pub looks: u64,
}

impl Search {
    /// The first match from the front.
    pub const FIRST: Search = Search { skip: 0, towards: ListEnd::Back, wanted: 1, looks: u64::MAX };

    /// Leaves the search for `element` in the list at `name`, which has `len` items, to slices; false if it must be
    /// done at once. `answer` writes the reply; without it the body runs again and finds the places in its context.
    pub fn leave(
        self,
        ctx: &mut Ctx<'_>,
        name: &[u8],
        len: u64,
        element: &[u8],
        answer: Option<FoundAnswer>,
    ) -> bool {
        let looks = self.looks.min(len);
        if !ctx.may_slice || looks <= LOOKS_MAX {
            return false;
        }
        let (first, direction) = match self.towards {
            ListEnd::Back => (0, Direction::Up),
            ListEnd::Front => (len - looks, Direction::Down),
        };
        let next = if direction == Direction::Up { 0 } else { len - 1 };
        let Search { skip, wanted, .. } = self;
        let finding = Finding {
            element: Box::from(element),
            next,
            direction,
            skip,
            wanted,
            places: Vec::new(),
            answer,
        };
        let operation = Box::new(finding);
        let source = [(name, Stretch::Ranks(first, looks, direction))];
        match answer {
            Some(FoundAnswer { resp3, .. }) => ctx.answer_later(&source, operation, resp3),
            None => ctx.store_later((name, StagedForm::List), &[name], &source, operation),
        }
    }
}

/// Items that are examined at once: some 20 microseconds.
pub(super) const LOOKS_MAX: u64 = 4096;

/// The form of the answer of LPOS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FoundAnswer {
    /// True if it is an array.
    pub is_array: bool,
    pub resp3: bool,
}

impl FoundAnswer {
    /// The answer to these places.
    pub fn write(self, places: &[u64], reply: &mut Reply<'_>) {
        match (self.is_array, places.first()) {
            (true, _) => {
                reply.array(places.len());
                places.iter().for_each(|&place| reply.int(place as i64));
            }
            (false, Some(&place)) => reply.int(place as i64),
            (false, None) => reply.null(),
        }
    }
}

/// A search under way.
struct Finding {
    element: Box<[u8]>,
    // The rank of the next item.
    next: u64,
    direction: Direction,
    skip: u64,
    wanted: u64,
    places: Vec<u64>,
    answer: Option<FoundAnswer>,
}

impl Operation for Finding {
    /// A byte for each item.
    fn tell(&self) -> Tell {
        let element = self.element.clone();
        let int = Item::of(&element).int();
        Arc::new(move |seen, out| {
            let SeenLeaf::Item(item) = seen else { return };
            let is_it = match int {
                Some(value) => item == Item::Int(value),
                None => item == Item::Bytes(&element),
            };
            out.push(u8::from(is_it));
        })
    }

    fn told_max(&self) -> usize {
        1024
    }

    fn take(&mut self, _nth: u32, told: &[u8], _args: Args<'_>) -> Vec<u8> {
        for &is_it in told {
            let place = self.next;
            self.next = match self.direction {
                Direction::Up => place + 1,
                Direction::Down => place.saturating_sub(1),
            };
            if is_it == 0 || self.is_decided() {
                continue;
            }
            if self.skip > 0 {
                self.skip -= 1;
            } else {
                self.places.push(place);
            }
        }
        Vec::new()
    }

    fn is_decided(&self) -> bool {
        self.places.len() as u64 >= self.wanted
    }

    fn bytes(&self) -> usize {
        8 * self.places.capacity()
    }

    fn answer(&mut self, reply: &mut Reply<'_>, _bytes_max: usize) -> bool {
        if let Some(answer) = self.answer {
            answer.write(&self.places, reply);
        }
        true
    }

    fn found(&mut self) -> FoundValue {
        FoundValue { numbers: std::mem::take(&mut self.places), ..FoundValue::default() }
    }
}
