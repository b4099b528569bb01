//! Answers made of whole collections, such as SUNION, ZINTER and SORT, in steps: `Gather`, which the server drives.
//!
//! The command begins a read of each collection while it holds all their shards, so what is gathered is one state.
//! The members are then read a slice at a time, each with one shard held, and taken in and answered with none. A result
//! that is to be stored is built aside instead ([`keeping`]). Memory: each member once. Called by the bodies of such
//! commands (to begin) and by the server (steps and the end).

pub mod building;
mod combining;
pub mod drawing;
pub mod filling;
pub mod folding;
pub mod keeping;
mod members;
pub mod parting;
pub mod pieces;
pub mod pointer;
pub mod pointing;
mod rounds;
pub mod sifting;
mod sorted;
mod sorting;
pub mod survey;
mod weeding;

use std::collections::VecDeque;
use std::sync::Arc;

use darter_pack::decimal::Digits;
use darter_pack::entry::Item;
use darter_pack::tree::window::{Seen, Tell};
use darter_store::reads::Stretch;
use darter_txn::Part;
use darter_wire::{Args, Reply};

pub use building::Build;
pub use combining::{Combining, Operation, Scoring, reading_order};
pub use keeping::{Form, Kept};
pub use sifting::Found;
pub use sorting::{ScoreOf, Sorting};

use crate::Ctx;
use crate::slices::Rest;
use building::Building;
use combining::PARTS_AT_ONCE;
use filling::Filling;
use folding::Folding;
use keeping::Keeping;
use parting::Parting;
use pointing::Pointing;
use sifting::Sifting;
use survey::Survey;
use weeding::Weeding;

/// An answer that is being gathered.
pub struct Gather {
    // Reads that are not done yet, in the order in which they are taken in.
    reads: VecDeque<Read>,
    // What the last slice told, taken in before the next one; or what is to go into the result next, from `told_at` on.
    told: Vec<u8>,
    told_at: usize,
    // Which collection that was.
    told_nth: u32,
    maker: Maker,
    resp3: bool,
    stage: Stage,
    keeping: Option<Box<Keeping>>,
}

/// A read under way.
#[derive(Clone, Copy, Debug)]
struct Read {
    shard: u16,
    number: u32,
    // Which of the command's collections it is, in the order of reading.
    nth: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Reading,
    Arranging,
    Telling,
    Keeping,
    Done,
}

/// What is made of the members.
pub enum Maker {
    /// A set or sorted set of several.
    Combining(Box<Combining>),
    /// Elements in order.
    Sorting(Box<Sorting>),
    /// The members as they are, to be stored.
    Copying,
    /// The members, of which some are taken out.
    Parting(Box<Parting>),
    /// Elements, and what patterns make of them.
    Pointing(Box<Pointing>),
    /// Some of the members, as the command looks for them.
    Sifting(Box<dyn Sifting>),
    /// The members, but for those that the command names.
    Weeding(Box<Weeding>),
    /// No members, but strings.
    Folding(Box<Folding>),
    /// The members as they are, and then those that the command names, to be stored.
    Filling(Filling),
    /// No members, but a draft or an answer that the command builds itself.
    Building(Building),
    /// No members, but many keys, or a very long string.
    Surveying(Box<Survey>),
}

/// A slice with a shard held ends when it has told so much: some 10 microseconds.
pub(crate) const TOLD_BYTES: usize = 8 << 10;
/// A slice of the answer, for which no shard is held.
const ANSWER_BYTES: usize = 16 << 10;

impl Gather {
    /// Numbers of the reads that are still open, with their shards.
    pub fn open_reads(&self) -> impl Iterator<Item = (u16, u32)> + '_ {
        self.reads.iter().map(|read| (read.shard, read.number))
    }

    /// The number of what it has built aside so far, and its shard.
    pub fn draft(&self) -> Option<(u16, u32)> {
        self.keeping.as_ref().and_then(|keeping| keeping.draft())
    }

    /// The shard that the next slice needs; `None` when it needs none.
    pub fn shard(&self) -> Option<u16> {
        match &self.keeping {
            Some(keeping) if self.told_at < self.told.len() => Some(keeping.shard),
            _ => match &self.maker {
                Maker::Folding(folding) => folding.shard(),
                Maker::Surveying(survey) => survey.shard(),
                Maker::Pointing(pointing) if pointing.is_past_reading() => pointing.shard(),
                Maker::Weeding(weeding) if !weeding.is_ready() => None,
                Maker::Building(building) if !building.is_ready() => None,
                Maker::Building(building) => {
                    self.keeping.as_ref().filter(|_| !building.is_done()).map(|keeping| keeping.shard)
                }
                _ => self.reads.front().map(|read| read.shard),
            },
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let made = match &self.maker {
            Maker::Combining(combining) => combining.bytes(),
            Maker::Sorting(sorting) => sorting.bytes(),
            Maker::Copying | Maker::Filling(_) => 0,
            Maker::Building(building) => building.bytes(),
            Maker::Parting(parting) => parting.bytes(),
            Maker::Pointing(pointing) => pointing.bytes(),
            Maker::Weeding(weeding) => weeding.bytes(),
            Maker::Sifting(sifting) => sifting.bytes(),
            Maker::Folding(folding) => folding.bytes(),
            Maker::Surveying(survey) => survey.bytes(),
        };
        made + self.told.capacity()
    }

    /// A slice of what comes next, with its shard held.
    pub fn step(&mut self, part: &mut Part) {
        let draft = self.draft();
        match &mut self.maker {
            Maker::Surveying(survey) => return survey.step(part),
            Maker::Building(building) => return building.step(part, draft),
            _ => {}
        }
        if let Maker::Pointing(pointing) = &mut self.maker
            && pointing.is_past_reading()
            && self.told_at >= self.told.len()
        {
            return pointing.step(part);
        }
        let shard = &mut part.shard;
        if let Some(keeping) = &mut self.keeping
            && self.told_at < self.told.len()
        {
            self.told_at = keeping.add(shard, &self.told, self.told_at);
            if self.told_at >= self.told.len() {
                // Nothing is taken in twice.
                self.told.clear();
                self.told_at = 0;
            }
            return;
        }
        if let Maker::Folding(folding) = &mut self.maker {
            return folding.step(shard);
        }
        let Some(read) = self.reads.front() else { return };
        let told_max =
            if let Maker::Sifting(sifting) = &self.maker { sifting.told_max() } else { TOLD_BYTES };
        let bytes_max = self.told.len() + told_max;
        let number = read.number;
        self.told_nth = read.nth;
        if self.is_decided() || shard.read_step(number, &mut self.told, bytes_max) {
            shard.end_read(number);
            self.reads.pop_front();
        }
        if !matches!(self.maker, Maker::Copying | Maker::Filling(_)) {
            // Nothing goes into the result before it is taken in.
            self.told_at = self.told.len();
        }
    }

    /// Takes in what was read last, and gets what is to be stored next: to be called before each slice, with no shard
    /// held. `args` are the command's.
    pub fn take_in(&mut self, args: Args<'_>) {
        match &mut self.maker {
            Maker::Surveying(survey) => return survey.prepare(args),
            Maker::Building(building) => return building.prepare(args),
            _ => {}
        }
        if self.told_at < self.told.len() {
            return;
        }
        match &mut self.maker {
            Maker::Parting(parting) => {
                self.told = parting.take(&self.told);
                self.told_at = 0;
                return;
            }
            Maker::Weeding(weeding) if !weeding.is_ready() => return weeding.prepare(args),
            Maker::Weeding(weeding) => {
                self.told = weeding.take(&self.told);
                self.told_at = 0;
                return;
            }
            Maker::Sifting(sifting) => {
                sifting.take(self.told_nth, &self.told);
                self.told.clear();
            }
            _ => {}
        }
        for member in told_members(&self.told) {
            match &mut self.maker {
                Maker::Combining(combining) => combining.add(self.told_nth, member.score, member.text),
                Maker::Sorting(sorting) => sorting.add(member.text),
                Maker::Pointing(pointing) => pointing.add(member.text),
                _ => break,
            }
        }
        self.told.clear();
        self.told_at = 0;
        if self.stage == Stage::Keeping {
            self.prepare(args);
        }
    }

    /// Gets what is to be stored next.
    fn prepare(&mut self, args: Args<'_>) {
        let Some(keeping) = &self.keeping else { return };
        let (told, mut left) = (&mut self.told, keeping.form().batch_len());
        let is_over = match &mut self.maker {
            Maker::Sorting(sorting) => sorting.go_on(|text| {
                write_told(told, text, 0.0);
                left -= 1;
                left > 0
            }),
            Maker::Sifting(sifting) => sifting.store(left, &mut |text, score| write_told(told, text, score)),
            Maker::Filling(filling) => filling.store(args, left, told),
            Maker::Pointing(pointing) => {
                pointing.tell(left, |text| write_told(told, text.unwrap_or_default(), 0.0))
            }
            Maker::Combining(combining) => {
                let mut parts_left = PARTS_AT_ONCE;
                while left > 0 {
                    let Some((text, score)) = combining.next(&mut parts_left) else { break };
                    write_told(told, text, score);
                    left -= 1;
                }
                combining.is_over()
            }
            _ => true,
        };
        if is_over && self.told.is_empty() {
            self.stage = Stage::Done;
        }
    }

    /// Goes on with the answer, when all is read; returns whether that was all.
    pub fn answer(&mut self, out: &mut Vec<u8>) -> bool {
        let bytes_max = out.len() + ANSWER_BYTES;
        let mut reply = Reply::new(out, self.resp3);
        let keeps = self.keeping.is_some();
        self.stage = match self.stage {
            Stage::Reading => self.maker.end_reading(keeps, &mut reply, bytes_max),
            Stage::Arranging => self.maker.arrange(keeps, &mut reply),
            Stage::Telling => self.maker.tell(&mut reply, bytes_max),
            // What is to be stored is got by `take_in`.
            Stage::Keeping => Stage::Keeping,
            Stage::Done => Stage::Done,
        };
        self.stage == Stage::Done && !keeps
    }

    /// Whether what is left to read does not matter.
    fn is_decided(&self) -> bool {
        match &self.maker {
            Maker::Sorting(sorting) => sorting.has_failed(),
            Maker::Sifting(sifting) => sifting.is_enough(),
            _ => false,
        }
    }

    /// Whether it is to be stored, and nothing is left to do but that: the result is complete, or of no use because a
    /// key it is made of has changed.
    pub fn is_to_end(&self) -> bool {
        let is_complete = self.stage == Stage::Done && self.told_at >= self.told.len();
        self.keeping.as_ref().is_some_and(|keeping| is_complete || keeping.is_stale())
    }

    /// Looks at the keys that the result is made of, whose shards are held: those whose time is up go now. What has
    /// changed must be told to everybody before [`Gather::end`].
    pub fn look(&self, ctx: &mut Ctx<'_>) {
        if let Some(keeping) = &self.keeping {
            keeping.look(ctx);
        }
    }

    /// Ends what is to be stored, with the shards of its command held: the result, which the command's body is to find
    /// in its context, unless a key it is made of has changed.
    pub fn end(&mut self, ctx: &mut Ctx<'_>) -> Option<Kept> {
        for Read { shard, number, .. } in self.reads.drain(..) {
            if let Some(part) = ctx.part(shard) {
                part.shard.end_read(number);
            }
        }
        let fault = match &self.maker {
            Maker::Sorting(sorting) => sorting.fault().cloned(),
            Maker::Filling(filling) => filling.fault().cloned(),
            Maker::Building(building) => building.fault().cloned(),
            Maker::Pointing(pointing) => pointing.fault().cloned(),
            _ => None,
        };
        let found = match &mut self.maker {
            Maker::Sifting(sifting) => sifting.found(),
            Maker::Folding(folding) => folding.found(),
            Maker::Surveying(survey) => survey.found(),
            Maker::Parting(parting) => parting.found(),
            Maker::Pointing(pointing) => pointing.found(),
            Maker::Building(building) => building.found(),
            Maker::Combining(_)
            | Maker::Sorting(_)
            | Maker::Copying
            | Maker::Filling(_)
            | Maker::Weeding(_) => Found::default(),
        };
        let is_stale = match (&self.maker, &self.keeping) {
            (Maker::Surveying(survey), _) => survey.is_stale(ctx.now_ms),
            (Maker::Pointing(pointing), _) => pointing.is_stale(ctx.now_ms),
            (Maker::Building(building), Some(keeping)) => {
                ctx.part(keeping.shard).is_none_or(|part| building.is_stale(&mut part.shard))
            }
            _ => false,
        };
        let mut kept = self.keeping.take()?.end(fault, ctx)?;
        if is_stale {
            kept.give_up(ctx);
            return None;
        }
        kept.found = found;
        Some(kept)
    }

    /// How often the command was begun, this time included.
    pub fn tries(&self) -> u8 {
        self.keeping.as_ref().map_or(0, |keeping| keeping.tries)
    }

    /// Notes that the command was begun so often before.
    pub fn tried(&mut self, tries: u8) {
        if let Some(keeping) = &mut self.keeping {
            keeping.tries = tries;
        }
    }
}

impl Maker {
    /// All is read, as far as that was known: what follows.
    fn end_reading(&mut self, keeps: bool, reply: &mut Reply<'_>, bytes_max: usize) -> Stage {
        match self {
            Maker::Combining(_) | Maker::Sorting(_) => Stage::Arranging,
            Maker::Copying | Maker::Parting(_) | Maker::Folding(_) => Stage::Done,
            Maker::Filling(_) => Stage::Keeping,
            Maker::Sifting(_) if keeps => Stage::Keeping,
            Maker::Sifting(_) => self.tell(reply, bytes_max),
            Maker::Weeding(weeding) if !weeding.is_ready() => Stage::Reading,
            Maker::Weeding(_) => Stage::Done,
            Maker::Building(building) if !building.is_ready() => Stage::Reading,
            Maker::Building(building) => match building.finish() {
                true => Stage::Done,
                false => Stage::Reading,
            },
            Maker::Surveying(survey) => match survey.work() {
                true => Stage::Done,
                false => Stage::Reading,
            },
            Maker::Pointing(pointing) => match pointing.work() {
                true if pointing.is_stored() => Stage::Keeping,
                true => Stage::Telling,
                false => Stage::Reading,
            },
        }
    }

    /// Brings what was read into order, a part at a time.
    fn arrange(&mut self, keeps: bool, reply: &mut Reply<'_>) -> Stage {
        match self {
            Maker::Combining(combining) => match combining.arrange() {
                true if keeps => Stage::Keeping,
                true => {
                    combining.head(reply);
                    Stage::Telling
                }
                false => Stage::Arranging,
            },
            Maker::Sorting(sorting) if keeps => match sorting.fault() {
                Some(_) => Stage::Done,
                None => {
                    sorting.seal();
                    Stage::Keeping
                }
            },
            Maker::Sorting(sorting) => match sorting.head(reply) {
                true => Stage::Telling,
                false => Stage::Done,
            },
            _ => Stage::Done,
        }
    }

    /// Goes on with what is told.
    fn tell(&mut self, reply: &mut Reply<'_>, bytes_max: usize) -> Stage {
        let is_done = match self {
            Maker::Combining(combining) => combining.tell(reply, bytes_max),
            Maker::Sorting(sorting) => sorting.tell(reply, bytes_max),
            Maker::Sifting(sifting) => sifting.answer(reply, bytes_max),
            Maker::Pointing(pointing) => pointing.put_together(),
            _ => true,
        };
        if is_done { Stage::Done } else { Stage::Telling }
    }
}

/// A result that its keys' changes have made useless so often is made in one go.
pub const TRIES_MAX: u8 = 3;

impl Ctx<'_> {
    /// Leaves the answer to slices that read these collections in this order; false when the body must give it itself.
    #[cold]
    pub fn gather(&mut self, sources: &[(&[u8], Stretch)], maker: Maker, resp3: bool) -> bool {
        self.begin_gather(sources, maker, resp3, None)
    }

    /// As [`Ctx::gather`], for a result that is to be stored at `dest`. `names` are all keys that it depends on. The
    /// body runs again when the result is there, and finds it as [`Ctx::kept`].
    #[cold]
    pub fn gather_for(
        &mut self,
        (dest, form): (&[u8], Form),
        names: &[&[u8]],
        sources: &[(&[u8], Stretch)],
        maker: Maker,
    ) -> bool {
        let keeping = Keeping::new(self, dest, form, names);
        self.begin_gather(sources, maker, false, Some(Box::new(keeping)))
    }

    fn begin_gather(
        &mut self,
        sources: &[(&[u8], Stretch)],
        maker: Maker,
        resp3: bool,
        keeping: Option<Box<Keeping>>,
    ) -> bool {
        let mut reads = VecDeque::with_capacity(sources.len());
        let tell = if let Maker::Sifting(sifting) = &maker { sifting.tell() } else { tell() };
        for (nth, (name, stretch)) in sources.iter().enumerate() {
            let (key, db) = (self.key(name), self.db);
            let shard = self.shards_mut().router().shard_of(key.hash);
            let part = self.shards_mut().part_mut(key);
            let Some(number) = part.shard.begin_read(db, key, *stretch, tell.clone()) else {
                for Read { shard, number, .. } in reads {
                    if let Some(part) = self.part(shard) {
                        part.shard.end_read(number);
                    }
                }
                if let Some(keeping) = keeping {
                    keeping.end(None, self);
                }
                return false;
            };
            reads.push_back(Read { shard, number, nth: nth as u32 });
        }
        let gather = Gather {
            reads,
            told: Vec::new(),
            told_at: 0,
            told_nth: 0,
            maker,
            resp3,
            stage: Stage::Reading,
            keeping,
        };
        self.rest = Some(Rest::Gather(Box::new(gather)));
        true
    }
}

/// Writes members down as they come, for [`told_members`].
pub(crate) fn tell() -> Tell {
    Arc::new(|seen, out| match seen {
        Seen::Item(item) => write_item(out, item, 1.0),
        Seen::Scored(member, score) => write_item(out, member, score),
        Seen::Field(field, value) => {
            write_item(out, field, 0.0);
            write_item(out, value, 0.0);
        }
        Seen::Logged(_) => debug_assert!(false, "streams are not gathered"),
    })
}

fn write_item(out: &mut Vec<u8>, item: Item<'_>, score: f64) {
    let mut digits = Digits::new();
    write_told(out, item.text(&mut digits), score);
}

fn write_told(out: &mut Vec<u8>, text: &[u8], score: f64) {
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(&score.to_le_bytes());
    out.extend_from_slice(text);
}

/// A member on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told<'a> {
    /// Its score, 1 in sets.
    pub score: f64,
    /// Itself.
    pub text: &'a [u8],
}

/// Members that were told.
pub(crate) struct ToldMembers<'a>(&'a [u8]);

/// The members that [`tell`] wrote down.
pub(crate) fn told_members(told: &[u8]) -> ToldMembers<'_> {
    ToldMembers(told)
}

impl<'a> ToldMembers<'a> {
    /// What is left of them.
    fn rest(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for ToldMembers<'a> {
    type Item = Told<'a>;

    fn next(&mut self) -> Option<Told<'a>> {
        let (len, rest) = self.0.split_first_chunk::<4>()?;
        let (score, rest) = rest.split_first_chunk::<8>()?;
        let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        self.0 = rest;
        Some(Told { score: f64::from_le_bytes(*score), text })
    }
}
