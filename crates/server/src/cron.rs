//! What a thread does besides serving: expiry, statistics, idle clients.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use darter_store::expiry::ExpirySweep;
use darter_txn::ShardPart;

use crate::conn::Conn;
use crate::conn::output;
use crate::conn::traffic;
use crate::engine::origin::ChangedBy;
use crate::engine::{commit, lease};
use crate::http;
use crate::idling;
use crate::job::Shards;
use crate::limit::relief;
use crate::memcached;
use crate::report::rates::RateHistory;
use crate::shared::{ShardStats, Shared, ThreadMessage};
use crate::snapshot::ending;
use crate::snapshot::schedule::Schedule;
use crate::snapshot::walk::Walker;
use crate::stats::clients::ClientTotals;
use crate::stats::memcached::Counter;
use crate::sync::lock;
use crate::thread_state::ThreadState;
use crate::tracking;

/// Index lines looked at in one visit to a shard: some tens of microseconds at most.
const LINES_PER_VISIT: usize = 512;
/// Keys of a writable replica's clients looked at in one visit.
const OWN_KEYS_PER_VISIT: usize = 64;
/// Keys of one visit that may be due before the visit ends.
const VISIT_TIME_MAX: Duration = Duration::from_micros(200);

/// Of a core, what visits to the shards may take together, in percent.
pub const SHARE_PERCENT: u32 = 5;

/// Blocks of deleted collections freed between two looks at the clock.
const BLOCKS_PER_STEP: usize = 32;

/// Housekeeping of one thread: the shards it is home to, and its connections.
pub struct Cron {
    rooms: Vec<Room>,
    next_room: usize,
    next_tick: Instant,
    next_second: Instant,
    // Nothing was left to do, and the server idled.
    is_resting: bool,
    // When this thread last noted that it serves.
    served_ms: u64,
    walker: Walker,
    schedule: Schedule,
    cut_keys: CutKeys,
}

struct Room {
    id: u16,
    sweep: ExpirySweep,
    // the last round of forgetting clients that is over here
    readers_swept: u64,
}

impl Cron {
    /// The housekeeping of thread `thread`.
    pub fn new(shared: &'static Shared, thread: u16) -> Cron {
        let now = Instant::now();
        let rooms = (0..shared.router.shards_len())
            .filter(|&id| shared.home_of(id) == thread)
            .map(|id| Room { id, sweep: ExpirySweep::default(), readers_swept: 0 })
            .collect();
        Cron {
            rooms,
            next_room: 0,
            next_tick: now,
            next_second: now,
            is_resting: false,
            served_ms: 0,
            walker: Walker::default(),
            schedule: Schedule::default(),
            cut_keys: CutKeys::default(),
        }
    }

    /// How long the thread may sleep before there is something to do.
    pub fn sleep(&self) -> Duration {
        let now = Instant::now();
        let tick = self.next_tick.saturating_duration_since(now);
        self.walker.sleep(now).map_or(tick, |walk| walk.min(tick))
    }

    /// Does what is due: a bounded piece of it.
    pub fn keep(&mut self, local: &mut ThreadState, conns: &mut [Option<Box<Conn>>]) {
        let now = Instant::now();
        let turn_nanos = now.saturating_duration_since(local.turn_began).as_nanos() as u64;
        local.stats().busy_nanos.add(turn_nanos);
        if !local.is_quiet {
            local.stats().turn_times.add(turn_nanos);
            local.stats().lively_turns.add(1);
            let shared = local.shared;
            if shared.idling.end(local.now_ms, &mut self.served_ms) {
                let others = (0..shared.handles.len()).filter(|&thread| thread != usize::from(local.thread));
                others.for_each(|thread| shared.handles[thread].wake());
            }
        }
        if self.is_resting && !local.shared.idling.is_on(local.now_ms) {
            (self.is_resting, self.next_tick) = (false, now);
        }
        self.walker.step(local, self.rooms.iter().map(|room| room.id));
        if local.thread == 0 {
            ending::step(local);
            crate::journal::rewrite::go_on(local);
        }
        if now < self.next_tick {
            return;
        }
        let period = Duration::from_micros(1_000_000 / u64::from(local.live.hz.clamp(1, 500)));
        let has_more = self.visit_rooms(local, now, period * SHARE_PERCENT / 100);
        self.is_resting = !has_more && local.shared.idling.is_on(local.now_ms);
        self.next_tick = now + if self.is_resting { period.max(idling::REST) } else { period };
        if now >= self.next_second {
            self.next_second = now + Duration::from_secs(1);
            each_second(local, conns);
            darter_store::give_back();
            if local.thread == 0 {
                self.schedule.step(local);
                local.shared.backup.expire(&local.live, local.now_ms);
                let is_tidying = local.shared.shard_stats.iter().any(|stats| lock(stats).tidying > 0);
                local.shared.tidying.note(is_tidying, local.now_ms);
                keep_journal(local);
                local.shared.migrations.keep();
                self.cut_keys.look(local);
            }
        }
        if local.thread == 0 {
            local.shared.memory_peak_bytes.fetch_max(local.shared.limit.keyspace_bytes(), Relaxed);
            crate::limit::overrun::note(local);
            tracking::begin_sweep(local.shared);
            memcached::Flush::keep(local);
            RateHistory::sample(local.shared);
        }
    }

    /// Sweeps the rooms in turn for up to `budget`, each visit short; returns whether there is more to do though nothing
    /// may arrive.
    fn visit_rooms(&mut self, local: &mut ThreadState, began: Instant, budget: Duration) -> bool {
        let mut has_more = false;
        for _ in 0..self.rooms.len() {
            let at = self.next_room;
            self.next_room = (at + 1) % self.rooms.len();
            has_more |= self.rooms[at].visit(local);
            if began.elapsed() > budget {
                return true;
            }
        }
        has_more
    }
}

impl Room {
    /// One visit; returns whether the next one will find something to do though nothing arrives.
    fn visit(&mut self, local: &mut ThreadState) -> bool {
        let shared = local.shared;
        let Some(mut part) = lease::try_one(&shared.cells[usize::from(self.id)]) else { return true };
        // Replicas that go on from where the file stands must hear of all that goes.
        let loading = &shared.snapshots.loading;
        let is_replay = loading.is_replay() || loading.is_on() && loading.position().is_some();
        let may_sweep = shared.is_sweeping.load(Relaxed) && !shared.pause.is_on(local.now_ms) && !is_replay;
        // The master says what is gone.
        let may_sweep = may_sweep && !shared.replication.keeps_dead() && !local.live.import_mode;
        // The last snapshot is to hold all that replicas hear of, or they need a full sync after the next start.
        let may_sweep = may_sweep && !shared.snapshots.ending.is_on();
        let is_sweeping = part.shard.may_expire() && may_sweep;
        if is_sweeping {
            let began = Instant::now();
            while began.elapsed() < VISIT_TIME_MAX {
                let swept = part.shard.sweep(&mut self.sweep, local.now_ms, LINES_PER_VISIT);
                local.stats().swept_keys.add(swept.keys as u64);
                if swept.lines < LINES_PER_VISIT && swept.expired == 0 {
                    break;
                }
            }
            crate::command_log::timing::note_event(local, "expire-cycle", began.elapsed());
        }
        let ShardPart { shard, own_deadlines, .. } = &mut *part;
        if shared.is_sweeping.load(Relaxed)
            && !is_replay
            && let Some(own) = own_deadlines
        {
            own.sweep(shard, local.now_ms, OWN_KEYS_PER_VISIT);
        }
        let began = Instant::now();
        let has_time = || began.elapsed() < VISIT_TIME_MAX;
        while !part.shard.free_some(BLOCKS_PER_STEP) && has_time() {}
        part.shard.note_uses(local.now_ms);
        let may_move = local.live.activedefrag;
        // Room that was made for a load looks like memory to give back.
        let may_tidy = !shared.snapshots.loading.is_on();
        if may_tidy {
            part.shard.rest();
        }
        while may_tidy && part.shard.tidy(LINES_PER_VISIT, may_move) && has_time() {}
        // What ended for want of time goes on, and so does a load.
        let is_cut_short = !has_time() || !may_tidy;
        let is_over = !is_replay && relief::keep(local, &mut part, self.id, Instant::now() + VISIT_TIME_MAX);
        let is_forgetting = tracking::keep(local, &mut part.readers, &mut self.readers_swept);
        *lock(&shared.shard_stats[usize::from(self.id)]) = ShardStats::of(&part);
        let mut grant = Shards::from(part);
        commit::changes(local, &mut grant, ChangedBy::SERVER);
        lease::release(local, grant);
        is_sweeping || is_cut_short || is_over || is_forgetting
    }
}

/// The log's side of answers of KEYS that `keys_output_limit` has cut, kept by thread 0.
#[derive(Default)]
struct CutKeys {
    seen: u64,
    told_ms: u64,
}

impl CutKeys {
    /// Says how many there were since the last line; once a minute at most. Called once a second.
    fn look(&mut self, local: &ThreadState) {
        let all = local.shared.glance().answers_cut;
        let new = all.saturating_sub(self.seen);
        // CONFIG RESETSTAT begins again from zero.
        self.seen = self.seen.min(all);
        if new > 0 && local.now_ms >= self.told_ms + 60_000 {
            let limit = local.live.keys_output_limit;
            tracing::warn!(
                "{new} answers of KEYS were cut at keys_output_limit ({limit}); 0 lifts the limit"
            );
            (self.seen, self.told_ms) = (all, local.now_ms);
        }
    }
}

fn keep_journal(local: &mut ThreadState) {
    if let Err(why) = crate::journal::rewrite::keep(local) {
        tracing::error!("the journal cannot be switched on: {why}");
    }
}

fn each_second(local: &mut ThreadState, conns: &mut [Option<Box<Conn>>]) {
    local.free_buffers();
    let mut clients = ClientTotals::default();
    for conn in conns.iter_mut().flatten() {
        conn.show_session(local);
        conn.show_buffers(local);
        clients.count(&conn.info);
        conn.rest(local);
        let is_idle = is_idle(local, conn);
        if is_idle {
            local.stats().memcached.add(Counter::IdleKick);
        }
        let is_stuck = output::is_stuck(local, conn);
        if is_stuck {
            local.stats().send_timeouts.add(1);
        }
        let is_late_for_tls = traffic::is_late(local, conn);
        if is_late_for_tls {
            local.stats().tls_failed.add(1);
        }
        if is_idle
            || http::is_late(local, conn)
            || is_late_for_tls
            || output::is_over_limit(local, conn)
            || is_stuck
        {
            let kill = ThreadMessage::Kill { token: conn.token, client: conn.session.id };
            local.shared.handle(local.thread).send(kill);
        }
    }
    *lock(&local.stats().clients) = clients;
}

/// Whether a client has been silent for `timeout` seconds while it was its turn to speak.
fn is_idle(local: &ThreadState, conn: &Conn) -> bool {
    let timeout_ms = u64::from(local.live.timeout_s) * 1000;
    let idle_ms = local.now_ms.saturating_sub(conn.info.active_ms.load(Relaxed));
    let only_listens = conn.is_subscriber() || conn.session.is_monitor || conn.session.gets_copy();
    timeout_ms > 0 && idle_ms > timeout_ms && !conn.is_stalled && !conn.is_postponed && !only_listens
}
