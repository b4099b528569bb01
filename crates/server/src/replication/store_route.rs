//! The way to an etcd (`ha_store`, `cluster_store`): plain, or by TLS with the files of `ha_ca_file`, `ha_cert_file` and `ha_key_file`.
//!
//! Called by the store of a group and by that of a cluster's map. A certificate of etcd must come from those authorities and name
//! the host that was asked.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use darter_config::{Live, Tls};
use darter_quorum::etcd::{Carrier, Dial, EtcdPlace};
use rustls::{AlertDescription, CertificateError, Error as TlsError};

use crate::sync::lock;
use crate::tls::{Outgoing, PeerNames};

/// See above.
#[derive(Clone)]
pub struct StoreRoute {
    // none: nothing is encrypted
    tls: Option<Tls>,
    // to connect, and then for each write
    connect: Duration,
    patience: Duration,
}

/// Our side of the connection that was opened last.
pub type OwnAddress = Arc<Mutex<Option<IpAddr>>>;

/// A read that brings nothing returns after this.
const LOOK: Duration = Duration::from_millis(50);

impl StoreRoute {
    /// The way that the settings name.
    ///
    /// Errors: no authority is named, or a file is not what it should be; in words.
    pub fn new(
        place: &EtcdPlace,
        live: &Live,
        connect: Duration,
        patience: Duration,
    ) -> Result<StoreRoute, String> {
        let ha = &live.replication.ha;
        let is_named = ha.ca_file.is_some() || ha.cert_file.is_some();
        if !place.is_encrypted {
            if is_named {
                tracing::warn!(
                    "ha_ca_file and ha_cert_file have no effect: the store is not asked by https://"
                );
            }
            return Ok(StoreRoute { tls: None, connect, patience });
        }
        if ha.ca_file.is_none() {
            return Err("https:// needs ha_ca_file, the authorities of the store's certificate".to_owned());
        }
        let mut tls = live.tls.clone();
        (tls.ca_cert_file, tls.ca_cert_dir) = (ha.ca_file.clone(), None);
        (tls.cert_file, tls.key_file) = (None, None);
        (tls.client_cert_file, tls.client_key_file) = (ha.cert_file.clone(), ha.key_file.clone());
        Outgoing::check(&tls).map_err(|fault| format!("{}: {}", own_name(fault.setting), fault.text))?;
        Ok(StoreRoute { tls: Some(tls), connect, patience })
    }

    /// Opens connections. `local` becomes our side of each.
    pub fn dial(&self, local: OwnAddress) -> Dial {
        let route = self.clone();
        Box::new(move |host, port| {
            let stream = route.connect(host, port)?;
            *lock(&local) = stream.local_addr().ok().map(|at| at.ip().to_canonical());
            let Some(tls) = &route.tls else { return Ok(Box::new(stream) as Box<dyn Carrier>) };
            let place = format!("{host}:{port}");
            match Outgoing::over(stream, host, tls, PeerNames::Checked, route.patience) {
                Ok(stream) => Ok(Box::new(EncryptedStore { stream, place })),
                Err(error) => Err(explained(error, &place)),
            }
        })
    }

    fn connect(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let mut last = io::Error::new(ErrorKind::NotFound, "no such host");
        for address in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, self.connect) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(LOOK))?;
                    stream.set_write_timeout(Some(self.patience))?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// An encrypted connection to a store. Its errors name our settings.
struct EncryptedStore {
    stream: Outgoing,
    // host and port
    place: String,
}

impl Read for EncryptedStore {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // A refusal of our certificate comes once the handshake is over.
        self.stream.read(into).map_err(|error| explained(error, &self.place))
    }
}

impl Write for EncryptedStore {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes).map_err(|error| explained(error, &self.place))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// The error in words of our settings, if it is one of TLS.
fn explained(error: io::Error, place: &str) -> io::Error {
    let Some(fault) = error.get_ref().and_then(|inner| inner.downcast_ref()) else { return error };
    let text = match fault {
        TlsError::InvalidCertificate(CertificateError::UnknownIssuer) => {
            format!("the certificate of {place} does not come from the authorities of ha_ca_file")
        }
        TlsError::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!("the certificate of {place} does not name this host"),
        TlsError::AlertReceived(alert) if CERTIFICATE_ALERTS.contains(alert) => {
            format!("{place} wants another certificate than that of ha_cert_file: {alert:?}")
        }
        other => format!("TLS with {place}: {other}"),
    };
    io::Error::new(error.kind(), text)
}

/// How the other side refuses a certificate, or the lack of one.
const CERTIFICATE_ALERTS: [AlertDescription; 6] = [
    AlertDescription::BadCertificate,
    AlertDescription::CertificateRequired,
    AlertDescription::CertificateExpired,
    AlertDescription::CertificateUnknown,
    AlertDescription::UnknownCA,
    AlertDescription::UnsupportedCertificate,
];

/// The setting that the store's file comes from.
fn own_name(setting: &str) -> &str {
    match setting {
        "tls-ca-cert-file" => "ha_ca_file",
        "tls-cert-file" => "ha_cert_file",
        "tls-key-file" => "ha_key_file",
        other => other,
    }
}
