//! RFC 7396: a patch is put over a value.

use std::collections::HashMap;

use crate::doc::{DocNode, Names};
use crate::edit::EditedNode;
use crate::form::{self, Container, FormView, InPieces, MemberName};
use crate::stage::{Editor, Old, Splice};

/// Appends the result of applying `patch` to `target`. Both belong to documents with the same names, as does the
/// result. The pieces of `target` go over to the result.
pub(crate) fn merge<'a>(
    editor: &mut Editor<'a>,
    names: Names<'a>,
    target: Option<&[u8]>,
    patch: DocNode<'_>,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    let FormView::Object(_) = patch.view() else {
        target.into_iter().for_each(|target| editor.discard(target));
        out.extend_from_slice(patch.bytes());
        return editor.settle(out, start);
    };
    match target.and_then(form::branch).filter(|branch| branch.kind == Container::Object) {
        Some(branch) => merge_branch(editor, names, branch, patch, out),
        None => merge_inline(editor, names, target, patch, out),
    }
    editor.settle(out, start);
}

/// The members of a patch: the value of each name, as it is written.
type Changes<'p> = HashMap<Vec<u8>, &'p [u8]>;

fn changes_of(patch: DocNode<'_>) -> Changes<'_> {
    patch.children().map(|child| (written(child.name), child.bytes)).collect()
}

fn written(name: Option<MemberName<'_>>) -> Vec<u8> {
    let mut out = Vec::new();
    form::write_name(&mut out, name.unwrap_or(MemberName::Own(&[])));
    out
}

fn merge_inline<'a>(
    editor: &mut Editor<'a>,
    names: Names<'a>,
    target: Option<&[u8]>,
    patch: DocNode<'_>,
    out: &mut Vec<u8>,
) {
    let (start, mut count) = (out.len(), 0);
    let object = target.filter(|target| form::is_object(target));
    if let Some(other) = target.filter(|_| object.is_none()) {
        editor.discard(other);
    }
    let mut changes = changes_of(patch);
    for child in object.into_iter().flat_map(|object| DocNode::new(names, object).children()) {
        let value = child.bytes.get(..form::node_len(child.bytes)).unwrap_or_default();
        let name = written(child.name);
        let change = changes.remove(&name);
        if change.is_some_and(is_null) {
            editor.discard(value);
            continue;
        }
        out.extend_from_slice(&name);
        match change {
            Some(change) => merge(editor, names, Some(value), DocNode::new(names, change), out),
            None => out.extend_from_slice(value),
        }
        count += 1;
    }
    count += append_new(editor, names, patch, &changes, out);
    form::close(out, start, form::OBJECT, count);
}

/// Appends the members of `patch` that are left in `changes`; returns their number.
fn append_new<'a>(
    editor: &mut Editor<'a>,
    names: Names<'a>,
    patch: DocNode<'_>,
    changes: &Changes<'_>,
    out: &mut Vec<u8>,
) -> usize {
    let mut count = 0;
    for child in patch.children() {
        let name = written(child.name);
        if changes.contains_key(&name) && !is_null(child.bytes) {
            out.extend_from_slice(&name);
            merge(editor, names, None, DocNode::new(names, child.bytes), out);
            count += 1;
        }
    }
    count
}

/// A member that a patch changes: its number and its value, and the patch of that value.
type Changed<'p> = (usize, Vec<u8>, &'p [u8]);

/// The members of the object that `changes` names, with their names.
fn changed_members<'p>(
    editor: &Editor<'_>,
    target: &[u8],
    changes: &Changes<'p>,
) -> Vec<(Vec<u8>, Changed<'p>)> {
    let mut changed = Vec::new();
    for (number, child) in editor.children(target, 0).enumerate() {
        let name = written(child.name);
        let Some(&change) = changes.get(&name) else { continue };
        let value = child.bytes.get(..form::node_len(child.bytes)).unwrap_or_default();
        changed.push((name, (number, value.to_vec(), change)));
        if changed.len() == changes.len() {
            break;
        }
    }
    changed
}

fn merge_branch<'a>(
    editor: &mut Editor<'a>,
    names: Names<'a>,
    branch: InPieces,
    patch: DocNode<'_>,
    out: &mut Vec<u8>,
) {
    let mut target = Vec::with_capacity(form::BRANCH_BYTES);
    form::write_branch(&mut target, branch);
    let mut new = changes_of(patch);
    let changed = changed_members(editor, &target, &new);
    for (name, _) in &changed {
        new.remove(name);
    }
    let mut run = Vec::new();
    let count = append_new(editor, names, patch, &new, &mut run);
    let mut splice = |editor: &mut Editor<'a>, splice: Splice<'_>| {
        EditedNode { out: &mut target, start: 0, names, editor, level: 0 }.splice(splice);
    };
    splice(editor, Splice { at: branch.count, removed: 0, old: Old::Dropped, run: &run, count });
    // The last first, so that the numbers of the others stay.
    for (mut run, (at, value, change)) in changed.into_iter().rev() {
        if is_null(change) {
            splice(editor, Splice { at, removed: 1, old: Old::Dropped, run: &[], count: 0 });
        } else {
            merge(editor, names, Some(&value), DocNode::new(names, change), &mut run);
            splice(editor, Splice { at, removed: 1, old: Old::Reused, run: &run, count: 1 });
        }
    }
    out.extend_from_slice(&target);
}

fn is_null(bytes: &[u8]) -> bool {
    matches!(form::view(bytes), FormView::Null)
}
