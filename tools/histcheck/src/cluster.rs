//! Three groups of a cluster whose slots change hands all the time, as a whole and key by key, while clients work.
//!
//! All keys of a world are in one slot, and each slot must be strictly serializable. What a node refuses with MOVED, ASK, TRYAGAIN
//! or CLUSTERDOWN counts as not done. A slot that has moved to another group and back has forgotten nothing of a WATCH.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use darter_base::crc::key_slot;
use darter_base::rng::Rng;
use darter_wire::value::Value;

use crate::client::Client;
use crate::history::History;
use crate::work::{Worker, World, read_all};
use crate::{Flags, Server, check, free_port};

/// Groups of one node each.
const GROUPS: usize = 3;
/// Slots that move, by their tags; each is moved by the thread of its place among the groups.
const TAGS: [&str; 6] = ["{a}", "{b}", "{c}", "{d}", "{e}", "{f}"];
/// Clients of each slot.
const CLIENTS: u32 = 4;
/// Moves of each thread between two moments of rest.
const MOVES_OF_PIECE: u64 = 6;
/// A move, or a change of the map, takes no longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Moves and operations so far.
#[derive(Default)]
pub struct Counts {
    whole: AtomicU64,
    by_keys: AtomicU64,
    ops: AtomicU64,
}

impl std::fmt::Display for Counts {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [whole, by_keys, ops] = [&self.whole, &self.by_keys, &self.ops].map(|count| count.load(Relaxed));
        write!(out, "{whole} moves as a whole, {by_keys} key by key, {ops} operations")
    }
}

/// Runs until `flags.moves` slots have moved. Errors: an anomaly, or an answer that should never be.
pub fn run(flags: &Flags) -> io::Result<Counts> {
    let cluster = Cluster::start(flags)?;
    let counts = Counts::default();
    let mut pieces = 0;
    while counts.whole.load(Relaxed) + counts.by_keys.load(Relaxed) < flags.moves {
        let histories = cluster.one_piece(flags.seed ^ pieces << 20, pieces, &counts)?;
        for (tag, history) in TAGS.iter().zip(histories) {
            counts.ops.fetch_add(history.ops.len() as u64, Relaxed);
            let anomalies = check::check(&history);
            if !anomalies.is_empty() {
                let shown: Vec<String> = anomalies.iter().map(|anomaly| format!("{anomaly:?}")).collect();
                let text = format!("slot of {tag}, {counts}, seed {}:\n{}", flags.seed, shown.join("\n"));
                return Err(io::Error::other(text));
            }
        }
        pieces += 1;
    }
    Ok(counts)
}

/// The processes, which end with it.
struct Cluster {
    ports: Vec<u16>,
    ids: Vec<String>,
    _processes: Vec<Server>,
    _folder: DataFolder,
}

impl Cluster {
    fn start(flags: &Flags) -> io::Result<Cluster> {
        let folder = DataFolder::new()?;
        let (store, peers) = (free_port()?, free_port()?);
        let (url, peer) = (format!("http://127.0.0.1:{store}"), format!("http://127.0.0.1:{peers}"));
        let mut etcd = Command::new("etcd");
        etcd.arg("--data-dir").arg(folder.0.join("etcd"));
        etcd.args([
            "--listen-client-urls",
            &url,
            "--advertise-client-urls",
            &url,
            "--listen-peer-urls",
            &peer,
        ]);
        etcd.args(["--initial-advertise-peer-urls", &peer, "--initial-cluster", &format!("default={peer}")]);
        let mut processes = vec![quiet(&mut etcd)?];
        let mut ports = Vec::new();
        for at in 0..GROUPS {
            let (port, dir) = (free_port()?, folder.0.join(format!("node{at}")));
            std::fs::create_dir_all(&dir)?;
            let mut node = Command::new(&flags.darter);
            node.args([
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--port",
                &port.to_string(),
                "--proactor_threads",
                "2",
            ]);
            node.args(["--cluster_mode=yes", "--cluster_store", &format!("etcd://127.0.0.1:{store}")]);
            // A lease that a busy machine does not lose.
            node.args(["--ha_lease_ms", "5000", "--dir"]).arg(dir);
            processes.push(quiet(&mut node)?);
            ports.push(port);
        }
        let ids: io::Result<Vec<String>> = ports.iter().map(|port| id_once_ready(*port)).collect();
        let mut create = Command::new("redis-cli");
        create.args(["--cluster", "create"]).args(ports.iter().map(|port| format!("127.0.0.1:{port}")));
        let done = create.arg("--cluster-yes").stdin(Stdio::null()).output()?;
        if !done.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&done.stdout).into_owned()));
        }
        Ok(Cluster { ports, ids: ids?, _processes: processes, _folder: folder })
    }

    /// Clients of all slots from rest to rest; the history of each slot.
    fn one_piece(&self, seed: u64, piece: u64, counts: &Counts) -> io::Result<Vec<History>> {
        let worlds: Vec<World> =
            TAGS.iter().map(|tag| World::new(format!("{tag}{piece}"), CLIENTS)).collect();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let mut workers = Vec::new();
            for (at, world) in worlds.iter().enumerate() {
                for own in 0..CLIENTS {
                    let (seed, port) =
                        (seed ^ (at as u64) << 52 ^ u64::from(own) << 48, self.ports[at % GROUPS]);
                    let is_over = &is_over;
                    let work =
                        move || Worker::new(world, own, seed, Client::connect(port)?).run_moving(is_over);
                    workers.push((at, scope.spawn(work)));
                }
            }
            let movers: Vec<_> = (0..GROUPS)
                .map(|own| scope.spawn(move || self.move_some(own, Rng::new(seed ^ own as u64), counts)))
                .collect();
            let panicked = || io::Error::other("a thread panicked");
            let moved: Vec<io::Result<()>> =
                movers.into_iter().map(|mover| mover.join().unwrap_or_else(|_| Err(panicked()))).collect();
            is_over.store(true, Relaxed);
            let mut histories = vec![History::default(); TAGS.len()];
            for (at, worker) in workers {
                let part = worker.join().unwrap_or_else(|_| Err(panicked()))?;
                histories[at].add(part);
            }
            moved.into_iter().collect::<io::Result<()>>()?;
            for ((tag, world), history) in TAGS.iter().zip(&worlds).zip(&mut histories) {
                let mut client = Client::connect(self.ports[self.owner(tag)?])?;
                history.add(read_all(world, &mut client)?);
            }
            // So that the next piece does not move what this one has left.
            for port in &self.ports {
                let mut client = Client::connect(*port)?;
                insist(|| client.call(&["FLUSHALL"]).map(|_| ()), &["TRYAGAIN"])?;
            }
            Ok(histories)
        })
    }

    /// Moves the slots of one thread to and fro.
    fn move_some(&self, own: usize, mut rng: Rng, counts: &Counts) -> io::Result<()> {
        for _ in 0..MOVES_OF_PIECE {
            let tag = TAGS[own + rng.below(2) as usize * GROUPS];
            let from = self.owner(tag)?;
            let to = (from + 1 + rng.below(GROUPS as u64 - 1) as usize) % GROUPS;
            if rng.below(3) == 0 {
                self.move_by_keys(tag, from, to)?;
                counts.by_keys.fetch_add(1, Relaxed);
            } else {
                self.move_whole(tag, from, to)?;
                counts.whole.fetch_add(1, Relaxed);
            }
        }
        Ok(())
    }

    fn move_whole(&self, tag: &str, from: usize, to: usize) -> io::Result<()> {
        let slot = key_slot(tag.as_bytes()).to_string();
        let mut source = Client::connect(self.ports[from])?;
        let ask = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &slot, &slot, "NODE", &self.ids[to]];
        // The move before may have left keys that are being removed.
        insist(|| source.call(&ask).map(|_| ()), &["are being removed"])?;
        let mut target = Client::connect(self.ports[to])?;
        insist(|| target.call(&["EXISTS", tag]).map(|_| ()), &["MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN"])
    }

    fn move_by_keys(&self, tag: &str, from: usize, to: usize) -> io::Result<()> {
        let slot = key_slot(tag.as_bytes()).to_string();
        let (mut source, mut target) = (Client::connect(self.ports[from])?, Client::connect(self.ports[to])?);
        let importing = ["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.ids[from]];
        insist(|| target.call(&importing).map(|_| ()), &["are being removed"])?;
        source.call(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.ids[to]])?;
        let port = self.ports[to].to_string();
        let give = ["CLUSTER", "SETSLOT", &slot, "NODE", &self.ids[to]];
        insist(
            || {
                let Value::Array(keys) = source.call(&["CLUSTER", "GETKEYSINSLOT", &slot, "10"])? else {
                    return Err(io::Error::other("no keys"));
                };
                if keys.is_empty() {
                    // A client may have made one meanwhile.
                    return source.call(&give).map(|_| ());
                }
                let mut words: Vec<&[u8]> =
                    vec![b"MIGRATE", b"127.0.0.1", port.as_bytes(), b"", b"0", b"60000"];
                words.push(b"KEYS");
                words.extend(keys.iter().filter_map(Value::as_bytes));
                source.call(&words)?;
                Err(io::Error::other(MORE_KEYS))
            },
            &[MORE_KEYS, "Can't assign hashslot", "was changed each time"],
        )
    }

    /// The group that serves the slot of `tag`, between moves.
    fn owner(&self, tag: &str) -> io::Result<usize> {
        let mut found = Err(io::Error::other("none"));
        insist(
            || {
                let serves = |port: &u16| Client::connect(*port)?.call(&["EXISTS", tag]);
                let at = self.ports.iter().position(|port| serves(port).is_ok());
                found = at.ok_or_else(|| io::Error::other(format!("nobody serves {tag}")));
                found.as_ref().map(|_| ()).map_err(|error| io::Error::other(error.to_string()))
            },
            &["nobody serves"],
        )?;
        found
    }
}

const MORE_KEYS: &str = "more keys";

/// Does `act` until it succeeds; an error that has one of the words `passing` is no end.
fn insist(mut act: impl FnMut() -> io::Result<()>, passing: &[&str]) -> io::Result<()> {
    let began = Instant::now();
    loop {
        let Err(error) = act() else { return Ok(()) };
        let line = error.to_string();
        if began.elapsed() > PATIENCE || !passing.iter().any(|word| line.contains(word)) {
            return Err(error);
        }
        if line != MORE_KEYS {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The id of a node, once it may join a cluster.
fn id_once_ready(port: u16) -> io::Result<String> {
    let mut id = String::new();
    let mut ask = || {
        let mut client = Client::connect(port)?;
        let info = client.call(&["INFO", "cluster"])?;
        let info = String::from_utf8_lossy(info.as_bytes().unwrap_or_default()).into_owned();
        if !info.contains("cluster_store_connected:1") {
            return Err(io::Error::other("the store is not connected"));
        }
        id = String::from_utf8_lossy(client.call(&["CLUSTER", "MYID"])?.as_bytes().unwrap_or_default())
            .into_owned();
        Ok(())
    };
    insist(|| ask().map_err(|error| io::Error::other(format!("starts: {error}"))), &["starts"])?;
    Ok(id)
}

fn quiet(command: &mut Command) -> io::Result<Server> {
    let name = command.get_program().to_string_lossy().into_owned();
    let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    process.map(Server).map_err(|error| io::Error::other(format!("{name}: {error}")))
}

/// A folder that is removed with its owner.
struct DataFolder(PathBuf);

impl DataFolder {
    fn new() -> io::Result<DataFolder> {
        let shared = Path::new("/dev/shm");
        let base = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
        let path = base.join(format!("darter-histcheck-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(DataFolder(path))
    }
}

impl Drop for DataFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
