//! Events arrive over TLS, by every way of naming the upstream and of knowing its certificate.

use bytes::Bytes;
use http::{Response, Version};
use tokio::net::TcpListener;

use crate::authority::Authority;
use crate::door::{Door, Plan};
use crate::harness::{Setup, Upstream};
use crate::{RETRY, accept, check, file, trusting};

#[test]
fn events_are_delivered_to_an_upstream_whose_authority_is_given() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let door = Door::open(upstream.address(), Plan::new(&authority.server(&["localhost"])));
    let setup = trusting(&door.url(), &authority, "");
    let (good, said) = check(&setup);
    assert!(
        good && said.contains(", its certificate from the given ca only, 16 at once"),
        "{said}"
    );
    let server = setup.start();
    accept(&server, "a");
    let received = upstream.only();
    let host = format!("localhost:{}", door.port());
    assert_eq!(received.header("Host"), Some(host.as_str()));
    assert_eq!(received.body, b"{\"a\":1}");
    // The connection is used again.
    accept(&server, "b");
    upstream.wait_for(2);
    let listed = server.admin_get("/api/v1/upstreams").text();
    assert!(listed.contains(&door.url()), "{listed}");
    server.stop();
}

#[test]
fn both_versions_of_tls_are_spoken() {
    let authority = Authority::new();
    let certificate = authority.server(&["localhost"]);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let upstream = Upstream::start();
        let door = Door::open(upstream.address(), Plan::new(&certificate).version(version));
        let setup = trusting(&door.url(), &authority, "");
        let server = setup.start();
        accept(&server, "a");
        upstream.wait_for(1);
    }
}

#[test]
fn an_address_can_be_the_name_in_the_certificate() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let door = Door::open(upstream.address(), Plan::new(&authority.server(&["127.0.0.1"])));
    let setup = trusting(&format!("https://127.0.0.1:{}", door.port()), &authority, "");
    let server = setup.start();
    accept(&server, "a");
    let host = format!("127.0.0.1:{}", door.port());
    assert_eq!(upstream.only().header("Host"), Some(host.as_str()));
}

#[test]
fn the_name_in_the_certificate_can_be_another_than_the_host() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let door = Door::open(upstream.address(), Plan::new(&authority.server(&["app.internal"])));
    let setup = trusting(&door.url(), &authority, ", server_name = \"app.internal\"");
    let (good, said) = check(&setup);
    assert!(good && said.contains("its certificate for app.internal"), "{said}");
    let server = setup.start();
    accept(&server, "a");
    let host = format!("localhost:{}", door.port());
    assert_eq!(upstream.only().header("Host"), Some(host.as_str()));
}

#[test]
fn without_a_given_authority_the_system_s_are_believed() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let door = Door::open(upstream.address(), Plan::new(&authority.server(&["localhost"])));
    let setup = Setup::for_url(&door.url()).upstream(RETRY).plain();
    let roots = file(&setup, "roots.pem", &authority.pem());
    let mut command = setup.command();
    command.env("SSL_CERT_FILE", roots);
    let server = setup.start_command(command);
    accept(&server, "a");
    upstream.wait_for(1);
}

#[test]
fn a_machine_without_root_certificates_is_told_before_it_starts() {
    let setup = Setup::for_url("https://localhost:9").plain();
    let mut command = crate::harness::server::program();
    command.args(["check", "-c"]).arg(setup.write_config());
    setup.set_environment(&mut command);
    command.env("SSL_CERT_FILE", "/dev/null");
    let output = command.output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("this machine has no root certificates"), "{said}");
}

#[test]
fn http_2_is_agreed_on_by_alpn() {
    let authority = Authority::new();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let behind = listener.local_addr().unwrap();
    let (heads, mut heard) = tokio::sync::mpsc::channel(16);
    runtime.spawn(async move {
        let mut open = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let heads = heads.clone();
            open.spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let (head, mut body) = request.into_parts();
                    let mut length = 0;
                    while let Some(Ok(data)) = body.data().await {
                        body.flow_control().release_capacity(data.len()).unwrap();
                        length += data.len();
                    }
                    let mut out = respond.send_response(Response::new(()), false).unwrap();
                    out.send_data(Bytes::from_static(b"ok"), true).unwrap();
                    heads.send((head, length)).await.unwrap();
                }
            });
        }
    });
    let plan = Plan::new(&authority.server(&["localhost"])).speaking(&["http/1.1", "h2"]);
    let door = Door::open(behind, plan);
    let setup = trusting(&door.url(), &authority, "").upstream("protocol = \"h2\"");
    let server = setup.start();
    accept(&server, "a");
    let (head, length) = runtime.block_on(heard.recv()).unwrap();
    assert_eq!(head.version, Version::HTTP_2);
    assert_eq!(head.uri.scheme_str(), Some("https"));
    assert_eq!(
        head.uri.authority().unwrap().as_str(),
        format!("localhost:{}", door.port())
    );
    assert_eq!((head.uri.path(), length), ("/hooks/plain", 7));
    server.wait_for_metric("hooksluice_attempts_total", &["outcome=\"delivered\""], 1.0);
}
