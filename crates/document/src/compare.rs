//! Equality of two nodes, of one document or of two.

use crate::doc::Node;
use crate::form::View;

/// Returns true if two nodes have the same value. An integer is never equal to a float; the order of members is
/// ignored.
pub fn is_equal(a: Node<'_>, b: Node<'_>) -> bool {
    match (a.view(), b.view()) {
        (View::Null, View::Null) => true,
        (View::Bool(a), View::Bool(b)) => a == b,
        (View::Int(a), View::Int(b)) => a == b,
        (View::Uint(a), View::Uint(b)) => a == b,
        (View::Float(a), View::Float(b)) => a == b,
        (View::Text(a), View::Text(b)) => a == b,
        (View::Array(of_a), View::Array(of_b)) => {
            of_a == of_b && a.items().zip(b.items()).all(|(a, b)| is_equal(a, b))
        }
        (View::Object(of_a), View::Object(of_b)) => {
            of_a == of_b
                && a.members().all(|(name, value)| b.member(name).is_some_and(|other| is_equal(value, other)))
        }
        _ => false,
    }
}
