//! A cluster whose map is in an etcd: the store, its nodes, a client that follows redirections, and `redis-cli --cluster`.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::harness::browser::sample;
use crate::harness::folder::Folder;
use crate::harness::{Client, PATIENCE, Server, Value, wait_until};

/// An etcd of one server.
pub struct Etcd {
    process: Option<Child>,
    port: u16,
    peers: u16,
    folder: Folder,
    // files of TLS, if it is encrypted
    tls: Vec<String>,
}

impl Etcd {
    /// Starts one; `None`, with a message, where none is installed.
    pub fn start(name: &str) -> Option<Etcd> {
        Etcd::start_with(name, &[])
    }

    /// The same, encrypted with the files that these flags name.
    pub fn start_with(name: &str, tls: &[String]) -> Option<Etcd> {
        let free = crate::harness::free_port;
        let (port, peers) = (free(), free());
        let folder = Folder::in_memory(&format!("etcd-{name}"));
        let mut etcd = Etcd { process: None, port, peers, folder, tls: tls.to_vec() };
        if etcd.go_on() {
            return Some(etcd);
        }
        eprintln!("SKIPPED: etcd is not installed");
        None
    }

    /// Starts it again with what it has kept; false: it is not installed.
    pub fn go_on(&mut self) -> bool {
        let (url, peer) = (self.url(), format!("http://127.0.0.1:{}", self.peers));
        let process = Command::new("etcd")
            .args(&self.tls)
            .args(["--data-dir", self.folder.text(), "--listen-client-urls", &url])
            .args(["--advertise-client-urls", &url, "--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer, "--initial-cluster", &format!("default={peer}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match process {
            Ok(process) => self.process = Some(process),
            Err(error) if error.kind() == ErrorKind::NotFound => return false,
            Err(error) => panic!("{error}"),
        }
        wait_until("etcd listens", || TcpStream::connect(("127.0.0.1", self.port)).is_ok());
        true
    }

    /// Where clients ask it.
    pub fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", if self.tls.is_empty() { "http" } else { "https" }, self.port)
    }

    /// How often it was asked for values until now, as it counts itself.
    pub fn reads(&self) -> f64 {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("it reads");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("its page");
        let service = r#"grpc_method="Range",grpc_service="etcdserverpb.KV",grpc_type="unary""#;
        sample(&page, &format!(r#"grpc_server_handled_total{{grpc_code="OK",{service}}}"#))
    }

    /// Kills it; what it has written stays.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The way of one node to the store, or of others to a node. Shut, it keeps changes of the store back, and delivers them later,
/// even if their node is dead by then. Cut, it passes nothing on, or nothing of one direction. Slow, each piece takes its time.
#[derive(Clone)]
pub struct NetGate {
    port: u16,
    state: Arc<GateState>,
}

#[derive(Default)]
struct GateState {
    to: AtomicU16,
    is_shut: AtomicBool,
    kept: AtomicUsize,
    is_cut: [AtomicBool; 2],
    // nothing that a watch tells is passed on
    is_mute: AtomicBool,
    // Bytes a second of each direction, 0: no limit; and how late they come, in milliseconds.
    bytes_per_s: AtomicU64,
    late_ms: AtomicU64,
    // Times that it was cut and that connections were broken by that.
    breaks: AtomicUsize,
    trigger: Mutex<Option<(&'static [u8], CutTime)>>,
}

/// A direction of a gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GateWay {
    /// From those who call.
    There,
    /// To them.
    Back,
}

/// When a gate is cut, seen from the words that it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CutTime {
    /// They arrive when it is mended, or never.
    Before,
    /// They arrive, and their answer does not.
    After,
}

impl NetGate {
    /// A gate before the server of a port.
    pub fn before(to: u16) -> NetGate {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let gate = NetGate { port, state: Arc::default() };
        gate.lead_to(to);
        let state = gate.state.clone();
        std::thread::spawn(move || {
            for caller in listener.incoming().flatten() {
                let state = state.clone();
                std::thread::spawn(move || state.join(caller));
            }
        });
        gate
    }

    /// Its own port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Has new connections go to another port.
    pub fn lead_to(&self, port: u16) {
        self.state.to.store(port, SeqCst);
    }

    /// As `cluster_store` names it.
    fn place(&self) -> String {
        format!("etcd://127.0.0.1:{}", self.port)
    }

    /// Keeps changes back from now on.
    pub fn shut(&self) {
        self.state.is_shut.store(true, SeqCst);
    }

    /// Delivers them.
    pub fn open(&self) {
        self.state.is_shut.store(false, SeqCst);
    }

    /// How many changes were kept back until now.
    pub fn kept(&self) -> usize {
        self.state.kept.load(SeqCst)
    }

    /// Passes nothing on from now on.
    pub fn cut(&self) {
        self.state.cut();
    }

    /// Passes nothing of one direction on.
    pub fn cut_one(&self, way: GateWay) {
        self.state.is_cut[way as usize].store(true, SeqCst);
    }

    /// Passes on nothing that a watch tells, and all the rest.
    pub fn mute(&self) {
        self.state.is_mute.store(true, SeqCst);
    }

    /// Passes on so many bytes a second each way, 0: all at once; a piece of up to 64 KiB comes late by so much.
    pub fn slow(&self, bytes_per_s: u64, late: Duration) {
        self.state.bytes_per_s.store(bytes_per_s, SeqCst);
        self.state.late_ms.store(late.as_millis() as u64, SeqCst);
    }

    /// The same as soon as these words pass.
    pub fn cut_at(&self, words: &'static [u8], time: CutTime) {
        *self.state.trigger.lock().expect("nobody fails here") = Some((words, time));
    }

    /// Returns true if it is cut.
    pub fn is_cut(&self) -> bool {
        self.state.is_cut.iter().any(|way| way.load(SeqCst))
    }

    /// Passes on again: what was kept arrives late, or never, and its connections break then.
    pub fn mend(&self, is_late: bool) {
        *self.state.trigger.lock().expect("nobody fails here") = None;
        if !is_late {
            self.state.breaks.fetch_add(1, SeqCst);
        }
        self.state.is_cut.iter().for_each(|way| way.store(false, SeqCst));
    }
}

impl GateState {
    fn join(self: Arc<Self>, caller: TcpStream) -> Option<()> {
        let server = TcpStream::connect(("127.0.0.1", self.to.load(SeqCst))).ok()?;
        let _ = (caller.set_nodelay(true), server.set_nodelay(true));
        let back = (server.try_clone().ok()?, caller.try_clone().ok()?);
        let (breaks, state) = (self.breaks.load(SeqCst), self.clone());
        let is_watch = Arc::new(AtomicBool::new(false));
        let watches = is_watch.clone();
        std::thread::spawn(move || {
            let told = |bytes: &[u8]| {
                while watches.load(SeqCst) && state.is_mute.load(SeqCst) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                state.wait(GateWay::Back, bytes.len(), breaks)
            };
            pass_on(back, told, |_| ())
        });
        let ahead = |bytes: &[u8]| {
            is_watch.fetch_or(bytes.windows(9).any(|word| word == b"/v3/watch"), SeqCst);
            let is_change = bytes.windows(10).any(|word| word == b"/v3/kv/txn");
            if is_change && self.is_shut.load(SeqCst) {
                self.kept.fetch_add(1, SeqCst);
                while self.is_shut.load(SeqCst) {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            self.look(bytes, CutTime::Before);
            self.wait(GateWay::There, bytes.len(), breaks)
        };
        pass_on((caller, server), ahead, |bytes| self.look(bytes, CutTime::After));
        Some(())
    }

    /// Cuts the way if these are the words for that.
    fn look(&self, bytes: &[u8], now: CutTime) {
        let mut trigger = self.trigger.lock().expect("nobody fails here");
        if trigger
            .is_some_and(|(words, time)| time == now && bytes.windows(words.len()).any(|word| word == words))
        {
            *trigger = None;
            self.cut();
        }
    }

    fn cut(&self) {
        self.is_cut.iter().for_each(|way| way.store(true, SeqCst));
    }

    /// Waits for as long as so many bytes take, and while the way is cut; false: the connection broke meanwhile.
    fn wait(&self, way: GateWay, bytes: usize, breaks: usize) -> bool {
        let (rate, late_ms) = (self.bytes_per_s.load(SeqCst), self.late_ms.load(SeqCst));
        let takes_ms = (bytes as u64 * 1000).checked_div(rate).unwrap_or(0);
        if late_ms + takes_ms > 0 {
            std::thread::sleep(Duration::from_millis(late_ms + takes_ms));
        }
        while self.is_cut[way as usize].load(SeqCst) {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.breaks.load(SeqCst) == breaks
    }
}

/// Carries bytes from one to the other; `before` and `after` see them, the first may end it.
fn pass_on(
    (mut from, mut to): (TcpStream, TcpStream),
    before: impl Fn(&[u8]) -> bool,
    after: impl Fn(&[u8]),
) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        if !before(&bytes[..len]) {
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            return;
        }
        if to.write_all(&bytes[..len]).is_err() {
            break;
        }
        after(&bytes[..len]);
    }
    // What was sent before the end still arrives.
    let _ = to.shutdown(Shutdown::Write);
}

/// Servers whose map is in one etcd, each in a folder.
pub struct StoredNodes {
    /// The store; it ends after the servers.
    pub etcd: Etcd,
    /// The servers.
    pub servers: Vec<Server>,
    /// Their ways to the store.
    pub gates: Vec<NetGate>,
    /// The ways of others to them.
    pub doors: Vec<NetGate>,
    folders: Vec<Folder>,
    name: String,
    flags: Vec<String>,
}

/// Among flags: the port of the node's door.
pub const DOOR: &str = "DOOR";

impl StoredNodes {
    /// Starts `count` of them that have met nobody; `None`: there is no etcd here.
    pub fn start(name: &str, count: usize) -> Option<StoredNodes> {
        StoredNodes::start_with(name, count, &[])
    }

    /// The same with more flags for each.
    pub fn start_with(name: &str, count: usize, flags: &[&str]) -> Option<StoredNodes> {
        let etcd = Etcd::start(name)?;
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let name = name.to_owned();
        let mut nodes = StoredNodes {
            etcd,
            servers: Vec::new(),
            gates: Vec::new(),
            doors: Vec::new(),
            folders: Vec::new(),
            name,
            flags,
        };
        (0..count).for_each(|_| nodes.add());
        Some(nodes)
    }

    /// As [`StoredNodes::start`], joined with the slots spread evenly.
    pub fn create(name: &str, count: usize) -> Option<StoredNodes> {
        StoredNodes::create_with(name, count, &[])
    }

    /// The same with more flags for each.
    pub fn create_with(name: &str, count: usize, flags: &[&str]) -> Option<StoredNodes> {
        let nodes = StoredNodes::start_with(name, count, flags)?;
        let mut args = vec!["create".to_owned()];
        args.extend((0..count).map(|at| nodes.address(at)));
        args.push("--cluster-yes".to_owned());
        nodes.tool(&args.iter().map(String::as_str).collect::<Vec<_>>());
        Some(nodes)
    }

    /// Starts one more.
    pub fn add(&mut self) {
        let folder = Folder::new(&format!("stored-{}-{}", self.name, self.servers.len()));
        self.folders.push(folder);
        self.gates.push(NetGate::before(self.etcd.port));
        // Until the server has a port nobody comes.
        self.doors.push(NetGate::before(0));
        let server = self.launch(self.servers.len());
        self.servers.push(server);
    }

    /// Kills one of them and starts it again with what it has kept, on another port and with a new way to the store.
    pub fn restart(&mut self, at: usize) {
        // SIGKILL: nothing is written that is not written yet.
        self.servers[at].kill();
        self.gates[at] = NetGate::before(self.etcd.port);
        self.servers[at] = self.launch(at);
    }

    /// Removes the data of a dead one; it keeps its id.
    pub fn forget_data(&self, at: usize) {
        for name in self.folders[at].files().iter().filter(|name| !name.starts_with("nodes.conf")) {
            let path = self.folders[at].path().join(name);
            let _ = std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path));
        }
    }

    /// Starts a dead one again with a way to the store that is shut; returns a connection. It knows no map until that is opened.
    pub fn start_apart(&mut self, at: usize) -> Client {
        self.gates[at] = NetGate::before(self.etcd.port);
        self.gates[at].shut();
        self.servers[at] = self.begin(at);
        wait_until("it asks the store, and has loaded", || {
            let is_loading = self.client(at).info::<u64>("persistence", "loading");
            self.gates[at].kept() > 0 && is_loading == 0
        });
        self.client(at)
    }

    /// Starts a dead one again with more flags, which all get from now on; returns a connection, while it may still load.
    pub fn start_with_more(&mut self, at: usize, flags: &[&str]) -> Client {
        self.flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
        self.gates[at] = NetGate::before(self.etcd.port);
        let flags = self.flags_of(at);
        self.servers[at] = Server::start_loading(&flags.iter().map(String::as_str).collect::<Vec<_>>());
        self.doors[at].lead_to(self.servers[at].port());
        self.client(at)
    }

    fn launch(&self, at: usize) -> Server {
        let server = self.begin(at);
        wait_until("the node is in the map, and leads or follows", || {
            matches!(server.client().call(&["CLUSTER", "NODES"]), Value::Text(text) if text.contains("myself"))
                && server.client().info::<u64>("cluster", "cluster_store_revision") > 0
                && matches!(group_role(&mut server.client()).as_str(), "leading" | "following")
        });
        server
    }

    fn begin(&self, at: usize) -> Server {
        let flags = self.flags_of(at);
        let server = Server::start(&flags.iter().map(String::as_str).collect::<Vec<_>>());
        self.doors[at].lead_to(server.port());
        server
    }

    fn flags_of(&self, at: usize) -> Vec<String> {
        let place = self.gates[at].place();
        let flags = ["--cluster_mode=yes", "--cluster_store", &place, "--dir", self.folders[at].text()];
        // A node that gets no processor for a second is no reason for a failover.
        let patience = ["--cluster-manual-failover-timeout", "60000", "--ha_lease_ms", "5000"];
        let usual = ["--proactor_threads", "2"].into_iter().chain(patience);
        let door = self.doors[at].port().to_string();
        // Nodes that were told so reach each other by their doors.
        let own = self.flags.iter().map(|flag| if flag == DOOR { door.as_str() } else { flag.as_str() });
        flags.into_iter().chain(usual).chain(own).map(str::to_owned).collect()
    }

    /// A connection to one of them.
    pub fn client(&self, at: usize) -> Client {
        self.servers[at].client()
    }

    /// The address of one of them.
    pub fn address(&self, at: usize) -> String {
        format!("127.0.0.1:{}", self.servers[at].port())
    }

    /// The id of one of them.
    pub fn id(&self, at: usize) -> String {
        text(self.client(at).call(&["CLUSTER", "MYID"]))
    }

    /// Makes a change of the map, which must be taken. A store that has no time answers late; then nothing has changed, or
    /// the same change is made again.
    pub fn change(&self, at: usize, line: &str) -> Value {
        let words: Vec<&str> = line.split(' ').collect();
        let away = |said: &Value| matches!(said, Value::Error(line) if line.starts_with("CLUSTERDOWN the cluster's store"));
        let (mut said, mut asked) = (Value::Null, 0);
        wait_until("the store answers", || {
            said = self.client(at).call(&words);
            asked += 1;
            !away(&said)
        });
        assert!(asked > 1 || !matches!(said, Value::Error(_)), "{line}: {said:?}");
        said
    }

    /// Runs `redis-cli --cluster` with these words, which must succeed; returns its output.
    pub fn tool(&self, words: &[&str]) -> String {
        let (is_fine, said) = tool(words);
        assert!(is_fine, "{words:?}: {said}");
        said
    }

    /// Waits until every one of them has the same map.
    pub fn agree(&self) {
        wait_until("all nodes agree", || {
            let revision = |server: &Server| {
                let said = server.client().try_call(&["INFO", "cluster"]).map(text)?;
                said.lines().find_map(|line| line.strip_prefix("cluster_store_revision:")).map(str::to_owned)
            };
            let first = revision(&self.servers[0]);
            first.is_some() && self.servers.iter().all(|server| revision(server) == first)
        });
    }

    /// Waits until every one of them has the same map and replicas have what their masters have: until then they answer
    /// `CLUSTER NODES` with -LOADING, as those of Redis do. Then `redis-cli --cluster check` is content.
    pub fn settle(&self) {
        self.agree();
        // What a node is in its group follows the map a moment later: a new replica still leads a group of its own then. One
        // whose part changes closes its connections.
        wait_until("each node is what the map says", || {
            self.servers.iter().all(|server| {
                let mut client = server.client();
                let Some(nodes) = client.try_call(&["CLUSTER", "NODES"]).map(text) else { return false };
                if nodes.contains("myself,slave ") {
                    is_following(&mut client)
                } else {
                    nodes.contains("myself,master ") && group_role(&mut client) == "leading"
                }
            })
        });
        let said = self.tool(&["check", &self.address(0)]);
        assert!(said.contains("All 16384 slots covered"), "{said}");
    }
}

/// Runs `redis-cli --cluster`; returns its success and its output.
pub fn tool(words: &[&str]) -> (bool, String) {
    let process = Command::new("redis-cli")
        .arg("--cluster")
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut process = process.expect("redis-cli runs");
    // `fix` asks in spite of `--cluster-yes`.
    let _ = process.stdin.take().expect("its input").write_all(b"yes\nyes\nyes\n");
    let done = process.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    (done.status.success(), said)
}

/// What a node is in its group.
pub fn group_role(client: &mut Client) -> String {
    let Some(Value::Array(fields)) = client.try_call(&["DARTER", "GROUP"]) else { return String::new() };
    let at = fields.iter().position(|field| *field == Value::Text("role".to_owned()));
    at.and_then(|at| fields.get(at + 1)).cloned().map(text).unwrap_or_default()
}

/// Returns true if a node follows a master and has its data.
pub fn is_following(client: &mut Client) -> bool {
    let said = client.try_call(&["INFO", "replication"]).map(text);
    said.is_some_and(|said| said.contains("master_link_status:up\r\n"))
}

/// The text of an answer.
pub fn text(value: Value) -> String {
    match value {
        Value::Error(text) | Value::Status(text) | Value::Text(text) => text,
        other => panic!("no text: {other:?}"),
    }
}

/// A client that follows redirections, as those of Redis Cluster do.
pub struct ClusterClient {
    clients: HashMap<u16, Client>,
    owners: HashMap<String, u16>,
    seed: u16,
}

/// MOVED in a row for one command: clients give up after three to sixteen.
const MOVED_MAX: usize = 6;

impl ClusterClient {
    /// A client that knows one node.
    pub fn new(port: u16) -> ClusterClient {
        ClusterClient { clients: HashMap::new(), owners: HashMap::new(), seed: port }
    }

    fn client(&mut self, port: u16) -> &mut Client {
        self.clients.entry(port).or_insert_with(|| Client::connect(port))
    }

    /// Runs commands about the keys of one tag, as a transaction if there are several.
    pub fn run(&mut self, tag: &str, commands: &[&[&str]]) -> Value {
        let began = Instant::now();
        let mut port = *self.owners.get(tag).unwrap_or(&self.seed);
        let (mut asks, mut moved) = (false, 0);
        loop {
            assert!(
                began.elapsed() < PATIENCE && moved <= MOVED_MAX,
                "{commands:?} is sent round in circles"
            );
            let client = self.client(port);
            if asks {
                assert_eq!(client.call(&["ASKING"]), Value::ok());
            }
            let answer = match commands {
                [one] => client.call(one),
                all => transaction(client, all),
            };
            asks = false;
            let Value::Error(line) = &answer else { return answer };
            let words: Vec<&str> = line.split(' ').collect();
            let place = || words[2].rsplit_once(':').expect("an address").1.parse().expect("a port");
            match words[0] {
                "MOVED" => {
                    moved += 1;
                    port = place();
                    self.owners.insert(tag.to_owned(), port);
                }
                "ASK" => {
                    port = place();
                    moved = 0;
                    asks = commands.len() == 1;
                    // A transaction is no business of ASKING: it waits for the end of the move.
                    if !asks {
                        port = *self.owners.get(tag).unwrap_or(&self.seed);
                        std::thread::sleep(Duration::from_millis(2));
                    }
                }
                "TRYAGAIN" => {
                    moved = 0;
                    port = *self.owners.get(tag).unwrap_or(&self.seed);
                    std::thread::sleep(Duration::from_millis(2));
                }
                _ => return answer,
            }
        }
    }

    /// Runs one command about a key.
    pub fn call(&mut self, tag: &str, command: &[&str]) -> Value {
        self.run(tag, &[command])
    }
}

fn transaction(client: &mut Client, commands: &[&[&str]]) -> Value {
    let all: Vec<&[&str]> = [&[&["MULTI"][..]][..], commands, &[&["EXEC"][..]]].concat();
    client.send_all(&all);
    let answers: Vec<Value> = all.iter().map(|_| client.read()).collect();
    let refused = answers.iter().find(|answer| matches!(answer, Value::Error(_))).cloned();
    refused.unwrap_or_else(|| answers.last().cloned().expect("an answer"))
}
