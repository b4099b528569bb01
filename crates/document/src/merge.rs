//! RFC 7396: a patch is put over a value.

use crate::doc::{Names, Node};
use crate::form::{self, View};

/// Appends the result of applying `patch` to `target`. Both belong to documents with the same names, as does the
/// result.
pub fn merge(target: Option<Node<'_>>, patch: Node<'_>, out: &mut Vec<u8>) {
    let View::Object(changes) = patch.view() else {
        out.extend_from_slice(patch.bytes());
        return;
    };
    let (start, mut count) = (out.len(), 0);
    let members = target.map(|target| target.view());
    if let Some(View::Object(members)) = members {
        for (name, value) in members.members() {
            let change = changes.members().find(|(other, _)| *other == name).map(|(_, change)| change);
            if change.is_some_and(is_null) {
                continue;
            }
            form::write_name(out, name);
            match change {
                Some(change) => merge(Some(node(target, value)), node(Some(patch), change), out),
                None => out.extend_from_slice(value),
            }
            count += 1;
        }
    }
    for (name, change) in changes.members() {
        let is_known = match members {
            Some(View::Object(members)) => members.members().any(|(other, _)| other == name),
            _ => false,
        };
        if is_known || is_null(change) {
            continue;
        }
        form::write_name(out, name);
        merge(None, node(Some(patch), change), out);
        count += 1;
    }
    form::close(out, start, form::OBJECT, count);
}

fn node<'a>(of: Option<Node<'a>>, bytes: &'a [u8]) -> Node<'a> {
    Node::new(of.map_or(Names::default(), |of| of.names), bytes)
}

fn is_null(bytes: &[u8]) -> bool {
    matches!(form::view(bytes), View::Null)
}
