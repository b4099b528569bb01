//! Replies about each value that a path leads to in a large document, in slices: as of the moment the command ran.
//!
//! Called by the reading commands whose answers are not texts (to begin), and by `Incremental`.

use darter_document::path::PathQuery;
use darter_document::{DocNode, JsonPath, NodePlace, NodeWalk, PathSearch};
use darter_store::{Arena, Collection, Json};
use darter_wire::{Args, Reply};

use super::long_get::{NODES_AT_ONCE, WRITTEN_AT_ONCE};
use super::read::is_long;
use crate::Ctx;
use crate::incremental::Operation;

/// Writes the reply about one value; with its name if it is a member of one that was written before.
pub(super) type ShowNode = fn(Option<&[u8]>, DocNode<'_>, &mut Reply<'_>);

/// The values that are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ShownNodes {
    /// Those that the path leads to.
    Own,
    /// All below them too.
    Below,
}

/// Leaves the replies about each value that `path` leads to in the document at `name` to slices, if they take long; returns
/// whether it did. They are an array, or one reply for a legacy path. `head` is the reply before it.
pub(super) fn leave_each(
    ctx: &mut Ctx<'_>,
    name: &[u8],
    path: &JsonPath,
    (head, shown, show): (&[u8], ShownNodes, ShowNode),
    reply: &Reply<'_>,
) -> bool {
    if !ctx.may_slice || (shown == ShownNodes::Own && (path.is_static() || path.is_legacy())) {
        return false;
    }
    let found = ctx.peek(name).and_then(|(shard, record)| shard.view_of::<Json>(record).ok());
    let Some(view) = found else { return false };
    let doc = view.root.doc(view.arena);
    let query = PathQuery::Path(path.clone());
    if !is_long(doc, view.root.memory_bytes(), std::iter::once(&query)) {
        return false;
    }
    let mut writer = Some(EachWriter {
        finding: (!path.is_legacy()).then(|| PathSearch::new(doc, path.clone())),
        found: if path.is_legacy() { path.first(doc).into_iter().collect() } else { Vec::new() },
        at: 0,
        walk: None,
        shown,
        show,
        resp3: reply.is_resp3(),
    });
    // Counted as read.
    let _ = ctx.read(name);
    ctx.read_later(
        &[name],
        &mut |_, shard, db, key| {
            let mut writer = writer.take()?;
            shard.begin_frozen(db, key, move |json: &Json, arena: &Arena, out: &mut Vec<u8>, bytes_max| {
                writer.step(json, arena, out, bytes_max)
            })
        },
        Box::new(ReplyBytes { bytes: head.to_vec(), sent: 0 }),
        reply,
    )
}

/// The values, and what is written of them.
struct EachWriter {
    finding: Option<PathSearch>,
    found: Vec<NodePlace>,
    at: usize,
    walk: Option<NodeWalk>,
    shown: ShownNodes,
    show: ShowNode,
    resp3: bool,
}

impl EachWriter {
    fn step(&mut self, json: &Json, arena: &Arena, out: &mut Vec<u8>, bytes_max: usize) -> bool {
        let doc = json.doc(arena);
        let mut reply = Reply::new(out, self.resp3);
        if let Some(finding) = &mut self.finding {
            if finding.step(doc, NODES_AT_ONCE) {
                self.found = self.finding.take().map_or(Vec::new(), PathSearch::into_found);
                reply.array(self.found.len());
            }
            return false;
        }
        for _ in 0..WRITTEN_AT_ONCE {
            if reply.len() >= bytes_max {
                break;
            }
            if let Some(walk) = &mut self.walk {
                match walk.next(doc) {
                    Some((name, node)) => {
                        (self.show)(name, node, &mut reply);
                        continue;
                    }
                    None => self.walk = None,
                }
            }
            let Some(&spot) = self.found.get(self.at) else { return true };
            self.at += 1;
            match self.shown {
                ShownNodes::Own => (self.show)(None, doc.node(spot), &mut reply),
                ShownNodes::Below => self.walk = Some(NodeWalk::new(spot)),
            }
        }
        false
    }
}

/// A reply that is gathered, then answered.
struct ReplyBytes {
    bytes: Vec<u8>,
    sent: usize,
}

impl Operation for ReplyBytes {
    fn take(&mut self, _nth: u32, told: &[u8], _args: Args<'_>) -> Vec<u8> {
        self.bytes.extend_from_slice(told);
        Vec::new()
    }

    fn answer(&mut self, reply: &mut Reply<'_>, bytes_max: usize) -> bool {
        let end = self.bytes.len().min(self.sent + bytes_max.saturating_sub(reply.len()).max(1));
        reply.raw(self.bytes.get(self.sent..end).unwrap_or_default());
        self.sent = end;
        end == self.bytes.len()
    }

    fn bytes(&self) -> usize {
        self.bytes.capacity()
    }
}
