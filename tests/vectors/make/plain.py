"""Vectors for providers whose scheme is one HMAC, a token or a password, where nobody else's are at hand.

Each line of PLAIN and TIMED is written down from the provider's own document, not from the record; the digests are the
standard library's.  Deterministic.  Run it without arguments; it writes NAME.own.jsonl beside this folder.
"""

import base64
import datetime
import hmac
import json
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent.parent
NOW = 1_764_435_600
URL = "https://hooks.example.com/in/abc123"
SECRET, OTHER = "own-secret-0123456789abcdef", "another-secret-0123456789abcdef"


def mac(secret, text, name="sha256"):
    return hmac.new(secret.encode(), text, name).digest()


def hexed(secret, text, name="sha256"):
    return mac(secret, text, name).hex()


def b64(data):
    return base64.b64encode(data).decode()


def iso(t):
    return datetime.datetime.fromtimestamp(t, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def url64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def standard(key, prefix, ident, t, body):
    """The header lines of Standard Webhooks and of what was made after it."""
    text = f"{ident}.{t}.".encode() + body
    return {f"{prefix}-timestamp": str(t), f"{prefix}-signature": "v1," + b64(hmac.new(key, text, "sha256").digest())}


def decoded(secret):
    """Secrets here are text; the providers that show base64 are given its base64."""
    return base64.b64decode(secret.removeprefix("whsec_"))


# name: (headers of (secret, body), body, id, type)
PLAIN = {
    "coinbase-commerce": (lambda s, b: {"X-CC-Webhook-Signature": hexed(s, b)},
                          {"id": 1, "event": {"id": "ev-1", "type": "charge:created"}}, "ev-1", "charge:created"),
    "docusign": (lambda s, b: {"X-DocuSign-Signature-1": b64(mac(s, b))},
                 {"event": "envelope-completed", "data": {"envelopeId": "env-1"}}, "env-1", "envelope-completed"),
    "gocardless": (lambda s, b: {"Webhook-Signature": hexed(s, b)},
                   {"events": [{"id": "EV1", "action": "created"}], "meta": {"webhook_id": "WB1"}}, "WB1", "created"),
    "hookdeck": (lambda s, b: {"x-hookdeck-signature": b64(mac(s, b))}, {"a": 1}, None, None),
    "intercom": (lambda s, b: {"X-Hub-Signature": "sha1=" + hexed(s, b, "sha1")},
                 {"id": "notif_1", "topic": "user.created"}, "notif_1", "user.created"),
    "kontent-ai": (lambda s, b: {"X-Kontent-ai-Signature": b64(mac(s, b))},
                   {"notifications": [{"message": {"action": "published"}}]}, None, "published"),
    "line": (lambda s, b: {"x-line-signature": b64(mac(s, b))},
             {"destination": "U1", "events": [{"type": "message", "webhookEventId": "01H"}]}, "01H", "message"),
    "onfido": (lambda s, b: {"X-SHA2-Signature": hexed(s, b)},
               {"payload": {"resource_type": "check", "action": "check.completed", "object": {"id": "c1"}}}, "c1", "check.completed"),
    "razorpay": (lambda s, b: {"X-Razorpay-Signature": hexed(s, b), "x-razorpay-event-id": "evt_1"},
                 {"event": "payment.captured"}, "evt_1", "payment.captured"),
    "typeform": (lambda s, b: {"Typeform-Signature": "sha256=" + b64(mac(s, b))},
                 {"event_id": "e1", "event_type": "form_response"}, "e1", "form_response"),
    "viber": (lambda s, b: {"X-Viber-Content-Signature": hexed(s, b)},
              {"event": "message", "message_token": 4912661846655238145}, "4912661846655238145", "message"),
}

# name: (headers of (secret, time in seconds, body), tolerance in seconds or None, body, id, type)
TIMED = {
    "finch": (lambda s, t, b: {"finch-event-id": "e1", **standard(decoded(s), "finch", "e1", t, b)}, 300,
              {"event_type": "employment.created"}, "e1", "employment.created"),
    "klaviyo": (lambda s, t, b: {"Klaviyo-Timestamp": "Sat, 29 Nov 2025 17:00:00 GMT",
                                 "Klaviyo-Signature": hexed(s, b + b"Sat, 29 Nov 2025 17:00:00 GMT")}, None,
                {"data": [{"external_id": "x1", "topic": "event:klaviyo.sent_sms"}]}, "x1", "event:klaviyo.sent_sms"),
    "lithic": (lambda s, t, b: {"webhook-id": "m1", **standard(decoded(s), "webhook", "m1", t, b)}, 300,
               {"event_type": "card.created"}, "m1", "card.created"),
    "orb": (lambda s, t, b: {"X-Orb-Timestamp": iso(t), "X-Orb-Signature": "v1=" + hexed(s, f"v1:{iso(t)}:".encode() + b)},
            300, {"id": "e1", "type": "invoice.issued"}, "e1", "invoice.issued"),
    "whop": (lambda s, t, b: {"webhook-id": "m1", **standard(s.encode(), "webhook", "m1", t, b)}, 300,
             {"type": "payment.succeeded"}, "m1", "payment.succeeded"),
    "calendly": (lambda s, t, b: {"Calendly-Webhook-Signature": f"t={t},v1={hexed(s, f'{t}.'.encode() + b)}"}, 180,
                 {"event": "invitee.created"}, None, "invitee.created"),
    "elevenlabs": (lambda s, t, b: {"ElevenLabs-Signature": f"t={t},v0={hexed(s, f'{t}.'.encode() + b)}"}, 1800,
                   {"type": "post_call_transcription"}, None, "post_call_transcription"),
    "ghost": (lambda s, t, b: {"X-Ghost-Signature": f"sha256={hexed(s, b + f'{t}000'.encode())}, t={t}000"}, 300,
              {"post": {"current": {"id": "p1"}}}, None, None),
    "mux": (lambda s, t, b: {"Mux-Signature": f"t={t},v1={hexed(s, f'{t}.'.encode() + b)}"}, 300,
            {"id": "ev1", "type": "video.asset.ready"}, "ev1", "video.asset.ready"),
    "persona": (lambda s, t, b: {"Persona-Signature": f"t={t},v1={hexed(s, f'{t}.'.encode() + b)}"}, 300,
                {"data": {"id": "evt_1", "attributes": {"name": "inquiry.completed"}}}, "evt_1", "inquiry.completed"),
    "retell": (lambda s, t, b: {"X-Retell-Signature": f"v={t}000,d={hexed(s, b + f'{t}000'.encode())}"}, 300,
               {"event": "call_ended", "call": {"call_id": "c1"}}, "c1", "call_ended"),
    "revolut": (lambda s, t, b: {"Revolut-Request-Timestamp": f"{t}000",
                                 "Revolut-Signature": "v1=" + hexed(s, f"v1.{t}000.".encode() + b)}, 300,
                {"event": "ORDER_COMPLETED", "order_id": "o1"}, "o1", "ORDER_COMPLETED"),
    "sanity": (lambda s, t, b: {"sanity-webhook-signature": f"t={t}000,v1={url64(mac(s, f'{t}000.'.encode() + b))}",
                                "idempotency-key": "k1", "sanity-operation": "create"}, None,
               {"_id": "doc"}, "k1", "create"),
    "synctera": (lambda s, t, b: {"Request-Timestamp": str(t), "Synctera-Signature": hexed(s, f"{t}.".encode() + b)},
                 300, {"id": "e1", "type": "ACCOUNT.CREATED"}, "e1", "ACCOUNT.CREATED"),
    "tabapay": (lambda s, t, b: {"X-HMAC-Signature": f"t={t},v1={hexed(s, f'{t}.'.encode() + b)}",
                                 "Idempotency-Key": "k1"}, None, {"a": 1}, "k1", None),
    "terra": (lambda s, t, b: {"terra-signature": f"t={t},v1={hexed(s, f'{t}.'.encode() + b)}"}, 300,
              {"type": "activity"}, None, "activity"),
    "zendesk": (lambda s, t, b: {"X-Zendesk-Webhook-Signature-Timestamp": "2025-11-29T17:00:00Z",
                                 "X-Zendesk-Webhook-Signature": b64(mac(s, b"2025-11-29T17:00:00Z" + b)),
                                 "X-Zendesk-Webhook-Invocation-Id": "inv1"}, None,
                {"type": "zen:event-type:ticket.created"}, "inv1", "zen:event-type:ticket.created"),
}

# name: (headers of (secret), body, id, type)
TOKENS = {
    "deepgram": (lambda s: {"dg-token": s}, {"metadata": {"request_id": "r1"}}, "r1", None),
    "gitlab": (lambda s: {"X-Gitlab-Token": s, "X-Gitlab-Event": "Push Hook", "Idempotency-Key": "k1"},
               {"object_kind": "push"}, "k1", "Push Hook"),
    "google-push": (lambda s: {"X-Goog-Channel-Token": s, "X-Goog-Resource-State": "sync",
                               "X-Goog-Message-Number": "7"}, None, "7", "sync"),
    "revenuecat-header": (lambda s: {"Authorization": s}, {"event": {"id": "e1", "type": "RENEWAL"}}, "e1", "RENEWAL"),
    "chargebee": (lambda s: {"Authorization": "Basic " + b64(s.encode())},
                  {"id": "ev_1", "event_type": "invoice_generated"}, "ev_1", "invoice_generated"),
    "pipedrive": (lambda s: {"Authorization": "Basic " + b64(s.encode())}, {"meta": {"id": "m1"}}, "m1", None),
    "postmark": (lambda s: {"Authorization": "Basic " + b64(s.encode())},
                 {"RecordType": "Bounce", "MessageID": "m1"}, "m1", "Bounce"),
}
BASIC = {"chargebee", "pipedrive", "postmark"}
BASE64 = {"finch", "lithic"}

# Signed in the body: name: (body of secret, id, type)
IN_BODY = {
    "cloudprinter": (lambda s: {"apikey": s, "type": "ItemShipped"}, None, "ItemShipped"),
    "lever": (lambda s: {"id": "l1", "event": "candidateHired", "token": "t1", "triggeredAt": NOW * 1000,
                         "signature": hexed(s, f"t1{NOW * 1000}".encode())}, "l1", "candidateHired"),
}


def secrets_of(name):
    """Of the form that the provider's are of: the right one and another."""
    if name in BASIC:
        return f"user:{SECRET}:x", f"user:{OTHER}"
    if name in BASE64:
        return b64(SECRET.encode()), b64(OTHER.encode())
    return SECRET, OTHER


def body_of(value):
    return b"" if value is None else json.dumps(value, separators=(",", ":")).encode()


class File:
    def __init__(self, name):
        self.name, self.lines = name, []

    def add(self, expect, note, headers, body, secret, now=NOW + 3, **more):
        self.lines.append({
            "provider": self.name, "note": note, "expect": expect, "secret": secret, "method": "POST", "url": URL,
            "headers": {"content-type": "application/json", **headers},
            "body_base64": b64(body), "now": now, "source": "own reading of the provider's document", **more,
        })

    def write(self):
        text = "".join(json.dumps(line) + "\n" for line in self.lines)
        (FOLDER / f"{self.name}.own.jsonl").write_text(text)


def main():
    for name, entry in PLAIN.items():
        headers, value, ident, kind = entry
        body, out = body_of(value), File(name)
        out.add("accept", "simple", headers(SECRET, body), body, SECRET, expect_id=ident, expect_type=kind)
        out.add("reject", "one byte more", headers(SECRET, body), body + b" ", SECRET)
        out.add("reject", "another secret", headers(OTHER, body), body, SECRET)
        out.write()
    for name, (headers, tolerance, value, ident, kind) in TIMED.items():
        body, out = body_of(value), File(name)
        secret, other = secrets_of(name)
        good = headers(secret, NOW, body)
        ids = {"expect_id": ident, "expect_type": kind}
        out.add("accept", "simple", good, body, secret, **ids)
        out.add("reject", "one byte more", good, body + b" ", secret)
        out.add("reject", "another secret", headers(other, NOW, body), body, secret)
        if tolerance is None:
            out.add("accept", "a day old: age is not judged", good, body, secret, now=NOW + 86_400, **ids)
        else:
            out.add("accept", "as old as it may be", good, body, secret, now=NOW + tolerance, **ids)
            out.add("reject", "a second too old", good, body, secret, now=NOW + tolerance + 1)
        out.write()
    for name, (headers, value, ident, kind) in TOKENS.items():
        body, out = body_of(value), File(name)
        secret, other = secrets_of(name)
        out.add("accept", "simple", headers(secret), body, secret, expect_id=ident, expect_type=kind)
        out.add("reject", "another secret", headers(other), body, secret)
        out.add("reject", "none", {}, body, secret)
        out.write()
    for name, (value, ident, kind) in IN_BODY.items():
        out = File(name)
        out.add("accept", "simple", {}, body_of(value(SECRET)), SECRET, expect_id=ident, expect_type=kind)
        out.add("reject", "another secret", {}, body_of(value(OTHER)), SECRET)
        out.write()


main()
