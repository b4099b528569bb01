//! Users in files: access files (`aclfile`), and the `user` lines of the configuration.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use crate::rule::{RuleFault, Rules, merge_selectors, words};
use crate::user::{DEFAULT, User};
use crate::{Acl, Users, is_name};
use darter_config::USER_SEPARATOR;

/// A longer file is no access file.
const FILE_BYTES_MAX: u64 = 64 << 20;

impl Acl {
    /// Takes the `user` lines of the configuration, their words joined by [`USER_SEPARATOR`].
    ///
    /// Errors: what is wrong with the first bad one.
    pub fn load_configured(&self, lines: &[String], all_channels: bool) -> Result<(), String> {
        let mut users = self.all();
        let mut seen: Vec<&str> = Vec::new();
        for line in lines {
            let mut words = line.split(USER_SEPARATOR);
            let name = words.next().unwrap_or_default();
            if is_name(name.as_bytes()).is_none() {
                return Err("Spaces not allowed in ACL usernames".to_owned());
            }
            if seen.contains(&name) {
                return Err(format!(
                    "user {name}: Duplicate user found. A user can only be defined once in config files"
                ));
            }
            seen.push(name);
            let mut user = User::new(name, &self.catalog, all_channels);
            let rules = merge_selectors(words.map(str::as_bytes)).map_err(crate::unmatched)?;
            let known = Rules { catalog: &self.catalog, all_channels };
            for rule in &rules {
                known.apply(&mut user, rule).map_err(|fault| {
                    let rule = shown(rule);
                    format!("Error loading ACL rule '{rule}' for the user named '{name}': {}", fault.text())
                })?;
            }
            if !user.is_on {
                tracing::info!("the user '{name}' is off: there is no 'on' among its rules");
            }
            users.insert(user.name.clone(), Arc::new(user));
        }
        self.replace(users);
        Ok(())
    }

    /// Replaces all users by those of an access file; returns those from before.
    ///
    /// Errors: everything that is wrong with the file in one line; the users are then as before.
    pub fn load_file(&self, path: &Path, all_channels: bool) -> Result<Users, String> {
        let shown = path.display();
        let fault = |error: std::io::Error| format!("Error loading ACLs, opening file '{shown}': {error}");
        let mut text = Vec::new();
        let file = std::fs::File::open(path).map_err(fault)?;
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(fault)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(format!(
                "Error loading ACLs, the file '{shown}' is longer than {FILE_BYTES_MAX} bytes"
            ));
        }
        Ok(self.replace(self.read(&text, &shown.to_string(), all_channels)?))
    }

    /// Returns the users of an access file's text; `path` is for errors.
    ///
    /// Errors: everything that is wrong with it, in one line.
    pub fn read(&self, text: &[u8], path: &str, all_channels: bool) -> Result<Users, String> {
        let mut users = Users::new();
        let mut faults = String::new();
        for (at, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let place = format!("{path}:{}", at + 1);
            match self.read_line(line, &place, all_channels) {
                Ok(None) => {}
                Ok(Some(user)) if users.contains_key(&user.name) => {
                    let text = format!("WARNING: Duplicate user '{}' found on line {}. ", user.name, at + 1);
                    faults.push_str(&text);
                }
                Ok(Some(user)) => {
                    users.insert(user.name.clone(), Arc::new(user));
                }
                Err(fault) => faults.push_str(&fault),
            }
        }
        if faults.is_empty() {
            return Ok(users);
        }
        faults.push_str(
            "WARNING: ACL errors detected, no change to the previously active ACL rules was performed",
        );
        Err(faults)
    }

    fn read_line(&self, line: &[u8], place: &str, all_channels: bool) -> Result<Option<User>, String> {
        let mut words = words(line);
        let Some(first) = words.next() else { return Ok(None) };
        if first.starts_with(b"#") {
            return Ok(None);
        }
        // Dragonfly's files may say USER
        let (true, Some(name)) = (first.eq_ignore_ascii_case(b"user"), words.next()) else {
            return Err(format!("{place} should start with user keyword followed by the username. "));
        };
        let Some(name) = is_name(name) else {
            let name = String::from_utf8_lossy(name);
            return Err(format!("{place}: username '{name}' contains invalid characters. "));
        };
        let unmatched = |_| format!("{place}: Unmatched parenthesis in selector definition.");
        let rules = merge_selectors(words).map_err(unmatched)?;
        let mut user = User::new(name, &self.catalog, all_channels);
        let known = Rules { catalog: &self.catalog, all_channels };
        let (mut faults, mut is_told) = (String::new(), false);
        for rule in &rules {
            match known.apply(&mut user, rule) {
                Ok(()) => {}
                Err(fault @ RuleFault::Unknown) => {
                    let (rule, text) = (String::from_utf8_lossy(rule), fault.text());
                    faults.push_str(&format!("{place}: Error in applying operation '{rule}': {text}. "));
                }
                // The rule itself may be a password.
                Err(fault) if !std::mem::replace(&mut is_told, true) => {
                    faults.push_str(&format!("{place}: {}. ", fault.text()));
                }
                Err(_) => {}
            }
        }
        if faults.is_empty() { Ok(Some(user)) } else { Err(faults) }
    }

    /// Writes all users to an access file, in one step. Errors: those of the file system; the file is then as before.
    pub fn save_file(&self, path: &Path) -> std::io::Result<()> {
        let mut text = Vec::new();
        for user in self.all().values() {
            text.extend_from_slice(&user.describe());
            text.push(b'\n');
        }
        let name = path.file_name().ok_or(std::io::ErrorKind::InvalidInput)?;
        let mut new_name = name.to_owned();
        new_name.push(format!(".{}.tmp", std::process::id()));
        let new = path.with_file_name(new_name);
        let written = write_new(&new, &text).and_then(|()| std::fs::rename(&new, path));
        if written.is_err() {
            // what is wrong with the writing matters more than what is wrong with the tidying
            let _ = std::fs::remove_file(&new);
        }
        written?;
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::File::open(dir)?.sync_all()
    }

    /// The users as lines of a configuration file, without the leading word. The default user is left out while it is
    /// as `requirepass` alone makes it. Users whose patterns are no text cannot be written there and are left out too.
    pub fn config_lines(&self, requirepass: &str) -> Vec<String> {
        let mut plain = User::new_default(&self.catalog);
        plain.set_password(requirepass.as_bytes());
        let plain = plain.describe();
        let users = self.all();
        let lines = users.values().map(|user| (user.describe(), &user.name));
        let lines = lines.filter(|(line, name)| ***name != *DEFAULT || *line != plain);
        lines.filter_map(|(line, _)| String::from_utf8(line).ok()).collect()
    }
}

/// Rules that hold no password, for errors.
fn shown(rule: &[u8]) -> String {
    match rule.first() {
        Some(sign @ (b'>' | b'<')) => format!("{}(redacted)", char::from(*sign)),
        _ => String::from_utf8_lossy(rule).into_owned(),
    }
}

fn write_new(new: &Path, text: &[u8]) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    // Hashes of passwords are nobody else's business.
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(new)?;
    file.write_all(text)?;
    file.sync_all()
}
