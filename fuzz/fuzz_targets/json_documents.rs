//! JSON texts and paths out of any bytes: no panic, what is printed reads back the same, and a path changes what it finds.
#![no_main]

use darter_document::path::PathQuery;
use darter_document::{Change, Doc, Node, Rewritten, parse, print, rewrite};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let split = bytes.iter().position(|byte| *byte == 0).unwrap_or(0);
    let (path, text) = bytes.split_at(split);
    let query = PathQuery::parse(path);
    let Ok(document) = parse(text.strip_prefix(&[0]).unwrap_or(text)) else { return };
    let doc = Doc::new(&document);
    let printed = text_of(doc);
    let again = parse(&printed).expect("what was printed");
    assert_eq!(text_of(Doc::new(&again)), printed);
    let path = match query {
        Ok(PathQuery::Path(path)) => path,
        Ok(PathQuery::Computed(computed)) => {
            for value in computed.values(doc) {
                let mut text = Vec::new();
                print::print(Node::new(doc.names, &value), &mut text);
                parse(&text).expect("what was computed");
            }
            return;
        }
        Err(_) => return,
    };
    let trace = path.trace(doc);
    trace.spots().iter().for_each(|spot| assert!(!doc.node(*spot).bytes().is_empty()));
    let done = rewrite(doc, &trace, |_, slot| {
        slot.replace(&[2]);
        Ok::<_, ()>(Change::Keep)
    });
    if let Ok(Rewritten::Whole(new)) = done {
        parse(&text_of(Doc::new(&new))).expect("what was changed");
    }
});

fn text_of(doc: Doc<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    print::print(doc.root(), &mut out);
    out
}
