//! The arguments of XREAD and XREADGROUP, and the positions of the keys among them.

use darter_wire::Args;

use crate::Fault;
use crate::reader::{ArgReader, timeout_in_ms};

/// The parsed arguments of XREAD or XREADGROUP.
pub struct StreamReading<'a> {
    /// Longest wait in milliseconds, `Some(None)` without a limit; `None` for no wait.
    pub block: Option<Option<u64>>,
    /// Entries of each stream at most.
    pub count: usize,
    /// Most entries of all streams together.
    pub total: usize,
    /// No more entries are answered after this many bytes.
    pub bytes_max: usize,
    /// Group and consumer.
    pub group: Option<(&'a [u8], &'a [u8])>,
    /// True if entries count as acknowledged when read.
    pub is_noack: bool,
    /// Idle milliseconds after which pending entries of other consumers are taken over first.
    pub claim_ms: Option<u64>,
    /// Index of the first key.
    pub keys_at: usize,
    /// Number of keys, and of the ids after them.
    pub streams: usize,
}

impl<'a> StreamReading<'a> {
    /// Reads all arguments except keys and ids, at `now_ms`; `is_group` for XREADGROUP.
    pub fn parse(args: Args<'a>, is_group: bool, now_ms: u64) -> Result<StreamReading<'a>, Fault> {
        let mut reading = StreamReading {
            block: None,
            count: usize::MAX,
            total: usize::MAX,
            bytes_max: usize::MAX,
            group: None,
            is_noack: false,
            claim_ms: None,
            keys_at: 0,
            streams: 0,
        };
        let mut read = ArgReader::new(args, 1);
        while !read.is_done() {
            if read.take_with("block", 1) {
                reading.block = Some(block_ms(&mut read, now_ms)?);
            } else if read.take_with("count", 1) {
                let count = usize::try_from(read.int()?).unwrap_or(0);
                reading.count = if count == 0 { usize::MAX } else { count };
            } else if read.take_with("maxcount", 1) {
                reading.total = positive(&mut read, "ERR MAXCOUNT must be a positive integer")?;
            } else if read.take_with("maxsize", 1) {
                reading.bytes_max = positive(&mut read, "ERR MAXSIZE must be a positive integer")?;
            } else if read.take_with("streams", 1) {
                if !read.left().is_multiple_of(2) {
                    return Err(unbalanced(is_group));
                }
                (reading.keys_at, reading.streams) = (read.position(), read.left() / 2);
                break;
            } else if read.take_with("group", 2) {
                if !is_group {
                    return Err(Fault::text(
                        "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
                    ));
                }
                reading.group = Some((read.bytes()?, read.bytes()?));
            } else if read.take("noack") {
                if !is_group {
                    return Err(Fault::text(
                        "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
                    ));
                }
                reading.is_noack = true;
            } else if read.take_with("claim", 1) {
                if !is_group {
                    return Err(Fault::text(
                        "ERR The CLAIM option is only supported by XREADGROUP. You called XREAD instead.",
                    ));
                }
                reading.claim_ms = Some(claim_ms(&mut read)?);
            } else {
                return Err(Fault::Syntax);
            }
        }
        if reading.keys_at == 0 {
            return Err(Fault::Syntax);
        }
        if reading.count != usize::MAX && reading.total < reading.count {
            return Err(Fault::text("ERR MAXCOUNT must not be less than COUNT"));
        }
        if is_group && reading.group.is_none() {
            return Err(Fault::text("ERR Missing GROUP option for XREADGROUP"));
        }
        Ok(reading)
    }

    /// Index of the id of stream `at`.
    pub fn id_at(&self, at: usize) -> usize {
        self.keys_at + self.streams + at
    }
}

fn positive(read: &mut ArgReader<'_>, otherwise: &'static str) -> Result<usize, Fault> {
    let number = read.int_from(1, Fault::text(otherwise))?;
    Ok(usize::try_from(number).unwrap_or(usize::MAX))
}

fn unbalanced(is_group: bool) -> Fault {
    Fault::text(if is_group {
        "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified."
    } else {
        "ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be specified."
    })
}

fn block_ms(read: &mut ArgReader<'_>, now_ms: u64) -> Result<Option<u64>, Fault> {
    let ms = timeout_in_ms(read.bytes()?, now_ms)?;
    Ok((ms > 0).then_some(ms))
}

fn claim_ms(read: &mut ArgReader<'_>) -> Result<u64, Fault> {
    const NO_INT: Fault = Fault::text("ERR min-idle-time is not an integer or out of range");
    let ms = read.int_from(i64::MIN, NO_INT)?;
    u64::try_from(ms).map_err(|_| Fault::text("ERR min-idle-time must be a positive integer"))
}

/// Finds the keys of XREAD.
pub fn keys_of_read(args: Args<'_>, visit: &mut dyn FnMut(usize)) {
    keys(args, false, visit);
}

/// Finds the keys of XREADGROUP.
pub fn keys_of_read_group(args: Args<'_>, visit: &mut dyn FnMut(usize)) {
    keys(args, true, visit);
}

fn keys(args: Args<'_>, is_group: bool, visit: &mut dyn FnMut(usize)) {
    if let Ok(reading) = StreamReading::parse(args, is_group, 0) {
        (reading.keys_at..reading.keys_at + reading.streams).for_each(visit);
    }
}
