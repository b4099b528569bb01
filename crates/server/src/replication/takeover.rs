//! REPLTAKEOVER: a replica takes the place of its master, which follows it then.
//!
//! It asks the master for a failover to itself (`FAILOVER TO`), on a connection of its own, and waits for the role. What
//! the master does is in `failover`; a Redis does the same.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use darter_replica::stream;

use super::link;
use super::wire::Wire;
use crate::shared::Shared;

/// The master asks the replica to take over within this time after the writers wait.
const GRACE: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(2);
/// A replica that has just come is on line for the master with its next acknowledgement: until then it is asked again.
const COMES_ON_LINE: Duration = Duration::from_secs(1);
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// Options of a takeover.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TakeoverWish {
    /// The time for this server to catch up, while writers wait.
    pub timeout: Duration,
    /// The old master writes a snapshot then.
    pub saves: bool,
}

/// Takes over, and tells `then` whether it came to that.
///
/// Errors: there can be no more threads.
pub fn begin(
    shared: &'static Shared,
    wish: TakeoverWish,
    then: impl FnOnce(&'static Shared, bool) + Send + 'static,
) -> std::io::Result<()> {
    let body = move || {
        let done = run(shared, wish);
        if let Err(why) = &done {
            tracing::error!("takeover given up: {why}");
        }
        then(shared, done.is_ok());
    };
    thread::Builder::new().name("darter-takeover".to_owned()).spawn(body).map(drop)
}

fn run(shared: &'static Shared, wish: TakeoverWish) -> Result<(), String> {
    let replication = &shared.replication;
    let info = replication.state().master.clone().ok_or("this server follows nobody")?;
    let live = shared.settings.live();
    let failed = |error: std::io::Error| format!("{}:{}: {error}", info.host, info.port);
    let mut wire = Wire::connect(&info.host, info.port, &live.tls).map_err(failed)?;
    let (_, announced, port) = link::own_place(shared, &live);
    let login = link::login_request(&live);
    if !login.is_empty() {
        exchange(&mut wire, &login)?;
    }
    // The master knows this server by the address that it calls from, unless another was announced.
    let seen = wire.handle().and_then(|socket| socket.local_addr()).map_err(failed)?;
    let host = announced.unwrap_or_else(|| seen.ip().to_canonical().to_string());
    let (port, timeout) = (port.to_string(), wish.timeout.as_millis().max(1).to_string());
    let words: [&[u8]; 6] =
        [b"FAILOVER", b"TO", host.as_bytes(), port.as_bytes(), b"TIMEOUT", timeout.as_bytes()];
    let asked = Instant::now();
    while let Err(why) = ask(&mut wire, &words) {
        if asked.elapsed() > COMES_ON_LINE.min(wish.timeout) {
            return Err(why);
        }
        thread::sleep(ASK_AGAIN);
    }
    let began = Instant::now();
    while replication.is_replica() {
        if began.elapsed() > wish.timeout + GRACE {
            return Err("the master did not hand over in time".to_owned());
        }
        // The link is stopped by a promotion too: there is no master any more then, and in a moment this server is one.
        if info.is_stopped() && replication.state().master.is_some() {
            return Err("this server follows another master, or none any more".to_owned());
        }
        thread::sleep(LOOK);
    }
    tracing::info!("took over from {}:{}", info.host, info.port);
    if wish.saves
        && let Err(why) = ask(&mut wire, &[b"BGSAVE"])
    {
        tracing::warn!("the old master writes no snapshot: {why}");
    }
    Ok(())
}

/// Sends a command; an error of the master is one.
fn ask(wire: &mut Wire, words: &[&[u8]]) -> Result<(), String> {
    let mut request = Vec::new();
    stream::write(&mut request, words);
    exchange(wire, &request)
}

/// Sends one request and reads its answer. Errors: the connection, or the error line.
fn exchange(wire: &mut Wire, request: &[u8]) -> Result<(), String> {
    wire.send(request).map_err(|error| error.to_string())?;
    let began = Instant::now();
    loop {
        match wire.line().map_err(|error| error.to_string())? {
            Some(line) => match line.strip_prefix(b"-") {
                Some(why) => return Err(String::from_utf8_lossy(why).into_owned()),
                None => return Ok(()),
            },
            None if began.elapsed() > GRACE => return Err("the master does not answer".to_owned()),
            None => drop(wire.fill().map_err(|error| error.to_string())?),
        }
    }
}

/// Whether the link to the master is up: whoever has not everything cannot take over.
pub fn may_begin(shared: &Shared) -> bool {
    shared.replication.link_is_up.load(Relaxed)
}
