//! A directory in the cloud: S3 and compatible stores, Google's and Azure's stores.
//!
//! Requests run on a separate thread; callers wait for the answer. Files are uploaded in parts while they are
//! written, and appear under their name after the last part. Credentials come from the environment.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;

use super::{CloudOptions, NewFile, StorageDirectory, StorageFacts, StorageFault, check_name};
use crate::read_at::ReadAt;

/// Bytes of a part of an upload. S3 takes 10,000 parts, so a file may have 160 GB.
const PART_BYTES: usize = 16 << 20;
/// Parts on their way at once.
const PARTS_MAX: usize = 3;
/// Fewest bytes that one request for a piece of a file fetches.
const WINDOW_BYTES: u64 = 4 << 20;

/// A directory in the cloud.
#[derive(Debug)]
pub struct Cloud {
    store: Arc<dyn ObjectStore>,
    address: String,
    prefix: Path,
    runtime: Handle,
}

impl Cloud {
    /// The directory at `address`; no request is sent yet.
    ///
    /// Errors: an address that is not understood, or credentials are missing.
    pub fn open(address: &str, options: &CloudOptions) -> Result<Cloud, StorageFault> {
        let bad = |what: &dyn fmt::Display| StorageFault::bad_name(address, &what.to_string());
        let (scheme, rest) = address.split_once("://").ok_or_else(|| bad(&"no address"))?;
        let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(bad(&"the bucket is missing"));
        }
        let runtime = runtime().map_err(|error| StorageFault::new(address, error))?;
        let _inside = runtime.enter();
        let store: Result<Arc<dyn ObjectStore>, object_store::Error> = match scheme {
            "s3" => s3(bucket, options).map_err(|what| bad(&what))?.build().map(shared),
            "gs" => GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket).build().map(shared),
            "az" | "azure" => {
                MicrosoftAzureBuilder::from_env().with_container_name(bucket).build().map(shared)
            }
            // https://ACCOUNT.blob.core.windows.net/container/path
            _ => MicrosoftAzureBuilder::from_env().with_url(address).build().map(shared),
        };
        // there the container comes first
        let path = if scheme == "https" { path.split_once('/').map_or("", |(_, path)| path) } else { path };
        let prefix = Path::parse(path.trim_matches('/')).map_err(|error| bad(&error))?;
        Ok(Cloud { store: store.map_err(|error| bad(&error))?, address: address.to_owned(), prefix, runtime })
    }

    fn place(&self, name: &str) -> Result<Path, StorageFault> {
        check_name(name)?;
        Ok(self.prefix.clone().join(name))
    }

    fn fault(&self, path: &Path, error: object_store::Error) -> StorageFault {
        StorageFault::new(format!("{} ({path})", self.address), io_error(error))
    }
}

fn shared(store: impl ObjectStore) -> Arc<dyn ObjectStore> {
    Arc::new(store)
}

fn s3(bucket: &str, options: &CloudOptions) -> Result<AmazonS3Builder, &'static str> {
    const NAMED: [&str; 3] =
        ["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"];
    // Without this the library asks the metadata service of the machine, which may be any host.
    if !options.uses_machine_credentials && NAMED.iter().all(|name| std::env::var_os(name).is_none()) {
        return Err("no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or --s3_ec2_metadata");
    }
    let builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_allow_http(options.is_plain_http);
    let builder = builder.with_unsigned_payload(options.is_payload_unsigned);
    Ok(match options.s3_endpoint.as_str() {
        "" => builder,
        url if url.contains("://") => builder.with_endpoint(url),
        host if options.is_plain_http => builder.with_endpoint(format!("http://{host}")),
        host => builder.with_endpoint(format!("https://{host}")),
    })
}

/// The thread that runs requests. It is started with the first request and stays.
fn runtime() -> io::Result<Handle> {
    static RUNTIME: OnceLock<Handle> = OnceLock::new();
    if let Some(handle) = RUNTIME.get() {
        return Ok(handle.clone());
    }
    // The only linked provider of cryptography; a second call changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    // If two threads get here together, one runtime remains unused.
    let handle = RUNTIME.get_or_init(|| handle).clone();
    thread::Builder::new()
        .name("cloud".to_owned())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(handle)
}

/// An error of a store as one of the system.
fn io_error(error: object_store::Error) -> io::Error {
    let kind = match &error {
        object_store::Error::NotFound { .. } => io::ErrorKind::NotFound,
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
            io::ErrorKind::PermissionDenied
        }
        object_store::Error::InvalidPath { .. } => io::ErrorKind::InvalidInput,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

impl StorageDirectory for Cloud {
    fn create(&self, name: &str) -> Result<Box<dyn NewFile>, StorageFault> {
        let path = self.place(name)?;
        Ok(Box::new(Upload {
            store: self.store.clone(),
            place: format!("{} ({path})", self.address),
            path,
            runtime: self.runtime.clone(),
            buffer: Vec::new(),
            upload: None,
            on_their_way: VecDeque::new(),
        }))
    }

    fn open(&self, name: &str) -> Result<Box<dyn ReadAt>, StorageFault> {
        let path = self.place(name)?;
        let head = self.runtime.block_on(self.store.head(&path)).map_err(|error| self.fault(&path, error))?;
        Ok(Box::new(CloudObject {
            store: self.store.clone(),
            path,
            runtime: self.runtime.clone(),
            len: head.size,
            window: Mutex::new((0, Vec::new())),
        }))
    }

    fn list(&self) -> Result<Vec<StorageFacts>, StorageFault> {
        let listed = self.runtime.block_on(self.store.list_with_delimiter(Some(&self.prefix)));
        let listed = listed.map_err(|error| self.fault(&self.prefix, error))?;
        let facts = listed.objects.into_iter().filter_map(|object| {
            Some(StorageFacts {
                name: object.location.filename()?.to_owned(),
                len: object.size,
                modified_ms: u64::try_from(object.last_modified.timestamp_millis()).unwrap_or(0),
            })
        });
        Ok(facts.collect())
    }

    fn remove(&self, name: &str) -> Result<(), StorageFault> {
        let path = self.place(name)?;
        self.runtime.block_on(self.store.delete(&path)).map_err(|error| self.fault(&path, error))
    }

    /// Unfinished uploads have no name. The store removes them by the rules of its owner.
    fn sweep(&self) -> Result<usize, StorageFault> {
        Ok(0)
    }
}

/// A file on its way up.
struct Upload {
    store: Arc<dyn ObjectStore>,
    place: String,
    path: Path,
    runtime: Handle,
    buffer: Vec<u8>,
    // from the first full part on
    upload: Option<Box<dyn MultipartUpload>>,
    on_their_way: VecDeque<JoinHandle<Result<(), object_store::Error>>>,
}

impl fmt::Debug for Upload {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Upload").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Upload {
    /// Sends the buffer as a part.
    fn send(&mut self) -> io::Result<()> {
        let payload = PutPayload::from(std::mem::take(&mut self.buffer));
        let mut upload = match self.upload.take() {
            Some(upload) => upload,
            None => self.runtime.block_on(self.store.put_multipart(&self.path)).map_err(io_error)?,
        };
        let part = upload.put_part(payload);
        self.upload = Some(upload);
        self.on_their_way.push_back(self.runtime.spawn(part));
        self.wait(PARTS_MAX)
    }

    /// Waits until at most `left` parts are being sent.
    fn wait(&mut self, left: usize) -> io::Result<()> {
        while self.on_their_way.len() > left
            && let Some(part) = self.on_their_way.pop_front()
        {
            self.runtime.block_on(part).map_err(io::Error::other)?.map_err(io_error)?;
        }
        Ok(())
    }

    fn complete(&mut self) -> io::Result<()> {
        if self.upload.is_none() {
            let payload = PutPayload::from(std::mem::take(&mut self.buffer));
            let put = self.runtime.block_on(self.store.put(&self.path, payload));
            return put.map(drop).map_err(io_error);
        }
        if !self.buffer.is_empty() {
            self.send()?;
        }
        self.wait(0)?;
        if let Some(upload) = &mut self.upload {
            self.runtime.block_on(upload.complete()).map_err(io_error)?;
        }
        self.upload = None;
        Ok(())
    }
}

impl Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = PART_BYTES - self.buffer.len();
        let taken = bytes.get(..room).unwrap_or(bytes);
        self.buffer.extend_from_slice(taken);
        if self.buffer.len() >= PART_BYTES {
            self.send()?;
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NewFile for Upload {
    fn finish(mut self: Box<Self>) -> Result<(), StorageFault> {
        self.complete().map_err(|error| StorageFault::new(self.place.as_str(), error))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.on_their_way.drain(..).for_each(|part| part.abort());
        if let Some(mut upload) = self.upload.take() {
            // Do not wait: if this fails, the store removes the upload by the rules of its owner.
            self.runtime.spawn(async move { upload.abort().await });
        }
    }
}

/// A file to read.
struct CloudObject {
    store: Arc<dyn ObjectStore>,
    path: Path,
    runtime: Handle,
    len: u64,
    // The last fetched bytes and their offset.
    window: Mutex<(u64, Vec<u8>)>,
}

impl CloudObject {
    fn fetch(&self, from: u64, to: u64) -> io::Result<Vec<u8>> {
        let bytes = self.runtime.block_on(self.store.get_range(&self.path, from..to)).map_err(io_error)?;
        Ok(bytes.to_vec())
    }
}

impl ReadAt for CloudObject {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(out.len() as u64).filter(|&end| end <= self.len);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        if out.is_empty() {
            return Ok(());
        }
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let (start, bytes) = &*window;
        if offset < *start || end > start + bytes.len() as u64 {
            let to = end.max(offset.saturating_add(WINDOW_BYTES)).min(self.len);
            *window = (offset, self.fetch(offset, to)?);
        }
        let (start, bytes) = &*window;
        let from = (offset - start) as usize;
        let found = bytes.get(from..from + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }
}
