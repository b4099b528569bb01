//! A million keys that expire in the same second, and how GETs of other keys fare meanwhile.

use std::io;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::keys::Distribution;
use crate::load::{Load, Measured, Shape};
use crate::replies::Protocol;
use crate::server::{Program, Server};
use crate::setting::Setting;
use crate::speed;
use crate::template::{Filling, Part, Pool, Template, fixed};
use crate::workload::Workload;

/// One server's result.
#[derive(Clone, Debug)]
pub struct ExpiryStorm {
    /// The server's name in the table.
    pub server: String,
    /// The measurement; or why there is none.
    pub result: Result<Storm, String>,
}

/// GETs before the expiry second and through it.
#[derive(Clone, Debug)]
pub struct Storm {
    /// Two seconds before.
    pub before: Measured,
    /// From half a second before the moment to three and a half after.
    pub during: Measured,
    /// Keys that DBSIZE still counts right after.
    pub left: u64,
}

const EXPIRING: u64 = 1_000_000;
const LASTING: u64 = 100_000;

/// Runs it for Redis and Darter.
pub fn run(setting: &Setting) -> Vec<ExpiryStorm> {
    let storm = |program: Program| {
        let result = measure(&program, setting).map_err(|e| e.to_string());
        ExpiryStorm { server: program.label().to_owned(), result }
    };
    let mut programs = vec![setting.redis(), setting.darter(1)];
    programs.retain(|program| program.path().exists());
    programs.into_iter().map(storm).collect()
}

fn measure(program: &Program, setting: &Setting) -> io::Result<Storm> {
    let server = Server::start(program, &setting.server_cores)?;
    let pool = Pool::new(Filling::Binary);
    let sequential =
        |template, keys| Workload::of(template, keys).with_distribution(Distribution::Sequential);
    let lasting = sequential(Template::set(Protocol::Resp, "key:", 32), LASTING);
    speed::fill(&server, &lasting, &pool, LASTING, &setting.client_cores)?;
    // Far enough away that a slow machine has filled by then; checked below.
    let moment = (unix_time() + Duration::from_secs(13)).as_secs();
    let moment_text = moment.to_string();
    let parts = [fixed("SET"), Part::key("exp:"), Part::Value(32), fixed("EXAT"), fixed(&moment_text)];
    let expiring = sequential(Template::resp(&parts), EXPIRING);
    speed::fill(&server, &expiring, &pool, EXPIRING, &setting.client_cores)?;
    let calm_from = Duration::from_secs(moment).checked_sub(Duration::from_secs(3)).unwrap_or_default();
    let Some(pause) = calm_from.checked_sub(unix_time()) else {
        return Err(io::Error::other("filling took longer than the keys live"));
    };
    thread::sleep(pause);
    let get = Workload::of(Template::get(Protocol::Resp, "key:"), LASTING);
    let load = |wall| Load {
        address: server.address(),
        ops: u64::MAX,
        wall,
        connections: 10,
        pipeline: 1,
        shape: Shape::Batch,
        threads: 1,
        cores: setting.client_cores.clone(),
        seed: 5,
        greeting: Vec::new(),
    };
    let before = load(Duration::from_secs(2)).run(&get, &pool)?;
    let start = Duration::from_secs(moment) - Duration::from_millis(500);
    thread::sleep(start.saturating_sub(unix_time()));
    let during = load(Duration::from_secs(4)).run(&get, &pool)?;
    let counted = server.ask_count(&["DBSIZE"])?;
    Ok(Storm { before, during, left: counted.saturating_sub(LASTING) })
}

fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
