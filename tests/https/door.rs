//! [`Door`]: TLS in front of an upstream that speaks none, so that everything which upstreams of tests do can be done
//! behind TLS.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use crate::authority::{Authority, Certificate};

/// How a door is built.
pub(crate) struct Plan {
    certificate: Certificate,
    /// Who signed the certificates of those who may come in.
    clients: Option<String>,
    protocols: Vec<Vec<u8>>,
    versions: Vec<&'static SupportedProtocolVersion>,
    polite: bool,
}

impl Plan {
    /// TLS 1.2 and 1.3, HTTP/1.1 by ALPN, `close_notify` where the upstream behind it closes.
    pub(crate) fn new(certificate: &Certificate) -> Self {
        Self {
            certificate: certificate.clone(),
            clients: None,
            protocols: vec![b"http/1.1".to_vec()],
            versions: rustls::ALL_VERSIONS.to_vec(),
            polite: true,
        }
    }

    /// Demands a certificate of this authority.
    pub(crate) fn for_clients_of(mut self, authority: &Authority) -> Self {
        self.clients = Some(authority.pem());
        self
    }

    /// What is offered by ALPN; nothing: it is not answered.
    pub(crate) fn speaking(mut self, protocols: &[&str]) -> Self {
        self.protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        self
    }

    pub(crate) fn version(mut self, version: &'static SupportedProtocolVersion) -> Self {
        self.versions = vec![version];
        self
    }

    /// Closes without `close_notify`.
    pub(crate) fn rude(mut self) -> Self {
        self.polite = false;
        self
    }

    fn build(self) -> Way {
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&self.versions)
            .unwrap();
        let builder = match self.clients {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                roots
                    .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
                    .unwrap();
                let provider = Arc::new(aws_lc_rs::default_provider());
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let mut config = builder
            .with_single_cert(self.certificate.chain(), self.certificate.key())
            .unwrap();
        config.alpn_protocols = self.protocols;
        Way {
            config: Arc::new(config),
            polite: self.polite,
        }
    }
}

#[derive(Clone)]
struct Way {
    config: Arc<ServerConfig>,
    polite: bool,
}

struct Shared {
    way: Mutex<Way>,
    opened: AtomicUsize,
}

/// Ends TLS on a free port of 127.0.0.1.
pub(crate) struct Door {
    address: SocketAddr,
    shared: Arc<Shared>,
    _runtime: Runtime,
}

impl Door {
    pub(crate) fn open(behind: SocketAddr, plan: Plan) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            way: Mutex::new(plan.build()),
            opened: AtomicUsize::new(0),
        });
        let at_work = Arc::clone(&shared);
        runtime.spawn(async move {
            let mut open = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&at_work);
                open.spawn(async move { pass(stream, behind, &shared).await });
            }
        });
        Self {
            address,
            shared,
            _runtime: runtime,
        }
    }

    /// For new connections.
    pub(crate) fn change(&self, plan: Plan) {
        *self.shared.way.lock().unwrap() = plan.build();
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// By its name.
    pub(crate) fn url(&self) -> String {
        format!("https://localhost:{}", self.port())
    }

    /// Handshakes that held.
    pub(crate) fn opened(&self) -> usize {
        self.shared.opened.load(Ordering::SeqCst)
    }
}

/// Whatever ends either side ends both.
async fn pass(stream: TcpStream, behind: SocketAddr, shared: &Shared) {
    let way = shared.way.lock().unwrap().clone();
    let Ok(outer) = TlsAcceptor::from(way.config).accept(stream).await else {
        return;
    };
    shared.opened.fetch_add(1, Ordering::SeqCst);
    let Ok(inner) = TcpStream::connect(behind).await else {
        return;
    };
    let (mut from, mut to) = tokio::io::split(outer);
    let (mut inner_from, mut inner_to) = inner.into_split();
    let up = async { while matches!(copy(&mut from, &mut inner_to).await, Ok(1..)) {} };
    let down = async { while matches!(copy(&mut inner_from, &mut to).await, Ok(1..)) {} };
    tokio::select! {
        () = up => return,
        () = down => {}
    }
    if way.polite {
        to.shutdown().await.ok();
    }
}

async fn copy(from: &mut (impl AsyncReadExt + Unpin), to: &mut (impl AsyncWriteExt + Unpin)) -> std::io::Result<usize> {
    let mut piece = vec![0; 16 << 10];
    let read = from.read(&mut piece).await?;
    to.write_all(&piece[..read]).await?;
    to.flush().await?;
    Ok(read)
}
