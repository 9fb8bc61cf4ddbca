//! What is refused, and what is said about it.

use super::{APP, SECRET, environment, refused, with_secret, with_source};
use crate::config::{Environment, load_text};
use crate::time::Timestamp;

#[test]
fn each_mistake_is_told_with_its_place_and_a_way_out() {
    let table: &[(String, &[&str])] = &[
        // The text.
        (
            "listen = 0.0.0.0:8080".into(),
            &["not valid TOML", "hooksluice.toml:1:"],
        ),
        ("[upstreams.app".into(), &["unclosed table"]),
        (String::new(), &["no source is configured", "no upstream is configured"]),
        ("a = 1\na = 2".into(), &["duplicate key"]),
        // The top level.
        (
            format!("lisen = \"x\"\n{}", with_source("")),
            &["unknown key `lisen`", "did you mean `listen`?"],
        ),
        (
            format!("listen = \"8080\"\n{}", with_source("")),
            &["expected an address and a port"],
        ),
        (
            format!("listen = 8080\n{}", with_source("")),
            &["expected a string, found an integer"],
        ),
        (
            with_source("[routes.rest]"),
            &["`routes.rest` has no `path`", "`routes.rest` has no `upstream`"],
        ),
        (
            with_source("[routes.rest]\npath = \"/x/{id}\"\nupstream = \"ap\""),
            &[
                "bad value for `routes.rest.path`",
                "one `{*rest}`",
                "unknown upstream for route `rest`",
                "did you mean `app`?",
            ],
        ),
        (
            with_source(
                "[routes.a]\npath = \"/x/{*rest}\"\nupstream = \"app\"\n[routes.b]\npath = \"/x/{*all}\"\nupstream = \"app\"",
            ),
            &["`routes.b.path` is taken", "route `a` has the same pattern"],
        ),
        (
            with_source("[routes.a]\npath = \"/x\"\nupstream = \"app\"\nidempotency = {}\ntimeot = \"1s\""),
            &["`routes.a.idempotency` has no `scope`", "did you mean `timeout`?"],
        ),
        (
            with_source("[routes.a]\npath = \"/x\"\nupstream = \"app\"\nmax_body = \"0B\"\nidle_timeout = \"2d\""),
            &[
                "routes.a.max_body",
                "\"off\"",
                "routes.a.idle_timeout",
                "must be from 10ms to",
            ],
        ),
        (with_source("[alerts]"), &["`alerts` is not in this version"]),
        (
            with_source("[server]\nshutdown_grace = \"2h\""),
            &["server.shutdown_grace", "must be from 0s to 1h"],
        ),
        (
            with_source("[server]\ntrusted_proxies = [\"proxy\"]"),
            &["expected an address or a network"],
        ),
        (
            with_source("[server]\ntrusted_proxies = [\"10.0.0.1/8\"]"),
            &["write \"10.0.0.0/8\""],
        ),
        (
            with_source("[server]\nhealth_path = \"/a\""),
            &["the path of a source", "source `a` has it"],
        ),
        (
            with_source("[server]\nhealth_path = \"healthz\""),
            &["must start with `/`"],
        ),
        // Limits.
        (
            with_source("[limits]\nconnections = 0"),
            &["a whole number from 1 to 1000000"],
        ),
        (with_source("[limits]\nhead = \"1KiB\""), &["must be from 8KiB to 1MiB"]),
        (
            with_source("[limits]\nbody = \"5MB\""),
            &["expected a number with a unit"],
        ),
        (
            with_source("[limits]\nbody_timeout = 30"),
            &["expected a string, found an integer"],
        ),
        (
            with_source("[limits]\nbody = \"100MiB\""),
            &["`limits.body` is larger than `limits.in_flight`"],
        ),
        (
            with_source("[limits]\nin_flight = \"16MiB\""),
            &["bodies of source `a` can be larger than `limits.in_flight`"],
        ),
        // Admin.
        (
            with_source("[admin]\nlisten = \"0.0.0.0:9180\""),
            &["reachable from outside without a token"],
        ),
        (
            with_source("[admin]\nlisten = \"127.0.0.1:8080\""),
            &["are the same port"],
        ),
        (
            with_source("[admin]\ntoken = { env = \"SHORT\" }"),
            &["`admin.token` is too short"],
        ),
        (
            with_source("[admin]\ntoken = { env = \"WITH_BLANK\" }"),
            &["`admin.token` cannot be sent"],
        ),
        (
            with_source("[admin]\ntoken = { env = \"SECRET\", label = \"x\" }"),
            &["unknown key `label`"],
        ),
        (
            with_source("[admin]\ntoken = \"hunter2\""),
            &["expected a secret reference"],
        ),
        (
            with_source("[admin]\nhosts = [\"http://a\"]"),
            &["without scheme, port or `*`"],
        ),
        (with_source("[admin]\nhosts = [\"a\", \"A\"]"), &["given twice"]),
        // Store and dedupe.
        (
            with_source("[store.postgres]"),
            &["`store.postgres` has no `url`", "DATABASE_URL"],
        ),
        (
            with_source("[store.postgres]\nurl = { env = \"MISSING\" }"),
            &["the secret of `store.postgres` is missing"],
        ),
        (
            with_source("[store.postgres]\nurl = \"mysql://user:hunter2@db/x\""),
            &[
                "the URL of `store.postgres` cannot be used",
                "must begin with postgres://",
            ],
        ),
        (
            with_source("[store.postgres]\nurl = \"postgres://user:a@hunter2@db/x\""),
            &["must be percent-encoded (@ is %40)"],
        ),
        (
            with_source("[store.postgres]\nurl = \"postgres://user:a/hunter2@db/x\""),
            &["must be percent-encoded"],
        ),
        (
            with_source("[store.postgres]\nurl = \"postgres://user:a#hunter2@db/x\""),
            &["must be percent-encoded"],
        ),
        (
            with_source("[store.postgres]\nurl = \"postgres://db/x\""),
            &["it names no user"],
        ),
        (
            with_source("[store.postgres]\nurl = \"postgres://u@db/x?sslmod=disable\""),
            &["the URL of `store.postgres` cannot be used"],
        ),
        (
            with_source("[store.sqlite]\n[store.postgres]\nurl = \"postgres://u@db/x\""),
            &["both `store.sqlite` and `store.postgres` are given"],
        ),
        (
            with_source("[store]\nmin_free = \"1GiB\"\n[store.postgres]\nurl = \"postgres://u@db/x\""),
            &["`store.min_free` has no meaning with `store.postgres`"],
        ),
        (
            with_source("[limits]\nunadmitted = 5\n[store.postgres]\nurl = \"postgres://u@db/x\""),
            &["`limits.unadmitted` has no meaning with `store.postgres`"],
        ),
        (
            with_source("[dedupe.redis]\nnamespace = \"a\""),
            &["`dedupe.redis` has no `url`", "REDIS_URL"],
        ),
        (
            with_source("[dedupe.redis]\nurl = \"redis://a\""),
            &["`dedupe.redis` has no `namespace`", "required with the embedded store"],
        ),
        (
            with_source("[dedupe.redis]\nurl = \"redis://a\"\nnamespace = \"{a}\""),
            &["bad value for `dedupe.redis.namespace`"],
        ),
        (
            with_source("[dedupe.redis]\nurl = \"http://user:hunter2@a\"\nnamespace = \"a\""),
            &["the URL of `dedupe.redis` cannot be used", "redis://"],
        ),
        (
            with_source("[dedupe.redis]\nurl = \"redis://a\"\nnamespace = \"a\"\non_down = \"accept\""),
            &["expected \"store\" or \"refuse\""],
        ),
        (
            with_source("[dedupe.redis]\nurl = \"redis://a\"\nnamespace = \"a\"\ntimeout = \"1m\""),
            &["bad value for `dedupe.redis.timeout`", "must be from 1ms to 10s"],
        ),
        (
            with_source(
                "[store.postgres]\nurl = \"postgres://u@db/x\"\n[dedupe.redis]\nurl = \"redis://a\"\non_down = \"store\"\n\
                 admit_timeout = \"1s\"",
            ),
            &[
                "`dedupe.redis.on_down` has no meaning with `store.postgres`",
                "`dedupe.redis.admit_timeout` has no meaning",
            ],
        ),
        (with_source("[store.sqlite]\npath = \"\""), &["expected a directory"]),
        (with_source("[store.sqlite]\nfile = \"x\""), &["unknown key `file`"]),
        (with_source("[store]\nmax_bytes = \"1MiB\""), &["smaller than one body"]),
        (
            with_source("[store]\nretention = \"0s\""),
            &["must be from 1ms to 3650d"],
        ),
        (
            with_source("[dedupe]\nwindow = \"1m\""),
            &["`dedupe.digest_window` is longer than `dedupe.window`"],
        ),
        // Upstreams.
        (
            with_source("[upstreams.b]"),
            &["`upstreams.b` has no `url`", "add `url = "],
        ),
        (
            with_source("[upstreams.b]\nurl = \"http://b/x\""),
            &["an origin has no path", "`forward_path`"],
        ),
        (
            with_source("[upstreams.b]\nurl = \"ftp://b\""),
            &["expected an http or https URL"],
        ),
        (
            with_source("[upstreams.b]\nurl = \"http://u:hunter2@b\""),
            &["user and password do not belong in a URL"],
        ),
        (
            with_source("[upstreams.b]\nurl = \"http://localhost:8080\""),
            &["is hooksluice itself"],
        ),
        (
            with_source("[upstreams.b]\nurl = \"http://127.0.0.1:9180\""),
            &["is hooksluice itself"],
        ),
        (with_source("[upstreams.b]\nurl = \"b:80\""), &["not a whole URL"]),
        (
            with_source("[upstreams.b]\nurl = \"http://b\"\nconcurrency = 0"),
            &["a whole number from 1 to 10000"],
        ),
        (
            with_source("[upstreams.b]\nurl = \"http://b\"\nburst = 5"),
            &["has no `rate` beside it"],
        ),
        (
            with_source("[upstreams.b]\nurl = \"http://b\"\nrate = \"5 per second\""),
            &["such as \"50/s\""],
        ),
        (
            with_source("[upstreams.b]\nurl = \"http://b\"\norder = \"key\""),
            &["`upstreams.b.order` is not in this version"],
        ),
        (
            with_source("[upstreams.b]\nurl = \"http://b\"\npause_after = 3"),
            &["is not in this version"],
        ),
        (
            with_source("[upstreams.b]\nurl = \"http://b\"\nsignature = \"standard-webhooks\""),
            &[
                "`upstreams.b` has no signing secret",
                "add `signing_secret = { env = \"NAME\" }`",
                "openssl rand",
            ],
        ),
        (
            with_source("[upstreams.b]\nurl = \"http://b\"\nsigning_secret = { env = \"SECRET\" }"),
            &["`upstreams.b` has a signing secret that nothing would use"],
        ),
        (
            with_source(
                "[upstreams.b]\nurl = \"http://b\"\nsignature = \"standard-webhooks\"\nsigning_secret = { env = \"SECRET\" }",
            ),
            &["`upstreams.b` cannot sign", "base64 of 24 to 64 bytes"],
        ),
        (
            with_source("[upstreams.b]\nurl = \"http://b\"\nsignature = \"standard-webhooks\"\nsigning_secrets = []"),
            &["`upstreams.b.signing_secrets` is empty"],
        ),
        (
            with_source(
                "[upstreams.b]\nurl = \"http://b\"\nsignature = \"standard-webhooks\"\nsigning_secret = \"hunter2\"",
            ),
            &[
                "bad value for `upstreams.b.signing_secret`",
                "expected a secret reference",
            ],
        ),
        (
            with_source("[upstreams.b]\nurl = \"http://b\"\nsignature = \"none\""),
            &["expected \"auto\", \"original\", \"fresh\" or \"standard-webhooks\""],
        ),
        (
            with_source("[upstreams.b]\nurl = \"http://b\"\nretry = { first = \"2h\" }"),
            &["longer than `upstreams.b.retry.max`"],
        ),
        (
            with_source("[upstreams.b]\nurl = \"http://b\"\nretry = { frist = \"2s\" }"),
            &["did you mean `first`?"],
        ),
        (
            with_source("[upstreams.\"b c\"]\nurl = \"http://b\""),
            &["bad name in `upstreams`"],
        ),
        // Sources.
        (
            format!("{APP}[sources.a]"),
            &["no `path`", "no `provider`", "no `upstreams`", "hooksluice.toml:3:"],
        ),
        (with_source("").replace("/a", "a"), &["must start with `/`"]),
        (
            with_source("").replace("/a", "/a/{*rest}"),
            &["there are no patterns here"],
        ),
        (
            with_source("").replace("/a", "/a/../b"),
            &["clients remove dot segments"],
        ),
        (with_source("").replace("/a", "/a?x=1"), &["a path has no query"]),
        (with_source("").replace("/a", "/ä"), &["must escape"]),
        (
            with_source("").replace("github", "githb"),
            &["unknown provider", "did you mean `github`?"],
        ),
        (
            with_source("").replace("github", "nobody-knows-it"),
            &["unknown provider", "`hooksluice providers` lists all"],
        ),
        (
            with_source("").replace("[\"app\"]", "[\"ap\"]"),
            &["unknown upstream `ap`", "did you mean `app`?"],
        ),
        (
            with_source("").replace("[\"app\"]", "[]"),
            &["its events would go nowhere"],
        ),
        (
            with_source("").replace("[\"app\"]", "[\"app\", \"app\"]"),
            &["given twice"],
        ),
        (
            with_source("").replace("[\"app\"]", "\"app\""),
            &["expected a list of strings, found a string"],
        ),
        (
            with_source(
                "[sources.b]\npath = \"/a/\"\nprovider = \"hmac\"\nupstreams = [\"app\"]\nsecret = { env = \"SECRET\" }",
            ),
            &["`sources.b.path` is taken", "source `a` has the same path"],
        ),
        (
            with_source("reply = \"app\""),
            &["expected \"upstream\"", "acknowledges by itself"],
        ),
        (
            with_source("reply = \"upstream\"\nlate = \"never\""),
            &["expected \"dead\" or \"queue\""],
        ),
        (
            with_source("late = \"queue\""),
            &[
                "`sources.a.late` is of no use here",
                "it belongs to `reply = \"upstream\"`",
            ],
        ),
        (
            with_source("replicas = \"sticky\""),
            &["`sources.a.replicas` is of no use here", "it belongs to"],
        ),
        (
            with_source("reply = \"upstream\"\nreplicas = \"sticky\""),
            &["`sources.a.replicas` is of no use here", "have a store each"],
        ),
        (
            with_source("reply = \"upstream\"\nack_status = 202\nack_body = \"ok\""),
            &[
                "`sources.a.ack_status` is of no use here",
                "`sources.a.ack_body` is of no use here",
            ],
        ),
        (
            with_source("reply = \"upstream\"\nsame_content = \"hold\"\ndedupe = [\"id\"]"),
            &["would hold what its sender waits for"],
        ),
        (
            with_source("reply = \"upstream\"").replace("[\"app\"]", "[\"app\", \"app2\"]")
                + "\n[upstreams.app2]\nurl = \"http://127.0.0.1:3001\"",
            &["has several upstreams and waits for an answer"],
        ),
        (
            with_source("reply = \"upstream\"") + "\n[dedupe.redis]\nurl = \"redis://127.0.0.1\"\nnamespace = \"shop\"",
            &[
                "waits for an answer that only one replica would have",
                "replicas = \"sticky\"",
            ],
        ),
        (
            with_source("learn = \"once\""),
            &["`sources.a.learn` is of no use here", "hands no secret over"],
        ),
        (with_source("dedupe = []"), &["every request would be the same again"]),
        (with_source("dedupe = [\"id\", \"id\"]"), &["given twice"]),
        (
            with_source("dedupe = [\"time\"]"),
            &["expected \"id\", \"type\" or \"body\""],
        ),
        (
            with_source("dedupe = [\"body\"]\nid_missing = \"reject\""),
            &["`sources.a.id_missing` is of no use here"],
        ),
        (
            with_source("id_missing = \"random\""),
            &["expected \"digest\" or \"reject\""],
        ),
        (
            with_source("same_content = \"drop\""),
            &["expected \"hold\" or \"off\""],
        ),
        (with_source("methods = [\"post\"]"), &["did you mean `POST`?"]),
        (with_source("methods = [\"HEAD\"]"), &["answered for every source"]),
        (with_source("methods = []"), &["nothing could be delivered"]),
        (with_source("allow = []"), &["everybody or nobody"]),
        (with_source("max_body = \"0B\""), &["must be from 1B to 1GiB"]),
        (
            with_source("max_body = \"1GiB\""),
            &["can be larger than `limits.in_flight`"],
        ),
        (with_source("rate = \"0/s\""), &["expected a number from 1 per unit"]),
        (with_source("ack_status = 302"), &["a whole number from 200 to 299"]),
        (
            with_source("ack_status = 204\nack_body = \"ok\""),
            &["204 answer of source `a` has no body"],
        ),
        (
            with_source(&format!("ack_body = \"{}\"", "x".repeat(5000))),
            &["more than 4096 bytes"],
        ),
        (with_source("forward_path = \"in\""), &["must start with `/`"]),
        (with_source("forward_path = \"/in#x\""), &["a fragment is never sent"]),
        (
            with_source("accept_unsigned = true"),
            &["`sources.a.accept_unsigned` is of no use here"],
        ),
        (
            with_source("params = { x = \"hunter2\" }"),
            &["unknown input in `sources.a.params`"],
        ),
        // A second way to say zero is no way to switch a check off.
        (
            with_source("tolerance = 0"),
            &["expected a string, found an integer", "\"off\""],
        ),
        (with_source("tolerance = \"0s\""), &["zero is neither", "\"off\""]),
        (
            with_source("tolerance = \"300\""),
            &["expected a number with a unit", "\"off\""],
        ),
        (
            with_source("tolerance = \"300ms\""),
            &["shorter than any delivery takes"],
        ),
        (with_source("tolerance = \"300s\""), &["this provider signs no time"]),
    ];
    assert!(table.len() >= 90);
    for (text, parts) in table {
        refused(text, parts);
    }
}

#[test]
fn a_secret_that_is_missing_or_odd_stops_the_start() {
    let table: &[(&str, &[&str])] = &[
        ("", &["source `a` has no secret"]),
        ("secrets = []", &["is empty"]),
        ("secret = {}", &["0 of `env`, `file`, `credential`, `value` are given"]),
        (
            "secrets = [{}]",
            &["0 of `env`, `file`, `credential`, `directory`, `value` are given"],
        ),
        (
            "secret = { credential = \"twice\" }",
            &["the credential `twice` ends with more"],
        ),
        (
            "secret = { credential = \"nothing\" }",
            &["the credential `nothing` is empty"],
        ),
        (
            "secret = { credential = \"hunter2\" }",
            &[
                "the credential named here, in `/run/credentials/hooksluice.service`: No such file or directory",
                "LoadCredential=",
            ],
        ),
        ("secret = { credential = \"a/hunter2\" }", &["which is no path"]),
        ("secret = { credential = \"..\" }", &["which is no path"]),
        ("secret = { credential = \"\" }", &["which is no path"]),
        (
            "secret = { directory = \"/run/secrets/acme\" }",
            &[
                "takes one secret",
                "`secrets` of a source, `signing_secrets` of an upstream",
            ],
        ),
        (
            "secrets = [{ directory = \"/run/none\" }]",
            &["the directory `/run/none`: No such file or directory"],
        ),
        ("secrets = [{ directory = \"hunter2\" }]", &["the directory named here"]),
        (
            "secrets = [{ directory = \"/run/secrets/hidden\" }]",
            &["the directory `/run/secrets/hidden` has no file"],
        ),
        (
            "secrets = [{ directory = \"/run/secrets/broken\" }]",
            &["the file `/run/secrets/broken/b` ends with more than one line end"],
        ),
        (
            "secrets = [{ directory = \"/run/secrets/blank\" }]",
            &["the file `/run/secrets/blank/a` is empty", "anybody could sign"],
        ),
        (
            "secrets = [{ directory = \"/run/secrets/odd\" }]",
            &["has no good name"],
        ),
        (
            "secrets = [{ directory = \"/run/secrets/acme\", label = \"x\" }]",
            &["`label` has no meaning"],
        ),
        (
            "secrets = [{ directory = \"/run/secrets/acme\" }, { env = \"SECRET\", label = \"2026\" }]",
            &["have one label"],
        ),
        (
            "secrets = [{ directory = \"/run/secrets/acme\", env = \"SECRET\" }]",
            &["2 of `env`, `file`"],
        ),
        (
            "secret = { env = \"SECRET\", value = \"hunter2\" }",
            &["2 of `env`, `file`, `credential`, `value` are given"],
        ),
        ("secret = \"hunter2\"", &["expected a secret reference", "refer to it"]),
        ("secrets = \"hunter2\"", &["expected a list of secret references"]),
        (
            "secrets = [\"hunter2\", { env = \"EMPTY\" }]",
            &["expected a secret reference", "`EMPTY` is empty"],
        ),
        ("secret = { vlaue = \"hunter2\" }", &["did you mean `value`?"]),
        ("secret = { value = \"\" }", &["the value is empty"]),
        (
            "secret = { value = \"${HOOK_SECRET}\" }",
            &["unresolved variable", "{ env = \"HOOK_SECRET\" }"],
        ),
        (
            "secret = { value = \"$HOOK_SECRET\" }",
            &["unresolved variable", "{ env = \"HOOK_SECRET\" }"],
        ),
        (
            "secret = { value = \"hunter2${X:-y}\" }",
            &["unresolved variable", "{ env = \"X\" }"],
        ),
        ("secret = { env = \"UNSET\" }", &["`UNSET` is not set"]),
        (
            "secret = { env = \"hunter2\" }",
            &["named here is not set", "not its value"],
        ),
        (
            "secret = { env = \"EMPTY\" }",
            &["the secret of source `a` is empty", "anybody could sign"],
        ),
        ("secret = { env = \"BLANK\" }", &["is empty"]),
        (
            "secret = { env = \"TEMPLATE\" }",
            &["holds a `${NAME}` that nobody replaced"],
        ),
        (
            "secret = { file = \"/run/none\" }",
            &["cannot be read", "`/run/none`: No such file or directory"],
        ),
        ("secret = { file = \"hunter2\" }", &["the file named here"]),
        (
            "secret = { file = \"/run/two\" }",
            &["`/run/two` ends with more than one line end"],
        ),
        ("secret = { file = \"/run/empty\" }", &["`/run/empty` is empty"]),
        (
            "secret = { env = \"SECRET\", not_after = \"2026-12-31\" }",
            &["expected a time with its offset"],
        ),
        (
            "secret = { env = \"SECRET\", not_after = 2026-12-31T00:00:00 }",
            &["expected a time with its offset"],
        ),
        ("secret = { env = \"SECRET\", label = \"\" }", &["bad `label`"]),
        ("secret = { env = \"SECRET\", scope = \"a\\nb\" }", &["bad `scope`"]),
        (
            "secret = { env = \"SECRET\" }\nsecrets = [{ env = \"SECRET\" }]",
            &["both `secret` and `secrets`"],
        ),
        (
            "secrets = [{ env = \"SECRET\", label = \"x\" }, { file = \"/run/one\", label = \"x\" }]",
            &["have one label"],
        ),
    ];
    for (secret, parts) in table {
        refused(&with_secret(secret), parts);
    }
}

#[test]
fn a_record_of_ones_own_is_read_like_a_preset() {
    let own = |record: &str| with_source(&format!("[providers.acme]\n{record}")).replace("github", "acme");
    let table: &[(String, &[&str])] = &[
        (own("kind = \"hmacc\""), &["providers.acme.kind"]),
        (
            own("extends = \"githb\""),
            &["unknown provider `githb`", "did you mean `github`?"],
        ),
        (
            own("extends = \"hmac\"\nsignatur = \"header:X\""),
            &["did you mean `signature`?"],
        ),
        (
            own("extends = \"hmac\"\nsync_only = true"),
            &["waits for the app's own answer", "add `reply = \"upstream\"`"],
        ),
        (own("kind = \"none\""), &["has a secret that nothing would use"]),
        (
            own("kind = \"none\"").replace("secret = { env = \"SECRET\" }", ""),
            &["signs nothing", "accept_unsigned = true"],
        ),
        (
            own("extends = \"hmac\"\nparams = [\"app_key\"]"),
            &["needs the parameter `app_key`"],
        ),
        (
            own("extends = \"hmac\"\ndedupe = [\"type\"]"),
            &["bad value for `dedupe`", "nothing to do with each other"],
        ),
        (
            own("extends = \"hmac\"\ndedupe = [\"id\", \"type\"]"),
            &["bad value for `dedupe`", "dedupe_source"],
        ),
        (
            with_source("dedupe = [\"type\"]"),
            &["bad value for `sources.a.dedupe`", "nothing to do with each other"],
        ),
        (
            own("extends = \"hmac\"\nmethods = [\"post\"]"),
            &["providers.acme.methods", "in capitals"],
        ),
        (
            own("extends = \"hmac\"\ntimestamp = \"sig:t\""),
            &["`sig:t` is never there", "parse = \"kv\""],
        ),
        (
            own("extends = \"hmac\"\n[[providers.acme.challenge]]\nwhen = \"json:/t == 'x'\"\nbody = \"\""),
            &["`'x'` is not a text in double quotes"],
        ),
        (
            own("extends = \"hmac\"\n[[providers.acme.challenge]]\nwhen = \"header:x-a = b\"\nbody = \"\""),
            &["is no condition"],
        ),
        (
            with_source("[providers.github]\nextends = \"hmac\""),
            &["has the name of a preset", "`my-github`"],
        ),
    ];
    for (text, parts) in table {
        refused(text, parts);
    }
}

#[test]
fn a_public_url_is_what_a_provider_was_given() {
    let twilio = |more: &str| format!("{more}{}", with_source("").replace("github", "twilio"));
    let table: &[(String, &[&str])] = &[
        (twilio(""), &["signs its URL", "`public_url` is not set"]),
        (
            twilio("public_url = \"hooks.example.com\"\n"),
            &["bad value for `public_url`"],
        ),
        (
            twilio("public_url = \"https://hooks.example.com/x\"\n"),
            &["has no path and no query", "its own `public_url`"],
        ),
        (
            with_source("public_url = \"https://hooks.example.com\""),
            &["`sources.a.public_url` is of no use here"],
        ),
        (
            with_source("public_url = \"//x\"").replace("github", "twilio"),
            &["bad value for `sources.a.public_url`"],
        ),
    ];
    for (text, parts) in table {
        refused(text, parts);
    }
}

/// A lenient decoder would make the empty key, or a tiny one, of each (SE-04).
#[test]
fn a_secret_that_does_not_decode_is_no_key() {
    for (secret, part) in [
        ("whsec_", "shorter than 16 bytes"),
        ("whsec_!!!!", "not base64"),
        ("whsec_AA==", "shorter than 16 bytes"),
        ("whsec_AAAA=", "not base64"),
        ("whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFh-_", "not base64"),
    ] {
        let text = with_secret(&format!("secret = {{ value = \"{secret}\" }}")).replace("github", "standard-webhooks");
        refused(&text, &["source `a`: ", part]);
    }
}

#[test]
fn a_credential_needs_a_service_that_was_given_it() {
    let text = with_secret("secret = { credential = \"stripe\" }");
    let environment = Environment::fixed(Timestamp::from_secs(0));
    let (config, report) = load_text("hooksluice.toml", &text, &environment);
    let shown = report.render(false);
    assert!(config.is_none(), "{shown}");
    assert!(shown.contains("`$CREDENTIALS_DIRECTORY` is not set"), "{shown}");
    assert!(shown.contains("LoadCredential="), "{shown}");
}

#[test]
fn a_directory_of_too_many_files_is_not_one_of_secrets() {
    let text = with_secret("secrets = [{ directory = \"/run/many\" }]");
    let files = |count: usize| {
        (0..count).fold(environment(), |environment, number| {
            environment.with_file(&format!("/run/many/{number}"), format!("{SECRET}{number}"))
        })
    };
    assert!(load_text("hooksluice.toml", &text, &files(64)).0.is_some());
    let (config, report) = load_text("hooksluice.toml", &text, &files(65));
    let shown = report.render(false);
    assert!(config.is_none() && shown.contains("has more than 64 files"), "{shown}");
}
