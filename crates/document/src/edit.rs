//! Changes of one node, for [`crate::rewrite`]: each takes a buffer that ends with the node, which begins at `start`.

use crate::form::{self, Name, View};

/// Replaces the node by `node`.
pub fn replace(out: &mut Vec<u8>, start: usize, node: &[u8]) {
    out.truncate(start);
    out.extend_from_slice(node);
}

/// Adds a member to an object; returns false if the node is not an object. The name must be new.
pub fn add_member(out: &mut Vec<u8>, start: usize, name: Name<'_>, value: &[u8]) -> bool {
    let old = out.split_off(start);
    let View::Object(children) = form::view(&old) else {
        out.extend_from_slice(&old);
        return false;
    };
    out.extend_from_slice(children.bytes);
    form::write_name(out, name);
    out.extend_from_slice(value);
    form::close(out, start, form::OBJECT, children.count + 1);
    true
}

/// Appends to a text; returns its new length in bytes, `None` if the node is not a text.
pub fn append_text(out: &mut Vec<u8>, start: usize, more: &[u8]) -> Option<usize> {
    let old = out.split_off(start);
    let View::Text(text) = form::view(&old) else {
        out.extend_from_slice(&old);
        return None;
    };
    let text = [text, more].concat();
    form::write_text(out, &text);
    Some(text.len())
}

/// Inverts a boolean; returns its new value, `None` if the node is not a boolean.
pub fn toggle(out: &mut Vec<u8>, start: usize) -> Option<bool> {
    let View::Bool(old) = form::view(out.get(start..)?) else { return None };
    replace(out, start, &[if old { form::FALSE } else { form::TRUE }]);
    Some(!old)
}

/// Returns true if [`clear`] would change the node.
pub fn is_clearable(node: View<'_>) -> bool {
    match node {
        View::Array(children) | View::Object(children) => children.count > 0,
        View::Int(value) => value != 0,
        View::Uint(value) => value != 0,
        View::Float(value) => value != 0.0,
        View::Null | View::Bool(_) | View::Text(_) => false,
    }
}

/// Empties a container, or sets a number to 0; returns false for other nodes.
pub fn clear(out: &mut Vec<u8>, start: usize) -> bool {
    let node = form::view(out.get(start..).unwrap_or_default());
    let tag = match node {
        View::Array(_) => Some(form::ARRAY),
        View::Object(_) => Some(form::OBJECT),
        View::Int(_) | View::Uint(_) | View::Float(_) => None,
        View::Null | View::Bool(_) | View::Text(_) => return false,
    };
    out.truncate(start);
    match tag {
        Some(tag) => form::close(out, start, tag, 0),
        None => form::write_int(out, 0),
    }
    true
}

/// Puts nodes before item `index` of an array (negative from the end); returns the new length. `None`: not an array.
///
/// Errors: the index is out of bounds.
pub fn insert(
    out: &mut Vec<u8>,
    start: usize,
    index: i64,
    nodes: &[Vec<u8>],
) -> Option<Result<usize, OutOfBounds>> {
    let View::Array(children) = form::view(out.get(start..)?) else { return None };
    let len = children.count as i64;
    let place = if index < 0 { index.saturating_add(len) } else { index };
    if !(0..=len).contains(&place) {
        return Some(Err(OutOfBounds));
    }
    let old = out.split_off(start);
    let View::Array(children) = form::view(&old) else { return None };
    let before: usize = children.items().take(place as usize).map(<[u8]>::len).sum();
    let (front, back) = children.bytes.split_at_checked(before)?;
    out.extend_from_slice(front);
    nodes.iter().for_each(|node| out.extend_from_slice(node));
    out.extend_from_slice(back.get(..items_len(children).saturating_sub(before)).unwrap_or_default());
    form::close(out, start, form::ARRAY, children.count + nodes.len());
    Some(Ok(children.count + nodes.len()))
}

/// An index is outside an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfBounds;

fn items_len(children: form::Children<'_>) -> usize {
    children.bytes.len()
}

/// Appends nodes to an array; returns the new length, `None` if the node is not an array.
pub fn append(out: &mut Vec<u8>, start: usize, nodes: &[Vec<u8>]) -> Option<usize> {
    let View::Array(children) = form::view(out.get(start..)?) else { return None };
    insert(out, start, children.count as i64, nodes)?.ok()
}

/// Removes an item of an array (negative from the end; out of range means the nearest item); returns its node.
/// `None`: not an array; `Some(None)`: an empty one.
pub fn pop(out: &mut Vec<u8>, start: usize, index: i64) -> Option<Option<Vec<u8>>> {
    let View::Array(children) = form::view(out.get(start..)?) else { return None };
    let len = children.count as i64;
    if len == 0 {
        return Some(None);
    }
    let place = if index < 0 { index.saturating_add(len).max(0) } else { index.min(len - 1) };
    let old = out.split_off(start);
    let View::Array(children) = form::view(&old) else { return None };
    let mut taken = Vec::new();
    for (at, item) in children.items().enumerate() {
        if at as i64 == place {
            taken = item.to_vec();
        } else {
            out.extend_from_slice(item);
        }
    }
    form::close(out, start, form::ARRAY, children.count - 1);
    Some(Some(taken))
}

/// Keeps items `first..=last` of an array (negative from the end); returns the new length, `None` if the node is not
/// an array.
pub fn trim(out: &mut Vec<u8>, start: usize, first: i64, last: i64) -> Option<usize> {
    let View::Array(children) = form::view(out.get(start..)?) else { return None };
    let len = children.count as i64;
    let place = |index: i64| if index < 0 { index.saturating_add(len).max(0) } else { index };
    let (first, end) = (place(first).min(len), place(last).saturating_add(1).min(len));
    let old = out.split_off(start);
    let View::Array(children) = form::view(&old) else { return None };
    let mut count = 0;
    for item in children.items().take(end as usize).skip(first as usize) {
        out.extend_from_slice(item);
        count += 1;
    }
    form::close(out, start, form::ARRAY, count);
    Some(count)
}
