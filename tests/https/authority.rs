//! Certificates that a test makes for itself.

use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate with its key, both as PEM.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Certificate {
    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(self.cert.as_bytes())
            .collect::<Result<_, _>>()
            .unwrap()
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap()
    }

    /// Signed by itself and an authority by its own account, as `openssl req -x509` makes it.
    pub(crate) fn its_own_authority(name: &str) -> Self {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self {
            cert: params.self_signed(&key).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }
}

/// Signs certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// With a name of its own.
    pub(crate) fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        Self::named(&format!("authority {}", MADE.fetch_add(1, Ordering::Relaxed)))
    }

    pub(crate) fn named(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Its own certificate.
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// For an upstream with these names and addresses.
    pub(crate) fn server(&self, names: &[&str]) -> Certificate {
        self.sign(names, ExtendedKeyUsagePurpose::ServerAuth, |_| {})
    }

    /// As [`Authority::server`], out of date.
    pub(crate) fn expired(&self, names: &[&str]) -> Certificate {
        self.sign(names, ExtendedKeyUsagePurpose::ServerAuth, |params| {
            params.not_after = date_time_ymd(2020, 1, 1);
        })
    }

    /// For a client with this name.
    pub(crate) fn client(&self, name: &str) -> Certificate {
        self.sign(&[name], ExtendedKeyUsagePurpose::ClientAuth, |_| {})
    }

    fn sign(
        &self,
        names: &[&str],
        usage: ExtendedKeyUsagePurpose,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Certificate {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![usage];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        Certificate {
            cert: params.signed_by(&key, &self.0).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }
}
