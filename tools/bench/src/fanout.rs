//! Many subscribers of one channel, read on a thread of their own, and one publisher.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

use crate::cores;

/// Subscribers and what is sent to them.
#[derive(Clone, Copy, Debug)]
pub struct FanOut {
    /// Connections that subscribe.
    pub subscribers: usize,
    /// Messages published.
    pub messages: u64,
    /// Messages in flight: published before their replies are read.
    pub pipeline: u64,
}

/// Payload of a message.
const PAYLOAD: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const CHANNEL: &str = "news";

impl FanOut {
    /// Bytes that each message is to a subscriber.
    fn message_bytes() -> u64 {
        request(&["message", CHANNEL, PAYLOAD]).len() as u64
    }

    /// Subscribes, publishes everything, and waits until all of it has arrived; `begin` is called in between.
    /// Errors: a connection closes, or messages do not arrive within a minute.
    pub fn run<T>(
        &self,
        address: SocketAddr,
        client_cores: &[usize],
        begin: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let connections = self.subscribe(address)?;
        let (received, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let wanted = self.messages * self.subscribers as u64 * FanOut::message_bytes();
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                cores::pin_thread(client_cores)?;
                drain(&connections, &received, &is_over)
            });
            let published = begin().and_then(|begun| {
                self.publish(address, client_cores, &received, wanted)?;
                Ok(begun)
            });
            is_over.store(true, Ordering::Release);
            let drained = reader.join().unwrap_or_else(|_| Err(io::Error::other("the reader panicked")));
            drained.and(published)
        })
    }

    fn subscribe(&self, address: SocketAddr) -> io::Result<Vec<TcpStream>> {
        let subscribe = request(&["SUBSCRIBE", CHANNEL]);
        let answer = b"*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n";
        let mut connections = Vec::new();
        for _ in 0..self.subscribers {
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
            stream.write_all(&subscribe)?;
            let mut got = vec![0; answer.len()];
            stream.read_exact(&mut got)?;
            stream.set_nonblocking(true)?;
            connections.push(stream);
        }
        Ok(connections)
    }

    fn publish(
        &self,
        address: SocketAddr,
        client_cores: &[usize],
        received: &AtomicU64,
        wanted: u64,
    ) -> io::Result<()> {
        cores::bound_to(client_cores, || {
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(Duration::from_secs(60)))?;
            let one = request(&["PUBLISH", CHANNEL, PAYLOAD]);
            let answer_len = format!(":{}\r\n", self.subscribers).len();
            let mut left = self.messages;
            while left > 0 {
                let batch = left.min(self.pipeline);
                stream.write_all(&one.repeat(batch as usize))?;
                stream.read_exact(&mut vec![0; answer_len * batch as usize])?;
                left -= batch;
            }
            let began = Instant::now();
            while received.load(Ordering::Acquire) < wanted {
                if began.elapsed() > Duration::from_secs(60) {
                    let got = received.load(Ordering::Acquire);
                    return Err(io::Error::other(format!("{got} of {wanted} bytes arrived")));
                }
                thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        })
    }
}

/// Reads whatever arrives and counts it.
fn drain(connections: &[TcpStream], received: &AtomicU64, is_over: &AtomicBool) -> io::Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (number, stream) in connections.iter().enumerate() {
        epoll::add(&epoll, stream, epoll::EventData::new_u64(number as u64), epoll::EventFlags::IN)?;
    }
    let mut chunk = vec![0; 64 << 10];
    let mut events = Vec::with_capacity(256);
    let pause = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    while !is_over.load(Ordering::Acquire) {
        events.clear();
        match epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(&pause)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let mut stream = &connections[event.data.u64() as usize];
            match stream.read(&mut chunk) {
                Ok(0) => return Err(io::Error::other("a subscriber was closed")),
                Ok(len) => received.fetch_add(len as u64, Ordering::AcqRel),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => return Err(error),
            };
        }
    }
    Ok(())
}

/// A RESP request, or a message as a RESP2 subscriber gets it.
pub fn request(args: &[&str]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        out.extend_from_slice(format!("${}\r\n{arg}\r\n", arg.len()).as_bytes());
    }
    out
}
