//! JSON texts and paths out of any bytes: no panic, what is printed reads back the same, and a path changes what it finds.
#![no_main]

use darter_document::{Change, Doc, Path, Rewritten, edit, parse, print, rewrite};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let split = bytes.iter().position(|byte| *byte == 0).unwrap_or(0);
    let (path, text) = bytes.split_at(split);
    let path = Path::parse(path);
    let Ok(document) = parse(text.strip_prefix(&[0]).unwrap_or(text)) else { return };
    let doc = Doc::new(&document);
    let printed = text_of(doc);
    let again = parse(&printed).expect("what was printed");
    assert_eq!(text_of(Doc::new(&again)), printed);
    let Ok(path) = path else { return };
    let mut hits = path.find(doc);
    hits.sort_unstable();
    hits.dedup();
    hits.iter().for_each(|at| assert!(!doc.node(*at).bytes().is_empty()));
    let done = rewrite(doc, &hits, |_, out, start| {
        edit::replace(out, start, &[2]);
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
