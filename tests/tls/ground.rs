//! Authorities, certificates, and a client that speaks TLS over a blocking socket.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::harness::{PATIENCE, Request, Setup};

/// Signs certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn der(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    /// For these names; those with a colon are URIs.
    pub(crate) fn issue(&self, names: &[&str]) -> Leaf {
        self.issue_with(names, |_| {})
    }

    pub(crate) fn issue_with(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Leaf {
        let (uris, hosts): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| name.contains(':'));
        let hosts: Vec<String> = hosts.into_iter().map(str::to_owned).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        let uris = uris.into_iter().map(|uri| SanType::URI(uri.try_into().unwrap()));
        params.subject_alt_names.extend(uris);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Leaf {
            pem: certificate.pem(),
            der: certificate.der().clone(),
            key,
        }
    }
}

/// A certificate with its key.
pub(crate) struct Leaf {
    pub(crate) pem: String,
    pub(crate) der: CertificateDer<'static>,
    pub(crate) key: KeyPair,
}

impl Leaf {
    /// Writes `NAME.crt` and `NAME.key`, as a person would; each is replaced whole.
    pub(crate) fn write(&self, directory: &Path, name: &str) -> (PathBuf, PathBuf) {
        let cert = write(directory, &format!("{name}.crt"), &self.pem);
        let key = write(directory, &format!("{name}.key"), &self.key.serialize_pem());
        (cert, key)
    }
}

/// Replaces a file whole, readable by us alone.
pub(crate) fn write(directory: &Path, name: &str, text: &str) -> PathBuf {
    let (path, next) = (directory.join(name), directory.join(format!("{name}.next")));
    fs::write(&next, text).unwrap();
    fs::set_permissions(&next, PermissionsExt::from_mode(0o600)).unwrap();
    fs::rename(&next, &path).unwrap();
    path
}

/// `[tls]` with these certificates, in their order, and further `lines`.
pub(crate) fn tls(setup: Setup, leaves: &[&Leaf], lines: &str) -> Setup {
    let mut entries = Vec::new();
    for (index, leaf) in leaves.iter().enumerate() {
        let (cert, key) = leaf.write(setup.directory(), &format!("tls-{index}"));
        entries.push(format!(
            "{{ cert = \"{}\", key = \"{}\" }}",
            cert.display(),
            key.display()
        ));
    }
    setup.tables(&format!("[tls]\ncertificates = [{}]\n{lines}", entries.join(", ")))
}

/// `client_ca` for these authorities.
pub(crate) fn client_ca(setup: &Setup, authorities: &[&Authority]) -> String {
    let pems: String = authorities.iter().map(|authority| authority.pem()).collect();
    let path = write(setup.directory(), "clients.crt", &pems);
    format!("client_ca = \"{}\"", path.display())
}

/// A client that trusts one authority and shows nothing of its own.
pub(crate) fn trusting(authority: &Authority) -> Arc<ClientConfig> {
    Arc::new(builder(authority).with_no_client_auth())
}

/// A client that trusts one authority and shows a certificate of its own.
pub(crate) fn showing(authority: &Authority, leaf: &Leaf) -> Arc<ClientConfig> {
    let key = PrivateKeyDer::try_from(leaf.key.serialize_der()).unwrap();
    let config = builder(authority).with_client_auth_cert(vec![leaf.der.clone()], key);
    Arc::new(config.unwrap())
}

fn builder(authority: &Authority) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.0.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
}

/// An answer: status, head, body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// A TLS connection.
pub(crate) struct Secure(pub(crate) StreamOwned<ClientConnection, TcpStream>);

impl Secure {
    pub(crate) fn open(address: SocketAddr, name: &str, config: &Arc<ClientConfig>) -> Self {
        Self::try_open(address, name, config).unwrap()
    }

    /// Behind the handshake. What the server thinks of our certificate may only be told by the next read (RFC 8446
    /// section 4.4.2.4 allows it).
    pub(crate) fn try_open(address: SocketAddr, name: &str, config: &Arc<ClientConfig>) -> io::Result<Self> {
        let mut socket = TcpStream::connect_timeout(&address, PATIENCE)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        socket.set_nodelay(true)?;
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        let mut connection = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        Ok(Self(StreamOwned::new(connection, socket)))
    }

    /// The certificate that the server has shown.
    pub(crate) fn shown(&self) -> CertificateDer<'static> {
        self.0.conn.peer_certificates().unwrap()[0].clone().into_owned()
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)?;
        self.0.flush()
    }

    /// `close_notify`, and no more bytes.
    pub(crate) fn finish_sending(&mut self) {
        self.0.conn.send_close_notify();
        self.0.flush().unwrap();
        self.0.sock.shutdown(Shutdown::Write).unwrap();
    }

    pub(crate) fn read(&mut self) -> io::Result<Answer> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse().unwrap())
        });
        let mut body = vec![0; length.unwrap_or(0)];
        self.0.read_exact(&mut body)?;
        Ok(Answer {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head,
            body: String::from_utf8(body).unwrap(),
        })
    }

    pub(crate) fn exchange(&mut self, request: &Request) -> io::Result<Answer> {
        self.send(&request.bytes())?;
        self.read()
    }
}
