//! Tests of the log. The subscriber is one per process, so one test goes through its whole life.

use super::*;
use std::fs;

/// A fresh folder that goes away with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("darter-logging-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder for the test");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn log_to(path: &Path) -> LogSettings {
    LogSettings { level: LogLevel::Info, file: Some(path.to_owned()), to_stderr: false, rotate_bytes: None }
}

/// The lines of the test of the log's life: other tests of this process may write to it, too.
fn mine(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.contains("log-life: ")).collect()
}

#[test]
fn levels_change_and_the_file_is_reopened_under_its_name() {
    let folder = Folder::new("life");
    let path = folder.0.join("darter.log");
    start(&log_to(&path)).expect("the first start");
    tracing::debug!("log-life: hidden");
    tracing::info!(port = 6379, "log-life: first");
    set_level(LogLevel::Debug);
    tracing::debug!("log-life: second");
    set_level(LogLevel::Nothing);
    tracing::error!("log-life: silence");
    set_level(LogLevel::Warning);

    let aside = folder.0.join("aside.log");
    fs::rename(&path, &aside).expect("logrotate moves the file");
    tracing::warn!("log-life: still there");
    reopen();
    tracing::warn!("log-life: third");
    tracing::info!("log-life: hidden again");

    let old = fs::read_to_string(&aside).expect("the file that was moved");
    let lines = mine(&old);
    assert_eq!(lines.len(), 3, "{old}");
    assert!(lines[0].contains("INFO") && lines[0].contains("first port=6379"), "{old}");
    assert!(lines[0].starts_with("20"), "a line starts with the time: {old}");
    assert!(lines[1].contains("DEBUG") && lines[1].contains("second"), "{old}");
    assert!(lines[2].contains("WARN") && lines[2].contains("still there"), "{old}");
    let new = fs::read_to_string(&path).expect("the file that was made");
    assert_eq!(mine(&new).len(), 1, "{new}");
    assert!(new.contains("third"), "{new}");

    assert!(start(&log_to(&path)).is_err(), "a process logs to one place");
}

#[test]
fn a_file_that_grew_too_long_is_set_aside_once() {
    let folder = Folder::new("rotate");
    let path = folder.0.join("darter.log");
    let mut file = LogFile::open(path.clone(), Some(10)).expect("a log file");
    for line in ["1234567\n", "89\n", "a line longer than the limit\n", "end\n"] {
        file.write(line.as_bytes()).expect("a line");
    }
    let aside = fs::read_to_string(folder.0.join("darter.log.1")).expect("the file set aside");
    assert_eq!(aside, "a line longer than the limit\n");
    assert_eq!(fs::read_to_string(&path).expect("the file in use"), "end\n");
}

#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let log = log_to(Path::new("/nonexistent/darter.log"));
    let Err(error) = LogSink::open(&log) else { panic!("there is no such folder") };
    assert!(error.to_string().contains("/nonexistent/darter.log"), "{error}");
}
