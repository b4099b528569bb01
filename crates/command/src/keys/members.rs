//! The members of a collection as words of the command that adds them.
//!
//! Called by the server, which sends large collections to another one in pieces.

use std::sync::Arc;

use darter_base::number;
use darter_pack::tree::window::{SeenLeaf, Tell};
use darter_store::Object;
use darter_wire::Reply;

use crate::item::reply_item;
use crate::slices::tell_items;

/// The command that adds members to such a collection; `None` of a stream and a module's value.
pub fn adding(object: &Object) -> Option<&'static [u8]> {
    match object {
        Object::Set(_) => Some(b"SADD"),
        Object::Hash(_) => Some(b"HSET"),
        Object::List(_) => Some(b"RPUSH"),
        Object::Zset(_) => Some(b"ZADD"),
        Object::Stream(_) | Object::Module(_) => None,
    }
}

/// Writes members as bulks, in the order of the words of that command.
pub fn tell_words() -> Tell {
    let tell = tell_items(false);
    Arc::new(move |seen, out| {
        let SeenLeaf::Scored(member, score) = seen else { return tell(seen, out) };
        let mut reply = Reply::new(out, false);
        reply.double(score);
        reply_item(&mut reply, member);
    })
}

/// The words of bulks that follow each other.
pub fn words_of(mut bulks: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let line = bulks.iter().position(|byte| *byte == b'\r')?;
        let len = usize::try_from(number::parse_i64(bulks.get(1..line)?)?).ok()?;
        let word = bulks.get(line + 2..line + 2 + len)?;
        bulks = bulks.get(line + 2 + len + 2..)?;
        Some(word)
    })
}

#[cfg(test)]
mod tests {
    use darter_pack::entry::Item;

    use super::*;

    #[test]
    fn members_are_the_words_of_commands_that_add_them() {
        let (tell, mut piece) = (tell_words(), Vec::new());
        tell(SeenLeaf::Scored(Item::Bytes(b"a\r\nb"), 0.1), &mut piece);
        tell(SeenLeaf::Scored(Item::Int(-7), f64::NEG_INFINITY), &mut piece);
        tell(SeenLeaf::Field(Item::Bytes(b""), Item::Bytes(b"$1")), &mut piece);
        let words: Vec<&[u8]> = words_of(&piece).collect();
        assert_eq!(words, [b"0.1".as_slice(), b"a\r\nb", b"-inf", b"-7", b"", b"$1"]);
        assert_eq!(words_of(b"").count(), 0);
    }
}
