//! The commands whose holds are looked at: `commands.tsv`, read and spelled out.
//!
//! Used by `darter-bench holds` and, by path, by the system test of the same name; it talks to nobody.

/// What the table says.
pub struct Rows {
    /// Head of a command, and the words it gets for each member.
    pub fills: Vec<(Vec<String>, Vec<String>)>,
    /// The commands.
    pub commands: Vec<Row>,
}

/// One command.
pub struct Row {
    /// Commands run before it, each time.
    pub before: Vec<String>,
    /// Itself.
    pub command: String,
    /// Why it holds its shards for as long as it takes; empty where it is bounded.
    pub whole: String,
}

/// How large the collections are, and how many keys and new members a command names.
#[derive(Clone, Copy)]
pub struct Sizes {
    /// Members of each collection.
    pub members: u64,
    /// Keys, or members, of one command.
    pub words: u64,
}

impl Rows {
    /// The table.
    pub fn new() -> Rows {
        let mut rows = Rows { fills: Vec::new(), commands: Vec::new() };
        let words = |text: &str| text.split(' ').map(str::to_owned).collect();
        for line in include_str!("commands.tsv").lines() {
            let mut columns = line.split('\t');
            let mut next = || columns.next().unwrap_or_default();
            match next() {
                "fill" => rows.fills.push((words(next()), words(next()))),
                "run" => rows.commands.push(Row {
                    before: next().split(';').filter(|text| !text.is_empty()).map(str::to_owned).collect(),
                    command: next().to_owned(),
                    whole: next().to_owned(),
                }),
                _ => {}
            }
        }
        rows
    }
}

impl Sizes {
    /// The words that `text` stands for.
    pub fn spell(&self, text: &str) -> Vec<String> {
        let mut out = Vec::new();
        for word in text.split(' ') {
            let each = |make: &dyn Fn(u64) -> Vec<String>| (0..self.words).flat_map(make).collect::<Vec<_>>();
            match word {
                "{keys}" => out.extend(each(&|n| vec![format!("k:{n}")])),
                "{pairs}" => out.extend(each(&|n| vec![format!("k:{n}"), format!("value:{n}")])),
                "{members}" => out.extend(each(&|n| vec![format!("x:{n}")])),
                "{fields}" => out.extend(each(&|n| vec![format!("x:{n}"), format!("value:{n}")])),
                "{scored}" => out.extend(each(&|n| vec![n.to_string(), format!("x:{n}")])),
                "{places}" => out.extend(each(&|n| vec![east(n), north(n), format!("x:{n}")])),
                "{there}" => out.extend(each(&|n| vec![format!("m:{n}")])),
                "{ids}" => out.extend(each(&|n| vec![format!("{}-1", n + 1)])),
                "{items}" => out.extend(each(&|n| vec![format!("item:{n}")])),
                "{words}" => out.push(self.words.to_string()),
                "{json}" => {
                    let rows: Vec<String> = (0..self.members).map(|n| format!("{{\"id\":{n}}}")).collect();
                    out.push(format!("[{}]", rows.join(",")));
                }
                "{text}" => out.push("v".repeat(usize::try_from(self.members).unwrap_or(0) * 8)),
                _ => out.push(self.number(word)),
            }
        }
        out
    }

    /// The words of a fill for member `n`.
    pub fn item(&self, words: &[String], n: u64) -> Vec<String> {
        let spell = |word: &String| {
            word.replace("{i}", &n.to_string())
                .replace("{id}", &(n + 1).to_string())
                .replace("{r}", &(n * 7919 % 1_000_003).to_string())
                .replace("{east}", &east(n))
                .replace("{north}", &north(n))
        };
        words.iter().map(spell).collect()
    }

    fn number(&self, word: &str) -> String {
        word.replace("{n}", &self.members.to_string())
            .replace("{n/2}", &(self.members / 2).to_string())
            .replace("{n/10}", &(self.members / 10).to_string())
    }
}

fn east(n: u64) -> String {
    format!("{}", (n * 7919 % 1000) as f64 / 500.0)
}

fn north(n: u64) -> String {
    format!("{}", 40.0 + (n * 104_729 % 1000) as f64 / 500.0)
}
