//! Groups of three servers with a store: processes that are killed and come back, the net between them, and the store.

#![allow(dead_code, reason = "each test file uses its part")]

pub mod etcd;
pub mod history;
pub mod net;
pub mod store;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::folder::Folder;
use crate::harness::log::Log;
use crate::harness::{Client, PATIENCE, Value, wait_until};
use crate::nodes::signal;

use net::Net;
use store::StoreServer;

/// Members of a group.
pub const MEMBERS: usize = 3;

/// A member, dead or alive.
pub struct Member {
    /// Its port for clients.
    pub port: u16,
    /// Its port for clients of Sentinel.
    pub sentinel_port: u16,
    flags: Vec<String>,
    process: Option<Child>,
    log: Log,
}

/// Three members, the net between them, and the store.
pub struct Group {
    /// The members.
    pub members: Vec<Member>,
    /// The proxies between them.
    pub net: Net,
    /// The store.
    pub store: StoreServer,
    folder: Folder,
}

impl Group {
    /// Starts three members with these flags, on a fake store.
    pub fn start(name: &str, flags: &[&str]) -> Group {
        let store = StoreServer::start(MEMBERS);
        let stores = (0..MEMBERS).map(|at| format!("etcd://127.0.0.1:{}", store.port(at))).collect();
        Group::on(name, flags, store, stores)
    }

    /// The same on another store.
    pub fn on(name: &str, flags: &[&str], store: StoreServer, stores: Vec<String>) -> Group {
        let folder = Folder::new(&format!("group-{name}"));
        let ports: Vec<u16> = (0..MEMBERS).map(|_| crate::harness::free_port()).collect();
        let net = Net::before(&ports);
        let members = ports.iter().enumerate().map(|(at, port)| {
            let dir = folder.path().join(at.to_string());
            std::fs::create_dir_all(&dir).expect("a folder");
            let sentinel_port = crate::harness::free_port();
            let own = [
                ("--port", port.to_string()),
                ("--bind", "127.0.0.1".to_owned()),
                ("--dir", dir.to_string_lossy().into_owned()),
                ("--dbfilename", String::new()),
                ("--save", String::new()),
                ("--proactor_threads", "2".to_owned()),
                ("--ha_store", stores[at].clone()),
                ("--sentinel_port", sentinel_port.to_string()),
                ("--replica-announce-ip", "127.0.0.1".to_owned()),
                ("--replica-announce-port", net.port(at).to_string()),
            ];
            let own = own.iter().flat_map(|(name, value)| [(*name).to_owned(), value.clone()]);
            let flags = own.chain(flags.iter().map(|flag| (*flag).to_owned())).collect();
            Member { port: *port, sentinel_port, flags, process: None, log: Log::new() }
        });
        let mut group = Group { members: members.collect(), net, store, folder };
        (0..MEMBERS).for_each(|at| group.begin(at));
        group
    }

    /// Starts a member that is dead.
    pub fn begin(&mut self, at: usize) {
        self.begin_with(at, &[]);
    }

    /// The same with flags that count more than its own.
    pub fn begin_with(&mut self, at: usize, flags: &[&str]) {
        let member = &mut self.members[at];
        let process = Command::new(env!("CARGO_BIN_EXE_darter"))
            .args(&member.flags)
            .args(flags)
            .stdout(member.log.output())
            .stderr(member.log.output())
            .stdin(Stdio::null())
            .spawn();
        let process = process.expect("the server starts");
        self.net.is_run_by(at, process.id());
        member.process = Some(process);
    }

    /// Kills a member.
    pub fn kill(&mut self, at: usize) {
        if let Some(mut process) = self.members[at].process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Stops a member, or has it go on.
    pub fn signal(&self, at: usize, name: &str) {
        if let Some(process) = &self.members[at].process {
            signal(process.id(), name);
        }
    }

    /// The process of a member that runs.
    pub fn pid(&self, at: usize) -> u32 {
        self.members[at].process.as_ref().expect("it runs").id()
    }

    /// What a member has written to its log.
    pub fn log(&self, at: usize) -> String {
        self.members[at].log.text()
    }

    /// Returns true if a member's process runs.
    pub fn is_alive(&self, at: usize) -> bool {
        self.members[at].process.is_some()
    }

    /// A connection to a member; `None`: it does not listen.
    pub fn client(&self, at: usize) -> Option<Client> {
        connect(self.members[at].port, PATIENCE)
    }

    /// A field of what a member knows of the group.
    pub fn field(&self, at: usize, name: &str) -> Option<Value> {
        let mut client = connect(self.members[at].port, Duration::from_secs(2))?;
        let said = client.try_send(&["DARTER", "GROUP"]).then(|| client.try_read()).flatten();
        let Some(Value::Array(items)) = said else { return None };
        let mut pairs = items.chunks(2);
        pairs.find(|pair| pair[0] == Value::Text(name.to_owned())).map(|pair| pair[1].clone())
    }

    /// The member that leads, if one does.
    pub fn leader(&self) -> Option<usize> {
        (0..MEMBERS).find(|at| {
            self.is_alive(*at) && self.field(*at, "role") == Some(Value::Text("leading".to_owned()))
        })
    }

    /// Waits until one leads and `members` count; returns it.
    pub fn settled(&self, members: usize) -> usize {
        let began = Instant::now();
        loop {
            let leader = self.leader();
            let is_whole = |at: usize| match self.field(at, "members") {
                Some(Value::Array(all)) => all.len() >= members,
                _ => false,
            };
            if let Some(at) = leader.filter(|at| is_whole(*at)) {
                return at;
            }
            assert!(began.elapsed() < PATIENCE, "no leader with {members} members: {leader:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns true if a member takes a write, and answers it within some seconds.
    pub fn takes(&self, at: usize, key: &str) -> bool {
        let client = connect(self.members[at].port, Duration::from_secs(5));
        client.is_some_and(|mut client| {
            client.try_send(&["SET", key, "1"]) && client.try_read() == Some(Value::ok())
        })
    }

    /// Waits until a write is answered; returns where.
    pub fn writable(&self) -> usize {
        let mut found = None;
        wait_until("a member takes writes", || {
            found = (0..MEMBERS).find(|at| self.is_alive(*at) && self.takes(*at, "probe"));
            found.is_some()
        });
        found.expect("a member")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for at in 0..MEMBERS {
            self.signal(at, "CONT");
            self.kill(at);
            if std::thread::panicking() {
                self.members[at].log.show(self.members[at].port);
            }
        }
    }
}

/// A connection whose replies come within a time; `None`: nobody listens.
pub fn connect(port: u16, patience: Duration) -> Option<Client> {
    let stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(patience)).ok()?;
    stream.set_nodelay(true).ok()?;
    Some(Client::over(stream))
}
