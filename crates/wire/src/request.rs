//! Requests as a client writes them: arrays of bulk strings. For the journal, replicas, tools and tests.

use darter_base::number;

use crate::args::Args;

/// Appends the command `args`, its name first, to `out`.
pub fn write<'a>(out: &mut Vec<u8>, args: impl ExactSizeIterator<Item = &'a [u8]>) {
    write_len(out, b'*', args.len());
    for arg in args {
        write_len(out, b'$', arg.len());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends the command `args` to `out`.
pub fn write_args(out: &mut Vec<u8>, args: Args<'_>) {
    write(out, args.iter());
}

fn write_len(out: &mut Vec<u8>, kind: u8, len: usize) {
    out.push(kind);
    number::write_u64(out, len as u64);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_an_array_of_bulks() {
        let mut out = Vec::new();
        write(&mut out, [&b"SET"[..], b"k", b""].into_iter());
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n");
    }
}
