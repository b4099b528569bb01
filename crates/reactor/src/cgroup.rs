//! The limits of this process's control group: processor share and memory, in both versions of the interface.
//!
//! Called by `cpu` and `process`. Any file that is absent or unreadable means no limit, never an error.

use std::fs;
use std::path::{Path, PathBuf};

/// Processors' worth of time granted by the quota, e.g. 1.5; `None` without one.
pub(crate) fn cpu_quota() -> Option<f64> {
    let (unified, cpu) = (directories(""), directories("cpu"));
    let quotas = unified.iter().filter_map(|dir| unified_quota(dir));
    quotas.chain(cpu.iter().filter_map(|dir| legacy_quota(dir))).reduce(f64::min)
}

/// Bytes of memory granted; `None` without a limit.
pub(crate) fn memory_limit() -> Option<u64> {
    let (unified, memory) = (directories(""), directories("memory"));
    let limits = unified.iter().filter_map(|dir| number(&dir.join("memory.max")));
    // The first version says "no limit" with the largest page-aligned number.
    let legacy = memory.iter().filter_map(|dir| number(&dir.join("memory.limit_in_bytes")));
    limits.chain(legacy.filter(|&limit| limit < 1 << 60)).min()
}

/// Directories that may bind this process, itself first, then each parent; `controller` is empty for version 2.
fn directories(controller: &str) -> Vec<PathBuf> {
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let root = Path::new("/sys/fs/cgroup").join(controller);
    match own_path(&membership, controller) {
        Some(path) => lineage(&root, path),
        None => Vec::new(),
    }
}

/// The process's path in the hierarchy that `controller` names, from `/proc/self/cgroup`.
fn own_path<'a>(membership: &'a str, controller: &str) -> Option<&'a str> {
    membership.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then_some(path)
    })
}

/// `root/path` and its parents down to `root`. Inside a container the path may name directories that are not mounted;
/// then `root` itself is the container's own group, and it is always in the list.
fn lineage(root: &Path, path: &str) -> Vec<PathBuf> {
    let relative = Path::new(path.trim_start_matches('/'));
    relative.ancestors().map(|part| root.join(part)).collect()
}

fn unified_quota(dir: &Path) -> Option<f64> {
    let text = fs::read_to_string(dir.join("cpu.max")).ok()?;
    let mut words = text.split_whitespace();
    let quota_us: f64 = words.next()?.parse().ok()?; // "max" is no number: no limit
    let period_us: f64 = words.next()?.parse().ok()?;
    share(quota_us, period_us)
}

fn legacy_quota(dir: &Path) -> Option<f64> {
    let quota_us = number(&dir.join("cpu.cfs_quota_us"))?; // -1 does not parse: no limit
    let period_us = number(&dir.join("cpu.cfs_period_us"))?;
    share(quota_us as f64, period_us as f64)
}

fn share(quota_us: f64, period_us: f64) -> Option<f64> {
    (quota_us > 0.0 && period_us > 0.0).then(|| quota_us / period_us)
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_its_own_path_in_both_versions() {
        let membership = "12:cpu,cpuacct:/docker/ab\n4:memory:/docker/cd\n0::/user.slice/a.scope\n";
        assert_eq!(own_path(membership, "cpu"), Some("/docker/ab"));
        assert_eq!(own_path(membership, "memory"), Some("/docker/cd"));
        assert_eq!(own_path(membership, ""), Some("/user.slice/a.scope"));
        assert_eq!(own_path(membership, "pids"), None);
        assert_eq!(own_path("0::/a:b\n", ""), Some("/a:b"));
    }

    #[test]
    fn lists_every_ancestor_down_to_the_root() {
        let dirs = lineage(Path::new("/r"), "/a/b");
        assert_eq!(dirs, [Path::new("/r/a/b"), Path::new("/r/a"), Path::new("/r")]);
        assert_eq!(lineage(Path::new("/r"), "/"), [Path::new("/r")]);
    }

    #[test]
    fn reads_quotas_of_both_versions() {
        let dir = std::env::temp_dir().join(format!("darter-cgroup-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let write = |name: &str, text: &str| fs::write(dir.join(name), text).unwrap();
        assert_eq!((unified_quota(&dir), legacy_quota(&dir)), (None, None));
        write("cpu.max", "150000 100000\n");
        assert_eq!(unified_quota(&dir), Some(1.5));
        write("cpu.max", "max 100000\n");
        assert_eq!(unified_quota(&dir), None);
        write("cpu.max", "100000 0\n");
        assert_eq!(unified_quota(&dir), None);
        write("cpu.cfs_quota_us", "-1\n");
        write("cpu.cfs_period_us", "100000\n");
        assert_eq!(legacy_quota(&dir), None);
        write("cpu.cfs_quota_us", "200000\n");
        assert_eq!(legacy_quota(&dir), Some(2.0));
        fs::remove_dir_all(&dir).unwrap();
    }
}
