//! Values of modules: they can be skipped, and the module named. Those of known modules are read by `store`.

use crate::cursor::{Cursor, CursorStop};
use crate::layout::LayoutToken;

const END: u64 = 0;
const TEXT: u64 = 5;

/// Passes over a module's fields, including their end.
///
/// Errors: incomplete, or damaged.
pub fn pass(cursor: &mut Cursor<'_>) -> Result<(), CursorStop> {
    fields(cursor, &mut |_| {})
}

/// Like [`pass`], and shows each field to `visit`.
///
/// Errors: incomplete, or damaged.
pub fn fields<'a>(
    cursor: &mut Cursor<'a>,
    visit: &mut impl FnMut(LayoutToken<'a>),
) -> Result<(), CursorStop> {
    loop {
        let start = cursor.at();
        match cursor.number()? {
            END => {
                visit(LayoutToken::Plain(cursor.since(start)));
                return Ok(());
            }
            // integers
            1 | 2 => drop(cursor.number()?),
            // binary numbers
            3 => drop(cursor.array::<4>()?),
            4 => drop(cursor.array::<8>()?),
            TEXT => {
                visit(LayoutToken::Plain(cursor.since(start)));
                visit(LayoutToken::Text(cursor.pass_text()?));
                continue;
            }
            _ => return Err(cursor.bad("an unknown kind of part in a module's value")),
        }
        visit(LayoutToken::Plain(cursor.since(start)));
    }
}

/// The number that names the module whose value begins at `cursor`.
pub fn next(mut cursor: Cursor<'_>) -> Result<u64, CursorStop> {
    cursor.number()
}

/// The name in a module's number: nine letters of six bits above ten bits of version.
pub fn name(number: u64) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let letter = |place: u32| LETTERS.get((number >> (10 + 6 * place) & 63) as usize).copied();
    (0..9).rev().filter_map(letter).map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_named_as_it_named_itself() {
        let letters = "ReJSON-RL";
        let number = letters.bytes().fold(0u64, |number, letter| {
            let all = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
            number << 6 | all.bytes().position(|one| one == letter).expect("a letter") as u64
        });
        assert_eq!(name(number << 10 | 3), letters);
    }

    #[test]
    fn a_value_ends_at_its_end() {
        let bytes = [2, 5, 5, 2, b'h', b'i', 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 77];
        let mut cursor = Cursor::new(&bytes);
        assert_eq!(pass(&mut cursor), Ok(()));
        assert_eq!(cursor.byte(), Ok(77));
        assert!(matches!(pass(&mut Cursor::new(&[9])), Err(CursorStop::Bad(_))));
        assert_eq!(pass(&mut Cursor::new(&[2, 5])), Err(CursorStop::More));
    }
}
