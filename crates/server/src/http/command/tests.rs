//! Tests of requests with commands.

use super::*;

/// A database's number, and commands as words.
type Read = (usize, Vec<Vec<Vec<u8>>>);

fn read(body: &str, shape: ReplyShape) -> Result<Read, String> {
    let task = Task::read(body.as_bytes(), shape, Framing::LAST, 16)?;
    let words = |args: &OwnedArgs| args.args().iter().map(<[u8]>::to_vec).collect();
    Ok((task.db, task.commands.iter().map(words).collect()))
}

#[test]
fn commands_are_read_from_json() {
    let got = read(
        r#"{"db":3,"commands":[["GET","k"],["SET",{"base64":"AP8="},7],["ECHO",{"base64":""}]]}"#,
        ReplyShape::Console,
    );
    let wanted: Vec<Vec<Vec<u8>>> = vec![
        vec![b"GET".to_vec(), b"k".to_vec()],
        vec![b"SET".to_vec(), vec![0, 255], b"7".to_vec()],
        vec![b"ECHO".to_vec(), Vec::new()],
    ];
    assert_eq!(got, Ok((3, wanted)));
    assert_eq!(read(r#"["PING"]"#, ReplyShape::Program), Ok((0, vec![vec![b"PING".to_vec()]])));
}

#[test]
fn other_json_is_refused() {
    for body in [
        "",
        "{",
        "[]",
        "{}",
        r#"{"commands":[]}"#,
        r#"{"commands":[[]]}"#,
        r#"{"commands":["GET"]}"#,
        r#"{"commands":[[null]]}"#,
        r#"{"commands":[["GET",["k"]]]}"#,
        r#"{"commands":[["GET",{"base64":"!"}]]}"#,
        r#"{"db":16,"commands":[["PING"]]}"#,
        r#"{"db":-1,"commands":[["PING"]]}"#,
        r#"{"db":"0","commands":[["PING"]]}"#,
        r#"{"db":0,"commands":[["PING"]]} x"#,
    ] {
        assert!(read(body, ReplyShape::Console).is_err(), "{body}");
    }
    assert!(
        read(&format!(r#"{{"commands":[{}["PING"]]}}"#, r#"["PING"],"#.repeat(512)), ReplyShape::Console)
            .is_err()
    );
    assert!(read(&"[".repeat(100_000), ReplyShape::Console).is_err());
    assert!(read(r#"{"commands":[["PING"]]}"#, ReplyShape::Program).is_err());
}
