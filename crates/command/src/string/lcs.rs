//! LCS: the longest common subsequence of two strings.

use std::borrow::Cow;

use darter_wire::{Args, Reply};

use crate::reader::ArgReader;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// LCS.
pub const LCS: DataCommand = DataCommand {
    spec: Spec::read("lcs", -3, Keys::TWO)
        .doc(
            Group::String,
            "7.0.0",
            "key1 key2 [LEN] [IDX] [MINMATCHLEN min-match-len] [WITHMATCHLEN]",
            "Finds the longest common subsequence of two strings.",
        )
        .cost("O(N*M) over the lengths of the strings"),
    run: lcs,
};

#[derive(Default)]
struct LcsOptions {
    answers_len: bool,
    answers_ranges: bool,
    with_match_len: bool,
    match_len_min: u64,
}

impl LcsOptions {
    fn parse(args: Args<'_>) -> Result<LcsOptions, Fault> {
        let mut options = LcsOptions::default();
        let mut reader = ArgReader::new(args, 3);
        while !reader.is_done() {
            if reader.take("LEN") {
                options.answers_len = true;
            } else if reader.take("IDX") {
                options.answers_ranges = true;
            } else if reader.take("WITHMATCHLEN") {
                options.with_match_len = true;
            } else if reader.take_with("MINMATCHLEN", 1) {
                options.match_len_min = u64::try_from(reader.int()?).unwrap_or(0);
            } else {
                return Err(Fault::Syntax);
            }
        }
        if options.answers_len && options.answers_ranges {
            return Err(Fault::text("ERR If you want both the length and indexes, please just use IDX."));
        }
        Ok(options)
    }
}

fn lcs(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (a, b) = (value(ctx, args.at(1))?, value(ctx, args.at(2))?);
    let options = LcsOptions::parse(args)?;
    let table = LcsTable::of(&a, &b, ctx.env.proto_max_bulk_len)?;
    if options.answers_ranges {
        answer_ranges(&table, &a, &b, &options, reply);
    } else if options.answers_len {
        reply.int(i64::from(table.at(a.len(), b.len())));
    } else {
        let mut common = Vec::with_capacity(table.at(a.len(), b.len()) as usize);
        table.walk(&a, &b, |i, _| common.push(a[i]));
        common.reverse();
        reply.bulk(&common);
    }
    Ok(())
}

fn value<'a>(ctx: &mut Ctx<'_>, name: &'a [u8]) -> Result<Cow<'a, [u8]>, Fault> {
    match ctx.read(name).text() {
        Ok(text) => {
            Ok(text.map_or(Cow::Borrowed(b"".as_slice()), |text| Cow::Owned(text.bytes().into_owned())))
        }
        Err(_) => Err(Fault::text("ERR The specified keys must contain string values")),
    }
}

/// Lengths of the longest common subsequences of all pairs of prefixes.
struct LcsTable {
    cells: Vec<u32>,
    width: usize,
}

impl LcsTable {
    /// The table for `a` and `b`. Errors: it would take more than `bytes_max`.
    fn of(a: &[u8], b: &[u8], bytes_max: u64) -> Result<LcsTable, Fault> {
        let width = b.len() + 1;
        let cells = (a.len() + 1).checked_mul(width);
        let Some(cells) = cells.filter(|&n| (n as u64).saturating_mul(size_of::<u32>() as u64) <= bytes_max)
        else {
            return Err(Fault::text(
                "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
            ));
        };
        let mut table = LcsTable { cells: vec![0; cells], width };
        for (i, &byte) in a.iter().enumerate() {
            let (above, row) = table.cells[i * width..(i + 2) * width].split_at_mut(width);
            for (j, &other) in b.iter().enumerate() {
                row[j + 1] = if byte == other { above[j] + 1 } else { above[j + 1].max(row[j]) };
            }
        }
        Ok(table)
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.cells[i * self.width + j]
    }

    /// Visits the positions of a common subsequence in both strings, last first.
    fn walk(&self, a: &[u8], b: &[u8], mut visit: impl FnMut(usize, usize)) {
        let (mut i, mut j) = (a.len(), b.len());
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                visit(i - 1, j - 1);
                i -= 1;
                j -= 1;
            } else if self.at(i - 1, j) > self.at(i, j - 1) {
                i -= 1;
            } else {
                j -= 1;
            }
        }
    }
}

/// A stretch common to both strings: its start in each, and its length.
#[derive(Clone, Copy)]
struct LcsMatch {
    a: usize,
    b: usize,
    len: usize,
}

fn answer_ranges(table: &LcsTable, a: &[u8], b: &[u8], options: &LcsOptions, reply: &mut Reply<'_>) {
    reply.map(2);
    reply.bulk(b"matches");
    let begun = reply.begin_array();
    let mut count = 0;
    let mut current: Option<LcsMatch> = None;
    let mut finish = |found: LcsMatch, reply: &mut Reply<'_>| {
        if found.len as u64 >= options.match_len_min {
            count += 1;
            write_match(found, options.with_match_len, reply);
        }
    };
    table.walk(a, b, |i, j| match &mut current {
        Some(found) if found.a == i + 1 && found.b == j + 1 => {
            *found = LcsMatch { a: i, b: j, len: found.len + 1 };
        }
        other => {
            if let Some(found) = other.replace(LcsMatch { a: i, b: j, len: 1 }) {
                finish(found, reply);
            }
        }
    });
    if let Some(found) = current {
        finish(found, reply);
    }
    reply.end_array(begun, count);
    reply.bulk(b"len");
    reply.int(i64::from(table.at(a.len(), b.len())));
}

fn write_match(found: LcsMatch, with_len: bool, reply: &mut Reply<'_>) {
    reply.array(if with_len { 3 } else { 2 });
    for start in [found.a, found.b] {
        reply.array(2);
        reply.int_len(start);
        reply.int_len(start + found.len - 1);
    }
    if with_len {
        reply.int_len(found.len);
    }
}
