//! The little language that command forms are written in, and its expansion into arguments.
//!
//! Tokens are separated by blanks: `word` stands for itself, `<name>` for a drawn word (`words.rs`), both may be glued
//! (`(<score>`). Alone, `[` … `]` is left out half of the time, `(` … `|` … `)` is a choice, `{` … `}` repeats one to
//! four times (`{*300` exactly 300 times), `""` is the empty argument. In fixed text `·` is a blank and `¶` a new line.

use crate::rng::Rng;
use crate::words;

/// A parsed form.
#[derive(Clone, Debug)]
pub struct Form(Vec<Node>);

#[derive(Clone, Debug)]
enum Node {
    Token(Vec<Piece>),
    Optional(Vec<Node>),
    Choice(Vec<Vec<Node>>),
    Repeat(Vec<Node>),
    Times(usize, Vec<Node>),
}

#[derive(Clone, Debug)]
enum Piece {
    Fixed(&'static str),
    Drawn(&'static str),
}

impl Form {
    /// Parses `text`.  Errors: an unbalanced bracket, an unknown drawn word.
    pub fn parse(text: &'static str) -> Result<Self, String> {
        let tokens: Vec<&'static str> = text.split_whitespace().collect();
        let mut at = 0;
        let nodes = parse_until(&tokens, &mut at, &[]).map_err(|e| format!("{text:?}: {e}"))?;
        if at < tokens.len() {
            return Err(format!("{text:?}: {:?} closes nothing", tokens[at]));
        }
        Ok(Self(nodes))
    }

    /// Draws one command from the form.
    pub fn expand(&self, rng: &mut Rng) -> Vec<Vec<u8>> {
        let mut args = Vec::new();
        expand(&self.0, rng, &mut args);
        args
    }
}

fn parse_until(tokens: &[&'static str], at: &mut usize, ends: &[&str]) -> Result<Vec<Node>, String> {
    let mut nodes = Vec::new();
    while let Some(token) = tokens.get(*at).copied() {
        if ends.contains(&token) {
            return Ok(nodes);
        }
        *at += 1;
        nodes.push(match token {
            "[" => Node::Optional(parse_closed(tokens, at, "]")?),
            "{" => Node::Repeat(parse_closed(tokens, at, "}")?),
            "(" => Node::Choice(parse_choice(tokens, at)?),
            "]" | "}" | ")" | "|" => return Err(format!("{token:?} closes nothing")),
            _ if token.starts_with("{*") => {
                let times = token[2..].parse().map_err(|_| format!("{token:?} is no count"))?;
                Node::Times(times, parse_closed(tokens, at, "}")?)
            }
            "\"\"" => Node::Token(vec![Piece::Fixed("")]),
            _ => Node::Token(parse_token(token)?),
        });
    }
    if ends.is_empty() { Ok(nodes) } else { Err(format!("one of {ends:?} is missing")) }
}

fn parse_closed(tokens: &[&'static str], at: &mut usize, end: &str) -> Result<Vec<Node>, String> {
    let nodes = parse_until(tokens, at, &[end])?;
    *at += 1;
    Ok(nodes)
}

fn parse_choice(tokens: &[&'static str], at: &mut usize) -> Result<Vec<Vec<Node>>, String> {
    let mut branches = Vec::new();
    loop {
        branches.push(parse_until(tokens, at, &["|", ")"])?);
        *at += 1;
        if tokens[*at - 1] == ")" {
            return Ok(branches);
        }
    }
}

fn parse_token(token: &'static str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = token;
    while let Some((fixed, tail)) = rest.split_once('<')
        && let Some((name, tail)) = tail.split_once('>')
    {
        if !words::NAMES.contains(&name) {
            return Err(format!("unknown word <{name}>"));
        }
        if !fixed.is_empty() {
            pieces.push(Piece::Fixed(fixed));
        }
        pieces.push(Piece::Drawn(name));
        rest = tail;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Fixed(rest));
    }
    Ok(pieces)
}

fn expand(nodes: &[Node], rng: &mut Rng, args: &mut Vec<Vec<u8>>) {
    for node in nodes {
        match node {
            Node::Token(pieces) if matches!(pieces[..], [Piece::Drawn("call")]) => {
                args.extend(words::call(rng));
            }
            Node::Token(pieces) => {
                let mut arg = Vec::new();
                for piece in pieces {
                    match piece {
                        Piece::Fixed(text) => {
                            arg.extend_from_slice(text.replace('·', " ").replace('¶', "\n").as_bytes());
                        }
                        Piece::Drawn(name) => arg.extend(words::draw(name, rng)),
                    }
                }
                args.push(arg);
            }
            Node::Optional(inner) if rng.percent(50) => expand(inner, rng, args),
            Node::Optional(_) => {}
            Node::Choice(branches) => expand(rng.pick::<Vec<Node>>(branches), rng, args),
            Node::Times(times, inner) => (0..*times).for_each(|_| expand(inner, rng, args)),
            Node::Repeat(inner) => (0..=rng.below(4)).for_each(|_| expand(inner, rng, args)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_options_and_repeats() {
        let form = Form::parse("SET <key> v [ NX ] ( A 1 | B ) { <field> x }").unwrap();
        let mut rng = Rng::new(1);
        let lengths: Vec<usize> = (0..200).map(|_| form.expand(&mut rng).len()).collect();
        assert_eq!(lengths.iter().min(), Some(&6));
        assert_eq!(lengths.iter().max(), Some(&14));
    }

    #[test]
    fn an_exact_count_repeats_so_often() {
        let form = Form::parse("SADD s {*300 <member> }").unwrap();
        assert_eq!(form.expand(&mut Rng::new(1)).len(), 302);
        assert!(Form::parse("SADD s {*x <member> }").is_err());
    }

    #[test]
    fn the_same_seed_gives_the_same_command() {
        let form = Form::parse("MSET { <key> <value> }").unwrap();
        assert_eq!(form.expand(&mut Rng::new(9)), form.expand(&mut Rng::new(9)));
    }

    #[test]
    fn faults_are_named() {
        assert!(Form::parse("A [ B").is_err());
        assert!(Form::parse("A ] B").is_err());
        assert!(Form::parse("A ( B | C").is_err());
        assert!(Form::parse("A <nonsense>").unwrap_err().contains("nonsense"));
    }

    #[test]
    fn glued_pieces_make_one_argument() {
        let args = Form::parse("ZCOUNT z (<index> \"\"").unwrap().expand(&mut Rng::new(2));
        assert_eq!(args.len(), 4);
        assert!(args[2].starts_with(b"("));
        assert!(args[3].is_empty());
    }
}
