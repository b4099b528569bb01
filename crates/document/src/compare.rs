//! Equality of two nodes, of one document or of two.

use crate::doc::DocNode;
use crate::form::FormView;

/// Returns true if two nodes have the same value. An integer is never equal to a float; the order of members is
/// ignored.
pub fn is_equal(a: DocNode<'_>, b: DocNode<'_>) -> bool {
    match (a.view(), b.view()) {
        (FormView::Null, FormView::Null) => true,
        (FormView::Bool(a), FormView::Bool(b)) => a == b,
        (FormView::Int(a), FormView::Int(b)) => a == b,
        (FormView::Uint(a), FormView::Uint(b)) => a == b,
        (FormView::Float(a), FormView::Float(b)) => a == b,
        (FormView::Text(a), FormView::Text(b)) => a == b,
        (FormView::Array(of_a), FormView::Array(of_b)) => {
            of_a == of_b && a.items().zip(b.items()).all(|(a, b)| is_equal(a, b))
        }
        (FormView::Object(of_a), FormView::Object(of_b)) => {
            of_a == of_b
                && a.members().all(|(name, value)| b.member(name).is_some_and(|other| is_equal(value, other)))
        }
        _ => false,
    }
}
