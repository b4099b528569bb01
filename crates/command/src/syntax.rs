//! Reads the notation of [`Spec::syntax`](crate::Spec): `key [NX | XX] [EX seconds] [key ...]`, as COMMAND DOCS and
//! the fuzz grammar need it. The input is our own text, never a client's bytes.

/// The kind of an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyntaxKind {
    /// A key.
    Key,
    /// Any bytes.
    String,
    /// A 64-bit integer.
    Integer,
    /// A floating point number.
    Double,
    /// A glob.
    Pattern,
    /// A point in time.
    UnixTime,
    /// A literal word.
    PureToken,
    /// One of the arguments inside.
    OneOf,
    /// All of the arguments inside, in order.
    Block,
}

impl SyntaxKind {
    /// The name COMMAND DOCS gives it.
    pub const fn name(self) -> &'static str {
        match self {
            SyntaxKind::Key => "key",
            SyntaxKind::String => "string",
            SyntaxKind::Integer => "integer",
            SyntaxKind::Double => "double",
            SyntaxKind::Pattern => "pattern",
            SyntaxKind::UnixTime => "unix-time",
            SyntaxKind::PureToken => "pure-token",
            SyntaxKind::OneOf => "oneof",
            SyntaxKind::Block => "block",
        }
    }
}

/// One argument of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arg {
    /// Its name.
    pub name: String,
    /// The kind.
    pub kind: SyntaxKind,
    /// The word before the argument, or the literal word itself.
    pub token: Option<String>,
    /// May be left out.
    pub is_optional: bool,
    /// May be repeated.
    pub is_multiple: bool,
    /// Its word is repeated with it.
    pub repeats_token: bool,
    /// The arguments of a choice or a block.
    pub inner: Vec<Arg>,
}

/// The arguments that `syntax` describes.
pub fn parse(syntax: &str) -> Vec<Arg> {
    let spaced: String = syntax.chars().fold(String::new(), |mut out, c| {
        match c {
            '[' | ']' | '<' | '>' | '(' | ')' | '|' => out.extend([' ', c, ' ']),
            _ => out.push(c),
        }
        out
    });
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    match one_of(sequences(&words, &mut at)) {
        One::Sequence(args) => args,
        One::Choice(choice) => vec![choice],
    }
}

/// The alternatives up to a closing bracket or the end.
fn sequences(words: &[&str], at: &mut usize) -> Vec<Vec<Arg>> {
    let mut all = vec![Vec::new()];
    while let Some(&word) = words.get(*at) {
        *at += 1;
        let Some(current) = all.last_mut() else { break };
        match word {
            "]" | ">" | ")" => break,
            "|" => all.push(Vec::new()),
            "[" => optional(sequences(words, at), current),
            "<" | "(" => match one_of(sequences(words, at)) {
                One::Choice(choice) => attach(current, choice),
                One::Sequence(args) => attach(current, block(args)),
            },
            "..." => {
                if let Some(last) = current.last_mut() {
                    last.is_multiple = true;
                }
            }
            word => attach(current, plain(word)),
        }
    }
    all
}

/// A word alone, or a token's argument when it follows the token.
fn attach(current: &mut Vec<Arg>, mut arg: Arg) {
    if let Some(last) = current.last_mut()
        && last.kind == SyntaxKind::PureToken
        && arg.kind != SyntaxKind::PureToken
        && arg.token.is_none()
        && !last.is_optional
    {
        arg.token = last.token.take();
        *last = arg;
    } else {
        current.push(arg);
    }
}

/// The content of `[...]`: an option, or the repetition of the argument before.
fn optional(alternatives: Vec<Vec<Arg>>, current: &mut Vec<Arg>) {
    if let [again] = &alternatives[..]
        && repeats(again, current)
    {
        let has_word = again.first().is_some_and(|arg| arg.token.is_some());
        let group = current.split_off(current.len().saturating_sub(again.len()));
        let mut group = if again.len() == 1 { group } else { vec![block(group)] };
        for arg in &mut group {
            arg.is_multiple = true;
            arg.repeats_token = arg.token.is_some() && has_word;
        }
        current.append(&mut group);
        return;
    }
    let mut arg = match one_of(alternatives) {
        One::Choice(choice) => choice,
        One::Sequence(mut args) if args.len() == 1 => match args.pop() {
            Some(arg) => arg,
            None => return,
        },
        One::Sequence(args) => block(args),
    };
    arg.is_optional = true;
    current.push(arg);
}

/// Returns true if `again` is `a b ...` after an `a b`.
fn repeats(again: &[Arg], current: &[Arg]) -> bool {
    let Some(start) = current.len().checked_sub(again.len()) else { return false };
    // `ID id [id ...]` repeats the argument without its word
    let is_bare = again.len() == 1 && again[0].token.is_none();
    let same = |(a, b): (&Arg, &Arg)| a.name == b.name && a.kind == b.kind && (is_bare || a.token == b.token);
    again.last().is_some_and(|last| last.is_multiple) && again.iter().zip(&current[start..]).all(same)
}

enum One {
    Sequence(Vec<Arg>),
    Choice(Arg),
}

fn one_of(mut alternatives: Vec<Vec<Arg>>) -> One {
    if alternatives.len() <= 1 {
        return One::Sequence(alternatives.pop().unwrap_or_default());
    }
    let mut inner: Vec<Arg> = Vec::new();
    for mut alternative in alternatives {
        match (alternative.len(), alternative.pop()) {
            (1, Some(arg)) => inner.push(arg),
            (_, Some(last)) => {
                alternative.push(last);
                inner.push(block(alternative));
            }
            (_, None) => {}
        }
    }
    let name = inner.iter().map(|arg| arg.name.as_str()).collect::<Vec<_>>().join("-or-");
    One::Choice(Arg { kind: SyntaxKind::OneOf, inner, ..named(name, None) })
}

/// All of `args` in order; a leading word becomes the word of the block.
fn block(mut args: Vec<Arg>) -> Arg {
    let is_plain =
        |arg: &Arg| !arg.is_optional && !matches!(arg.kind, SyntaxKind::OneOf | SyntaxKind::PureToken);
    let leads = args.len() > 1
        && args.first().is_some_and(|arg| arg.token.is_some() && !arg.is_optional)
        && args.iter().skip(1).all(is_plain);
    let token = if leads { args[0].token.take() } else { None };
    if args.first().is_some_and(|arg| arg.kind == SyntaxKind::PureToken && arg.token.is_none()) {
        args.remove(0);
    }
    let name = match (&token, args.first()) {
        (Some(token), _) => token.to_ascii_lowercase(),
        (None, Some(first)) => first.name.clone(),
        (None, None) => String::new(),
    };
    Arg { kind: SyntaxKind::Block, inner: args, ..named(name, token) }
}

fn named(name: String, token: Option<String>) -> Arg {
    Arg {
        name,
        kind: SyntaxKind::String,
        token,
        is_optional: false,
        is_multiple: false,
        repeats_token: false,
        inner: Vec::new(),
    }
}

fn plain(word: &str) -> Arg {
    let bare = word.trim_matches('"');
    let is_token = word.starts_with('"') || !bare.chars().any(|c| c.is_ascii_lowercase());
    if is_token {
        return Arg {
            kind: SyntaxKind::PureToken,
            ..named(bare.to_ascii_lowercase(), Some(bare.to_owned()))
        };
    }
    Arg { kind: kind_of(bare), ..named(bare.to_owned(), None) }
}

fn kind_of(name: &str) -> SyntaxKind {
    match name {
        "pattern" => SyntaxKind::Pattern,
        "score" | "longitude" | "latitude" | "radius" | "width" | "height" | "weight" => SyntaxKind::Double,
        "key" | "source" | "destination" | "newkey" | "sourcekey" | "dest" | "destkey"
        | "destination-key" | "key1" | "key2" => SyntaxKind::Key,
        "count" | "seconds" | "milliseconds" | "index" | "start" | "stop" | "end" | "offset" | "numkeys"
        | "cursor" | "db" | "destination-db" | "increment" | "decrement" | "timeout" | "len" | "bit"
        | "numfields" | "numreplicas" | "port" | "rank" | "num-matches" | "maxlen" | "limit"
        | "min-match-len" | "index1" | "index2" | "minutes" | "numlocal" | "client-id" | "ms"
        | "min-idle-time" | "ttl" | "frequency" | "version" | "protover" => SyntaxKind::Integer,
        _ if name.starts_with("unix-time") => SyntaxKind::UnixTime,
        _ => SyntaxKind::String,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(args: &[Arg]) -> String {
        let one = |arg: &Arg| {
            let mut text = String::new();
            if let Some(token) = &arg.token {
                text += token;
            }
            if arg.kind != SyntaxKind::PureToken {
                text += &format!(":{}", arg.kind.name());
            }
            if !arg.inner.is_empty() {
                text += &format!("({})", shape(&arg.inner));
            }
            text + if arg.is_optional { "?" } else { "" } + if arg.is_multiple { "*" } else { "" }
        };
        args.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_notation_reads_as_redis_means_it() {
        for (syntax, expected) in [
            ("", ""),
            ("key", ":key"),
            ("key [key ...]", ":key*"),
            ("key value [key value ...]", ":block(:key :string)*"),
            ("key [NX | XX] [GET]", ":key :oneof(NX XX)? GET?"),
            ("[EX seconds | KEEPTTL]", ":oneof(EX:integer KEEPTTL)?"),
            ("<LEFT | RIGHT> count", ":oneof(LEFT RIGHT) :integer"),
            ("[LIMIT offset count]", "LIMIT:block(:integer :integer)?"),
            ("[GET pattern [GET pattern ...]]", "GET:pattern?*"),
            ("[ID id [id ...]]", "ID:string?*"),
            ("[COUNT count [ANY]]", ":block(COUNT:integer ANY?)?"),
            ("host port | NO ONE", ":oneof(:block(:string :integer) :block(NO ONE))"),
            ("threshold [LIMIT count]", ":string LIMIT:integer?"),
            ("<\"*\" | id> field value [field value ...]", ":oneof(* :string) :block(:string :string)*"),
            ("a | b", ":oneof(:string :string)"),
        ] {
            assert_eq!(shape(&parse(syntax)), expected, "{syntax}");
        }
    }

    #[test]
    fn every_command_of_the_families_has_readable_arguments() {
        for command in crate::FAMILIES.iter().copied().flatten() {
            let open = command.spec.syntax.matches(['[', '<', '(']).count();
            let close = command.spec.syntax.matches([']', '>', ')']).count();
            assert_eq!(open, close, "{}", command.spec.name);
            let expects_none = command.spec.syntax.is_empty();
            assert_eq!(parse(command.spec.syntax).is_empty(), expects_none, "{}", command.spec.name);
        }
    }
}
