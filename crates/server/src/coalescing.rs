//! Coalescing: whether a thread rests a moment between turns, so that more arrives at once.
//!
//! A server that is faster than its clients has short turns: each looks for events anew, and each answer wakes a client
//! that has just fallen asleep. If the thread rests some microseconds first, more requests come together, and the client
//! stays awake: less work in the kernel for both sides. Whether that is so is measured: slots with two lengths of rests,
//! the first of which is none, take turns. The longer one stays only if it saves processor time and the thread receives
//! no less; then one longer still is tried. Called by the worker between its turns. It takes figures and times as
//! arguments and never sleeps itself.

use std::time::Duration;

/// What a thread has received since it began.
#[derive(Clone, Copy, Default, Debug)]
pub struct Received {
    /// Calls that received something.
    pub reads: u64,
    /// Requests that came together with others.
    pub pipelined: u64,
    /// Bytes.
    pub bytes: u64,
    /// Processor time of the thread.
    pub cpu: Duration,
}

impl Received {
    fn since(self, before: Received) -> Received {
        Received {
            reads: self.reads.saturating_sub(before.reads),
            pipelined: self.pipelined.saturating_sub(before.pipelined),
            bytes: self.bytes.saturating_sub(before.bytes),
            cpu: self.cpu.saturating_sub(before.cpu),
        }
    }

    fn is_pipelined(self) -> bool {
        self.pipelined >= PIECE_MIN * self.reads && self.reads > 0
    }

    /// Whether turns are so long that a rest adds nothing to what has come meanwhile.
    fn is_full(self) -> bool {
        self.pipelined >= PIECE_MAX * self.reads
    }
}

/// How long one rest lasts, by level. The first is none.
const RESTS: [Duration; 4] =
    [Duration::ZERO, Duration::from_micros(100), Duration::from_micros(200), Duration::from_micros(300)];
/// Turns between two looks at the clock.
const LOOK_TURNS: u32 = 32;
/// Requests in a read from which on a connection pipelines.
const PIECE_MIN: u64 = 4;
/// Requests in a read from which on nothing is to be gained.
const PIECE_MAX: u64 = 128;
/// A slot of a trial. Its first half is not counted: it begins with what the slot before has left.
const SLOT: Duration = Duration::from_millis(40);
/// Slots of a trial, with the shorter and the longer rest by turns.
const SLOTS: u32 = 6;
/// How long the outcome of a trial holds; after trials in vain up to [`DOUBLINGS`] times twice as long.
const HOLDS: Duration = Duration::from_secs(10);
const DOUBLINGS: u32 = 3;
/// A thread with fewer looks than one in this time has little to do.
const IDLE: Duration = Duration::from_millis(50);
/// The longer rest stays if processor time for each byte falls to this share, in percent.
const COST_PERCENT_MAX: u128 = 94;
/// It stays if bytes in a second do not fall below this share, in percent. Slots of a busy machine differ by as much. A
/// rest that is made longer may not cost as much again.
const RATE_PERCENT_MIN: [u128; 3] = [92, 96, 96];

/// What counts for one side of a trial.
#[derive(Clone, Copy, Default, Debug)]
struct TrialSide {
    cpu: Duration,
    bytes: u64,
    time: Duration,
}

impl TrialSide {
    fn add(&mut self, received: Received, time: Duration) {
        self.cpu += received.cpu;
        self.bytes += received.bytes;
        self.time += time;
    }
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Nobody pipelines, or rests did not pay: looked at again later.
    Watches { tries_from: Duration },
    /// The rests of `level` and of the level above are compared.
    Tries {
        level: usize,
        slot: u32,
        began: Duration,
        half: Option<(Received, Duration)>,
        sides: [TrialSide; 2],
    },
    /// The rest of this level pays, which is above 0.
    Rests { level: usize, until: Duration },
}

/// The state of one thread.
#[derive(Debug)]
pub struct Coalescing {
    phase: Phase,
    looks_in: u32,
    seen: Received,
    seen_at: Duration,
    vain: u32,
    rest: Duration,
}

impl Default for Coalescing {
    fn default() -> Coalescing {
        let phase = Phase::Watches { tries_from: Duration::ZERO };
        let (seen, seen_at) = (Received::default(), Duration::ZERO);
        Coalescing { phase, looks_in: LOOK_TURNS, seen, seen_at, vain: 0, rest: Duration::ZERO }
    }
}

impl Coalescing {
    /// How long the thread rests before its next turn. Called after each turn in which something arrived.
    #[inline]
    pub fn rest(&mut self, received: impl FnOnce() -> (Received, Duration)) -> Duration {
        self.looks_in -= 1;
        if self.looks_in == 0 {
            self.looks_in = LOOK_TURNS;
            let (received, now) = received();
            self.look(received, now);
        }
        self.rest
    }

    #[cold]
    fn look(&mut self, received: Received, now: Duration) {
        let new = received.since(self.seen);
        let took = now.saturating_sub(self.seen_at);
        (self.seen, self.seen_at) = (received, now);
        let is_worth_it = took < IDLE && new.is_pipelined() && !new.is_full();
        self.phase = match self.phase {
            Phase::Watches { tries_from } if is_worth_it && now >= tries_from => begin_trial(0, now),
            Phase::Watches { tries_from } => Phase::Watches { tries_from },
            _ if !is_worth_it => Phase::Watches { tries_from: now + SLOT },
            // Whether it still pays: against the level below.
            Phase::Rests { level, until } if now >= until => begin_trial(level - 1, now),
            Phase::Rests { .. } => self.phase,
            Phase::Tries { level, slot, began, half: None, sides } => {
                let half = (now.saturating_sub(began) >= SLOT / 2).then_some((received, now));
                Phase::Tries { level, slot, began, half, sides }
            }
            Phase::Tries { began, .. } if now.saturating_sub(began) < SLOT => self.phase,
            Phase::Tries { level, slot, half: Some((from, from_time)), mut sides, .. } => {
                sides[slot as usize % 2].add(received.since(from), now.saturating_sub(from_time));
                match slot + 1 {
                    SLOTS => self.outcome(level, sides, now),
                    slot => Phase::Tries { level, slot, began: now, half: None, sides },
                }
            }
        };
        let level = match self.phase {
            Phase::Watches { .. } => 0,
            Phase::Tries { level, slot, .. } => level + slot as usize % 2,
            Phase::Rests { level, .. } => level,
        };
        self.rest = RESTS[level];
    }

    fn outcome(&mut self, level: usize, [shorter, longer]: [TrialSide; 2], now: Duration) -> Phase {
        let pays = pays(shorter, longer, RATE_PERCENT_MIN[level]);
        if pays && level + 2 < RESTS.len() {
            return begin_trial(level + 1, now);
        }
        if pays || level > 0 {
            self.vain = 0;
            return Phase::Rests { level: level + usize::from(pays), until: now + HOLDS };
        }
        let wait = HOLDS * (1 << self.vain);
        self.vain = (self.vain + 1).min(DOUBLINGS);
        Phase::Watches { tries_from: now + wait }
    }
}

fn begin_trial(level: usize, now: Duration) -> Phase {
    Phase::Tries { level, slot: 0, began: now, half: None, sides: [TrialSide::default(); 2] }
}

/// Whether the longer rests save processor time and leave `rate_percent_min` of the throughput.
fn pays(shorter: TrialSide, longer: TrialSide, rate_percent_min: u128) -> bool {
    let share = |a: Duration, bytes: u64| a.as_nanos() * u128::from(bytes);
    let saves = 100 * share(longer.cpu, shorter.bytes) <= COST_PERCENT_MAX * share(shorter.cpu, longer.bytes);
    let keeps_up =
        100 * share(shorter.time, longer.bytes) >= rate_percent_min * share(longer.time, shorter.bytes);
    saves && keeps_up
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread and what it meets with and without rests: the length of a turn, reads in it, requests of a read, and its
    /// processor time.
    struct World {
        coalescing: Coalescing,
        received: Received,
        now: Duration,
        rested: u64,
    }

    type Turn = (Duration, u64, u64, Duration);

    impl World {
        fn new() -> World {
            let (received, now) = (Received::default(), Duration::ZERO);
            World { coalescing: Coalescing::default(), received, now, rested: 0 }
        }

        fn run(&mut self, time: Duration, without: Turn, with: Turn) {
            self.run_levels(time, &[without, with, with, with]);
        }

        /// The turns of each level of rests.
        fn run_levels(&mut self, time: Duration, turns: &[Turn; 4]) {
            let until = self.now + time;
            let mut rest = self.coalescing.rest;
            while self.now < until {
                let level = RESTS.iter().position(|level| *level == rest).expect("a level");
                let (took, reads, requests, cpu) = turns[level];
                self.now += took;
                self.received.reads += reads;
                self.received.pipelined += reads * requests;
                self.received.bytes += reads * requests * 40;
                self.received.cpu += cpu;
                rest = self.coalescing.rest(|| (self.received, self.now));
                self.rested += u64::from(!rest.is_zero());
            }
        }
    }

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn rests_stay_where_they_save_and_as_much_is_received() {
        let mut world = World::new();
        // 60 requests in 100 us, or 120 in 160 us, of which the thread rests 50.
        world.run(Duration::from_secs(3), (us(100), 5, 12, us(90)), (us(160), 10, 12, us(110)));
        assert!(matches!(world.coalescing.phase, Phase::Rests { .. }), "{:?}", world.coalescing);
        // Nobody pipelines any more.
        world.run(us(20_000), (us(100), 5, 1, us(90)), (us(130), 6, 1, us(80)));
        assert!(world.coalescing.rest.is_zero());
        assert!(matches!(world.coalescing.phase, Phase::Watches { .. }));
    }

    #[test]
    fn rests_go_where_clients_wait_for_their_answers() {
        let mut world = World::new();
        // One client sends a whole batch when the last one is answered: a rest only makes it wait.
        world.run(Duration::from_secs(3), (us(60), 1, 30, us(40)), (us(90), 1, 30, us(30)));
        assert!(matches!(world.coalescing.phase, Phase::Watches { .. }), "{:?}", world.coalescing);
        // Three slots of 40 ms, 90 us a turn, and what is left of 32 turns at the end of each.
        assert!(world.rested < 1500, "{}", world.rested);
        let before = world.rested;
        world.run(Duration::from_secs(60), (us(60), 1, 30, us(40)), (us(90), 1, 30, us(30)));
        assert!(world.rested - before < 3 * 1500, "trials in vain become rare: {}", world.rested - before);
    }

    #[test]
    fn rests_grow_as_long_as_that_saves_and_shrink_when_it_does_not() {
        let mut world = World::new();
        let turn = |requests: u64| (us(10 * requests), requests, 12, us(40 + 3 * requests));
        let turns = [turn(5), turn(15), turn(25), turn(26)];
        world.run_levels(Duration::from_secs(3), &turns);
        assert_eq!(world.coalescing.rest, RESTS[2], "{:?}", world.coalescing);
        // The second length costs throughput now.
        let turns = [turn(5), turn(15), (us(300), 25, 12, us(115)), (us(300), 25, 12, us(115))];
        world.run_levels(Duration::from_secs(30), &turns);
        assert_eq!(world.coalescing.rest, RESTS[1], "{:?}", world.coalescing);
    }

    #[test]
    fn rests_go_where_they_save_nothing() {
        let mut world = World::new();
        world.run(Duration::from_secs(3), (us(100), 5, 12, us(50)), (us(100), 5, 12, us(49)));
        assert!(world.coalescing.rest.is_zero(), "{:?}", world.coalescing);
    }

    #[test]
    fn nobody_rests_without_pipelines_or_with_full_reads_or_little_to_do() {
        for turn in [(us(100), 5, 1, us(90)), (us(100), 2, 500, us(90)), (us(2000), 1, 30, us(90))] {
            let mut world = World::new();
            world.run(Duration::from_secs(3), turn, turn);
            assert_eq!(world.rested, 0, "{turn:?}");
        }
    }

    #[test]
    fn figures_that_were_reset_harm_nothing() {
        let mut world = World::new();
        world.run(Duration::from_secs(1), (us(100), 5, 12, us(90)), (us(160), 10, 12, us(110)));
        world.received = Received::default();
        world.run(Duration::from_secs(5), (us(100), 5, 12, us(90)), (us(160), 10, 12, us(110)));
        assert!(!world.coalescing.rest.is_zero());
    }
}
