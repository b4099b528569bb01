//! JSON texts and paths out of any bytes: no panic, what is printed reads back the same, and a path changes what it finds. A
//! text that is parsed in steps makes the same document, or is left to the whole parse.
#![no_main]

use darter_document::path::PathQuery;
use darter_document::{Doc, DocChange, DocNode, Parsing, Rewritten, Storing, parse, print, rewrite};
use darter_slab::Arena;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let split = bytes.iter().position(|byte| *byte == 0).unwrap_or(0);
    let (path, text) = bytes.split_at(split);
    let query = PathQuery::parse(path);
    let text = text.strip_prefix(&[0]).unwrap_or(text);
    let in_steps = printed_in_steps(text, 1 + split);
    let Ok(document) = parse(text) else { return assert_eq!(in_steps, None) };
    let doc = Doc::new(&document);
    let printed = text_of(doc);
    assert!(in_steps.is_none_or(|in_steps| in_steps == printed));
    let again = parse(&printed).expect("what was printed");
    assert_eq!(text_of(Doc::new(&again)), printed);
    let path = match query {
        Ok(PathQuery::Path(path)) => path,
        Ok(PathQuery::Computed(computed)) => {
            for value in computed.values(doc) {
                let mut text = Vec::new();
                print::print(DocNode::new(doc.names, &value), &mut text);
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
        Ok::<_, ()>(DocChange::Keep)
    });
    if let Ok(Rewritten::Whole(new)) = done {
        parse(&text_of(Doc::new(&new))).expect("what was changed");
    }
});

/// The text of the document that `text` makes in steps of `bytes_max`.
fn printed_in_steps(text: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    let mut parsing = Parsing::of_document();
    while !parsing.step(text, bytes_max).ok()? {}
    let mut parsed = parsing.end();
    let mut arena = Arena::with_reserve(64 << 20).expect("address space");
    let mut storing = Storing::new(parsed.stage);
    while !storing.step(&mut arena, 7).expect("room") {}
    storing.end(&mut parsed.first);
    Some(text_of(Doc::in_pieces(&parsed.first, &arena)))
}

fn text_of(doc: Doc<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    print::print(doc.root(), &mut out);
    out
}
