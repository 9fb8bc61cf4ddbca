//! Who may ask for a reload, and when.

use crate::harness::client::try_exchange;
use crate::harness::{Request, eventually};
use crate::site::Site;

const PATH: &str = "/api/v1/reload";

fn ask(site: &Site, change: impl FnOnce(Request) -> Request) -> u16 {
    let request = change(Request::post(PATH, "{}").header("Host", "localhost"));
    try_exchange(site.admin(), &request).unwrap().unwrap().status
}

fn json(request: Request) -> Request {
    request.header("Content-Type", "application/json")
}

#[test]
fn a_reload_is_asked_for_as_any_other_change_is() {
    let site = Site::open(crate::harness::Setup::plain);
    assert_eq!(
        ask(&site, |request| request),
        415,
        "a form of a foreign page could send this"
    );
    assert_eq!(
        ask(&site, |request| json(request).header("Origin", "https://evil.example")),
        403
    );
    assert_eq!(site.admin_get(PATH).status, 405);
    assert_eq!(site.admin_post(PATH, "{\"x\":1}").status, 400);
    assert_eq!(site.metric("hooksluice_config_reloads_total", &[]), 0.0);
    assert_eq!(ask(&site, json), 200);
    assert_eq!(
        site.metric("hooksluice_config_reloads_total", &["outcome=\"unchanged\""]),
        1.0
    );
}

#[test]
fn a_token_is_asked_for_where_there_is_one() {
    let token = "0123456789abcdef0123456789abcdef";
    let site = Site::open(|setup| {
        let mut setup = setup.plain();
        let variable = setup.environment_variable(token);
        setup.admin(&format!("token = {{ env = \"{variable}\" }}"))
    });
    assert_eq!(ask(&site, json), 401);
    assert_eq!(
        ask(&site, |request| json(request)
            .header("Authorization", format!("Bearer {token}"))),
        200
    );
    let (code, printed) = site.reload(&[]);
    assert_eq!(code, 1);
    assert!(printed.contains("--token-env"), "{printed}");
}

#[test]
fn nothing_is_reloaded_while_the_server_shuts_down() {
    let site = Site::open(|setup| setup.tables("[server]\nshutdown_delay = \"1h\"").plain());
    site.ask_to_stop();
    eventually("the end to begin", || {
        (site.admin_get("/readyz").status == 503).then_some(())
    });
    let answer = site.admin_post(PATH, "{}");
    assert_eq!(
        (answer.status, answer.json()["error"]["code"].as_str()),
        (503, Some("closing"))
    );
}
