//! The functions of paths. A wrong number of words, or a value of another type, gives nothing.

use super::value::{Made, Operand, len_of, whole, whole_of};
use crate::form::{self, FormView};
use crate::number::Number;

/// A function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are those of the functions")]
pub enum Function {
    Length,
    Count,
    Value,
    Ceiling,
    Floor,
    Abs,
    Concat,
    Sum,
    Min,
    Max,
    Avg,
    StdDev,
    Keys,
    Append,
    First,
    Last,
    Index,
}

impl Function {
    /// The function of that name; `match` and `search` are patterns.
    pub(super) fn named(name: &[u8]) -> Option<Function> {
        Some(match name {
            b"length" => Function::Length,
            b"count" => Function::Count,
            b"value" => Function::Value,
            b"ceiling" => Function::Ceiling,
            b"floor" => Function::Floor,
            b"abs" => Function::Abs,
            b"concat" => Function::Concat,
            b"sum" => Function::Sum,
            b"min" => Function::Min,
            b"max" => Function::Max,
            b"avg" => Function::Avg,
            b"stddev" => Function::StdDev,
            b"keys" => Function::Keys,
            b"append" => Function::Append,
            b"first" => Function::First,
            b"last" => Function::Last,
            b"index" => Function::Index,
            _ => return None,
        })
    }

    /// Its value for these words.
    pub(super) fn call<'v>(self, words: Vec<Operand<'v>>) -> Operand<'v> {
        if self == Function::Concat {
            return concat(&words);
        }
        let mut words = words.into_iter();
        let (Some(first), second, None) = (words.next(), words.next(), words.next()) else {
            return Operand::Nothing;
        };
        match (self, second) {
            (Function::Index, Some(index)) => {
                index.single().and_then(whole_of).map_or(Operand::Nothing, |index| item(first, index))
            }
            (Function::Append, Some(last)) => append(first, last),
            (Function::Index | Function::Append, None) | (_, Some(_)) => Operand::Nothing,
            (function, None) => function.of_one(first),
        }
    }

    fn of_one(self, value: Operand<'_>) -> Operand<'_> {
        let int = |len: usize| Operand::of_number(Number::Int(len as i64));
        match self {
            Function::Length => match &value {
                Operand::List(list) => int(list.len()),
                Operand::Nodes(_) => Operand::Nothing,
                one => one.single().and_then(len_of).map_or(Operand::Nothing, int),
            },
            Function::Count => match &value {
                Operand::Nothing => int(0),
                Operand::Nodes(nodes) => int(nodes.len()),
                Operand::List(list) => int(list.len()),
                Operand::Node(_) | Operand::Made(_) => int(1),
            },
            Function::Value => match value {
                Operand::Node(node) => Operand::Node(node),
                Operand::List(mut list) if list.len() == 1 => {
                    list.pop().map_or(Operand::Nothing, Operand::Made)
                }
                _ => Operand::Nothing,
            },
            Function::Ceiling => rounded(&value, f64::ceil),
            Function::Floor => rounded(&value, f64::floor),
            Function::Abs => match value.number() {
                Some(Number::Int(int)) => {
                    int.checked_abs().map_or(Operand::Nothing, |int| Operand::of_number(Number::Int(int)))
                }
                Some(number) => Operand::of_number(Number::Float(number.as_float().abs())),
                None => Operand::Nothing,
            },
            Function::Keys => keys(&value),
            Function::First => item(value, 0),
            Function::Last => item(value, -1),
            aggregate => aggregate.of_numbers(&value),
        }
    }

    /// A number of the numbers of an array.
    fn of_numbers<'v>(self, value: &Operand<'_>) -> Operand<'v> {
        let numbers = value.elements().and_then(|all| {
            all.map(|node| Number::of(node.view()).map(Number::as_float)).collect::<Option<Vec<f64>>>()
        });
        let Some(numbers) = numbers.filter(|numbers| !numbers.is_empty()) else { return Operand::Nothing };
        let sum = || numbers.iter().sum::<f64>();
        let mean = || sum() / numbers.len() as f64;
        Operand::of_number(Number::Float(match self {
            Function::Sum => sum(),
            Function::Min => numbers.iter().copied().fold(f64::INFINITY, f64::min),
            Function::Max => numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Function::Avg => mean(),
            Function::StdDev => {
                let mean = mean();
                let squares = numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>();
                (squares / numbers.len() as f64).sqrt()
            }
            _ => return Operand::Nothing,
        }))
    }
}

fn rounded<'v>(value: &Operand<'_>, round: fn(f64) -> f64) -> Operand<'v> {
    match value.number() {
        Some(Number::Int(int)) => Operand::of_number(Number::Int(int)),
        Some(number) => whole(round(number.as_float()))
            .map_or(Operand::Nothing, |int| Operand::of_number(Number::Int(int))),
        None => Operand::Nothing,
    }
}

fn concat<'v>(words: &[Operand<'_>]) -> Operand<'v> {
    let mut all = Vec::new();
    for word in words {
        match word.single().map(|node| node.view()) {
            Some(FormView::Text(text)) => all.extend_from_slice(text),
            _ => return Operand::Nothing,
        }
    }
    if words.is_empty() {
        Operand::Nothing
    } else {
        Operand::Made(Made::by(|out| form::write_text(out, &all)))
    }
}

/// The element of an array, of several nodes or of a list; negative from the end.
fn item(value: Operand<'_>, index: i64) -> Operand<'_> {
    let place = |len: usize| {
        let place = if index < 0 { index.saturating_add(len as i64) } else { index };
        usize::try_from(place).ok().filter(|place| *place < len)
    };
    match value {
        Operand::Node(node) => match node.view() {
            FormView::Array(len) => place(len)
                .and_then(|place| node.items_from(place).next())
                .map_or(Operand::Nothing, Operand::Node),
            _ => Operand::Nothing,
        },
        Operand::Made(made) => {
            let len = if let FormView::Array(len) = made.view() { len } else { 0 };
            let node = place(len).and_then(|place| made.node().items_from(place).next());
            let bytes = node.map(|node| node.bytes().to_vec());
            bytes.map_or(Operand::Nothing, |bytes| {
                Operand::Made(Made::by(|out| out.extend_from_slice(&bytes)))
            })
        }
        Operand::Nodes(nodes) => {
            let node = place(nodes.len()).and_then(|place| nodes.get(place).copied());
            node.map_or(Operand::Nothing, Operand::Node)
        }
        Operand::List(list) => {
            let made = place(list.len()).and_then(|place| list.get(place).cloned());
            made.map_or(Operand::Nothing, Operand::Made)
        }
        Operand::Nothing => Operand::Nothing,
    }
}

/// The names of the members of objects.
fn keys<'v>(value: &Operand<'_>) -> Operand<'v> {
    let is_object = |view: FormView<'_>| matches!(view, FormView::Object(_));
    match value {
        Operand::Nothing | Operand::List(_) => return Operand::Nothing,
        Operand::Nodes(_) => {}
        one => {
            if !one.single().is_some_and(|node| is_object(node.view())) {
                return Operand::Nothing;
            }
        }
    }
    let mut names = Vec::new();
    value.any(|node| {
        names.extend(node.members().map(|(name, _)| Made::by(|out| form::write_text(out, name))));
        false
    });
    Operand::List(names)
}

/// The elements of a value and one more; a value of several becomes one element.
fn append<'v>(value: Operand<'v>, last: Operand<'v>) -> Operand<'v> {
    let last = match last {
        Operand::Nothing => return Operand::Nothing,
        Operand::Node(node) => Made::of(node),
        Operand::Made(made) => made,
        Operand::Nodes(nodes) => Made::array(&nodes.into_iter().map(Made::of).collect::<Vec<_>>()),
        Operand::List(list) => Made::array(&list),
    };
    let mut list = match value {
        Operand::Nothing => Vec::new(),
        Operand::List(list) => list,
        Operand::Nodes(nodes) => nodes.into_iter().map(Made::of).collect(),
        Operand::Node(node) if matches!(node.view(), FormView::Array(_)) => {
            node.items().map(Made::of).collect()
        }
        Operand::Node(node) => vec![Made::of(node)],
        Operand::Made(made) => match made.view() {
            FormView::Array(_) => {
                let items = made.node().items().map(|item| item.bytes().to_vec());
                items.map(|bytes| Made::by(|out| out.extend_from_slice(&bytes))).collect()
            }
            _ => vec![made],
        },
    };
    list.push(last);
    Operand::List(list)
}
