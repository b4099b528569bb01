//! memcached's binary protocol, which is not served: its clients are told so in its own framing.
//!
//! Called by `conn` and by TLS for the first bytes of a connection, which is closed behind the answer.

/// The answer to a request whose header begins with these bytes; what is not there of opcode and token counts as 0.
pub fn refusal(request: &[u8]) -> Vec<u8> {
    let byte = |at: usize| request.get(at).copied().unwrap_or(0);
    let mut out = Vec::with_capacity(HEADER_LEN + TEXT.len());
    out.extend_from_slice(&[RESPONSE_MAGIC, byte(OPCODE_AT), 0, 0, 0, 0]);
    out.extend_from_slice(&NOT_SUPPORTED.to_be_bytes());
    out.extend_from_slice(&(TEXT.len() as u32).to_be_bytes());
    // The client's own mark, by which it knows its request again, and no CAS token.
    out.extend((OPAQUE_AT..OPAQUE_AT + 4).map(byte));
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(TEXT);
    out
}

const TEXT: &[u8] = b"The binary protocol is not supported: use the text protocol";
const RESPONSE_MAGIC: u8 = 0x81;
const HEADER_LEN: usize = 24;
const OPCODE_AT: usize = 1;
const OPAQUE_AT: usize = 12;
/// Status of a response: not supported.
const NOT_SUPPORTED: u16 = 0x83;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_names_the_request() {
        let mut request = [0_u8; HEADER_LEN];
        (request[0], request[1]) = (0x80, 0x0b);
        request[OPAQUE_AT..OPAQUE_AT + 4].copy_from_slice(&[1, 2, 3, 4]);
        let answer = refusal(&request);
        assert_eq!(answer[..8], [0x81, 0x0b, 0, 0, 0, 0, 0, 0x83]);
        assert_eq!(answer[8..12], (TEXT.len() as u32).to_be_bytes());
        assert_eq!(answer[12..16], [1, 2, 3, 4]);
        assert_eq!(&answer[HEADER_LEN..], TEXT);
        assert_eq!(refusal(b"\x80").len(), answer.len());
    }
}
