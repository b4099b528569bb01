//! Measures documents: bytes for a byte of text, and time to parse, print, find and change.
//!
//! `cargo run --release -p darter-document --example document_cost [file.json ...]`; without files, rows made up
//! here.

mod catalogue;

use std::hint::black_box;
use std::time::Instant;

use darter_document::number::{Number, NumberOperation};
use darter_document::{Doc, DocChange, JsonPath, parse, print, rewrite};

fn main() {
    let files: Vec<Vec<u8>> = std::env::args().skip(1).filter_map(|name| std::fs::read(name).ok()).collect();
    let texts =
        if files.is_empty() { (0..200).map(|n| catalogue::row(n).into_bytes()).collect() } else { files };
    let mut plain: Vec<Kept> = Vec::new();
    for text in &texts {
        let Ok(bytes) = parse(text) else { continue };
        let mut shown = Vec::new();
        print::print(Doc::new(&bytes).root(), &mut shown);
        plain.push((shown, bytes));
    }
    let raw: usize = plain.iter().map(|(text, _)| text.len()).sum();
    let kept: usize = plain.iter().map(|(_, bytes)| bytes.len()).sum();
    println!(
        "{} documents, {raw} bytes of text without blanks, {kept} kept: {:.3}",
        plain.len(),
        kept as f64 / raw as f64
    );
    let rounds = (20_000_000 / raw.max(1)).max(1);
    let per_doc = |name: &str, run: &dyn Fn(&Kept)| {
        let started = Instant::now();
        for _ in 0..rounds {
            plain.iter().for_each(run);
        }
        let nanos = started.elapsed().as_nanos() as f64 / (rounds * plain.len()) as f64;
        println!("{name}: {nanos:.0} ns a document");
    };
    per_doc("parse", &|(text, _)| _ = black_box(parse(text)));
    per_doc("print", &|(_, bytes)| {
        let mut out = Vec::new();
        print::print(Doc::new(bytes).root(), &mut out);
        black_box(out);
    });
    let path = JsonPath::parse(b"$.stock.count").expect("a path");
    per_doc("path understood", &|_| _ = black_box(JsonPath::parse(b"$.stock.count")));
    per_doc("path found", &|(_, bytes)| _ = black_box(path.find(Doc::new(bytes))));
    per_doc("number changed", &|(_, bytes)| {
        let doc = Doc::new(bytes);
        let done = rewrite(doc, &path.trace(doc), |_, slot| {
            let old = Number::of(slot.view()).unwrap_or(Number::Int(0));
            let new = old.combine(NumberOperation::Add, Number::Int(1)).map_err(|_| ())?;
            slot.replace_by(|out| new.write(out));
            Ok::<_, ()>(DocChange::Keep)
        });
        _ = black_box(done);
    });
}

/// A text without blanks, and its document.
type Kept = (Vec<u8>, Vec<u8>);
