//! Where files live: a directory of this machine, or a place in the cloud with the same few verbs.
//!
//! A file appears under its name only when it is whole, and stays when the machine fails right after.

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
pub trait Directory: Send + Sync + fmt::Debug {
    /// Starts a file that will be called `name`.
    ///
    /// Errors: it cannot be made, or `name` is no plain name.
    fn create(&self, name: &str) -> Result<Box<dyn NewFile>, Fault>;

    /// Opens the file `name`.
    ///
    /// Errors: it is not there, or cannot be read.
    fn open(&self, name: &str) -> Result<Box<dyn ReadAt>, Fault>;

    /// The files in it, in no order; directories and what is not yet whole left out.
    fn list(&self) -> Result<Vec<Facts>, Fault>;

    /// Removes the file `name`.
    ///
    /// Errors: it is not there, or may not be removed.
    fn remove(&self, name: &str) -> Result<(), Fault>;

    /// Removes what savers that were killed left behind; returns how many files.
    fn sweep(&self) -> Result<usize, Fault>;
}

/// A file that is being written. Dropped before it is finished, it leaves nothing.
pub trait NewFile: Write + Send {
    /// Makes the file durable and gives it its name, in place of one that has it.
    ///
    /// Errors: the disk or the network failed; an older file of that name stays.
    fn finish(self: Box<Self>) -> Result<(), Fault>;
}

/// What is known of a file without opening it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Its name.
    pub name: String,
    /// Its length in bytes.
    pub len: u64,
    /// When it was last written, Unix milliseconds.
    pub modified_ms: u64,
}

/// Why a directory did not do what it was asked.
#[derive(Debug)]
pub struct Fault {
    /// What kind of thing it is.
    pub kind: FaultKind,
    /// The file or the directory.
    pub place: String,
    /// What the system says.
    pub cause: io::Error,
}

/// Kinds of faults that callers tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FaultKind {
    /// No space is left, or more than a limit allows.
    Full,
    /// Nothing may be written there.
    ReadOnly,
    /// It is not there.
    Missing,
    /// It may not be touched.
    Denied,
    /// Not a name or an address that is understood.
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

impl Fault {
    /// `cause` happened at `place`.
    pub fn new(place: impl Into<String>, cause: io::Error) -> Fault {
        Fault { kind: FaultKind::of(&cause), place: place.into(), cause }
    }

    fn bad_name(place: &str, what: &str) -> Fault {
        Fault::new(place, io::Error::new(io::ErrorKind::InvalidInput, what))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.place, self.cause)
    }
}

impl std::error::Error for Fault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> io::Error {
        io::Error::new(fault.cause.kind(), fault)
    }
}

/// Opens the directory at `address`: a path, or `s3://bucket/path`, `gs://bucket/path`, `az://container/path`.
///
/// A path is not looked at before it is used, and not made. Errors: an address that is not understood, or of a
/// cloud when the program was built without.
pub fn directory(address: &str, cloud: &CloudOptions) -> Result<Box<dyn Directory>, Fault> {
    if !is_cloud(address) {
        return Ok(Box::new(Local::new(address)));
    }
    #[cfg(feature = "cloud")]
    return cloud::Cloud::open(address, cloud).map(|cloud| Box::new(cloud) as Box<dyn Directory>);
    #[cfg(not(feature = "cloud"))]
    {
        let _ = cloud;
        Err(Fault::bad_name(address, "this program was built without the feature `cloud`"))
    }
}

/// Whether directories in clouds can be opened: the feature `cloud` is in this program.
pub const HAS_CLOUD: bool = cfg!(feature = "cloud");

/// Whether `address` is one in a cloud, not a path.
pub fn is_cloud(address: &str) -> bool {
    const SCHEMES: [&str; 5] = ["s3://", "gs://", "az://", "azure://", "https://"];
    SCHEMES.iter().any(|scheme| address.starts_with(scheme))
}

/// How clouds are reached, beside what the environment says (`AWS_ACCESS_KEY_ID` and so on).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CloudOptions {
    /// Another server that speaks S3 (`--s3_endpoint`): `host:port`, with or without a scheme. Empty for Amazon's.
    pub s3_endpoint: String,
    /// Whether that is spoken to over plain HTTP (`--nos3_use_https`).
    pub is_plain_http: bool,
    /// Whether credentials may come from the metadata of the machine (`--s3_ec2_metadata`).
    pub uses_machine_credentials: bool,
    /// Whether what is sent is left out of the signature of a request (`--nos3_sign_payload`).
    pub is_payload_unsigned: bool,
}

/// Whether `name` is a plain name: of one part, and not one of ours for what is not whole.
fn check_name(name: &str) -> Result<(), Fault> {
    let is_plain = !name.is_empty()
        && name != "."
        && name != ".."
        && !name.contains(['/', '\0'])
        && !name.ends_with(UNFINISHED);
    if is_plain { Ok(()) } else { Err(Fault::bad_name(name, "not a plain file name")) }
}

/// The end of the name of a file that is being written.
const UNFINISHED: &str = ".darter-tmp";
