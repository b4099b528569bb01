//! The thread of a replica: finds its master, gets what it lacks, and has it applied.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use darter_latch::Grant;
use darter_persist::storage::Spool;
use darter_reactor::Token;
use darter_replica::handshake::{Card, Handshake, NextStep};
use darter_replica::history::{History, ReplId};
use darter_replica::stream;
use darter_replica::transfer::Transfer;
use darter_txn::LockSet;

use super::applier::{Applier, ApplyEnd};
use super::apply;
use super::batch::ApplyBatch;
use super::replicas::{SyncProgress, TELL_EVERY};
use super::wire::Wire;
use crate::clients::ClientInfo;
use crate::clock::unix_ms;
use crate::engine::origin::Origin;
use crate::job::{Job, JobBody};
use crate::limit;
use crate::shared::Shared;
use crate::sync::lock;
use darter_config::Live;

/// How far a link is; the numbers are those of Redis' names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum LinkStage {
    /// It is to connect.
    Connect,
    /// It connects, or introduces itself.
    Connecting,
    /// It gets a snapshot.
    Sync,
    /// It follows.
    Connected,
}

/// What others see of a link.
#[derive(Debug)]
pub struct LinkCard {
    /// Host of the master.
    pub host: String,
    /// Port of the master.
    pub port: u16,
    is_stopped: AtomicBool,
    stage: AtomicU8,
    /// When the master was last heard, Unix ms.
    pub heard_ms: AtomicU64,
    /// Since when the link is down, Unix ms.
    pub down_since_ms: AtomicU64,
    /// Bytes of the snapshot, 0 = not known, and those received.
    pub sync_bytes: [AtomicU64; 2],
    /// When the snapshot began to come, Unix ms.
    pub sync_began_ms: AtomicU64,
    // when the log was told last how far it is
    sync_told_ms: AtomicU64,
    /// Bytes of the stream received in all.
    pub input_bytes: AtomicU64,
    socket: Mutex<Option<TcpStream>>,
    // The link as CLIENT LIST shows it, while it is up.
    client: Mutex<Option<Arc<ClientInfo>>>,
    // It has refused to serve this server.
    was_refused: AtomicBool,
    // The master is a replica still, and is to take over.
    hands_over: AtomicBool,
}

impl LinkCard {
    /// The info of a link that does not exist yet.
    pub fn new(host: String, port: u16) -> LinkCard {
        LinkCard {
            host,
            port,
            is_stopped: AtomicBool::new(false),
            stage: AtomicU8::new(LinkStage::Connect as u8),
            heard_ms: AtomicU64::new(unix_ms()),
            down_since_ms: AtomicU64::new(unix_ms()),
            sync_bytes: Default::default(),
            sync_began_ms: AtomicU64::new(0),
            sync_told_ms: AtomicU64::new(0),
            input_bytes: AtomicU64::new(0),
            socket: Mutex::default(),
            client: Mutex::default(),
            was_refused: AtomicBool::new(false),
            hands_over: AtomicBool::new(false),
        }
    }

    /// The info of a link to a replica that is to take over.
    pub fn to_successor(host: String, port: u16) -> LinkCard {
        LinkCard { hands_over: AtomicBool::new(true), ..LinkCard::new(host, port) }
    }

    /// Breaks the connection, if there is one; the link goes on with another.
    pub fn break_off(&self) -> bool {
        lock(&self.socket).as_ref().is_some_and(|socket| socket.shutdown(Shutdown::Both).is_ok())
    }

    /// Whether the master has refused to serve this server.
    pub fn was_refused(&self) -> bool {
        self.was_refused.load(Relaxed)
    }

    /// The link as a client, while it is up.
    pub fn client(&self) -> Option<Arc<ClientInfo>> {
        let client = lock(&self.client).clone()?;
        client.active_ms.store(self.heard_ms.load(Relaxed), Relaxed);
        client.input_bytes.store(self.input_bytes.load(Relaxed), Relaxed);
        Some(client)
    }

    /// Whether it was ended.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Relaxed)
    }

    /// Ends it; nothing of it is applied any more if `applying` is held.
    pub fn stop(&self) {
        self.is_stopped.store(true, Relaxed);
        if let Some(socket) = &*lock(&self.socket) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// How far it is.
    pub fn stage(&self) -> LinkStage {
        match self.stage.load(Relaxed) {
            0 => LinkStage::Connect,
            1 => LinkStage::Connecting,
            2 => LinkStage::Sync,
            _ => LinkStage::Connected,
        }
    }

    /// How far the snapshot is, while one comes.
    pub fn progress(&self) -> Option<SyncProgress> {
        let [total, received] = [self.sync_bytes[0].load(Relaxed), self.sync_bytes[1].load(Relaxed)];
        let took_ms = unix_ms().saturating_sub(self.sync_began_ms.load(Relaxed));
        let is_on = self.stage() == LinkStage::Sync;
        is_on.then(|| SyncProgress::new(received, total, Duration::from_millis(took_ms)))
    }

    /// A full sync of so many bytes begins; 0: not known.
    pub(super) fn begin_sync(&self, bytes: u64) {
        self.set_stage(LinkStage::Sync);
        self.sync_bytes[0].store(bytes, Relaxed);
        self.sync_bytes[1].store(0, Relaxed);
        self.sync_began_ms.store(unix_ms(), Relaxed);
        self.sync_told_ms.store(unix_ms(), Relaxed);
    }

    fn set_stage(&self, stage: LinkStage) {
        self.stage.store(stage as u8, Relaxed);
    }
}

/// Why a conversation with the master ended.
pub(super) enum LinkEnd {
    /// Somebody wants it so.
    Stopped,
    /// The master has gone, or refuses for now.
    Lost(String),
    /// It would end the same way again.
    Hopeless(String),
}

impl From<std::io::Error> for LinkEnd {
    fn from(error: std::io::Error) -> LinkEnd {
        LinkEnd::Lost(error.to_string())
    }
}

impl From<ApplyEnd> for LinkEnd {
    fn from(end: ApplyEnd) -> LinkEnd {
        match end {
            ApplyEnd::Stopped => LinkEnd::Stopped,
            ApplyEnd::Failed(why) => LinkEnd::Hopeless(why),
        }
    }
}

pub(super) type Step<T> = Result<T, LinkEnd>;

/// Time before the first attempt after a loss, and the longest between two.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(20);
/// Time between two acknowledgements while something comes.
const ACK_NEWS: Duration = Duration::from_millis(100);
/// Time between two acknowledgements.
const ACK_EVERY: Duration = Duration::from_secs(1);
/// Other threads may be busy for so long before they notice a change of role.
const NOTICE: Duration = Duration::from_secs(60);

/// Begins to follow the master on `info`. `was_master`: until now clients may have written here.
///
/// Errors: there can be no more threads.
pub fn spawn(shared: &'static Shared, info: Arc<LinkCard>, was_master: WasMaster) -> std::io::Result<()> {
    let body = move || {
        shared.snapshots.roam();
        Link { shared, info, synced: None, followed: None }.run(was_master);
    };
    thread::Builder::new().name("darter-link".to_owned()).spawn(body).map(drop)
}

/// What this server was before it began to follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WasMaster {
    /// A master: writes that have begun are to end first.
    Yes,
    /// A replica.
    No,
}

pub(super) struct Link {
    pub(super) shared: &'static Shared,
    pub(super) info: Arc<LinkCard>,
    // An offset, its sequence, and the end of the journal that has it all.
    pub(super) synced: Option<(u64, u64, u64)>,
    // The history that was followed last.
    followed: Option<ReplId>,
}

impl Link {
    fn run(&mut self, was_master: WasMaster) {
        if was_master == WasMaster::Yes && !self.step_down() {
            return;
        }
        let (mut told, mut rest) = (String::new(), RETRY_FIRST);
        while !self.info.is_stopped() {
            self.info.set_stage(LinkStage::Connecting);
            let Err(end) = self.converse();
            rest = if self.info.stage() == LinkStage::Connected {
                RETRY_FIRST
            } else {
                (rest * 3).min(RETRY_MAX)
            };
            if self.shared.group.is_some() {
                // Writers wait for a member that comes to a new leader a moment too early.
                rest = LOOK;
            }
            self.note_down();
            match end {
                LinkEnd::Stopped => return,
                LinkEnd::Hopeless(why) if self.shared.group.is_none() => {
                    let (host, port) = (&self.info.host, self.info.port);
                    tracing::error!(
                        "replication from {host}:{port} has ended for good: {why}; REPLICAOF begins it anew"
                    );
                    // Else REPLICAOF of the same master would find a link there.
                    self.info.stop();
                    return;
                }
                LinkEnd::Lost(why) | LinkEnd::Hopeless(why) => {
                    if why != told && !self.info.is_stopped() {
                        tracing::warn!("master {}:{}: {why}; trying again", self.info.host, self.info.port);
                        told = why;
                    }
                }
            }
            let began = Instant::now();
            while began.elapsed() < rest && !self.info.is_stopped() {
                thread::sleep(LOOK);
            }
        }
    }

    fn note_down(&self) {
        lock(&self.info.socket).take();
        lock(&self.info.client).take();
        if self.info.stage() == LinkStage::Connected {
            self.info.down_since_ms.store(unix_ms(), Relaxed);
        }
        self.info.set_stage(LinkStage::Connect);
        if !self.info.is_stopped() {
            self.shared.replication.link_is_up.store(false, Relaxed);
        }
    }

    /// Waits until every write that clients have begun is done and part of the stream, and ends the stream of a master.
    fn step_down(&self) -> bool {
        let shared = self.shared;
        if !wait_for_turns(shared, &self.info) {
            return false;
        }
        let info = self.info.clone();
        let end = apply::with_all_shards(shared, move |local, grant| {
            let _applying = lock(&local.shared.replication.applying);
            if info.is_stopped() {
                return None;
            }
            local.shared.replication.keeps_dead.store(true, Relaxed);
            let leaves_dead = local.shared.replication.leaves_dead(&local.live);
            grant.iter_mut().for_each(|part| part.shard.keep_dead(leaves_dead));
            Some(local.shared.journal.end())
        });
        let Some(end) = end.flatten() else { return false };
        // Threads hand over what they have noted at the end of their turns.
        if !wait_for_turns(shared, &self.info) {
            return false;
        }
        while shared.replication.is_feeding_before(end) {
            if self.info.is_stopped() {
                return false;
            }
            shared.journal.intake.poke();
            thread::sleep(Duration::from_millis(1));
        }
        {
            let _applying = lock(&shared.replication.applying);
            if self.info.is_stopped() {
                return false;
            }
            shared.replication.end_feeding(shared);
        }
        for id in 0..shared.router.shards_len() {
            let job = Job::new(Origin::nobody(0), JobBody::Listen, LockSet::one(id), Grant::empty());
            job.enqueue_from_outside(shared);
        }
        true
    }

    fn converse(&mut self) -> Step<std::convert::Infallible> {
        let (shared, info) = (self.shared, self.info.clone());
        let mut wire = Wire::connect(&info.host, info.port, &shared.settings.live().tls)?;
        *lock(&info.socket) = Some(wire.handle()?);
        let (mut handshake, first) = Handshake::begin(self.introduction());
        wire.send(&first)?;
        self.hear();
        loop {
            let line = self.line(&mut wire)?;
            let step = handshake.take(&line).map_err(|refusal| {
                self.info.was_refused.store(true, Relaxed);
                LinkEnd::Lost(format!("it refuses: {}", refusal.0))
            });
            match step? {
                NextStep::Send(bytes) => wire.send(&bytes)?,
                NextStep::Wait => {}
                // A member needs flows; what is wrong now may be right in a moment.
                NextStep::Full { .. } | NextStep::Continue { .. } if shared.group.is_some() => {
                    return Err(LinkEnd::Lost("it does not serve flows now".to_owned()));
                }
                NextStep::Full { id, offset } => {
                    self.look_for_restart(&id)?;
                    self.load(&mut wire, id, offset)?;
                    break;
                }
                NextStep::Continue { id } => {
                    self.go_on(id)?;
                    shared.replication.state().forget_sequences(shared);
                    break;
                }
                NextStep::Flows(session) => return self.by_flows(&mut wire, &session),
            }
        }
        self.go_up();
        self.follow(&mut wire)
    }

    /// The link is up from here on.
    pub(super) fn go_up(&mut self) {
        let replication = &self.shared.replication;
        self.info.set_stage(LinkStage::Connected);
        self.info.hands_over.store(false, Relaxed);
        replication.link_is_up.store(true, Relaxed);
        self.followed = Some(replication.state().history.id);
        *lock(&self.info.client) = self.as_client();
        // It forgets what is too old, also after a start that needed no snapshot.
        replication.start_feeder(self.shared);
        replication.counts.links.fetch_add(1, Relaxed);
    }

    /// The link as a client of this server.
    fn as_client(&self) -> Option<Arc<ClientInfo>> {
        let socket = lock(&self.info.socket);
        let socket = socket.as_ref()?;
        let address = |found: std::io::Result<std::net::SocketAddr>| {
            found.map_or_else(|_| String::new(), |address| address.to_string())
        };
        let (peer, local) = (address(socket.peer_addr()), address(socket.local_addr()));
        let place = (0, Token::NOBODY, socket.as_raw_fd());
        let client = ClientInfo::new(self.shared.new_client_id(), place, peer, local, false, unix_ms());
        client.is_master.store(true, Relaxed);
        lock(&client.words).user = "(superuser)".to_owned();
        Some(Arc::new(client))
    }

    /// Ends for good where all is to be replaced by the data of a master that was started anew, if that is not wanted.
    pub(super) fn look_for_restart(&self, history: &ReplId) -> Step<()> {
        let breaks = self.shared.settings.live().replication.breaks_on_restart;
        match self.followed {
            Some(followed) if breaks && followed != *history => Err(LinkEnd::Hopeless(format!(
                "it was started anew: its history is {history}, and {followed} was followed \
                 (break_replication_on_master_restart)"
            ))),
            _ => Ok(()),
        }
    }

    fn introduction(&self) -> Card {
        let live = self.shared.settings.live();
        let (login, address, port) = own_place(self.shared, &live);
        let boot = self.shared.replication.boot;
        let state = self.shared.replication.state();
        let has = state.is_continuous.then(|| (state.history.id, state.offset() + 1));
        Card {
            login,
            port,
            address,
            version: "8.1.0".to_owned(),
            takes_over: has.is_some() && self.info.hands_over.load(Relaxed),
            has,
            node: Some((boot, boot)),
        }
    }

    pub(super) fn hear(&self) {
        self.info.heard_ms.store(unix_ms(), Relaxed);
    }

    /// Receives more bytes, or ends after a silence of `repl-timeout`.
    fn fill(&self, wire: &mut Wire) -> Step<usize> {
        if self.info.is_stopped() {
            return Err(LinkEnd::Stopped);
        }
        let read = wire.fill()?;
        self.shared.replication.counts.received_bytes.fetch_add(read as u64, Relaxed);
        if read > 0 {
            self.hear();
            return Ok(read);
        }
        self.look_for_silence()?;
        Ok(0)
    }

    /// Ends after a silence of `repl-timeout`.
    pub(super) fn look_for_silence(&self) -> Step<()> {
        let silence_ms = unix_ms().saturating_sub(self.info.heard_ms.load(Relaxed));
        let limit_s = self.shared.settings.live().replication.timeout_s;
        if silence_ms > limit_s.saturating_mul(1000) {
            return Err(LinkEnd::Lost(format!("it is silent for {limit_s} s")));
        }
        Ok(())
    }

    /// Ends for good where the data has outgrown `maxmemory` by a quarter: a replica evicts nothing.
    pub(super) fn look_for_room(&self) -> Step<()> {
        let max_bytes = self.shared.settings.live().maxmemory;
        let used_bytes = limit::used_bytes(self.shared);
        if max_bytes == 0 || used_bytes <= max_bytes.saturating_add(max_bytes / 4) {
            return Ok(());
        }
        Err(LinkEnd::Hopeless(format!(
            "{used_bytes} bytes are used here, more than 1.25 x maxmemory ({max_bytes}), and a replica evicts nothing"
        )))
    }

    pub(super) fn line(&self, wire: &mut Wire) -> Step<Vec<u8>> {
        loop {
            if let Some(line) = wire.line()? {
                return Ok(line);
            }
            self.fill(wire)?;
        }
    }

    /// Gets a snapshot and has it in the place of everything here.
    fn load(&mut self, wire: &mut Wire, id: ReplId, offset: u64) -> Step<()> {
        let (shared, info) = (self.shared, &self.info);
        info.set_stage(LinkStage::Sync);
        let mut transfer = loop {
            let line = self.line(wire)?;
            if line.is_empty() {
                continue;
            }
            if let Some(refusal) = line.strip_prefix(b"-") {
                return Err(LinkEnd::Lost(String::from_utf8_lossy(refusal).into_owned()));
            }
            break Transfer::parse(&line)
                .ok_or_else(|| LinkEnd::Lost("it announces no snapshot".to_owned()))?;
        };
        info.begin_sync(transfer.len().unwrap_or(0));
        let received = &info.sync_bytes[1];
        let live = shared.settings.live();
        let temporary = std::env::temp_dir();
        let folder = if live.persistence.is_in_cloud() { &temporary } else { &live.persistence.dir };
        let (mut spool, file) = Spool::new(folder).map_err(|fault| LinkEnd::Lost(fault.to_string()))?;
        loop {
            let taken = transfer.take(wire.received());
            wire.use_up(taken.used);
            spool.write_all(&taken.bytes)?;
            received.store(transfer.received, Relaxed);
            if taken.is_whole {
                break;
            }
            self.tell_progress();
            self.fill(wire)?;
        }
        tracing::info!("master {}:{} sent a snapshot of {} bytes", info.host, info.port, transfer.received);
        self.replace_all(wire, &id, Box::new(file), transfer.received)?;
        let _applying = lock(&shared.replication.applying);
        if info.is_stopped() {
            return Err(LinkEnd::Stopped);
        }
        let mut state = shared.replication.state();
        state.history = History::new(id);
        state.restart(offset);
        state.knows_sequences = false;
        state.has_backlog = true;
        state.is_continuous = true;
        state.db = 0;
        state.drop_replicas(shared);
        self.synced = None;
        Ok(())
    }

    /// Tells the log how far a snapshot is, from time to time.
    pub(super) fn tell_progress(&self) {
        let (info, now_ms) = (&self.info, unix_ms());
        let since_ms = now_ms.saturating_sub(info.sync_told_ms.load(Relaxed));
        if u128::from(since_ms) >= TELL_EVERY.as_millis()
            && let Some(progress) = info.progress()
        {
            info.sync_told_ms.store(now_ms, Relaxed);
            tracing::info!("snapshot of master {}:{}: {progress}", info.host, info.port);
        }
    }

    /// The master goes on where this server is, perhaps under another id.
    pub(super) fn go_on(&self, id: Option<ReplId>) -> Step<()> {
        let _applying = lock(&self.shared.replication.applying);
        if self.info.is_stopped() {
            return Err(LinkEnd::Stopped);
        }
        let mut state = self.shared.replication.state();
        if !state.is_continuous {
            return Err(LinkEnd::Lost("it continues what is not here".to_owned()));
        }
        let offset = state.offset();
        if let Some(id) = id.filter(|id| *id != state.history.id) {
            state.history.turn(id, offset);
            // Those who follow this server learn the new id when they come back.
            state.drop_replicas(self.shared);
        }
        state.has_backlog = true;
        tracing::info!("master {}:{} continues at offset {offset}", self.info.host, self.info.port);
        Ok(())
    }

    /// Applies the stream until something ends it.
    fn follow(&mut self, wire: &mut Wire) -> Step<std::convert::Infallible> {
        let (shared, info) = (self.shared, self.info.clone());
        let (mut acked, mut news) = (None::<Instant>, 0_usize);
        let applier = Applier::new(shared, info.clone());
        loop {
            let cut = ApplyBatch::cut(wire.received());
            let cut =
                cut.map_err(|garbled| LinkEnd::Hopeless(format!("the stream is garbled: {}", garbled.0)))?;
            let mut is_asked = false;
            if let Some(batch) = cut {
                let len = batch.len;
                is_asked = batch.asks_for_ack;
                applier.submit(batch)?;
                applier.settle()?;
                info.input_bytes.fetch_add(len as u64, Relaxed);
                wire.use_up(len);
                news += len;
            } else {
                self.fill(wire)?;
            }
            let every = if news > 0 { ACK_NEWS } else { ACK_EVERY };
            if is_asked || acked.is_none_or(|at| at.elapsed() >= every) {
                (acked, news) = (Some(Instant::now()), 0);
                self.look_for_room()?;
                let ack = self.ack();
                wire.send(&ack)?;
            }
        }
    }

    /// Says how much is applied, and how much of that is on disk.
    fn ack(&mut self) -> Vec<u8> {
        let offset = self.shared.replication.state().offset();
        let mut words = vec![b"REPLCONF".to_vec(), b"ACK".to_vec(), offset.to_string().into_bytes()];
        if let Some((synced, _)) = self.durable(offset, 0) {
            words.extend([b"FACK".to_vec(), synced.to_string().into_bytes()]);
        }
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let mut out = Vec::new();
        stream::write(&mut out, &words);
        out
    }
}

impl Link {
    /// The offset and the sequence up to which all is on disk, if that is news. This server is at `offset` and `sequence` now.
    pub(super) fn durable(&mut self, offset: u64, sequence: u64) -> Option<(u64, u64)> {
        let journal = &self.shared.journal;
        if !journal.is_on() {
            return None;
        }
        let durable = journal.durable_before();
        let news = self.synced.take_if(|(_, _, end)| *end <= durable);
        self.synced.get_or_insert((offset, sequence, journal.end()));
        news.map(|(offset, sequence, _)| (offset, sequence))
    }
}

/// Waits until every thread has begun another turn; false: the link was ended, or a thread is busy for too long.
pub(super) fn wait_for_turns(shared: &Shared, info: &LinkCard) -> bool {
    let began = Instant::now();
    shared.wait_for_turns(|| info.is_stopped() || began.elapsed() > NOTICE)
}

/// The request that logs in at another server of ours, as a replica does; empty without `masterauth`.
pub fn login_request(live: &Live) -> Vec<u8> {
    let login = login(live);
    let mut request = Vec::new();
    if !login.is_empty() {
        stream::begin(&mut request, 1 + login.len());
        stream::write_word(&mut request, b"AUTH");
        login.iter().for_each(|word| stream::write_word(&mut request, word));
    }
    request
}

/// The user, if one is set, and the password; empty without a password.
fn login(live: &Live) -> Vec<Vec<u8>> {
    let own = &live.replication;
    if own.password.is_empty() {
        return Vec::new();
    }
    let words = [&own.user, &own.password].into_iter().filter(|word| !word.is_empty());
    words.map(|word| word.clone().into_bytes()).collect()
}

/// What this server says at its master: the login, the address if one is to be announced, and the port it listens on.
pub fn own_place(shared: &Shared, live: &Live) -> (Vec<Vec<u8>>, Option<String>, u16) {
    let own = &live.replication;
    let real = u16::try_from(shared.port.load(Relaxed)).unwrap_or(0);
    // Others of a system that is encrypted reach this server there.
    let real = live.tls.port.filter(|_| live.tls.replication).unwrap_or(real);
    let address = Some(own.announce_ip.clone()).filter(|address| !address.is_empty());
    (login(live), address, if own.announce_port == 0 { real } else { own.announce_port })
}
