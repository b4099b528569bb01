//! The `redis` crate against HOST PORT; exits non-zero at the first wrong answer.

use std::collections::HashSet;
use std::fmt::Debug;
use std::thread;
use std::time::Duration;

use redis::{Client, Commands, Connection, ErrorKind, RedisResult};

fn expect<T: PartialEq<U> + Debug, U: Debug>(what: &str, got: T, wanted: U) {
    if got != wanted {
        eprintln!("redis-rs: {what}: got {got:?}, wanted {wanted:?}");
        std::process::exit(1);
    }
}

fn expect_error<T: Debug>(what: &str, got: RedisResult<T>, text: &str) {
    match got {
        Err(error) if error.to_string().contains(text) => {}
        other => expect(what, format!("{other:?}"), text.to_owned()),
    }
}

fn strings(r: &mut Connection) -> RedisResult<()> {
    expect("set", r.set::<_, _, String>("s", "hello")?, "OK");
    expect("get", r.get::<_, Option<String>>("s")?, Some("hello".to_owned()));
    expect("get missing", r.get::<_, Option<String>>("none")?, None::<String>);
    expect("setnx", r.set_nx::<_, _, bool>("s", "x")?, false);
    expect("append", r.append::<_, _, i64>("s", "!")?, 6);
    expect("getrange", r.getrange::<_, String>("s", 1, -2)?, "ello");
    expect("incr", r.incr::<_, _, i64>("n", 42)?, 42);
    expect("incrbyfloat", r.incr::<_, _, f64>("f", 10.5)?, 10.5);
    expect("mset", r.mset::<_, _, String>(&[("a", "1"), ("b", "2")])?, "OK");
    let got: Vec<Option<String>> = r.mget(&["a", "none", "b"])?;
    expect("mget", got, vec![Some("1".to_owned()), None, Some("2".to_owned())]);
    expect_error("incr of text", r.incr::<_, _, i64>("s", 1), "not an integer");
    expect_error("unknown", redis::cmd("NOSUCH").query::<i64>(r), "unknown command");
    Ok(())
}

fn keys(r: &mut Connection) -> RedisResult<()> {
    redis::cmd("FLUSHDB").exec(r)?;
    let wanted: HashSet<String> = (0..500).map(|i| format!("key:{i}")).collect();
    for name in &wanted {
        r.set::<_, _, ()>(name, "x")?;
    }
    expect("dbsize", redis::cmd("DBSIZE").query::<i64>(r)?, 500);
    let found: HashSet<String> = r.scan_match::<_, String>("key:*")?.collect::<RedisResult<_>>()?;
    expect("scan", found, wanted);
    expect("exists", r.exists::<_, i64>(&["key:1", "key:2", "none"])?, 2);
    expect("del", r.del::<_, i64>(&["key:1", "none"])?, 1);
    expect("rename", r.rename::<_, _, String>("key:3", "moved")?, "OK");
    Ok(())
}

fn expiry(r: &mut Connection) -> RedisResult<()> {
    r.pset_ex::<_, _, ()>("e", "x", 40)?;
    thread::sleep(Duration::from_millis(60));
    expect("expired", r.get::<_, Option<String>>("e")?, None::<String>);
    r.set_ex::<_, _, ()>("e", "x", 100)?;
    let left: i64 = r.ttl("e")?;
    expect("ttl", (98..=100).contains(&left), true);
    expect("persist", r.persist::<_, bool>("e")?, true);
    expect("expireat", r.expire_at::<_, bool>("e", 1)?, true);
    expect("gone", r.exists::<_, bool>("e")?, false);
    Ok(())
}

fn pipelines(r: &mut Connection, other: &mut Connection) -> RedisResult<()> {
    let mut pipe = redis::pipe();
    for i in 0..1000 {
        pipe.set(format!("p{i}"), i).ignore();
    }
    let (last,): (i64,) = pipe.get("p999").query(r)?;
    expect("pipeline end", last, 999);
    let (count, text): (i64, String) = redis::pipe().atomic().set("t", 1).ignore().incr("t", 1).get("t").query(r)?;
    expect("multi", (count, text.as_str()), (2, "2"));
    redis::cmd("WATCH").arg("t").exec(r)?;
    other.set::<_, _, ()>("t", "changed")?;
    let lost: Option<Vec<String>> = redis::pipe().atomic().set("t", "lost").query(r)?;
    expect("watch", lost, None::<Vec<String>>);
    expect("after watch", r.get::<_, String>("t")?, "changed");
    Ok(())
}

fn publish(r: &mut Connection, client: &Client) -> RedisResult<()> {
    let mut own = client.get_connection()?;
    own.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut listener = own.as_pubsub();
    listener.subscribe("news")?;
    listener.psubscribe("n*")?;
    expect("publish", r.publish::<_, _, i64>("news", "hello")?, 2);
    for _ in 0..2 {
        let message = listener.get_message()?;
        expect("channel", message.get_channel_name(), "news");
        expect("payload", message.get_payload::<String>()?, "hello");
    }
    listener.unsubscribe("news")
}

fn bytes_of_all_kinds(r: &mut Connection) -> RedisResult<()> {
    let every: Vec<u8> = (0..=255).collect();
    r.set::<_, _, ()>(&every[..], &every[..])?;
    expect("binary", r.get::<_, Vec<u8>>(&every[..])? == every, true);
    let big: Vec<u8> = (0..8u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    r.set::<_, _, ()>("big", &big[..])?;
    expect("8 MiB", r.get::<_, Vec<u8>>("big")? == big, true);
    Ok(())
}

fn parallel(r: &mut Connection, client: &Client) -> RedisResult<()> {
    r.set::<_, _, ()>("shared", 0)?;
    let work = || -> RedisResult<()> {
        let mut own = client.get_connection()?;
        (0..200).try_for_each(|_| own.incr::<_, _, ()>("shared", 1))
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..10).map(|_| scope.spawn(work)).collect();
        running.into_iter().for_each(|t| expect("a thread", t.join().map(|r| r.is_ok()).unwrap_or(false), true));
    });
    expect("parallel incr", r.get::<_, i64>("shared")?, 2000);
    Ok(())
}

fn reconnect(client: &Client, other: &mut Connection) -> RedisResult<()> {
    let mut cut = client.get_connection()?;
    let id: i64 = redis::cmd("CLIENT").arg("ID").query(&mut cut)?;
    expect("client kill", redis::cmd("CLIENT").arg("KILL").arg("ID").arg(id).query::<i64>(other)?, 1);
    match cut.get::<_, Option<String>>("again") {
        Err(error) => expect("the cut", error.kind(), ErrorKind::Io),
        Ok(_) => expect("the cut", "unnoticed", "an error"),
    }
    let mut again = client.get_connection()?;
    expect("after the kill", again.set::<_, _, String>("again", "yes")?, "OK");
    Ok(())
}

fn main() -> RedisResult<()> {
    let args: Vec<String> = std::env::args().collect();
    for protocol in ["2", "3"] {
        let client = Client::open(format!("redis://{}:{}/9?protocol=resp{protocol}", args[1], args[2]))?;
        let (mut r, mut other) = (client.get_connection()?, client.get_connection()?);
        expect("ping", redis::cmd("PING").query::<String>(&mut r)?, "PONG");
        redis::cmd("FLUSHDB").exec(&mut r)?;
        strings(&mut r)?;
        keys(&mut r)?;
        expiry(&mut r)?;
        pipelines(&mut r, &mut other)?;
        if !std::env::var("CHECK_WITHOUT").unwrap_or_default().contains("pubsub") {
            publish(&mut r, &client)?;
        }
        bytes_of_all_kinds(&mut r)?;
        parallel(&mut r, &client)?;
        reconnect(&client, &mut other)?;
        redis::cmd("FLUSHDB").exec(&mut r)?;
    }
    Ok(())
}
