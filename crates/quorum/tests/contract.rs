//! What a group counts on, asked of the fake store and of an etcd if one is installed.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use darter_quorum::etcd::{Carrier, Dial, Etcd, EtcdPlace};
use darter_quorum::fake::{FakeStore, StoreTrouble};
use darter_quorum::store::{GroupStore, StoreWritten};

const PATIENCE: Duration = Duration::from_secs(60);

fn contract(mut open: impl FnMut() -> Box<dyn GroupStore>) {
    let (mut first, mut second) = (open(), open());
    assert_eq!(first.read(), Ok(None));
    let Ok(StoreWritten::Done(one)) = first.compare_and_set(0, b"one") else { panic!("there was none") };
    assert_eq!(second.compare_and_set(0, b"two"), Ok(StoreWritten::Conflict), "there is one");
    let kept = second.read().expect("an answer").expect("a value");
    assert_eq!((kept.revision, &kept.value[..]), (one, &b"one"[..]));
    let Ok(StoreWritten::Done(two)) = second.compare_and_set(one, b"two\0\xff") else {
        panic!("nobody was faster")
    };
    assert!(two > one);
    assert_eq!(first.compare_and_set(one, b"late"), Ok(StoreWritten::Conflict), "the fence");
    assert_eq!(first.read().expect("an answer").expect("a value").value, b"two\0\xff");
    // The same value again is another revision: what was on its way before is fenced.
    let Ok(StoreWritten::Done(three)) = first.compare_and_set(two, b"two\0\xff") else {
        panic!("nobody was faster")
    };
    assert!(three > two);
    assert_eq!(second.read_newer(three), Ok(None), "nothing is newer");
    let newer = second.read_newer(two).expect("an answer").expect("a newer value");
    assert_eq!((newer.revision, &newer.value[..]), (three, &b"two\0\xff"[..]));
    // Of many who write at once one comes through.
    let stores: Vec<Box<dyn GroupStore>> = (0..8).map(|_| open()).collect();
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for (at, mut store) in stores.into_iter().enumerate() {
            let done = &done;
            scope.spawn(move || {
                if let Ok(StoreWritten::Done(_)) = store.compare_and_set(three, at.to_string().as_bytes()) {
                    done.fetch_add(1, Relaxed);
                }
            });
        }
    });
    assert_eq!(done.load(Relaxed), 1);
}

#[test]
fn the_fake_store_keeps_the_contract() {
    let store = FakeStore::default();
    contract(|| Box::new(store.clone()));
    let mut cut = store.clone();
    let before = cut.read().expect("an answer").expect("a value").revision;
    store.set_trouble(StoreTrouble::Away);
    assert!(cut.read().is_err() && cut.compare_and_set(before, b"x").is_err());
    store.set_trouble(StoreTrouble::Deaf);
    assert!(cut.compare_and_set(before, b"made all the same").is_err());
    store.set_trouble(StoreTrouble::None);
    assert_eq!(cut.read().expect("an answer").expect("a value").value, b"made all the same");
}

/// A port on which nobody listens, another one each time, below those that the kernel gives to whoever connects.
fn free_port() -> u16 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let begin = u64::from(std::process::id()) * 611;
    (0..22_000)
        .map(|_| (10_000 + (begin + NEXT.fetch_add(1, Relaxed)) % 22_000) as u16)
        .find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        .expect("a port")
}

struct EtcdServer {
    process: Child,
    port: u16,
    folder: std::path::PathBuf,
}

impl EtcdServer {
    /// Starts one; `None`: etcd or its `etcdctl` is not here.
    fn start() -> Option<EtcdServer> {
        Command::new("etcdctl").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
        let (port, peers) = (free_port(), free_port());
        let folder = std::env::temp_dir().join(format!("darter-etcd-{}-{port}", std::process::id()));
        let url = format!("http://127.0.0.1:{port}");
        let peer_url = format!("http://127.0.0.1:{peers}");
        let process = Command::new("etcd")
            .arg("--data-dir")
            .arg(&folder)
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &format!("default={peer_url}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match process {
            Ok(process) => Some(EtcdServer { process, port, folder }),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn store(&self, login: &str) -> Etcd {
        let dial: Dial = Box::new(|host, port| {
            let stream = TcpStream::connect((host, port))?;
            stream.set_read_timeout(Some(Duration::from_millis(50)))?;
            Ok(Box::new(stream) as Box<dyn Carrier>)
        });
        let place =
            EtcdPlace::parse(&format!("etcd://{login}127.0.0.1:1,127.0.0.1:{}", self.port)).expect("a place");
        Etcd::new(place, "/darter/test/state", PATIENCE, dial)
    }

    fn control(&self, words: &[&str]) {
        let status = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints=127.0.0.1:{}", self.port))
            .args(words)
            .stdout(Stdio::null())
            .status();
        assert!(status.expect("etcdctl").success(), "{words:?}");
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn etcd_keeps_the_contract() {
    let Some(server) = EtcdServer::start() else {
        eprintln!("no etcd is installed: only the fake store is tested");
        return;
    };
    let began = Instant::now();
    while server.store("").read().is_err() {
        assert!(began.elapsed() < PATIENCE, "etcd does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    contract(|| Box::new(server.store("")));
    server.control(&["user", "add", "root:secret"]);
    server.control(&["auth", "enable"]);
    assert!(server.store("").read().is_err(), "a login is needed");
    assert!(server.store("root:wrong@").read().is_err());
    assert!(server.store("root:secret@").read().expect("an answer").is_some());
}
