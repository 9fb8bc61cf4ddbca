//! `[providers.NAME]`: a signing scheme as data, in the language of the presets.

use super::Usual::{Is, Number, Text, Unset, Words};
use super::{Table, row};

pub(super) const TABLES: &[Table] = &[
    Table {
        name: "providers.NAME",
        about: "A signing scheme of your own, in the language of the presets (`hooksluice providers NAME --toml` prints one). A \
                place is `header:NAME`, `query:NAME`, `form:NAME` or `json:/pointer`; `sig:KEY` is an entry of the signature \
                header itself, `jwt:CLAIM` what a token says, `body` the whole body.",
        restart: false,
        rows: &[
            row(
                "extends",
                Unset,
                "a preset from which everything is taken that is not written here",
            ),
            row(
                "kind",
                Words("that of `extends`"),
                "how a request proves where it comes from; required without `extends`",
            ),
            row("title", Words("its name"), "its name for people"),
            row("docs", Unset, "the provider's page about it"),
            row("aliases", Is("[]"), "other names; for presets"),
            row("notes", Is("[]"), "what surprises people"),
            row("source", Unset, "where the scheme was read"),
            row("confidence", Text("unverified"), "how sure the record is of its scheme"),
            row("secret_title", Unset, "what the provider calls the secret, for people"),
            row(
                "secret_env",
                Words("NAME_WEBHOOK_SECRET"),
                "the variable that `hooksluice init` proposes for the secret",
            ),
            row("dashboard", Unset, "where the provider is given the URL, for people"),
            row("secret_encoding", Text("utf8"), "how the secret's text becomes the key"),
            row(
                "secret_strip_prefix",
                Text(""),
                "what stands before the secret and is no part of it, each once; a `*` in it stands for letters, digits and `_`",
            ),
            row(
                "secret_normalise",
                Unset,
                "what is done to the secret's characters first: decomposition, or `&amp;` and the like decoded",
            ),
            row("secret_suffix", Text(""), "what is added to the secret to make the key"),
            row(
                "public_key_prefix",
                Unset,
                "a secret of an HMAC scheme that begins with it is the sender's Ed25519 public key",
            ),
            row(
                "jwks",
                Unset,
                "the `https://` address of the provider's key set, fetched where a source gives no secret; parameters in braces",
            ),
            row(
                "certificate",
                Unset,
                "where a request has the address of the certificate whose key signed it, fetched where a source gives no secret",
            ),
            row(
                "certificate_urls",
                Unset,
                "what that address may be, such as `https://sns.*.amazonaws.com/*.pem`",
            ),
            row(
                "visit",
                Unset,
                "where a verified hand-shake has an address that is visited, which confirms a subscription",
            ),
            row(
                "visit_urls",
                Unset,
                "what that address may be; `?*` at the end allows a query",
            ),
            row("visit_needs", Unset, "a parameter without which nothing is visited"),
            row(
                "params",
                Is("[]"),
                "names of second inputs, which a source gives in its `params`; `NAME?` may be left out, `NAME=USUAL` has a value then",
            ),
            row(
                "encrypted",
                Unset,
                "where a body has its text, encrypted by AES-256-CBC under the secret's SHA-256; hand-shakes, ids and types are read from it",
            ),
            row(
                "signed_over",
                Text("wire"),
                "the body as it came, or `decoded`: as it was before the sender compressed it (gzip)",
            ),
            row(
                "scope",
                Unset,
                "a place whose value tells endpoints apart; part of the dedupe key",
            ),
            row(
                "dedupe",
                Is("[\"id\", \"type\", \"body\"]"),
                "what makes two deliveries the same; `[\"id\"]` needs `dedupe_source`",
            ),
            row(
                "dedupe_source",
                Unset,
                "where the provider says that its id is one per delivery",
            ),
            row(
                "id_missing",
                Text("digest"),
                "without an id: known by its content, or refused with 400",
            ),
            row(
                "body_varies",
                Is("false"),
                "retries of one delivery may differ in their bytes",
            ),
            row(
                "ping",
                Is("false"),
                "notifications without content of their own, so that equal ones are not the same again",
            ),
            row(
                "body_authenticated",
                Words("whether `payload` holds the body"),
                "whether the signature covers the whole body",
            ),
            row(
                "sync_only",
                Is("false"),
                "the answer carries meaning: sources need `reply = \"upstream\"`",
            ),
            row("methods", Is("[\"POST\"]"), "that it delivers with"),
            row("get_probe", Is("false"), "an unsigned `GET` is answered 200"),
            row("max_body", Unset, "largest body that it sends, above `limits.body`"),
            row("ack_status", Number(200), "status of the acknowledgement"),
            row("ack_body", Text(""), "body of the acknowledgement"),
            row("sender_deadline", Unset, "how long it waits for an answer"),
            row("retry_horizon", Unset, "how long it repeats a delivery that failed"),
            row(
                "sender_facts_source",
                Unset,
                "where `sender_deadline`, `retry_horizon` and `disable_after` were read",
            ),
            row(
                "sender_facts_confidence",
                Text("hint"),
                "whether a document was read that says so; a hint is never told as a fact",
            ),
            row("when", Unset, "conditions under which this header family is used"),
            row(
                "hash",
                Text("sha256"),
                "of the HMAC, digest or signature; `keccak256` only of a digest",
            ),
            row(
                "algorithms",
                Unset,
                "with which a token may be signed, such as `[\"RS256\"]`; required for `jwt`, and never taken from the token",
            ),
            row(
                "detached",
                Words("`false`"),
                "the token has no payload of its own: `payload` is what it signs",
            ),
            row("issuer", Unset, "what the token's `iss` must be, a template"),
            row("audience", Unset, "what the token's `aud` must be or have, a template"),
            row(
                "body_claim",
                Unset,
                "the claim that is the body's digest; `absent = \"empty_body\"` where it may be missing then",
            ),
            row(
                "url_claim",
                Unset,
                "the claim that is the URL (`value`), or with `hash` its digest",
            ),
            row(
                "required_claims",
                Unset,
                "claims without which a token is refused, such as `[\"exp\"]`",
            ),
            row(
                "max_age_seconds",
                Unset,
                "how long ago a token may have been issued (`iat`)",
            ),
            row(
                "clock_tolerance_seconds",
                Words("0"),
                "how far the token's clock may be off",
            ),
            row("padding", Words("`\"pkcs1\"`"), "of RSA signatures"),
            row("signature_format", Words("`\"der\"`"), "of ECDSA signatures"),
            row(
                "prehash",
                Unset,
                "the payload is hashed with it first, and its digest is what is signed",
            ),
            row(
                "key_id",
                Unset,
                "the place of the name that tells which key of a key set it is",
            ),
            row(
                "signature",
                Unset,
                "where the signature stands; required unless `kind` is `basic` or `none`",
            ),
            row("parse", Text("plain"), "how the signature's text is taken apart"),
            row("separator", Words("that of `parse`"), "between entries"),
            row("group_separator", Unset, "between groups of entries (`kv`)"),
            row(
                "signature_key",
                Unset,
                "which entries are signatures (`kv`, `base64_json`); several divided by a bar",
            ),
            row(
                "signature_order",
                Is("[]"),
                "in which entries are written, for apps that go by it (`kv`)",
            ),
            row("tag", Unset, "what stands before a signature (`tagged`, `pairs`)"),
            row("tag_separator", Words("that of `parse`"), "between tag and signature"),
            row(
                "public_key_tag",
                Unset,
                "what stands before a signature by a public key (`tagged`)",
            ),
            row("prefix", Text(""), "before the signature, such as `sha256=`"),
            row("prefix_optional", Is("false"), "the prefix may be missing"),
            row("max_n", Unset, "signature headers numbered up to this"),
            row("encoding", Text("hex"), "of the signature"),
            row(
                "payload",
                Text("{body}"),
                "the signed text: `{body}`, `{timestamp}`, `{url}`, `{form_sorted}`, `{body_sha256_hex}` and places in braces; `{secret}` in a digest",
            ),
            row(
                "payload_variants",
                Is("[]"),
                "at most three other texts that may have been signed in its place",
            ),
            row(
                "url_variants",
                Is("[\"as configured\"]"),
                "spellings of the public URL that are tried",
            ),
            row("timestamp", Unset, "the place of the signed time"),
            row("timestamp_unit", Text("s"), "how it is written"),
            row("tolerance_seconds", Unset, "how old it may be; not judged unless set"),
            row(
                "tolerance_future_seconds",
                Words("`tolerance_seconds`"),
                "how far ahead it may be",
            ),
            row(
                "also_require",
                Is("[]"),
                "`A == B`, each a place or a template: what must be equal besides",
            ),
            row(
                "require",
                Unset,
                "conditions that must hold besides the signature, as in `when`",
            ),
            row(
                "each",
                Unset,
                "JSON pointer at an array whose elements are each signed by themselves; `item:/pointer` looks into them",
            ),
            row(
                "delivery_id",
                Unset,
                "the provider's own id, the first place that has one",
            ),
            row(
                "dedupe_id",
                Words("`delivery_id`"),
                "the id that decides, where it is another",
            ),
            row("event_type", Unset, "the type of the event"),
        ],
    },
    Table {
        name: "providers.NAME.disable_after",
        about: "When the sender stops sending to an endpoint, counted as it counts. A warning comes at half of it: in the log, \
                `hooksluice status` and `hooksluice_sender_patience_used_ratio`. Failures in a row, or a share of failures.",
        restart: false,
        rows: &[
            row("failures", Unset, "so many without a success between them"),
            row("failing_for", Unset, "and, or only, for so long without a success"),
            row("percent", Unset, "over so many percent failures"),
            row("within", Unset, "in so long; with `percent`"),
            row("at_least", Number(10), "of so many deliveries; with `percent`"),
        ],
    },
    Table {
        name: "providers.NAME.variant",
        about: "A header family of a provider that has several; the first whose `when` holds is used. It may have these keys of \
                `[providers.NAME]`, and takes from there what it does not have:",
        restart: false,
        rows: &[],
    },
    Table {
        name: "providers.NAME.challenge",
        about: "A hand-shake that is answered here, not by the app.",
        restart: false,
        rows: &[
            row("name", Text("challenge"), "for people"),
            row(
                "when",
                Unset,
                "conditions on the request, all of which must hold; required",
            ),
            row("verify_first", Is("true"), "answered only when the signature holds"),
            row(
                "hands_over_secret",
                Unset,
                "where in it the sender hands over the secret that it will sign with, such as `header:X-Hook-Secret`; it is answered \
                 only by a source with `learn`, and only while a person lets it",
            ),
            row(
                "check",
                Is("[]"),
                "`A == B`, one or a list: what must be equal, such as a token that only the provider knows",
            ),
            row(
                "check_failed_status",
                Words("refused with 401"),
                "the provider's own status for a check that fails",
            ),
            row(
                "values",
                Unset,
                "what the sender's values may be, such as `hex 20..32` (`digits`, `hex`, `token`, `base64`); required where one is MACed",
            ),
            row("status", Number(200), "of the answer"),
            row("content_type", Text("text/plain"), "of the answer"),
            row("headers", Is("[]"), "more headers of the answer, each `Name: value`"),
            row("body", Unset, "of the answer, with places in braces; required"),
        ],
    },
];
