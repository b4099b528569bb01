//! No command holds its shards for longer than some tens of microseconds, but for those that say why: counted in blocks
//! of memory that are touched, as a clock would tell how busy the machine is.

use crate::harness::{Client, Server, Value};
use crate::rows::{Row, Rows, Sizes};

const SIZES: Sizes = Sizes { members: 30_000, words: 20_000 };
/// Blocks that one hold may touch: a slice reads some hundred members, each perhaps by itself.
const BLOCKS_MAX: u64 = 4_000;

fn call(client: &mut Client, words: &[String]) -> Value {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    client.call(&words)
}

fn fill(client: &mut Client, rows: &Rows) {
    for (head, item) in &rows.fills {
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        if let Some(name) = head[0].strip_prefix('!') {
            for n in 0..SIZES.members {
                let mut words =
                    SIZES.item(&head[1..].iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(), n);
                words.insert(0, name.to_owned());
                words.extend(SIZES.item(item, n));
                call(client, &words);
            }
        } else {
            client.call_for_each(&head, SIZES.members, |n, words| words.extend(SIZES.item(item, n)));
        }
    }
}

/// Blocks touched by the greatest hold of a command.
fn blocks(client: &mut Client, row: &Row) -> u64 {
    for before in &row.before {
        call(client, &SIZES.spell(before));
    }
    client.call(&["CONFIG", "RESETSTAT"]);
    let reply = call(client, &SIZES.spell(&row.command));
    assert!(!matches!(reply, Value::Error(_)), "{}: {reply:?}", row.command);
    client.info("TRANSACTION", "hold_blocks_max")
}

#[test]
fn no_hold_touches_more_than_a_bounded_number_of_blocks() {
    let server = Server::start(&["--proactor_threads", "1"]);
    let mut client = server.client();
    client.call(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    let rows = Rows::new();
    fill(&mut client, &rows);
    let mut wrong = Vec::new();
    for row in &rows.commands {
        let blocks = blocks(&mut client, row);
        // A reason that is none any more has to go, too; bytes of long strings are not counted.
        let is_right = (blocks > BLOCKS_MAX) != row.whole.is_empty() || row.whole.starts_with("copied");
        if !is_right {
            wrong.push(format!("{blocks} {} {}", row.command, row.whole));
        }
        println!("{blocks} {}", row.command);
    }
    assert!(
        wrong.is_empty(),
        "more than {BLOCKS_MAX} blocks, or a reason and no more:\n{}",
        wrong.join("\n")
    );
}
