//! From settings and PEM files to what rustls needs: certificate, key, authorities, versions, sessions.
//!
//! Called at start and by CONFIG SET; the only place of TLS that reads files.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, CipherSuite, ClientConfig, DigitallySignedStruct, Error, InconsistentKeys,
    RootCertStore, ServerConfig, SignatureScheme, SupportedProtocolVersion,
};

use darter_config::{Live, Tls};

/// Why the settings of TLS cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityFault {
    /// The setting to blame.
    pub setting: &'static str,
    /// Description of the problem.
    pub text: String,
}

impl std::fmt::Display for IdentityFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.setting, self.text)
    }
}

/// What new connections use.
#[derive(Debug, Clone)]
pub struct Identity {
    pub(super) config: Arc<ServerConfig>,
    pub(super) asks_certificates: bool,
}

fn fault(setting: &'static str, text: impl Into<String>) -> IdentityFault {
    IdentityFault { setting, text: text.into() }
}

/// What new connections use; none when no listener is encrypted, and then no file is read.
///
/// Errors: a file is missing, is not what it should be, or the key is not the certificate's.
pub(super) fn load(live: &Live) -> Result<Option<Identity>, IdentityFault> {
    let tls = &live.tls;
    if !tls.enabled && tls.port.is_none() {
        return Ok(None);
    }
    let provider = provider(tls)?;
    let key = certified_key(tls, &provider)?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions(tls)?)
        .map_err(|error| fault("tls-protocols", error.to_string()))?;
    let verifier = verifier(tls, &provider)?;
    let asks_certificates = verifier.is_some();
    let mut config = match verifier {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    }
    .with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    config.ignore_client_order = tls.prefers_own_ciphers;
    if tls.session_caching {
        config.session_storage = ServerSessionMemoryCache::new(tls.session_cache_size as usize);
        config.ticketer = ring::Ticketer::new().map_err(|e| fault("tls-session-caching", e.to_string()))?;
    } else {
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Some(Identity { config: Arc::new(config), asks_certificates }))
}

/// The cryptography with the suites that the settings leave.
fn provider(tls: &Tls) -> Result<Arc<CryptoProvider>, IdentityFault> {
    let mut provider = ring::default_provider();
    if !tls.ciphersuites.is_empty() {
        let wanted: Vec<&str> = tls.ciphersuites.split(':').collect();
        let name_of = |suite: CipherSuite| suite.as_str().unwrap_or_default().replace("TLS13_", "TLS_");
        provider
            .cipher_suites
            .retain(|suite| suite.tls13().is_none() || wanted.contains(&name_of(suite.suite()).as_str()));
        if !provider.cipher_suites.iter().any(|suite| suite.tls13().is_some()) {
            return Err(fault("tls-ciphersuites", "none of these suites is known"));
        }
    }
    Ok(Arc::new(provider))
}

fn versions(tls: &Tls) -> Result<Vec<&'static SupportedProtocolVersion>, IdentityFault> {
    if tls.protocols.trim().is_empty() {
        return Ok(rustls::ALL_VERSIONS.to_vec());
    }
    let mut versions = Vec::new();
    for word in tls.protocols.split_ascii_whitespace() {
        match word.to_ascii_lowercase().as_str() {
            "tlsv1.3" => versions.push(&rustls::version::TLS13),
            "tlsv1.2" => versions.push(&rustls::version::TLS12),
            // Known to be broken: taken from old configurations and not offered.
            "tlsv1" | "tlsv1.1" => {}
            _ => return Err(fault("tls-protocols", format!("'{word}' is no version of TLS"))),
        }
    }
    if versions.is_empty() {
        return Err(fault("tls-protocols", "none of these versions is safe; TLSv1.2 and TLSv1.3 are there"));
    }
    Ok(versions)
}

/// Whether the certificate of the other side must name the host that was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerNames {
    /// Any certificate of the authorities does.
    Ignored,
    /// It must.
    Checked,
}

/// What a connection to a master or a store uses.
///
/// Errors: no authority is named, or a file is not what it should be.
pub(super) fn outgoing(tls: &Tls, names: PeerNames) -> Result<ClientConfig, IdentityFault> {
    let provider = provider(tls)?;
    let roots = Arc::new(authorities(tls)?);
    if roots.is_empty() {
        let text = "tls-ca-cert-file or tls-ca-cert-dir is needed to check the master's certificate";
        return Err(fault("tls-replication", text));
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
    let verifier = verifier.map_err(|error| fault("tls-ca-cert-file", error.to_string()))?;
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions(tls)?)
        .map_err(|error| fault("tls-protocols", error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(match names {
            PeerNames::Ignored => Arc::new(AnyName(verifier)),
            PeerNames::Checked => verifier as Arc<dyn ServerCertVerifier>,
        });
    let files = match (&tls.client_cert_file, &tls.cert_file) {
        (Some(_), _) => Some((&tls.client_cert_file, &tls.client_key_file)),
        (None, Some(_)) => Some((&tls.cert_file, &tls.key_file)),
        (None, None) => None,
    };
    Ok(match files {
        Some((cert_file, key_file)) => {
            let own = Tls { cert_file: cert_file.clone(), key_file: key_file.clone(), ..tls.clone() };
            let key = certified_key(&own, &provider)?;
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key)))
        }
        None => builder.with_no_client_auth(),
    })
}

/// Takes any certificate of the authorities, whatever its names: as Redis does, whose certificates often have none.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The name is looked at last.
        match self.0.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

const CERT_FILE: &str = "tls-cert-file";
const KEY_FILE: &str = "tls-key-file";

fn certified_key(tls: &Tls, provider: &CryptoProvider) -> Result<CertifiedKey, IdentityFault> {
    let cert_file = tls.cert_file.as_deref().ok_or_else(|| fault(CERT_FILE, "TLS needs a certificate"))?;
    let key_file =
        tls.key_file.as_deref().ok_or_else(|| fault(KEY_FILE, "TLS needs the certificate's key"))?;
    let chain = certificates(CERT_FILE, cert_file)?;
    let pem = read(KEY_FILE, key_file)?;
    let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|_| {
        let is_encrypted = memchr::memmem::find(&pem, b"ENCRYPTED").is_some();
        let why = if is_encrypted { "the key is encrypted" } else { "there is no private key in it" };
        fault(KEY_FILE, format!("{}: {why}", key_file.display()))
    })?;
    let key = provider
        .key_provider
        .load_private_key(key)
        .map_err(|error| fault(KEY_FILE, format!("{}: {error}", key_file.display())))?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err(fault(KEY_FILE, format!("{} is not the key of {}", key_file.display(), cert_file.display())))
        }
        Err(Error::NoCertificatesPresented) => Err(no_certificate(CERT_FILE, cert_file)),
        // A certificate of the first version tells too little to compare; clients judge it.
        _ => Ok(certified),
    }
}

/// Returns the verifier of clients' certificates; `None` if they are not asked for one.
fn verifier(
    tls: &Tls,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, IdentityFault> {
    const AUTH: &str = "tls-auth-clients";
    if tls.auth_clients == Some(false) {
        return Ok(None);
    }
    let roots = Arc::new(authorities(tls)?);
    if roots.is_empty() {
        // As in Redis. Dragonfly's switch asks for certificates only where there are authorities.
        return match tls.port {
            Some(_) => Err(fault(
                AUTH,
                "tls-ca-cert-file or tls-ca-cert-dir is needed to check clients' certificates; \
                 with 'no' they are not asked for one",
            )),
            None => Ok(None),
        };
    }
    let builder = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
    let builder = if tls.auth_clients.is_none() { builder.allow_unauthenticated() } else { builder };
    builder.build().map(Some).map_err(|error| fault(AUTH, error.to_string()))
}

fn authorities(tls: &Tls) -> Result<RootCertStore, IdentityFault> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = &tls.ca_cert_file {
        const FILE: &str = "tls-ca-cert-file";
        for certificate in certificates(FILE, file)? {
            roots.add(certificate).map_err(|error| fault(FILE, format!("{}: {error}", file.display())))?;
        }
    }
    if let Some(dir) = &tls.ca_cert_dir {
        const DIR: &str = "tls-ca-cert-dir";
        let unreadable = |error: std::io::Error| fault(DIR, format!("{}: {error}", dir.display()));
        for entry in std::fs::read_dir(dir).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            // The folder may hold other things: links by hash to the same certificates, a README.
            if path.is_file()
                && let Ok(found) = certificates(DIR, &path)
            {
                roots.add_parsable_certificates(found);
            }
        }
        if roots.is_empty() {
            return Err(no_certificate(DIR, dir));
        }
    }
    Ok(roots)
}

/// The certificates of a PEM file, at least one.
fn certificates(setting: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, IdentityFault> {
    let pem = read(setting, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(no_certificate(setting, path)),
        Err(error) => Err(fault(setting, format!("{}: {error}", path.display()))),
    }
}

fn no_certificate(setting: &'static str, path: &Path) -> IdentityFault {
    fault(setting, format!("{}: there is no certificate in it", path.display()))
}

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, IdentityFault> {
    std::fs::read(path).map_err(|error| fault(setting, format!("{}: {error}", path.display())))
}
