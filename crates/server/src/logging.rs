//! The log: `tracing` events as lines with a time stamp, to stderr, to a file, or to both.
//!
//! `start` is called once, by the binary, before anything is logged; CONFIG SET changes the level through `set_level`,
//! and SIGHUP opens the file again through `reopen`, so that logrotate can move it away. Nothing here logs by itself.

use darter_config::{LogLevel, LogSettings};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tracing_subscriber::Registry;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;

/// Sends everything that is logged in this process where `log` says.
///
/// Errors: the file cannot be opened, or the process logs elsewhere already.
pub fn start(log: &LogSettings) -> io::Result<()> {
    let sink = LogSink::open(log)?;
    let (filter, level) = reload::Layer::new(filter_of(log.level));
    let colours = log.file.is_none() && io::IsTerminal::is_terminal(&io::stderr());
    let lines =
        tracing_subscriber::fmt::layer().with_ansi(colours).with_target(false).with_writer(sink.clone());
    let subscriber = Registry::default().with(filter).with(lines);
    tracing::subscriber::set_global_default(subscriber).map_err(io::Error::other)?;
    // only one caller gets past the line above
    let _ = CONTROL.set(Control { level, sink });
    Ok(())
}

/// From now on lines less important than `level` are dropped. Before `start` it does nothing.
pub fn set_level(level: LogLevel) {
    if let Some(control) = CONTROL.get() {
        // fails only when the subscriber is gone, and with it everything to filter
        let _ = control.level.reload(filter_of(level));
    }
}

/// Opens the log file again under its name. If that fails, the old file stays in use and gets the error.
pub fn reopen() {
    if let Some(control) = CONTROL.get()
        && let Err(error) = control.sink.reopen()
    {
        tracing::error!("can't open the log file anew: {error}");
    }
}

struct Control {
    level: reload::Handle<LevelFilter, Registry>,
    sink: LogSink,
}

static CONTROL: OnceLock<Control> = OnceLock::new();

fn filter_of(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Trace => LevelFilter::TRACE,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warning => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Nothing => LevelFilter::OFF,
    }
}

/// Where lines go. Clones share the file.
#[derive(Clone)]
struct LogSink {
    file: Option<Arc<Mutex<LogFile>>>,
    to_stderr: bool,
}

impl LogSink {
    fn open(log: &LogSettings) -> io::Result<LogSink> {
        let file = match &log.file {
            Some(path) => Some(LogFile::open(path.clone(), log.rotate_bytes)?),
            None => None,
        };
        Ok(LogSink { file: file.map(|file| Arc::new(Mutex::new(file))), to_stderr: log.to_stderr })
    }

    fn reopen(&self) -> io::Result<()> {
        match &self.file {
            Some(file) => file.lock().unwrap_or_else(PoisonError::into_inner).reopen(),
            None => Ok(()),
        }
    }
}

impl Write for LogSink {
    /// Takes a whole line; a file that cannot be written to must not stop the server, so such a line goes to stderr.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let written = match &self.file {
            Some(file) => file.lock().unwrap_or_else(PoisonError::into_inner).write(line),
            None => Ok(()),
        };
        if self.to_stderr || written.is_err() {
            io::stderr().write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogSink {
    type Writer = LogSink;

    fn make_writer(&'a self) -> LogSink {
        self.clone()
    }
}

/// The file lines go to.
struct LogFile {
    path: PathBuf,
    file: File,
    // bytes in `file`; after `rotate_bytes` it becomes `path`.1
    len_bytes: u64,
    rotate_bytes: Option<u64>,
}

impl LogFile {
    fn open(path: PathBuf, rotate_bytes: Option<u64>) -> io::Result<LogFile> {
        let (file, len_bytes) = append_to(&path)?;
        Ok(LogFile { path, file, len_bytes, rotate_bytes })
    }

    fn reopen(&mut self) -> io::Result<()> {
        (self.file, self.len_bytes) = append_to(&self.path)?;
        Ok(())
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let len_bytes = self.len_bytes.saturating_add(line.len() as u64);
        if self.len_bytes > 0 && self.rotate_bytes.is_some_and(|most| len_bytes > most) {
            let mut aside = self.path.clone().into_os_string();
            aside.push(".1");
            std::fs::rename(&self.path, aside)?;
            self.reopen()?;
        }
        self.file.write_all(line)?;
        self.len_bytes = self.len_bytes.saturating_add(line.len() as u64);
        Ok(())
    }
}

/// The file at `path`, created if need be, and its length.
fn append_to(path: &Path) -> io::Result<(File, u64)> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("'{}': {error}", path.display()));
    let file = OpenOptions::new().create(true).append(true).open(path).map_err(named)?;
    let len_bytes = file.metadata().map_err(named)?.len();
    Ok((file, len_bytes))
}

#[cfg(test)]
mod tests;
