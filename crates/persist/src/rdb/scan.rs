//! The next item in the bytes of an RDB file, as ranges of these bytes.

use std::ops::Range;

use super::{
    AUX, END, FUNCTION, FUNCTION_PRE_RELEASE, KEY_FACTS_OR_SLOT_IMPORT, MODULE_AUX, SELECT, SIZES,
    SLOT_SIZES, module,
};
use crate::cursor::{Cursor, CursorStop};
use crate::entry::{DEADLINE_MS, DEADLINE_SECS, FREQUENCY, IDLE_SECS};
use crate::layout::{self, foreign};

/// The writer of the file: the same numbers mean different things.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RdbOrigin {
    /// Its version.
    pub version: u32,
    /// By Valkey 9 or newer.
    pub is_valkey: bool,
}

/// One thing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scanned {
    /// A key and its value; `kind` is our number, `body` the key and the value.
    Entry { deadline_ms: Option<u64>, kind: u8, body: Range<usize> },
    /// A value that is passed over.
    Strange { key: Range<usize>, what: String },
    /// A name and a text.
    Aux { name: Range<usize>, value: Range<usize> },
    /// The database of the following keys.
    Select(u64),
    /// Keys and keys with a deadline of the database.
    Sizes(u64, u64),
    /// A library.
    Function(Range<usize>),
    /// A library as release candidates of Redis 7 wrote it: name and code.
    OldFunction { name: Range<usize>, code: Range<usize> },
    /// A fact of a module about itself.
    ModuleAux(String),
    /// Without meaning here.
    Nothing,
    /// The end; the checksum follows from version 5 on.
    End,
}

/// The next item of `cursor`, which starts at 0.
///
/// Errors: incomplete, damaged, or unknown.
pub fn next(origin: RdbOrigin, cursor: &mut Cursor<'_>) -> Result<Scanned, CursorStop> {
    let mut deadline_ms = None;
    loop {
        match cursor.peek()? {
            DEADLINE_MS => {
                cursor.byte()?;
                let ms = cursor.array()?;
                // before version 9 in the byte order of the writing machine, assumed to be little-endian
                deadline_ms = Some(u64::try_from(i64::from_le_bytes(ms)).unwrap_or(0));
            }
            DEADLINE_SECS => {
                cursor.byte()?;
                let secs = u64::try_from(i32::from_le_bytes(cursor.array()?)).unwrap_or(0);
                deadline_ms = Some(secs * 1000);
            }
            IDLE_SECS => {
                cursor.byte()?;
                cursor.number()?;
            }
            FREQUENCY => {
                cursor.byte()?;
                cursor.byte()?;
            }
            KEY_FACTS_OR_SLOT_IMPORT if !origin.is_valkey => pass_key_facts(cursor)?,
            0xf0.. if deadline_ms.is_none() => return opcode(cursor),
            _ => return entry(origin, deadline_ms, cursor),
        }
    }
}

fn entry(
    origin: RdbOrigin,
    deadline_ms: Option<u64>,
    cursor: &mut Cursor<'_>,
) -> Result<Scanned, CursorStop> {
    let kind = our_kind(origin, cursor.peek()?);
    if layout::of(kind).is_none() {
        return Err(cursor.bad("an unknown type byte"));
    }
    cursor.byte()?;
    let start = cursor.at();
    cursor.pass_text()?;
    let key = start..cursor.at();
    if kind == layout::MODULE_2
        && let module = module::next(*cursor)?
        && !darter_store::module::is_known(module)
    {
        let module = module::name(module);
        cursor.number()?;
        module::pass(cursor)?;
        return Ok(Scanned::Strange { key, what: format!("a value of module {module}") });
    }
    layout::pass(kind, cursor)?;
    if let Some(what) = foreign::strange(kind) {
        return Ok(Scanned::Strange { key, what: what.to_owned() });
    }
    Ok(Scanned::Entry { deadline_ms, kind, body: start..cursor.at() })
}

/// Our number for the file's `kind`; 255 if none of its versions writes that.
fn our_kind(origin: RdbOrigin, kind: u8) -> u8 {
    const NONE: u8 = 255;
    match (origin.is_valkey, kind) {
        (_, 0..=21) => kind,
        (true, 22) => foreign::VALKEY_HASH,
        (false, 22..=28) => kind,
        (false, 33) => foreign::RATE_LIMITER,
        _ => NONE,
    }
}

fn opcode(cursor: &mut Cursor<'_>) -> Result<Scanned, CursorStop> {
    let start = cursor.at();
    match cursor.byte()? {
        AUX => Ok(Scanned::Aux { name: text(cursor)?, value: text(cursor)? }),
        SELECT => Ok(Scanned::Select(cursor.number()?)),
        SIZES => Ok(Scanned::Sizes(cursor.number()?, cursor.number()?)),
        FUNCTION => Ok(Scanned::Function(text(cursor)?)),
        FUNCTION_PRE_RELEASE => {
            let name = text(cursor)?;
            cursor.pass_text()?;
            if cursor.number()? != 0 {
                cursor.pass_text()?;
            }
            Ok(Scanned::OldFunction { name, code: text(cursor)? })
        }
        MODULE_AUX => {
            let name = module::name(cursor.number()?);
            // the time of writing, as a piece like the following ones
            cursor.number()?;
            cursor.number()?;
            module::pass(cursor)?;
            Ok(Scanned::ModuleAux(name))
        }
        SLOT_SIZES => {
            for _ in 0..3 {
                cursor.number()?;
            }
            Ok(Scanned::Nothing)
        }
        KEY_FACTS_OR_SLOT_IMPORT => {
            cursor.pass_text()?;
            for _ in 0..cursor.number()? {
                cursor.number()?;
                cursor.number()?;
            }
            Ok(Scanned::Nothing)
        }
        END => Ok(Scanned::End),
        _ => Err(CursorStop::Bad(crate::cursor::CursorFault {
            at: start,
            what: "an opcode that is not known",
        })),
    }
}

fn text(cursor: &mut Cursor<'_>) -> Result<Range<usize>, CursorStop> {
    let start = cursor.at();
    cursor.pass_text()?;
    Ok(start..cursor.at())
}

/// Passes the facts of modules about the next key.
fn pass_key_facts(cursor: &mut Cursor<'_>) -> Result<(), CursorStop> {
    cursor.byte()?;
    for _ in 0..cursor.number()? {
        cursor.array::<4>()?;
        module::pass(cursor)?;
    }
    Ok(())
}

/// The key of the entry that `cursor` starts at, if it is an entry.
pub fn key_of_next(cursor: &mut Cursor<'_>) -> Option<Vec<u8>> {
    loop {
        match cursor.byte().ok()? {
            DEADLINE_MS => drop(cursor.array::<8>().ok()?),
            DEADLINE_SECS => drop(cursor.array::<4>().ok()?),
            IDLE_SECS => drop(cursor.number().ok()?),
            FREQUENCY => drop(cursor.byte().ok()?),
            0..=0x3f => return cursor.text().ok().map(|key| key.into_owned()),
            _ => return None,
        }
    }
}
