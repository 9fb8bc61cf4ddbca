//! Where Redis is: the URL of `[dedupe.redis] url`, read into an [`Address`].
//!
//! ```text
//! redis://[[user]:password@]host[:6379][/db]                  one server; rediss:// with TLS
//! unix://[[user]:password@]/path/to/socket[?db=1]             also redis+unix://
//! redis+sentinel://[[user]:password@]host[:26379],…/service[/db][?sentinel_username=…&sentinel_password=…]
//! redis+cluster://[[user]:password@]host[:6379],…
//! ```
//!
//! `rediss+sentinel://` and `rediss+cluster://` are the same with TLS, and `?ca=PATH` names a file of trusted
//! certificates instead of the system's. Each is what the widespread clients take; user and password are
//! percent-decoded. Before `@` stands the user of the data nodes; Sentinels have their own.
//!
//! **Promises.** P5: no error repeats any part of the URL, since a password with an unescaped `/` or `?` may turn up
//! in any of its parts.

use std::fmt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use crate::secret::Secret;

/// The port of a Redis server.
const REDIS_PORT: u16 = 6379;
/// The port of a Sentinel.
const SENTINEL_PORT: u16 = 26379;

/// Where Redis is and how to log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Which servers.
    pub nodes: Nodes,
    /// The data nodes' user and password.
    pub login: Option<Login>,
    /// Number of the database (`SELECT`); always 0 in a Cluster.
    pub db: u16,
    /// With TLS.
    pub tls: Option<Tls>,
}

/// Which servers, and how the right one is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// One server.
    Single(Endpoint),
    /// One server at a Unix socket.
    Unix(PathBuf),
    /// The master that the Sentinels name.
    Sentinel {
        /// The Sentinels, asked in this order.
        sentinels: Vec<Endpoint>,
        /// What they call the master.
        service: String,
        /// The Sentinels' own user and password.
        login: Option<Login>,
    },
    /// A Cluster that these nodes belong to.
    Cluster(Vec<Endpoint>),
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A name or an address, an IPv6 one without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// An ACL user with its password, or the password alone (`requirepass`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The user; none means `default`.
    pub user: Option<String>,
    /// The password; never empty.
    pub password: Secret,
}

/// How the server's certificate is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// A PEM file of trusted certificates instead of the system's.
    pub ca: Option<PathBuf>,
}

/// What is wrong with a URL. Says nothing of what stands in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// No known scheme.
    #[error(
        "must begin with redis://, rediss:// (TLS), unix://, redis+sentinel://, rediss+sentinel://, redis+cluster:// or \
         rediss+cluster://"
    )]
    Scheme,
    /// Something before `@` that is no login.
    #[error("before `@` write `user:password` or `:password`; the password must not be empty")]
    Login,
    /// A `%` that escapes nothing, or bytes that are no text.
    #[error("in a user or password write `%` as %25, `@` as %40, `/` as %2F, `:` as %3A, `?` as %3F")]
    Escape,
    /// No host, or one with characters that no host has.
    #[error("needs a host; special characters of a user or password must be percent-encoded (`/` as %2F, `@` as %40)")]
    Host,
    /// A port that is none.
    #[error("a port is a number from 1 to 65535; special characters of a password must be percent-encoded")]
    Port,
    /// Several hosts where one server is meant.
    #[error("names several hosts: that is redis+cluster:// or redis+sentinel://")]
    SeveralHosts,
    /// A database that is no number.
    #[error("behind the host comes nothing but `/` and the number of a database")]
    Db,
    /// A database in a Cluster.
    #[error("a Cluster has no databases: nothing may follow the hosts but `?`")]
    ClusterDb,
    /// No service name.
    #[error("needs the name that the Sentinels have for the master: redis+sentinel://host/NAME")]
    Service,
    /// No path of a socket.
    #[error("needs the absolute path of a socket: unix:///run/redis/redis.sock")]
    Path,
    /// A parameter that is unknown here.
    #[error("behind `?` may stand {0}")]
    Query(&'static str),
}

impl Address {
    /// Reads a URL.
    ///
    /// # Errors
    /// With what must be written instead.
    pub fn parse(url: &str) -> Result<Self, AddressError> {
        let (scheme, rest) = url.split_once("://").ok_or(AddressError::Scheme)?;
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        let (scheme, tls) = match scheme.to_ascii_lowercase().as_str() {
            "redis" => (Form::Single, false),
            "rediss" => (Form::Single, true),
            "unix" | "redis+unix" => (Form::Unix, false),
            "redis+sentinel" => (Form::Sentinel, false),
            "rediss+sentinel" => (Form::Sentinel, true),
            "redis+cluster" => (Form::Cluster, false),
            "rediss+cluster" => (Form::Cluster, true),
            _ => return Err(AddressError::Scheme),
        };
        let (authority, path) = match rest.split_once('/') {
            Some((authority, path)) => (authority, Some(path)),
            None => (rest, None),
        };
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(read_login(login)?), hosts),
            None => (None, authority),
        };
        let mut options = Options::read(query, scheme, tls)?;
        let (nodes, db) = match scheme {
            Form::Single => {
                if hosts.contains(',') {
                    return Err(AddressError::SeveralHosts);
                }
                (Nodes::Single(read_endpoint(hosts, REDIS_PORT)?), read_db(path)?)
            }
            Form::Unix => {
                if !hosts.is_empty() {
                    return Err(AddressError::Path);
                }
                let path = path.filter(|path| !path.is_empty()).ok_or(AddressError::Path)?;
                let path = PathBuf::from(format!("/{}", decode(path)?));
                (Nodes::Unix(path), options.db.unwrap_or(0))
            }
            Form::Sentinel => {
                let (service, db) = match path.unwrap_or_default().split_once('/') {
                    Some((service, db)) => (service, Some(db)),
                    None => (path.unwrap_or_default(), None),
                };
                let service = decode(service)?;
                if service.is_empty() {
                    return Err(AddressError::Service);
                }
                let nodes = Nodes::Sentinel {
                    sentinels: read_endpoints(hosts, SENTINEL_PORT)?,
                    service,
                    login: options.sentinel_login()?,
                };
                (nodes, read_db(db)?)
            }
            Form::Cluster => {
                if path.is_some_and(|path| !path.is_empty()) {
                    return Err(AddressError::ClusterDb);
                }
                (Nodes::Cluster(read_endpoints(hosts, REDIS_PORT)?), 0)
            }
        };
        Ok(Self {
            nodes,
            login,
            db,
            tls: tls.then(|| Tls { ca: options.ca.take() }),
        })
    }
}

/// The address without user and password, for people.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.tls.is_some() { "s" } else { "" };
        match &self.nodes {
            Nodes::Single(endpoint) => write!(f, "redis{s}://{endpoint}/{}", self.db),
            Nodes::Unix(path) => write!(f, "unix://{}?db={}", path.display(), self.db),
            Nodes::Sentinel { sentinels, service, .. } => {
                write!(f, "redis{s}+sentinel://{}/{service}/{}", joined(sentinels), self.db)
            }
            Nodes::Cluster(nodes) => write!(f, "redis{s}+cluster://{}", joined(nodes)),
        }
    }
}

fn joined(endpoints: &[Endpoint]) -> String {
    let endpoints: Vec<String> = endpoints.iter().map(Endpoint::to_string).collect();
    endpoints.join(",")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Single,
    Unix,
    Sentinel,
    Cluster,
}

/// What stands behind `?`.
#[derive(Debug, Default)]
struct Options {
    ca: Option<PathBuf>,
    db: Option<u16>,
    sentinel_user: Option<String>,
    sentinel_password: Option<String>,
}

impl Options {
    fn read(query: Option<&str>, form: Form, tls: bool) -> Result<Self, AddressError> {
        let mut options = Self::default();
        let unknown = AddressError::Query(match (form, tls) {
            (Form::Unix, _) => "`db` only",
            (Form::Sentinel, true) => "`ca`, `sentinel_username` and `sentinel_password`",
            (Form::Sentinel, false) => "`sentinel_username` and `sentinel_password` (and `ca` with TLS)",
            (Form::Single | Form::Cluster, true) => "`ca` only",
            (Form::Single | Form::Cluster, false) => "nothing here (`ca` with TLS)",
        });
        for pair in query.into_iter().flat_map(|query| query.split('&')) {
            let (name, value) = pair.split_once('=').ok_or(unknown)?;
            let value = decode(value)?;
            match (name, form) {
                ("ca", _) if tls && !value.is_empty() => options.ca = Some(PathBuf::from(value)),
                ("db", Form::Unix) => options.db = Some(value.parse().map_err(|_not_a_number| AddressError::Db)?),
                ("sentinel_username", Form::Sentinel) => options.sentinel_user = Some(value),
                ("sentinel_password", Form::Sentinel) => options.sentinel_password = Some(value),
                _ => return Err(unknown),
            }
        }
        Ok(options)
    }

    fn sentinel_login(&mut self) -> Result<Option<Login>, AddressError> {
        match (self.sentinel_user.take(), self.sentinel_password.take()) {
            (None, None) => Ok(None),
            (user, Some(password)) if !password.is_empty() => Ok(Some(Login {
                user: user.filter(|user| !user.is_empty()),
                password: Secret::new(password),
            })),
            (_, _) => Err(AddressError::Login),
        }
    }
}

fn read_login(login: &str) -> Result<Login, AddressError> {
    let (user, password) = login.split_once(':').ok_or(AddressError::Login)?;
    let (user, password) = (decode(user)?, decode(password)?);
    if password.is_empty() {
        return Err(AddressError::Login);
    }
    Ok(Login {
        user: (!user.is_empty()).then_some(user),
        password: Secret::new(password),
    })
}

fn read_endpoints(hosts: &str, port: u16) -> Result<Vec<Endpoint>, AddressError> {
    hosts.split(',').map(|host| read_endpoint(host, port)).collect()
}

fn read_endpoint(text: &str, port: u16) -> Result<Endpoint, AddressError> {
    let (host, port_text) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or(AddressError::Host)?;
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return Err(AddressError::Host);
            }
            match rest.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if rest.is_empty() => (host, None),
                None => return Err(AddressError::Host),
            }
        }
        None => {
            let (host, port) = match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            };
            let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            if host.is_empty() || !host.bytes().all(plain) {
                return Err(AddressError::Host);
            }
            (host, port)
        }
    };
    let port = match port_text {
        None => port,
        Some(text) => match text.parse() {
            Ok(port) if port > 0 => port,
            Ok(_) | Err(_) => return Err(AddressError::Port),
        },
    };
    Ok(Endpoint {
        host: host.to_owned(),
        port,
    })
}

fn read_db(text: Option<&str>) -> Result<u16, AddressError> {
    match text.filter(|text| !text.is_empty()) {
        None => Ok(0),
        Some(text) => text.parse().map_err(|_not_a_number| AddressError::Db),
    }
}

fn decode(text: &str) -> Result<String, AddressError> {
    let mut escapes = text.bytes();
    while let Some(byte) = escapes.next() {
        let is_hex = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_hexdigit());
        if byte == b'%' && !(is_hex(escapes.next()) && is_hex(escapes.next())) {
            return Err(AddressError::Escape);
        }
    }
    let text = percent_decode_str(text)
        .decode_utf8()
        .map_err(|_not_text| AddressError::Escape)?;
    Ok(text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Address {
        Address::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    fn endpoint(host: &str, port: u16) -> Endpoint {
        Endpoint {
            host: host.to_owned(),
            port,
        }
    }

    fn login(user: Option<&str>, password: &str) -> Option<Login> {
        Some(Login {
            user: user.map(str::to_owned),
            password: Secret::new(password),
        })
    }

    #[test]
    fn one_server_with_and_without_its_parts() {
        let plain = parse("redis://cache");
        assert_eq!(plain.nodes, Nodes::Single(endpoint("cache", 6379)));
        assert_eq!((plain.login, plain.db, plain.tls), (None, 0, None));
        let full = parse("rediss://app:s%40cret%2F@[::1]:7000/3?ca=%2Fetc%2Fca.pem");
        assert_eq!(full.nodes, Nodes::Single(endpoint("::1", 7000)));
        assert_eq!(full.login, login(Some("app"), "s@cret/"));
        assert_eq!(full.db, 3);
        assert_eq!(
            full.tls,
            Some(Tls {
                ca: Some("/etc/ca.pem".into())
            })
        );
        let password = parse("REDIS://:only@10.0.0.1:6380/");
        assert_eq!(password.login, login(None, "only"));
        assert_eq!(password.nodes, Nodes::Single(endpoint("10.0.0.1", 6380)));
    }

    #[test]
    fn a_unix_socket() {
        let socket = parse("unix:///run/redis/redis.sock");
        assert_eq!(socket.nodes, Nodes::Unix("/run/redis/redis.sock".into()));
        let full = parse("redis+unix://u:p@/run/r%20s.sock?db=2");
        assert_eq!(full.nodes, Nodes::Unix("/run/r s.sock".into()));
        assert_eq!((full.login, full.db), (login(Some("u"), "p"), 2));
    }

    #[test]
    fn sentinels_have_a_login_of_their_own() {
        let plain = parse("redis+sentinel://a,b:1,[2001:db8::1]:2/mymaster");
        let Nodes::Sentinel {
            sentinels,
            service,
            login: own,
        } = plain.nodes
        else {
            panic!("sentinel");
        };
        assert_eq!(
            sentinels,
            [endpoint("a", 26379), endpoint("b", 1), endpoint("2001:db8::1", 2)]
        );
        assert_eq!((service.as_str(), own, plain.db), ("mymaster", None, 0));
        let full = parse("rediss+sentinel://u:p@a/m/4?sentinel_username=s&sentinel_password=t%26");
        assert_eq!((full.login, full.db), (login(Some("u"), "p"), 4));
        assert_eq!(full.tls, Some(Tls { ca: None }));
        let Nodes::Sentinel { login: own, .. } = full.nodes else {
            panic!("sentinel");
        };
        assert_eq!(own, login(Some("s"), "t&"));
    }

    #[test]
    fn a_cluster_has_nodes_and_no_database() {
        let cluster = parse("redis+cluster://:p@a:7000,b/");
        assert_eq!(
            cluster.nodes,
            Nodes::Cluster(vec![endpoint("a", 7000), endpoint("b", 6379)])
        );
        assert_eq!(
            Address::parse("redis+cluster://a/1").unwrap_err(),
            AddressError::ClusterDb
        );
    }

    #[test]
    fn mistakes_are_told_apart_and_repeat_nothing() {
        let secret = "hunter2";
        for (url, error) in [
            ("hunter2", AddressError::Scheme),
            ("hunter2://h", AddressError::Scheme),
            ("redis://", AddressError::Host),
            ("redis:///1", AddressError::Host),
            ("redis://hunter2@h", AddressError::Login),
            ("redis://u:@h", AddressError::Login),
            ("redis://:hunter2%@h", AddressError::Escape),
            ("redis://:hunter2%ff@h", AddressError::Escape),
            ("redis://:hun/ter2@h", AddressError::Host),
            ("redis://u:hunter2/@h", AddressError::Port),
            ("redis://h:0", AddressError::Port),
            ("redis://h:hunter2", AddressError::Port),
            ("redis://[::1", AddressError::Host),
            ("redis://[hunter2]", AddressError::Host),
            ("redis://[::1]x", AddressError::Host),
            ("redis://a,b", AddressError::SeveralHosts),
            ("redis://h/hunter2", AddressError::Db),
            ("redis+sentinel://h", AddressError::Service),
            ("redis+sentinel://h/m/hunter2", AddressError::Db),
            ("redis+sentinel://h/m?sentinel_username=u", AddressError::Login),
            ("redis+cluster://a,", AddressError::Host),
            ("unix://hunter2", AddressError::Path),
            ("unix://h/hunter2", AddressError::Path),
            ("unix:///s?db=hunter2", AddressError::Db),
        ] {
            let found = Address::parse(url).unwrap_err();
            assert_eq!(found, error, "{url}");
            assert!(!found.to_string().contains(secret), "{url}: {found}");
        }
        for url in [
            "redis://h?hunter2",
            "redis://h?hunter2=1",
            "redis://h?ca=x",
            "rediss://h?ca=",
        ] {
            let found = Address::parse(url).unwrap_err();
            assert!(matches!(found, AddressError::Query(_)), "{url}: {found:?}");
            assert!(!found.to_string().contains(secret), "{url}: {found}");
        }
    }

    #[test]
    fn an_address_shows_everything_but_the_login() {
        for url in [
            "rediss://u:hunter2@h/1",
            "unix://:hunter2@/s",
            "redis+sentinel://:hunter2@a,b/m?sentinel_password=hunter2",
            "redis+cluster://:hunter2@[::1],b",
        ] {
            let address = parse(url);
            assert!(!format!("{address} {address:?}").contains("hunter2"), "{address:?}");
        }
        assert_eq!(
            parse("redis+cluster://:p@[::1],b").to_string(),
            "redis+cluster://[::1]:6379,b:6379"
        );
        assert_eq!(parse("rediss://u:p@h/1").to_string(), "rediss://h:6379/1");
    }
}
