//! Tests of the configuration, and their common parts.

mod changes;
mod files;
mod grammar;
mod rows;

use super::*;
use std::fs;
use std::path::PathBuf;

/// A fresh folder that is removed with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("darter-config-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder for the test");
        Folder(path)
    }

    /// Writes a file and returns its path.
    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).expect("a file for the test");
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn parse_with(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Startup, CommandLine> {
    let arguments = std::iter::once("darter").chain(arguments.iter().copied()).map(OsString::from);
    Settings::parse(arguments, environment.iter().map(|(k, v)| (k.into(), v.into())))
}

/// The settings that a good start gives.
fn serve_with(arguments: &[&str], environment: &[(&str, &str)]) -> Settings {
    match parse_with(arguments, environment) {
        Ok(Startup::Serve { settings, .. }) => *settings,
        other => panic!("{arguments:?} {environment:?}: {other:?}"),
    }
}

fn serve(arguments: &[&str]) -> Settings {
    serve_with(arguments, &[])
}

/// The line that a bad start prints.
fn fault_of(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    match parse_with(arguments, environment) {
        Err(usage) => usage.to_string(),
        other => panic!("{arguments:?} {environment:?}: {other:?}"),
    }
}

/// The value that CONFIG GET answers for one name.
fn get(settings: &Settings, name: &str) -> String {
    match settings.config_get(&[name]).as_slice() {
        [(key, value)] if key == name => value.clone(),
        other => panic!("{name}: {other:?}"),
    }
}

fn set(settings: &Settings, pairs: &[(&str, &str)]) -> Result<Changes, String> {
    settings.config_set(pairs, CallerLimits::Remote, |_| Ok(()))
}
