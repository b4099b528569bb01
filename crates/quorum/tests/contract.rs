//! What a group counts on, asked of the fake store and of an etcd if one is installed.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use darter_quorum::etcd::{Carrier, Dial, Etcd, EtcdPlace};
use darter_quorum::fake::{FakeStore, StoreTrouble};
use darter_quorum::store::{GroupStore, StoreFault, StoreWritten};
use darter_quorum::watch::{EtcdWatch, WatchNews};

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
    /// Starts a cluster of `count` servers. Returns none if etcd or `etcdctl` is not installed.
    fn start(count: usize) -> Vec<EtcdServer> {
        let about =
            Command::new("etcdctl").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if about.is_err() {
            return Vec::new();
        }
        let urls: Vec<String> = (0..count).map(|_| format!("http://127.0.0.1:{}", free_port())).collect();
        let named = urls.iter().enumerate().map(|(at, url)| format!("e{at}={url}"));
        let cluster = named.collect::<Vec<_>>().join(",");
        let each = urls.iter().enumerate();
        each.filter_map(|(at, url)| EtcdServer::start_one(&format!("e{at}"), url, &cluster)).collect()
    }

    fn start_one(name: &str, peer_url: &str, cluster: &str) -> Option<EtcdServer> {
        let port = free_port();
        let folder = std::env::temp_dir().join(format!("darter-etcd-{}-{port}", std::process::id()));
        let url = format!("http://127.0.0.1:{port}");
        let process = Command::new("etcd")
            .arg("--data-dir")
            .arg(&folder)
            .args(["--name", name, "--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url])
            .args(["--initial-cluster", cluster])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match process {
            Ok(process) => Some(EtcdServer { process, port, folder }),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// A store whose first server does not exist.
    fn store(&self, login: &str) -> Etcd {
        EtcdServer::open(&format!("{login}127.0.0.1:1,127.0.0.1:{}", self.port), PATIENCE)
    }

    fn open(place: &str, patience: Duration) -> Etcd {
        let dial: Dial = Box::new(|host, port| {
            let stream = TcpStream::connect((host, port))?;
            stream.set_read_timeout(Some(Duration::from_millis(50)))?;
            Ok(Box::new(stream) as Box<dyn Carrier>)
        });
        let place = EtcdPlace::parse(&format!("etcd://{place}")).expect("a place");
        Etcd::new(place, "/darter/test/state", patience, dial)
    }

    /// Waits until it answers.
    fn wait(&self) {
        let began = Instant::now();
        while self.store("").read().is_err() {
            assert!(began.elapsed() < PATIENCE, "etcd does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn signal(&self, name: &str) {
        let status =
            Command::new("kill").args([&format!("-{name}"), &self.process.id().to_string()]).status();
        assert!(status.expect("kill").success());
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
    let servers = EtcdServer::start(1);
    let [server] = &servers[..] else {
        eprintln!("no etcd is installed: only the fake store is tested");
        return;
    };
    server.wait();
    contract(|| Box::new(server.store("")));
    server.control(&["user", "add", "root:secret"]);
    server.control(&["auth", "enable"]);
    assert!(server.store("").read().is_err(), "a login is needed");
    assert!(server.store("root:wrong@").read().is_err());
    assert!(server.store("root:secret@").read().expect("an answer").is_some());
}

/// A connection of a watch is renewed after a minute, whatever it has told. A server without a leader ends it after three
/// timeouts of an election, which are a second each.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// Listens until something matches. Errors: the watch has ended.
fn listen(watch: &mut EtcdWatch, is_it: impl Fn(&WatchNews) -> bool) -> Result<WatchNews, StoreFault> {
    let began = Instant::now();
    loop {
        let news = watch.listen()?;
        if is_it(&news) {
            return Ok(news);
        }
        assert!(began.elapsed() < ENDS_WITHIN, "it is silent");
    }
}

#[test]
fn an_etcd_that_is_cut_off_from_the_others_answers_nothing_and_ends_its_watch() {
    let servers = EtcdServer::start(3);
    let [lonely, others @ ..] = &servers[..] else {
        eprintln!("no etcd is installed");
        return;
    };
    servers.iter().for_each(EtcdServer::wait);
    let mut store = EtcdServer::open(&format!("127.0.0.1:{}", lonely.port), Duration::from_secs(2));
    let Ok(StoreWritten::Done(one)) = store.compare_and_set(0, b"one") else { panic!("there was none") };
    let mut watch = store.watch().expect("a watch");
    let begun = listen(&mut watch, |news| news.has_begun).expect("it begins");
    assert!(begun.revision >= one, "{begun:?}");
    let mut other = others[0].store("");
    let Ok(StoreWritten::Done(two)) = other.compare_and_set(one, b"two") else {
        panic!("nobody else writes")
    };
    let told = listen(&mut watch, |news| !news.keys.is_empty()).expect("it tells");
    assert_eq!((told.revision, &told.keys[..]), (two, &[b"/darter/test/state".to_vec()][..]));
    assert_eq!(store.read_newer(two), Ok(None));

    others.iter().for_each(|other| other.signal("STOP"));
    // By what it has in memory it could say that there is nothing newer, but it cannot know. The others stop within moments.
    let began = Instant::now();
    while store.read_newer(two).is_ok() {
        assert!(began.elapsed() < ENDS_WITHIN, "it answers alone");
    }
    let ended = listen(&mut watch, |_| false).expect_err("it ends");
    assert!(ended.0.contains("no leader") || ended.0.contains("ended"), "{ended}");
    // The first of its two servers does not exist.
    let why = |store: &mut Etcd| store.read().expect_err("it has no leader").0;
    let refused = [why(&mut store), why(&mut store)];
    assert!(
        refused.iter().any(|why| why.contains("no leader")),
        "it does not wait for an answer: {refused:?}"
    );

    others.iter().for_each(|other| other.signal("CONT"));
    let began = Instant::now();
    while store.read_newer(one).map(|newer| newer.map(|newer| newer.revision)) != Ok(Some(two)) {
        assert!(began.elapsed() < PATIENCE, "they do not come back");
        std::thread::sleep(Duration::from_millis(20));
    }
}
