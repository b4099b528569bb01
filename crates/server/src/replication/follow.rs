//! A replica of a master of ours: the connections of its flows, the full sync, and records in the order of their sequences.
//!
//! A thread for each flow reads frames; the thread of the link merges their records and has them applied batch by batch.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use darter_config::SyncLoad;
use darter_replica::backlog::Backlog;
use darter_replica::form::Former;
use darter_replica::frame::{self, Announced, FrameKind, Joiner, SyncEnd};
use darter_replica::handshake::FlowSession;
use darter_replica::history::History;
use darter_replica::merge::Merger;
use darter_replica::records::Records;
use darter_replica::stream;

use super::applier::Applier;
use super::batch::ApplyBatch;
use super::disk_acks::DiskAcks;
use super::inbox::{FlowFailure, Inbox, News};
use super::link::{Link, LinkEnd, Step, login_request};
use super::replace::ArrivingData;
use super::wire::Wire;
use crate::sync::lock;

/// Time between two acknowledgements while something is applied,
const ACK_NEWS: Duration = Duration::from_millis(1);
/// and while nothing is.
const ACK_EVERY: Duration = Duration::from_millis(100);
/// Time between two looks at what is rare.
const LOOK: Duration = Duration::from_millis(20);
/// The same while a full sync is loaded.
const LOAD_LOOK: Duration = Duration::from_millis(1);
/// Bytes received at once while the head of a frame is awaited.
const HEADS_BYTES: usize = 64 << 10;
/// Room made for the body of a frame before it has come.
const BODY_ROOM_MAX: usize = 1 << 20;
/// Bytes taken from the inbox before a batch is run.
const TAKEN_BYTES_MAX: usize = 1 << 20;

/// The state of a link while records are applied.
struct Following<'a> {
    inbox: &'a Inbox,
    applier: Arc<Applier>,
    merger: Merger,
    former: Former,
    acked: Option<Instant>,
    looked: Instant,
    has_news: bool,
    // the data is what a master had when all below is committed
    whole_at: u64,
    // every record below was acknowledged
    dense: u64,
    // every record below was given to the applier
    submitted: u64,
    disk: DiskAcks,
    // bytes received, and the next record when it came
    heard: u64,
    moved: (u64, Instant),
}

impl Link {
    /// Follows a master by flows until something ends it. `wire` is where the session was begun.
    pub(super) fn by_flows(
        &mut self,
        wire: &mut Wire,
        session: &FlowSession,
    ) -> Step<std::convert::Infallible> {
        if session.next.is_none() {
            self.look_for_restart(&session.history)?;
        }
        let flows = self.connect(session)?;
        let live = self.shared.settings.live();
        let folder = match live.persistence.is_in_cloud() {
            true => std::env::temp_dir(),
            false => PathBuf::from(&live.persistence.dir),
        };
        let inbox = Inbox::new(flows.len(), folder.clone());
        let blocks = match session.next {
            None => {
                inbox.begin_loading();
                if let Some(group) = &self.shared.group {
                    group.doubt();
                    group.is_emptied.store(true, Relaxed);
                }
                self.info.begin_sync(0);
                Some(self.begin_arrival(&session.history, &folder)?)
            }
            Some(_) => None,
        };
        let ended = thread::scope(|scope| {
            for (flow, connection) in flows.into_iter().enumerate() {
                let (inbox, blocks) = (&inbox, blocks.as_ref());
                let shared = self.shared;
                let (term, joiner) = (session.term, Joiner::default());
                let received_bytes = &shared.replication.counts.received_bytes;
                let (open, spare) = (None, Vec::new());
                let reader = FlowReader { flow, term, inbox, received_bytes, blocks, joiner, open, spare };
                let body = move || {
                    shared.snapshots.roam();
                    reader.run(connection);
                };
                if let Err(error) =
                    thread::Builder::new().name("darter-flow".to_owned()).spawn_scoped(scope, body)
                {
                    inbox.fail(FlowFailure::Lost(error.to_string()));
                }
            }
            let ended = self.follow_flows(wire, session, &inbox, blocks.as_ref());
            inbox.end();
            ended
        });
        let Err(end) = ended;
        if let Some(blocks) = blocks {
            self.give_up(blocks);
        }
        Err(end)
    }

    /// Opens the connections of a session.
    fn connect(&self, session: &FlowSession) -> Step<Vec<Wire>> {
        let live = self.shared.settings.live();
        let mut flows = Vec::new();
        for flow in 0..session.flows {
            let mut wire = Wire::connect(&self.info.host, self.info.port, &live.tls)?;
            let number = flow.to_string();
            let mut out = login_request(&live);
            let lines = 1 + usize::from(!out.is_empty());
            stream::write(&mut out, &[b"DARTER", b"FLOW", session.id.as_bytes(), number.as_bytes()]);
            wire.send(&out)?;
            for _ in 0..lines {
                let line = self.line(&mut wire)?;
                if !line.starts_with(b"+") {
                    let line = String::from_utf8_lossy(&line).into_owned();
                    return Err(LinkEnd::Lost(format!("it refuses a flow: {line}")));
                }
            }
            flows.push(wire);
        }
        Ok(flows)
    }

    fn follow_flows(
        &mut self,
        wire: &mut Wire,
        session: &FlowSession,
        inbox: &Inbox,
        blocks: Option<&ArrivingData>,
    ) -> Step<std::convert::Infallible> {
        let next = match (session.next, blocks) {
            (Some(next), _) => {
                self.go_on(Some(session.history))?;
                let mut state = self.shared.replication.state();
                if !std::mem::replace(&mut state.knows_sequences, true) || state.records.next() != next {
                    state.restart_records(self.shared, next);
                }
                next
            }
            (None, Some(blocks)) => self.take_blocks(wire, session, inbox, blocks)?.sequence,
            (None, None) => return Err(LinkEnd::Lost("a full sync without an end".to_owned())),
        };
        self.go_up();
        if let Some(group) = &self.shared.group {
            group.note_term(session.term);
        }
        let applier = Applier::new(self.shared, self.info.clone());
        let mut following = Following {
            inbox,
            applier,
            merger: Merger::new(usize::from(session.flows), next),
            former: Former::default(),
            acked: None,
            looked: Instant::now(),
            has_news: false,
            whole_at: next,
            dense: next,
            submitted: next,
            disk: DiskAcks::new(self.shared, next),
            heard: 0,
            moved: (next, Instant::now()),
        };
        let ended = loop {
            if let Err(end) = self.apply_some(wire, &mut following) {
                break end;
            }
        };
        // The next session begins behind what this one has brought.
        let _ = following.applier.settle();
        Err(ended)
    }

    /// Waits until all blocks are loaded, and takes the place of what was here.
    fn take_blocks(
        &mut self,
        wire: &mut Wire,
        session: &FlowSession,
        inbox: &Inbox,
        blocks: &ArrivingData,
    ) -> Step<SyncEnd> {
        let (shared, mut heard) = (self.shared, 0);
        let cut = loop {
            thread::sleep(LOAD_LOOK);
            let news = inbox.news();
            self.look_after(wire, &mut heard, inbox)?;
            // With `swapdb` both are here for a while.
            if shared.settings.live().replication.sync_load != SyncLoad::Aside {
                self.look_for_room()?;
            }
            self.info.sync_bytes[1].store(news.bytes, Relaxed);
            self.tell_progress();
            if let Some(cut) = news.cut.filter(|cut| cut.blocks <= news.blocks) {
                break cut;
            }
        };
        self.end_arrival(wire, blocks)?;
        let host = (&self.info.host, self.info.port);
        tracing::info!(
            "master {}:{} sent {} blocks, up to sequence {}",
            host.0,
            host.1,
            cut.blocks,
            cut.sequence
        );
        let _applying = lock(&shared.replication.applying);
        if self.info.is_stopped() {
            return Err(LinkEnd::Stopped);
        }
        let mut state = shared.replication.state();
        state.history = History::new(session.history);
        state.backlog = Backlog::new(cut.offset);
        state.records = Records::new(cut.sequence, cut.offset);
        state.knows_sequences = true;
        state.has_backlog = true;
        state.is_continuous = true;
        state.db = 0;
        state.drop_replicas(shared);
        drop(state);
        self.synced = None;
        inbox.end_loading();
        Ok(cut)
    }

    /// Applies what is next, or waits for it a moment; acknowledges.
    fn apply_some(&mut self, wire: &mut Wire, following: &mut Following<'_>) -> Step<()> {
        let mut taken = 0;
        while taken < TAKEN_BYTES_MAX
            && let Some((lane, records)) = following.inbox.take()?
        {
            taken += records.len();
            following.merger.push(lane, records);
        }
        let committed = following.inbox.committed();
        let batch = match committed {
            0 => {
                let threads = following.applier.threads();
                let batch = ApplyBatch::of_records(&mut following.merger, &mut following.former, threads);
                following.dense = following.merger.next_sequence();
                batch.map_err(LinkEnd::Hopeless)?
            }
            _ => self.next_committed(wire, following, committed)?,
        };
        following.inbox.hold(&following.merger);
        if batch.is_none() {
            following.applier.begin()?;
        }
        match batch {
            Some(batch) => {
                let len = batch.len as u64;
                following.applier.submit(batch)?;
                self.info.input_bytes.fetch_add(len, Relaxed);
                following.has_news = true;
            }
            // What is received next is made ready while this runs; if nothing is, it is acknowledged as soon as it has run.
            None if taken == 0 && committed == 0 && following.applier.is_busy() => {
                following.applier.settle()?
            }
            // Records that come are acknowledged while batches run; while none come there is room first.
            None if taken == 0 && following.applier.is_full() => following.applier.make_room()?,
            None if taken == 0 => {
                let is_soon = following.has_news || following.disk.is_waiting();
                following.inbox.wait(committed, if is_soon { ACK_NEWS } else { LOOK });
            }
            None => {}
        }
        self.settle_doubt(committed, following.whole_at);
        let every = if following.has_news { ACK_NEWS } else { ACK_EVERY };
        if following.acked.is_none_or(|at| at.elapsed() >= every) {
            (following.acked, following.has_news) = (Some(Instant::now()), following.applier.is_busy());
            let said = self.acknowledge(following);
            wire.send(&said)?;
        }
        if following.looked.elapsed() >= LOOK {
            following.looked = Instant::now();
            self.look_after(wire, &mut following.heard, following.inbox)?;
            self.look_for_room()?;
            self.look_for_gap(following)?;
        }
        Ok(())
    }

    /// Keeps and acknowledges what has come, and returns what of it is committed and not given to the applier.
    fn next_committed(
        &mut self,
        wire: &mut Wire,
        following: &mut Following<'_>,
        committed: u64,
    ) -> Step<Option<ApplyBatch>> {
        let (history, applied) = {
            let state = self.shared.replication.state();
            (state.history.id, state.records.next())
        };
        let from = following.submitted.max(applied);
        let has_room = !following.applier.is_full();
        let (dense, reader) = {
            let mut kept = lock(&self.shared.replication.uncommitted);
            // Whoever stops the link leads perhaps, with what is kept until then and nothing else.
            if self.info.is_stopped() {
                return Err(LinkEnd::Stopped);
            }
            let dense = kept.take(history, &mut following.merger, applied);
            let dense = dense.map_err(|bad| LinkEnd::Lost(bad.to_string()))?;
            (dense, kept.reader(history, from, committed).filter(|_| has_room))
        };
        if dense > following.dense {
            following.dense = dense;
            following.disk.note(dense, || self.shared.replication.note_received(self.shared, &self.info));
            if !following.disk.is_on() {
                self.acknowledge_now(wire, following)?;
            }
        }
        if following.disk.look(self.shared) {
            self.acknowledge_now(wire, following)?;
        }
        let Some(mut reader) = reader else { return Ok(None) };
        let threads = following.applier.threads();
        let batch = ApplyBatch::of_records(&mut reader, &mut following.former, threads);
        let batch = batch.map_err(LinkEnd::Hopeless)?;
        following.submitted = reader.next_sequence();
        Ok(batch)
    }

    /// Shows the data again once all that came with a sync is committed.
    fn settle_doubt(&self, committed: u64, whole_at: u64) {
        if let Some(group) = &self.shared.group
            && group.is_in_doubt()
            && (committed == 0 || committed >= whole_at)
            && !self.info.is_stopped()
        {
            group.trust();
        }
    }

    /// Ends the session where the connection has ended, the master is silent, or a flow has failed.
    fn look_after(&self, wire: &mut Wire, heard: &mut u64, inbox: &Inbox) -> Step<()> {
        if self.info.is_stopped() {
            return Err(LinkEnd::Stopped);
        }
        let news = inbox.news();
        match news.failed {
            Some(FlowFailure::Lost(why)) => return Err(LinkEnd::Lost(why)),
            Some(FlowFailure::Hopeless(why)) => return Err(LinkEnd::Hopeless(why)),
            None => {}
        }
        if wire.is_closed() {
            return Err(LinkEnd::Lost("the master closed the connection".to_owned()));
        }
        if *heard != news.bytes {
            *heard = news.bytes;
            self.hear();
        }
        self.look_for_silence()
    }

    /// Ends the session where a record is missing for as long as silence may last.
    fn look_for_gap(&self, following: &mut Following<'_>) -> Step<()> {
        let (next, told) = (following.merger.next_sequence(), following.inbox.news().next);
        let (before, since) = following.moved;
        if next != before || next >= told {
            following.moved = (next, Instant::now());
            return Ok(());
        }
        let limit_s = self.shared.settings.live().replication.timeout_s;
        if since.elapsed() > Duration::from_secs(limit_s) {
            return Err(LinkEnd::Lost(format!(
                "record {next} does not come, and there are records up to {told}"
            )));
        }
        Ok(())
    }

    fn acknowledge_now(&mut self, wire: &mut Wire, following: &mut Following<'_>) -> Step<()> {
        following.acked = Some(Instant::now());
        let said = self.acknowledge(following);
        Ok(wire.send(&said)?)
    }

    /// Says what was received, applied, and is on disk.
    fn acknowledge(&mut self, following: &Following<'_>) -> Vec<u8> {
        let (applied, offset) = {
            let state = self.shared.replication.state();
            (state.records.next(), state.offset())
        };
        let durable = self.durable(offset, applied);
        let numbers = [following.dense, applied, following.disk.synced(), offset];
        let mut words: Vec<String> = numbers.iter().map(u64::to_string).collect();
        words.extend(durable.map(|(offset, _)| offset.to_string()));
        let words: Vec<&[u8]> =
            [b"DARTER".as_slice(), b"ACK"].into_iter().chain(words.iter().map(String::as_bytes)).collect();
        let mut out = Vec::new();
        stream::write(&mut out, &words);
        out
    }
}

/// The thread of a flow.
struct FlowReader<'a> {
    flow: usize,
    term: u64,
    inbox: &'a Inbox,
    received_bytes: &'a AtomicU64,
    blocks: Option<&'a ArrivingData>,
    joiner: Joiner,
    // a frame of which a part has come
    open: Option<(Announced, Vec<u8>)>,
    // room of a block that is loaded, for the next
    spare: Vec<u8>,
}

impl FlowReader<'_> {
    fn run(mut self, mut wire: Wire) {
        while !self.inbox.is_over() {
            if let Err(why) = self.read(&mut wire) {
                return self.inbox.fail(why);
            }
        }
    }

    fn garbled(&self, what: &str) -> FlowFailure {
        FlowFailure::Lost(format!("flow {} is garbled: {what}", self.flow))
    }

    /// Receives something, and takes the frames that are whole. The body of a long one is received where it is to stay.
    fn read(&mut self, wire: &mut Wire) -> Result<(), FlowFailure> {
        if let Some((announced, mut body)) = self.open.take() {
            let len = announced.head.len as usize;
            wire.fill_body(&mut body, len).map_err(lost)?;
            if body.len() == len {
                return self.take_frame(&announced, body);
            }
            self.open = Some((announced, body));
            return Ok(());
        }
        wire.fill_with(HEADS_BYTES).map_err(lost)?;
        let mut used = 0;
        loop {
            let bytes = wire.received().get(used..).unwrap_or_default();
            let announced = Announced::read(bytes).map_err(|broken| self.garbled(broken.0))?;
            let Some(announced) = announced else { break };
            let rest = bytes.get(frame::HEAD_BYTES..).unwrap_or_default();
            let (len, here) = (announced.head.len as usize, rest.len());
            used += frame::HEAD_BYTES + len.min(here);
            if here >= len {
                self.take_frame(&announced, rest.get(..len).unwrap_or_default().to_vec())?;
                continue;
            }
            // A length is believed as far as it has come, and a little further.
            let is_block = announced.head.kind == FrameKind::Block;
            let mut body = if is_block { std::mem::take(&mut self.spare) } else { Vec::new() };
            body.clear();
            body.reserve(len.min(BODY_ROOM_MAX));
            body.extend_from_slice(rest);
            self.open = Some((announced, body));
        }
        wire.use_up(used);
        Ok(())
    }

    fn take_frame(&mut self, announced: &Announced, body: Vec<u8>) -> Result<(), FlowFailure> {
        announced.check(&body).map_err(|broken| self.garbled(broken.0))?;
        let head = announced.head;
        if head.term != self.term {
            return Err(FlowFailure::Lost(format!("its term is {} now, and was {}", head.term, self.term)));
        }
        if usize::from(head.flow) != self.flow {
            return Err(self.garbled("a frame of another flow"));
        }
        let len = (frame::HEAD_BYTES + body.len()) as u64;
        self.received_bytes.fetch_add(len, Relaxed);
        let note = |news: &mut News| {
            news.bytes += len;
            news.clock_ms = news.clock_ms.max(head.clock_ms);
            news.committed = news.committed.max(head.committed);
        };
        match head.kind {
            FrameKind::Records if self.joiner.is_whole(&head) => self.inbox.note_before(note),
            _ => self.inbox.note(note),
        }
        if self.joiner.is_whole(&head) {
            return self.take(head.kind, body);
        }
        match self.joiner.take(&head, &body).map_err(|broken| self.garbled(broken.0))? {
            Some(content) => self.take(head.kind, content),
            None => Ok(()),
        }
    }

    fn take(&mut self, kind: FrameKind, body: Vec<u8>) -> Result<(), FlowFailure> {
        let flow = self.flow;
        let garbled = |what: &str| FlowFailure::Lost(format!("flow {flow} is garbled: {what}"));
        match kind {
            FrameKind::Records => self.inbox.put(self.flow, body.into()).map_err(lost),
            FrameKind::Block => {
                let blocks = self.blocks.ok_or_else(|| garbled("a block of no full sync"))?;
                blocks.take(&body)?;
                self.inbox.note(|news| news.blocks += 1);
                if body.capacity() <= BODY_ROOM_MAX {
                    self.spare = body;
                }
                Ok(())
            }
            FrameKind::Blocks => {
                let cut = SyncEnd::read(&body).ok_or_else(|| garbled("an end of blocks"))?;
                self.inbox.note(|news| news.cut = Some(cut));
                Ok(())
            }
            FrameKind::Heartbeat => {
                let next = body.first_chunk().map(|next| u64::from_le_bytes(*next));
                let next = next.ok_or_else(|| garbled("a heartbeat"))?;
                self.inbox.note(|news| news.next = news.next.max(next));
                Ok(())
            }
            FrameKind::End => Err(FlowFailure::Lost(format!("it ends the session: {}", body.escape_ascii()))),
            FrameKind::Ack | FrameKind::Takeover => Err(garbled("a frame that no master sends")),
        }
    }
}

fn lost(error: std::io::Error) -> FlowFailure {
    FlowFailure::Lost(error.to_string())
}
