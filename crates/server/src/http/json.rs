//! Replies as JSON: one form for the console, which shows types, and one for programs, which want plain values.

use darter_wire::base64;
use darter_wire::value::Value;

/// Numbers up to this size are the same in JavaScript.
const EXACT_MAX: u64 = 1 << 53;

/// Appends a reply without loss: strings, small integers, booleans, nulls and arrays unchanged, all else as an object
/// whose only field names the type (`status`, `error`, `int`, `double`, `base64`, `map`, `set`).
pub fn write_typed(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null | Value::NullArray => out.extend_from_slice(b"null"),
        Value::Bulk(bytes) | Value::Verbatim(_, bytes) => text(out, bytes),
        Value::Int(n) if n.unsigned_abs() <= EXACT_MAX => out.extend_from_slice(n.to_string().as_bytes()),
        Value::Boolean(is) => out.extend_from_slice(if *is { b"true" } else { b"false" }),
        Value::Array(items) | Value::Push(items) => list(out, items, write_typed),
        Value::Status(line) => wrapped(out, "status", |out| string(out, &String::from_utf8_lossy(line))),
        Value::Error(line) => wrapped(out, "error", |out| string(out, &String::from_utf8_lossy(line))),
        Value::Int(n) => wrapped(out, "int", |out| string(out, &n.to_string())),
        Value::BigNumber(digits) => wrapped(out, "int", |out| string(out, &String::from_utf8_lossy(digits))),
        Value::Double(n) => wrapped(out, "double", |out| string(out, &n.to_string())),
        Value::Set(items) => wrapped(out, "set", |out| list(out, items, write_typed)),
        Value::Map(pairs) => wrapped(out, "map", |out| {
            let pair = |out: &mut Vec<u8>, (key, value): &(Value, Value)| {
                out.push(b'[');
                write_typed(out, key);
                out.push(b',');
                write_typed(out, value);
                out.push(b']');
            };
            list(out, pairs, pair);
        }),
        Value::Attributed(_, value) => write_typed(out, value),
    }
}

/// Appends `{"result": ...}` or `{"error": "..."}` with plain values: numbers are numbers, bytes that are not text
/// are replaced, maps are objects.
pub fn write_result(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Error(line) => wrapped(out, "error", |out| string(out, &String::from_utf8_lossy(line))),
        _ => wrapped(out, "result", |out| plain(out, value)),
    }
}

fn plain(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null | Value::NullArray => out.extend_from_slice(b"null"),
        Value::Bulk(bytes) | Value::Verbatim(_, bytes) | Value::Status(bytes) | Value::Error(bytes) => {
            string(out, &String::from_utf8_lossy(bytes))
        }
        Value::Int(n) => out.extend_from_slice(n.to_string().as_bytes()),
        Value::BigNumber(digits) => out.extend_from_slice(digits),
        Value::Double(n) if n.is_finite() => out.extend_from_slice(n.to_string().as_bytes()),
        Value::Double(n) => string(out, &n.to_string()),
        Value::Boolean(is) => out.extend_from_slice(if *is { b"true" } else { b"false" }),
        Value::Array(items) | Value::Push(items) | Value::Set(items) => list(out, items, plain),
        Value::Map(pairs) => {
            out.push(b'{');
            for (at, (key, value)) in pairs.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                let name = match key {
                    Value::Int(n) => n.to_string(),
                    key => String::from_utf8_lossy(key.as_bytes().unwrap_or_default()).into_owned(),
                };
                string(out, &name);
                out.push(b':');
                plain(out, value);
            }
            out.push(b'}');
        }
        Value::Attributed(_, value) => plain(out, value),
    }
}

fn list<T>(out: &mut Vec<u8>, items: &[T], write: impl Fn(&mut Vec<u8>, &T)) {
    out.push(b'[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(b']');
}

fn wrapped(out: &mut Vec<u8>, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b"{\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    write(out);
    out.push(b'}');
}

/// A string, or its bytes if they are not text.
fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => string(out, text),
        Err(_) => wrapped(out, "base64", |out| {
            out.push(b'"');
            base64::encode(out, bytes);
            out.push(b'"');
        }),
    }
}

fn string(out: &mut Vec<u8>, text: &str) {
    // Writing a string to a Vec does not fail.
    let _ = serde_json::to_writer(out, text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_wire::value::{DecodeLimits, decode};

    fn written(resp: &str, write: fn(&mut Vec<u8>, &Value)) -> String {
        let bytes: Vec<u8> = resp.chars().map(|c| c as u8).collect();
        let (value, _) = decode(&bytes, &DecodeLimits::default()).expect("a reply").expect("a whole one");
        let mut out = Vec::new();
        write(&mut out, &value);
        serde_json::from_slice::<serde_json::Value>(&out).expect("JSON");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn replies_keep_their_types() {
        for (resp, json) in [
            ("+OK\r\n", r#"{"status":"OK"}"#),
            ("-ERR \"x\"\r\n", r#"{"error":"ERR \"x\""}"#),
            (":-7\r\n", "-7"),
            (":9007199254740993\r\n", r#"{"int":"9007199254740993"}"#),
            ("$3\r\na\"b\r\n", r#""a\"b""#),
            ("$2\r\n\u{0}\u{ff}\r\n", r#"{"base64":"AP8="}"#),
            ("_\r\n", "null"),
            ("*-1\r\n", "null"),
            ("#t\r\n", "true"),
            (",1.5\r\n", r#"{"double":"1.5"}"#),
            (",inf\r\n", r#"{"double":"inf"}"#),
            ("*2\r\n:1\r\n*0\r\n", "[1,[]]"),
            ("%1\r\n$1\r\na\r\n:1\r\n", r#"{"map":[["a",1]]}"#),
            ("~1\r\n$1\r\na\r\n", r#"{"set":["a"]}"#),
            ("=5\r\ntxt:x\r\n", r#""x""#),
        ] {
            assert_eq!(written(resp, write_typed), json);
        }
    }

    #[test]
    fn programs_get_plain_values() {
        for (resp, json) in [
            ("+OK\r\n", r#"{"result":"OK"}"#),
            ("-ERR x\r\n", r#"{"error":"ERR x"}"#),
            (":9007199254740993\r\n", r#"{"result":9007199254740993}"#),
            ("%2\r\n$1\r\na\r\n:1\r\n:2\r\n,inf\r\n", r#"{"result":{"a":1,"2":"inf"}}"#),
            ("*2\r\n$1\r\na\r\n_\r\n", r#"{"result":["a",null]}"#),
        ] {
            assert_eq!(written(resp, write_result), json);
        }
    }
}
