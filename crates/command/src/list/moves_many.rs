//! LMOVEM source destination LEFT | RIGHT LEFT | RIGHT [COUNT | EXACTLY count OBO | BULK], BLMOVEM, which waits

use crate::keyspec;
use darter_pack::entry::Item;
use darter_pack::tree::List;
use darter_pack::tree::list::ListEnd;
use darter_store::{Arena, Event, Keyed};
use darter_wire::{Args, Reply};

use super::moves::WRONG_DESTINATION;
use super::{end, pop_event, push_event};
use crate::ctx::BlockingWait;
use crate::reader::{ArgReader, timeout_ms};
use crate::spec::{Flags, Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// LMOVEM.
pub const LMOVEM: DataCommand = DataCommand {
    spec: Spec::write("lmovem", -5, Keys::TWO)
        .key_groups(&[keyspec::one(1, keyspec::TAKEN), keyspec::one(2, "RW insert")])
        .doc(
            Group::List,
            "8.10.0",
            "source destination <LEFT | RIGHT> <LEFT | RIGHT> [<COUNT | EXACTLY> count <OBO | BULK>]",
            "Moves several elements from one list to another, and returns them. An empty source is removed.",
        )
        .cost("O(N) over the elements moved"),
    run: |ctx, args, reply| {
        let moving = Moving::parse(args, 5)?;
        if !moving.run(ctx, args.at(1), args.at(2), reply)? {
            reply.null_array();
        }
        Ok(())
    },
};
/// BLMOVEM.
pub const BLMOVEM: DataCommand = DataCommand {
    spec: Spec::write("blmovem", -6, Keys::TWO)
        .key_groups(&[keyspec::one(1, keyspec::TAKEN), keyspec::one(2, "RW insert")])
        .flag(Flags::BLOCKING)
        .doc(
            Group::List,
            "8.10.0",
            "source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout [<COUNT | EXACTLY> count <OBO | BULK>]",
            "Moves several elements from one list to another once there are enough, waiting until then.",
        )
        .cost("O(N) over the elements moved"),
    run: |ctx, args, reply| {
        let moving = Moving::parse(args, 6)?;
        let timeout_ms = timeout_ms(args.at(5))?;
        if !moving.run(ctx, args.at(1), args.at(2), reply)? {
            ctx.wait_or_reply(BlockingWait::for_a_key(timeout_ms, 2), reply);
        }
        Ok(())
    },
};

/// The parameters of a move, and the final order.
struct Moving {
    from: ListEnd,
    to: ListEnd,
    count: u64,
    // fewer are not moved
    is_exact: bool,
    // OBO: each is pushed before the next is popped, so that the last one is outermost
    is_one_by_one: bool,
}

impl Moving {
    fn parse(args: Args<'_>, options_at: usize) -> Result<Moving, Fault> {
        let (from, to) = (end(args.at(3))?, end(args.at(4))?);
        let mut moving = Moving { from, to, count: 1, is_exact: false, is_one_by_one: false };
        let mut read = ArgReader::new(args, options_at);
        if read.is_done() {
            return Ok(moving);
        }
        moving.is_exact = read.take_with("exactly", 2);
        if !moving.is_exact && !read.take_with("count", 2) {
            return Err(Fault::Syntax);
        }
        let refused = Fault::text("ERR value is out of range, must be positive");
        moving.count = read.int_from(0, refused)?.unsigned_abs();
        moving.is_one_by_one = read.take("obo");
        if !moving.is_one_by_one && !read.take("bulk") {
            return Err(Fault::Syntax);
        }
        read.end()?;
        Ok(moving)
    }

    /// Moves and answers the elements in the order of the destination; returns false, with nothing done, if there are
    /// too few.
    fn run(
        &self,
        ctx: &mut Ctx<'_>,
        source: &[u8],
        dest: &[u8],
        reply: &mut Reply<'_>,
    ) -> Result<bool, Fault> {
        let mut place = ctx.at(source);
        let Some(list) = place.view::<List>()? else { return Ok(false) };
        let (len, count) = (list.root.len(), self.count.min(list.root.len()));
        if self.is_exact && self.count > len {
            return Ok(false);
        }
        // The elements in the order in which they are pushed.
        let first = if self.from == ListEnd::Front { 0 } else { len.saturating_sub(1) };
        let towards = if self.from == ListEnd::Front { ListEnd::Back } else { ListEnd::Front };
        let popped = list.root.iter(list.arena, first, towards);
        let mut elements: Vec<Vec<u8>> = popped.take(count as usize).map(Item::to_vec).collect();
        if !self.is_one_by_one && self.from == self.to {
            elements.reverse();
        }
        if source == dest {
            self.turn(&mut place, &elements)?;
        } else if count > 0 {
            self.carry(ctx, source, dest, &elements)?;
        }
        reply.array(elements.len());
        if self.to == ListEnd::Front {
            elements.reverse();
        }
        elements.iter().for_each(|element| reply.bulk(element));
        Ok(true)
    }

    fn carry(
        &self,
        ctx: &mut Ctx<'_>,
        source: &[u8],
        dest: &[u8],
        elements: &[Vec<u8>],
    ) -> Result<(), Fault> {
        // Not `Fault::WrongType`: see `moves::transfer`.
        let mut place = ctx.at(dest);
        place.view::<List>().map_err(|_| Fault::text(WRONG_DESTINATION))?;
        let pushed = place.edit_or_create(List::new, |list, arena, _| {
            for (done, element) in elements.iter().enumerate() {
                if let Err(full) = list.push(arena, self.to, Item::of(element)) {
                    pop_all(list, arena, self.to, done);
                    return Err(full);
                }
            }
            Ok(())
        })?;
        pushed.result?;
        place.changed(push_event(self.to));
        let mut place = ctx.at(source);
        let popped = place.edit::<List, _>(|list, arena, _| {
            pop_all(list, arena, self.from, elements.len());
        })?;
        place.told(pop_event(self.from));
        if popped.is_some_and(|popped| popped.is_gone) {
            place.changed(Event::DEL);
        }
        Ok(())
    }

    /// Moves within one list, which keeps its deadline even if all of it is moved.
    fn turn(&self, place: &mut Keyed<'_>, elements: &[Vec<u8>]) -> Result<(), Fault> {
        if elements.is_empty() {
            return Ok(());
        }
        let edited = place.edit::<List, _>(|list, arena, _| {
            pop_all(list, arena, self.from, elements.len());
            elements.iter().try_for_each(|element| list.push(arena, self.to, Item::of(element)))
        })?;
        if let Some(edited) = edited {
            edited.result?;
        }
        place.changed(push_event(self.to));
        place.told(pop_event(self.from));
        Ok(())
    }
}

fn pop_all(list: &mut List, arena: &mut Arena, end: ListEnd, count: usize) {
    for _ in 0..count {
        list.pop(arena, end, |_| {});
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Bed;

    fn texts(bed: &mut Bed, line: &str) -> String {
        let reply = bed.run(line);
        reply.split('|').filter(|part| !part.starts_with(['$', '*'])).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn elements_lie_as_they_were_or_as_they_came() {
        for (ends, how, moved, dest) in [
            ("LEFT LEFT", "OBO", "2 1", "2 1 5 6"),
            ("LEFT LEFT", "BULK", "1 2", "1 2 5 6"),
            ("LEFT RIGHT", "OBO", "1 2", "5 6 1 2"),
            ("LEFT RIGHT", "BULK", "1 2", "5 6 1 2"),
            ("RIGHT RIGHT", "OBO", "4 3", "5 6 4 3"),
            ("RIGHT RIGHT", "BULK", "3 4", "5 6 3 4"),
            ("RIGHT LEFT", "OBO", "3 4", "3 4 5 6"),
            ("RIGHT LEFT", "BULK", "3 4", "3 4 5 6"),
        ] {
            let mut bed = Bed::new();
            bed.run("RPUSH a 1 2 3 4");
            bed.run("RPUSH b 5 6");
            assert_eq!(texts(&mut bed, &format!("LMOVEM a b {ends} COUNT 2 {how}")), moved, "{ends} {how}");
            assert_eq!(texts(&mut bed, "LRANGE b 0 -1"), dest, "{ends} {how}");
            assert_eq!(bed.run("LLEN a"), ":2");
        }
    }

    #[test]
    fn too_few_are_moved_or_not() {
        let mut bed = Bed::new();
        bed.run("RPUSH a 1 2 3");
        bed.events();
        assert_eq!(bed.run("LMOVEM a b LEFT RIGHT EXACTLY 4 BULK"), "*-1");
        assert_eq!(bed.run("LMOVEM none b LEFT RIGHT COUNT 4 OBO"), "*-1");
        assert_eq!(bed.run("LMOVEM a b LEFT RIGHT COUNT 0 OBO"), "*0");
        assert_eq!(bed.events(), Vec::<String>::new());
        assert_eq!(bed.run("LMOVEM a b LEFT RIGHT"), "*1|$1|1");
        assert_eq!(bed.run("LMOVEM a b LEFT RIGHT COUNT 9 OBO"), "*2|$1|2|$1|3");
        assert_eq!(bed.run("EXISTS a"), ":0");
        assert_eq!(texts(&mut bed, "LRANGE b 0 -1"), "1 2 3");
        assert_eq!(texts(&mut bed, "LMOVEM b b LEFT RIGHT EXACTLY 2 OBO"), "1 2");
        assert_eq!(texts(&mut bed, "LMOVEM b b LEFT LEFT COUNT 3 BULK"), "3 1 2");
        assert_eq!(texts(&mut bed, "LRANGE b 0 -1"), "3 1 2");
        assert_eq!(bed.run("BLMOVEM b c RIGHT LEFT 0 COUNT 2 OBO"), "*2|$1|1|$1|2");
        bed.run("SET text x");
        assert!(bed.run("LMOVEM c text LEFT LEFT").starts_with("-WRONGTYPE"));
        assert_eq!(bed.run("LLEN c"), ":2");
        for line in ["COUNT 1", "EXACTLY 1 BULK x", "OBO", "COUNT 1 FAST"] {
            assert_eq!(bed.run(&format!("LMOVEM b c LEFT LEFT {line}")), "-ERR syntax error", "{line}");
        }
        assert!(bed.run("LMOVEM b c LEFT LEFT COUNT -1 OBO").contains("must be positive"));
    }
}
