//! A script's text, its name, and the declarations of its first line.

use darter_base::sha1;

/// The declarations in a script's first line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScriptFlags {
    /// True if there is such a line.
    pub is_declared: bool,
    /// True if it never writes.
    pub no_writes: bool,
    /// True if it may run when memory is full.
    pub allow_oom: bool,
    /// True if it may use keys of several slots of a cluster.
    pub crosses_slots: bool,
    /// True if it must not run in a cluster.
    pub no_cluster: bool,
}

/// A script's text under its name.
#[derive(Clone, Debug)]
pub struct Script {
    /// SHA-1 of the text, forty hexadecimal digits in lower case.
    pub sha: [u8; 40],
    /// The text, unchanged.
    pub source: Box<[u8]>,
    /// The flags of its first line.
    pub flags: ScriptFlags,
}

impl Script {
    /// Reads a script's first line. Errors: the error line for the client. Cost: O(bytes).
    pub fn new(source: &[u8]) -> Result<Script, String> {
        let mut flags = ScriptFlags::default();
        if source.starts_with(b"#!") {
            let end = source.iter().position(|&byte| byte == b'\n').ok_or("ERR Invalid script shebang")?;
            flags = read_shebang(&String::from_utf8_lossy(&source[..end]))?;
        }
        read_comments(source)?;
        Ok(Script { sha: sha1::sha1_hex(source), source: source.into(), flags })
    }

    /// The text for Lua: without the words of the first line, but with its line end.
    pub fn code(&self) -> &[u8] {
        if !self.flags.is_declared {
            return &self.source;
        }
        let end = self.source.iter().position(|&byte| byte == b'\n').unwrap_or(self.source.len());
        &self.source[end..]
    }
}

/// Checks the flags that Dragonfly reads from leading comments. Every script here has the rights that they grant.
fn read_comments(source: &[u8]) -> Result<(), String> {
    for line in source.split(|&byte| byte == b'\n') {
        let Some(list) = line.trim_ascii().strip_prefix(b"--!df flags=") else { break };
        check_flags(&String::from_utf8_lossy(list))?;
    }
    Ok(())
}

/// Checks a list of Dragonfly's flags of scripts. Errors: the error line for the client.
pub fn check_flags(list: &str) -> Result<(), String> {
    let mut flags = list.split([',', ' ']).filter(|flag| !flag.is_empty());
    match flags.find(|flag| !DRAGONFLY_FLAGS.contains(flag)) {
        Some(flag) => Err(format!("ERR Invalid flag: {flag}")),
        None => Ok(()),
    }
}

/// Any key may be used, calls one by one may be seen by others, fractions become whole numbers.
const DRAGONFLY_FLAGS: &[&str] = &["allow-undeclared-keys", "disable-atomicity", "legacy-float"];

fn read_shebang(line: &str) -> Result<ScriptFlags, String> {
    let mut flags = ScriptFlags { is_declared: true, ..ScriptFlags::default() };
    let mut words = line.split_ascii_whitespace();
    let engine = words.next().unwrap_or_default();
    if engine != "#!lua" {
        return Err(format!("ERR Unexpected engine in script shebang: {engine}"));
    }
    for word in words {
        let list =
            word.strip_prefix("flags=").ok_or_else(|| format!("ERR Unknown lua shebang option: {word}"))?;
        for flag in list.split(',').filter(|flag| !flag.is_empty()) {
            match flag {
                "no-writes" => flags.no_writes = true,
                "allow-oom" => flags.allow_oom = true,
                "no-cluster" => flags.no_cluster = true,
                "allow-cross-slot-keys" => flags.crosses_slots = true,
                "allow-stale" => {}
                other => return Err(format!("ERR Unexpected flag in script shebang: {other}")),
            }
        }
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_read_and_its_end_kept() {
        let script = Script::new(b"#!lua flags=no-writes,allow-oom\nreturn 1").expect("a good first line");
        assert!(script.flags.no_writes && script.flags.allow_oom);
        assert_eq!(script.code(), b"\nreturn 1");
        let flagged =
            b"--!df flags=allow-undeclared-keys,disable-atomicity\n --!df flags=legacy-float\nreturn 1";
        assert_eq!(Script::new(flagged).map(|s| s.code() == flagged), Ok(true));
        assert_eq!(Script::new(b"return 1").map(|s| s.flags), Ok(ScriptFlags::default()));
        for (text, error) in [
            ("#!lua", "ERR Invalid script shebang"),
            ("#!js\n", "ERR Unexpected engine in script shebang: #!js"),
            ("#!lua name=x\n", "ERR Unknown lua shebang option: name=x"),
            ("--!df flags=allow-all\n", "ERR Invalid flag: allow-all"),
            ("#!lua flags=bad\n", "ERR Unexpected flag in script shebang: bad"),
        ] {
            assert_eq!(Script::new(text.as_bytes()).map(|_| ()), Err(error.to_owned()), "{text}");
        }
    }
}
