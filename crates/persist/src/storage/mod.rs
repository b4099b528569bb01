//! Directories of files: on this machine, or in the cloud with the same few operations.
//!
//! A file appears under its name only when it is complete, and survives a failure of the machine right after.

#[cfg(feature = "cloud")]
mod cloud;
mod local;
pub mod name;
mod spool;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, Write};

use crate::read_at::ReadAt;

pub use local::Local;
pub use spool::Spool;

/// A directory.
pub trait StorageDirectory: Send + Sync + fmt::Debug {
    /// Starts a file that will have the name `name`.
    ///
    /// Errors: it cannot be created, or `name` is not a plain name.
    fn create(&self, name: &str) -> Result<Box<dyn NewFile>, StorageFault>;

    /// Opens the file `name`.
    ///
    /// Errors: it is missing, or cannot be read.
    fn open(&self, name: &str) -> Result<Box<dyn ReadAt>, StorageFault>;

    /// The files in it, in no order, without directories and unfinished files.
    fn list(&self) -> Result<Vec<StorageFacts>, StorageFault>;

    /// Removes the file `name`.
    ///
    /// Errors: it is missing, or may not be removed.
    fn remove(&self, name: &str) -> Result<(), StorageFault>;

    /// Removes the files that killed savers left behind; returns their number.
    fn sweep(&self) -> Result<usize, StorageFault>;
}

/// A file that is being written. Dropped before it is finished, it leaves nothing.
pub trait NewFile: Write + Send {
    /// Makes the file durable and gives it its name, replacing a file of that name.
    ///
    /// Errors: the disk or the network failed; an older file of that name stays.
    fn finish(self: Box<Self>) -> Result<(), StorageFault>;
}

/// The facts known of a file without opening it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StorageFacts {
    /// Its name.
    pub name: String,
    /// Its length in bytes.
    pub len: u64,
    /// When it was last written, Unix milliseconds.
    pub modified_ms: u64,
}

/// A failed operation of a directory.
#[derive(Debug)]
pub struct StorageFault {
    /// The kind of file or directory.
    pub kind: FaultKind,
    /// The file or the directory.
    pub place: String,
    /// The error of the system.
    pub cause: io::Error,
}

/// Kinds of faults that callers distinguish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FaultKind {
    /// No space is left, or a limit is exceeded.
    Full,
    /// Nothing may be written there.
    ReadOnly,
    /// It does not exist.
    Missing,
    /// Access is denied.
    Denied,
    /// Not a valid name or address.
    BadName,
    /// Anything else.
    Other,
}

impl FaultKind {
    /// The kind of an error of the system.
    pub fn of(error: &io::Error) -> FaultKind {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                FaultKind::Full
            }
            io::ErrorKind::ReadOnlyFilesystem => FaultKind::ReadOnly,
            io::ErrorKind::NotFound => FaultKind::Missing,
            io::ErrorKind::PermissionDenied => FaultKind::Denied,
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => FaultKind::BadName,
            _ => FaultKind::Other,
        }
    }
}

impl StorageFault {
    /// `cause` happened at `place`.
    pub fn new(place: impl Into<String>, cause: io::Error) -> StorageFault {
        StorageFault { kind: FaultKind::of(&cause), place: place.into(), cause }
    }

    fn bad_name(place: &str, what: &str) -> StorageFault {
        StorageFault::new(place, io::Error::new(io::ErrorKind::InvalidInput, what))
    }
}

impl fmt::Display for StorageFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.place, self.cause)
    }
}

impl std::error::Error for StorageFault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

impl From<StorageFault> for io::Error {
    fn from(fault: StorageFault) -> io::Error {
        io::Error::new(fault.cause.kind(), fault)
    }
}

/// Opens the directory at `address`: a path, or `s3://bucket/path`, `gs://bucket/path`, `az://container/path`.
///
/// A path is neither checked before its use nor created. Errors: an invalid address, or one of a cloud if the program
/// was built without that feature.
pub fn directory(address: &str, cloud: &CloudOptions) -> Result<Box<dyn StorageDirectory>, StorageFault> {
    if !is_cloud(address) {
        return Ok(Box::new(Local::new(address)));
    }
    #[cfg(feature = "cloud")]
    return cloud::Cloud::open(address, cloud).map(|cloud| Box::new(cloud) as Box<dyn StorageDirectory>);
    #[cfg(not(feature = "cloud"))]
    {
        let _ = cloud;
        Err(StorageFault::bad_name(address, "this program was built without the feature `cloud`"))
    }
}

/// True if directories in clouds can be opened: the feature `cloud` is in this program.
pub const HAS_CLOUD: bool = cfg!(feature = "cloud");

/// Returns true if `address` is one in a cloud, not a path.
pub fn is_cloud(address: &str) -> bool {
    const SCHEMES: [&str; 5] = ["s3://", "gs://", "az://", "azure://", "https://"];
    SCHEMES.iter().any(|scheme| address.starts_with(scheme))
}

/// Options for access to clouds, beside the environment (`AWS_ACCESS_KEY_ID` and so on).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CloudOptions {
    /// Another server that speaks S3 (`--s3_endpoint`): `host:port`, with or without a scheme. Empty for Amazon's.
    pub s3_endpoint: String,
    /// True if that server is reached over plain HTTP (`--nos3_use_https`).
    pub is_plain_http: bool,
    /// True if credentials may come from the metadata of the machine (`--s3_ec2_metadata`).
    pub uses_machine_credentials: bool,
    /// True if the body of a request is left out of its signature (`--nos3_sign_payload`).
    pub is_payload_unsigned: bool,
}

/// Fails unless `name` is a plain name: one part, and not one of our unfinished files.
fn check_name(name: &str) -> Result<(), StorageFault> {
    let is_plain = !name.is_empty()
        && name != "."
        && name != ".."
        && !name.contains(['/', '\0'])
        && !name.ends_with(UNFINISHED);
    if is_plain { Ok(()) } else { Err(StorageFault::bad_name(name, "not a plain file name")) }
}

/// The end of the name of a file that is being written.
const UNFINISHED: &str = ".darter-tmp";
