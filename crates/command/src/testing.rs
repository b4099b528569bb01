//! A keyspace to run commands against in tests, with the shards held that a command's row requires.

use darter_base::hash::KeyHasher;
use darter_store::Shard;
use darter_store::change::{JournalNote, JournalReaders, Listeners, Noted};
use darter_txn::{LockSet, Router, ShardPart, ShardSet};
use darter_wire::{Args, OwnedArgs, Reply};

use crate::spec::Reach;
use crate::{Ctx, DataCommand, Env, FAMILIES};

/// Shards, a clock that is set by hand, and a selected database.
pub(crate) struct Bed {
    parts: Vec<ShardPart>,
    router: Router,
    pub env: Env,
    pub now_ms: u64,
    pub db: usize,
    pub resp3: bool,
}

const SHARDS_LEN: u16 = 4;
const DBS_LEN: usize = 4;

impl Bed {
    /// An empty keyspace at a time some years from now.
    pub fn new() -> Bed {
        let hasher = KeyHasher::new(1);
        let router = Router::new(hasher, SHARDS_LEN);
        let parts = (0..SHARDS_LEN).map(|id| {
            let mut shard = Shard::new(DBS_LEN, u64::from(id), hasher).expect("address space for a shard");
            shard.share_links(std::sync::Arc::clone(router.links()));
            shard.changes.listen(Listeners::NOTIFY, true);
            ShardPart::new(shard, hasher)
        });
        Bed {
            parts: parts.collect(),
            router,
            env: Env::default(),
            now_ms: 1_800_000_000_000,
            db: 0,
            resp3: false,
        }
    }

    /// Runs a command of words without spaces; its reply with `\r\n` as `|`.
    pub fn run(&mut self, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let reply = self.run_words(&words);
        let text = String::from_utf8_lossy(&reply);
        text.strip_suffix("\r\n").unwrap_or(&text).replace("\r\n", "|")
    }

    /// Runs a command; returns its encoded reply.
    pub fn run_words(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let owned = OwnedArgs::from_slices(words);
        let args = owned.args();
        let command = find(args).expect("a data command");
        assert!(command.spec.accepts(args.len()), "arity of {}", command.spec.name);
        let locks = self.locks(command, args);
        let held = self.parts.iter_mut().enumerate().map(|(id, part)| (id as u16, part));
        let held = held.filter(|(id, _)| locks.ids().contains(id));
        let set = ShardSet::many(&self.router, held);
        let mut ctx = Ctx::new(set, &self.env, self.db, DBS_LEN, self.now_ms, None);
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out, self.resp3);
        if let Err(fault) = (command.run)(&mut ctx, args, &mut reply) {
            reply.truncate_to(0);
            reply.error(fault.line().as_bytes());
        }
        out
    }

    fn locks(&self, command: &DataCommand, args: Args<'_>) -> LockSet {
        let mut set = LockSet::new();
        let reach = match command.spec.reach {
            Reach::AllIf(needs_all) if needs_all(args) => Reach::All,
            Reach::AllIf(_) => Reach::Keys,
            reach => reach,
        };
        match reach {
            Reach::All | Reach::AllIf(_) | Reach::Slot(_) => set = LockSet::all(SHARDS_LEN),
            Reach::Linked(asks, _) => command.spec.each_key(args, &mut |at| {
                let mut add = |name: &[u8]| set.add(self.router.shard_of(self.router.key(name).hash));
                add(args.at(at));
                if asks(args) {
                    self.router.links().each(args.at(at), &mut add);
                }
            }),
            Reach::Run(find) => {
                let (first, len) = find(args, SHARDS_LEN);
                (first..first + len).for_each(|id| set.add(id));
            }
            Reach::Keys => command.spec.each_key(args, &mut |at| {
                set.add(self.router.shard_of(self.router.key(args.at(at)).hash));
            }),
        }
        set.seal();
        set
    }

    /// Has a journal read by `readers` listen.
    pub fn journal_for(&mut self, readers: JournalReaders) {
        for part in &mut self.parts {
            part.shard.changes.listen(Listeners::JOURNAL, readers != JournalReaders::None);
            part.shard.changes.listen(Listeners::REPLICAS, readers == JournalReaders::Replicas);
        }
    }

    /// What bodies had the journal write since the last call, in place of their commands.
    pub fn said(&mut self) -> Vec<String> {
        let notes = self.parts.iter_mut().flat_map(|part| part.shard.changes.take_notes());
        let text = |note: JournalNote| match note.what {
            Noted::Said(words, vocabulary) => {
                let words: Vec<String> =
                    words.iter().map(|word| String::from_utf8_lossy(word).into()).collect();
                format!("{vocabulary:?}: {}", words.join(" "))
            }
            other => format!("{other:?} {}", String::from_utf8_lossy(&note.key)),
        };
        notes.map(text).collect()
    }

    /// The events since the last call, as `event key` in the order of shards.
    pub fn events(&mut self) -> Vec<String> {
        let changes = self.parts.iter_mut().flat_map(|part| part.shard.changes.take());
        changes.map(|c| format!("{} {}", c.event.name, String::from_utf8_lossy(&c.key))).collect()
    }
}

fn find(args: Args<'_>) -> Option<&'static DataCommand> {
    let word = |at: usize| String::from_utf8_lossy(args.at(at)).to_ascii_lowercase();
    let (name, sub) = (word(0), format!("{}|{}", word(0), word(1)));
    let rows = || FAMILIES.iter().flat_map(|family| family.iter());
    rows().find(|row| row.spec.name == sub).or_else(|| rows().find(|row| row.spec.name == name))
}
