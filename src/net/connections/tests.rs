//! Where connections go, and where not: names are resolved by the test.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::Full;
use rustls::client::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpListener;

use super::*;
use crate::net::egress::Egress;
use crate::time::Timestamp;

type Told = Arc<Mutex<Vec<std::net::SocketAddr>>>;

fn named(egress: Egress, clock: &Clock) -> (Connections<Full<Bytes>>, Told) {
    let remote = Remote {
        egress: Arc::new(egress),
        ..Remote::plain("http://app.test".parse().unwrap())
    };
    let told = Told::default();
    let mut connections = Connections::new(&remote, clock.clone(), TaskTracker::new());
    connections.address = Address::Told(Arc::clone(&told));
    (connections, told)
}

async fn listener() -> (TcpListener, std::net::SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// FW-12: at most [`AGE_MAX`] after its name has another address an upstream is found there.
#[tokio::test]
async fn a_name_that_leads_elsewhere_is_followed() {
    let start = Timestamp::from_secs(1_700_000_000);
    let clock = Clock::manual(start);
    let (connections, told) = named(Egress::default(), &clock);
    let ((old, old_address), (new, new_address)) = (listener().await, listener().await);
    told.lock().unwrap().push(old_address);
    let connection = connections.open().await.unwrap();
    let (_kept, _) = old.accept().await.unwrap();
    connections.give_back(connection);
    *told.lock().unwrap() = vec![new_address];
    // Even one that is used all the time ends with its age.
    let mut at = start;
    while at < start.after(AGE_MAX) {
        let connection = connections.take_idle().expect("still young");
        connections.give_back(connection);
        at = at.after(IDLE_MAX / 2);
        clock.set(at);
    }
    assert!(connections.take_idle().is_none());
    let _connection = connections.open().await.unwrap();
    new.accept().await.unwrap();
}

#[tokio::test]
async fn only_the_allowed_addresses_of_a_name_are_connected_to() {
    let deny = |network: &str| Egress {
        allow: None,
        deny: vec![network.parse().unwrap()],
    };
    let (listener, address) = listener().await;
    let metadata = "169.254.169.254:80".parse().unwrap();
    let (connections, told) = named(Egress::default(), &Clock::system());
    *told.lock().unwrap() = vec![metadata, address];
    let _connection = connections.open().await.unwrap();
    listener.accept().await.unwrap();

    let (connections, told) = named(deny("127.0.0.0/8"), &Clock::system());
    *told.lock().unwrap() = vec![metadata, address, "[64:ff9b::a9fe:a9fe]:80".parse().unwrap()];
    let refused = connections.open().await.unwrap_err();
    assert!(matches!(refused, CannotConnect::NotAllowed(_)), "{refused:?}");
    assert_eq!(refused.describe(), "address not allowed by [egress]");
}

/// The configuration refuses such an address; what connects asks again.
#[tokio::test]
async fn an_address_that_is_written_is_judged_too() {
    let remote = Remote::plain("http://169.254.169.254".parse().unwrap());
    let connections: Connections<Full<Bytes>> = Connections::new(&remote, Clock::system(), TaskTracker::new());
    let refused = connections.open().await.unwrap_err();
    assert!(matches!(refused, CannotConnect::NotAllowed(_)), "{refused:?}");
}

/// What is sent in 0-RTT could be sent again by somebody else.
#[test]
fn nothing_is_sent_before_the_handshake_holds() {
    let name = ServerName::try_from("app.test").unwrap();
    let tls = UpstreamTls::new(&Roots::system(Vec::new()), None, name, Protocol::H2).unwrap();
    let client: &ClientConfig = tls.client();
    assert!(!client.enable_early_data);
    assert_eq!(client.alpn_protocols, [b"h2"]);
}
