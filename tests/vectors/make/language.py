#!/usr/bin/env python3
"""Vectors for schemes that nobody else has vectors for: our own second reading of the documents, standard library only.

    python3 tests/vectors/make/language.py

Deterministic; writes NAME.own.jsonl beside this folder."""
import base64
import hashlib
import hmac
import json
import os
import urllib.parse

NOW = 1764435600
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
URL = "https://hooks.example.com/in/abc123"
LINES = {}


def add(name, expect, note, secret, headers, body=b"", url=URL, method="POST", now=NOW, params=None, **more):
    line = {
        "provider": name,
        "expect": expect,
        "note": note,
        "source": "own reading of the provider's documents and SDK source",
        "secret": secret,
        "now": now,
        "method": method,
        "url": url,
        "headers": headers,
        "body_base64": base64.b64encode(body).decode(),
    }
    if params:
        line["params"] = params
    line.update(more)
    LINES.setdefault(name, []).append(line)


def suite(name, secret, other, sign, body, changed, ids=(None, None), stale=None, url=URL, params=None):
    """sign(secret, body, time) gives the headers."""
    known = {"expect_id": ids[0], "expect_type": ids[1]}
    add(name, "accept", "as documented", secret, sign(secret, body, NOW), body, url=url, params=params, **known)
    add(name, "reject", "body changed after signing", secret, sign(secret, body, NOW), changed, url=url, params=params)
    add(name, "reject", "signed with another secret", secret, sign(other, body, NOW), body, url=url, params=params)
    add(name, "accept", "signed with the second of two secrets", secret, sign(secret, body, NOW), body, url=url, params=params, secrets=[other, secret], **known)
    if stale:
        add(name, "reject", "too old", secret, sign(secret, body, NOW), body, url=url, now=NOW + stale, params=params)


def mac(key, text, hash=hashlib.sha256):
    return hmac.new(key.encode(), text, hash).digest()


JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}


def box(escaped):
    def sign(secret, body, time):
        text = body
        if escaped:
            text = "".join(c if ord(c) < 0x7F else "".join("\\u%04x" % u for u in [ord(c)]) for c in body.decode()).replace("/", "\\/").encode()
        stamp = "2025-11-29T10:00:00-07:00"
        both = base64.b64encode(mac(secret, text + stamp.encode())).decode()
        return {**JSON, "box-delivery-id": "d-1", "box-delivery-timestamp": stamp, "box-signature-version": "1", "box-signature-algorithm": "HmacSHA256", "box-signature-primary": "AAAA", "box-signature-secondary": both}

    return sign


BODY = '{"trigger":"FILE.UPLOADED","name":"é/x"}'.encode()
suite("box", "box_key", "other", box(False), BODY, BODY + b" ", ("d-1", "FILE.UPLOADED"), 601)
add("box", "accept", "signed over the escaped form of the body", "box_key", box(True)("box_key", BODY, NOW), BODY, expect_id="d-1", expect_type="FILE.UPLOADED")
for header, value in [("box-signature-version", "2"), ("box-signature-algorithm", "HmacSHA1")]:
    add("box", "reject", f"{header} is {value}", "box_key", {**box(False)("box_key", BODY, NOW), header: value}, BODY)
add("box", "reject", "a second ahead of our clock", "box_key", box(False)("box_key", BODY, NOW), BODY, now=NOW - 1)

BODY = b'{"notification_type":"upload","notification_id":"n1"}'
suite("cloudinary", "api_secret", "other", lambda s, b, t: {**JSON, "x-cld-timestamp": str(t), "x-cld-signature": hashlib.sha1(b + str(t).encode() + s.encode()).hexdigest()}, BODY, BODY + b" ", ("n1", "upload"), 7201)


def contentful(secret, body, time, query="%253D"):
    signed = {"content-type": "application/json", "x-contentful-topic": "Entry.publish", "x-contentful-timestamp": str(time * 1000)}
    signed["x-contentful-signed-headers"] = ",".join(sorted([*signed, "x-contentful-signed-headers"]))
    lines = ";".join(f"{k}:{v}" for k, v in sorted(signed.items()))
    text = "\n".join(["POST", "/in/abc123?a%253D1", lines]).encode() + b"\n" + body
    return {**signed, "x-contentful-signature": mac(secret, text).hex(), "x-contentful-webhook-request-id": "r-1"}


suite("contentful", "c" * 64, "d" * 64, contentful, b'{"sys":{"id":"1"}}', b'{"sys":{"id":"2"}}', ("r-1", "Entry.publish"), 31, url=URL + "?a=1")
LISTED = contentful("c" * 64, b"{}", NOW)
add("contentful", "reject", "a signed header changed", "c" * 64, {**LISTED, "x-contentful-topic": "Entry.delete"}, b"{}", url=URL + "?a=1")
add("contentful", "reject", "a header left off the list", "c" * 64, {**LISTED, "x-contentful-signed-headers": "content-type,x-contentful-signed-headers,x-contentful-timestamp"}, b"{}", url=URL + "?a=1")

BODY = '[{"eventId":1,"subscriptionType":"contact.creation","n":"é"}]'.encode()
suite("hubspot-v2", "hs_secret", "other", lambda s, b, t: {**JSON, "x-hubspot-signature": hashlib.sha256(s.encode() + b"POST" + URL.encode() + b).hexdigest()}, BODY, BODY + b" ", ("1", "contact.creation"))
DECODED = "https://hooks.example.com/in/abc123?q=a:b,c@d"
add("hubspot", "accept", "reserved characters of the URL decoded before signing", "hs_secret", {**JSON, "x-hubspot-request-timestamp": str(NOW * 1000), "x-hubspot-signature-v3": base64.b64encode(mac("hs_secret", b"POST" + DECODED.encode() + BODY + str(NOW * 1000).encode())).decode()}, BODY, url="https://hooks.example.com/in/abc123?q=a%3Ab%2Cc%40d", expect_id="1", expect_type="contact.creation")


def hygraph(secret, body, time):
    text = json.dumps({"Body": body.decode(), "EnvironmentName": "master", "TimeStamp": time * 1000}, separators=(",", ":"), ensure_ascii=False)
    sign = base64.b64encode(mac(secret, text.encode())).decode()
    return {**JSON, "gcms-signature": f"sign={sign}, env=master, t={time * 1000}"}


BODY = '{"operation":"publish","data":{"id":"e1","title":"é \\" \\n"}}'.encode()
suite("hygraph", "hy_secret", "other", hygraph, BODY, BODY + b" ", ("e1", "publish"))


def plivo(secret, body, time, url=URL + "?b=2&a=1"):
    base, query = url.split("?")
    pairs = lambda text: sorted(urllib.parse.parse_qsl(text, keep_blank_values=True))
    fields = "".join(k + v for k, v in pairs(body.decode()))
    text = base + "?" + "&".join(f"{k}={v}" for k, v in pairs(query)) + ("." if fields else "") + fields
    sign = base64.b64encode(mac(secret, (text + ".nonce-1").encode())).decode()
    return {**FORM, "x-plivo-signature-v3-nonce": "nonce-1", "x-plivo-signature-v3": f"AAAA,{sign}"}


suite("plivo", "auth_token", "other", plivo, b"Event=Ring&To=%2B1+2", b"Event=Ring&To=%2B1+3", ("nonce-1", "Ring"), url=URL + "?b=2&a=1")
add("plivo", "reject", "JSON, which is not signed", "auth_token", {**plivo("auth_token", b"", NOW), **JSON}, b"{}", url=URL + "?b=2&a=1")

PRAXIS = {"merchant_id": "m", "application_key": "k", "timestamp": 1, "customer": {"customer_token": "c"}, "session": {"order_id": "o"}, "transaction": {"tid": 7, "currency": "EUR", "amount": 100, "conversion_rate": 1, "processed_currency": "EUR", "processed_amount": 100}}
suite("praxis", "merchant_secret", "other", lambda s, b, t: {**JSON, "gt-authentication": hashlib.sha384(("mk1co7EUR1001EUR100" + s).encode()).hexdigest()}, json.dumps(PRAXIS).encode(), json.dumps({**PRAXIS, "merchant_id": "n"}).encode(), ("7", None))

BODY = b'{"time_ms":1764435600000,"events":[{"name":"channel_occupied"}]}'
PUSHER = lambda s, b, t: {**JSON, "x-pusher-key": "k1", "x-pusher-signature": mac(s, b).hex()}
suite("pusher", "pu_secret", "other", PUSHER, BODY, BODY + b" ", (None, "channel_occupied"))
add("pusher", "accept", "the key that the source names", "pu_secret", PUSHER("pu_secret", BODY, NOW), BODY, params={"key_id": "k1"}, expect_id=None, expect_type="channel_occupied")
add("pusher", "reject", "another key than the source names", "pu_secret", PUSHER("pu_secret", BODY, NOW), BODY, params={"key_id": "k2"})

BODY = b'{"eventId":"e1","eventType":"VEHICLE_STATE"}'
suite("smartcar", "amt", "other", lambda s, b, t: {**JSON, "sc-signature": mac(s, b).hex()}, BODY, BODY + b" ", ("e1", "VEHICLE_STATE"))
CODE = "b4f1cc52-5ab6-4b0c-8b5a-8b5f3a6c0e6f"
ASK = lambda code: json.dumps({"eventId": "v1", "eventType": "VERIFY", "data": {"challenge": code}}).encode()
add("smartcar", "challenge", "VERIFY", "amt", JSON, ASK(CODE), expect_response={"status": 200, "content_type": "application/json", "body": json.dumps({"challenge": mac("amt", CODE.encode()).hex()}, separators=(",", ":"))})
add("smartcar", "reject", "VERIFY that asks for the signature of an event", "amt", JSON, ASK('{"eventId":"e1"}'))
add("smartcar", "reject", "an event that is nothing but what VERIFY signs", "amt", {**JSON, "sc-signature": mac("amt", CODE.encode()).hex()}, CODE.encode())

suite("vercel-drains", "drain_secret", "other", lambda s, b, t: {**JSON, "x-vercel-signature": mac(s, b, hashlib.sha1).hex()}, b"[]", b"[{}]")
add("vercel-drains", "challenge", "unsigned first request", "drain_secret", JSON, b"[]", params={"verify_token": "v-1"}, expect_response={"status": 200, "headers": {"x-vercel-verify": "v-1"}, "body": ""})
# gzip of the text, made once: other versions of zlib give other bytes.
PACKED = base64.b64decode("H4sIAAAAAAACA6tWKqksSFWyUspNLS5OTE/Vy0stV9JRykwBChkq1QIAQBPXwB8AAAA=")
TEXT = b'{"type":"message.new","id":"1"}'
add("stream", "accept", "gzip: the type is read from what is signed", "s-1", {**JSON, "content-encoding": "gzip", "x-webhook-id": "w1", "x-signature": mac("s-1", TEXT).hex()}, PACKED, expect_id="w1", expect_type="message.new")
add("stream", "reject", "gzip: signed as it came", "s-1", {**JSON, "content-encoding": "gzip", "x-webhook-id": "w1", "x-signature": mac("s-1", PACKED).hex()}, PACKED)

for note, method, body in [("by GET", "GET", b""), ("without a body", "POST", b""), ("with an empty object", "POST", b"{}")]:
    add("vercel-drains", "challenge", "probe " + note, "drain_secret", JSON if body else {}, body, method=method, params={"verify_token": "v-1"}, expect_response={"status": 200, "headers": {"x-vercel-verify": "v-1"}, "body": ""})
for note, body in [("a list of entries", b'[{"id":"1"}]'), ("an entry a line", b'{"id":"1"}\n{"id":"2"}')]:
    add("vercel-drains", "reject", "unsigned, and " + note, "drain_secret", JSON, body, params={"verify_token": "v-1"})
add("vercel-drains", "reject", "unsigned, and no token to answer with", "drain_secret", JSON, b"[]")

for provider, secret, where, ids in [
    ("gumroad", "s-1", lambda s: ({**FORM}, URL + "?secret=" + s), ("sale-1", None)),
    ("mailchimp", "s-1", lambda s: ({**FORM}, URL + "?secret=" + s), (None, "subscribe")),
    ("bigcommerce-header", "s-1", lambda s: ({**JSON, "x-own": s}, URL), ("h1", "store/order/created")),
]:
    body = {"gumroad": b"sale_id=sale-1", "mailchimp": b"type=subscribe", "bigcommerce-header": b'{"scope":"store/order/created","hash":"h1"}'}[provider]
    params = {"header": "X-Own"} if provider == "bigcommerce-header" else None
    for expect, note, shown in [("accept", "the secret", secret), ("reject", "another secret", "s-2"), ("reject", "an empty secret", "")]:
        headers, url = where(shown)
        known = {"expect_id": ids[0], "expect_type": ids[1]} if expect == "accept" else {}
        add(provider, expect, note, secret, headers, body, url=url, params=params, **known)
add("mailchimp", "challenge", "GET validation", "s-1", {}, method="GET", expect_response={"status": 200, "body": ""})

ITEM = lambda state, n=1: {"id": f"i{n}", "changeType": "created", "clientState": state}
GRAPH = lambda *items: json.dumps({"value": list(items)}).encode()
add("microsoft-graph", "accept", "one notification", "cs", JSON, GRAPH(ITEM("cs")), expect_id="i1", expect_type="created")
add("microsoft-graph", "accept", "two notifications", "cs", JSON, GRAPH(ITEM("cs"), ITEM("cs", 2)), expect_id="i1", expect_type="created")
add("microsoft-graph", "reject", "the second notification has another clientState", "cs", JSON, GRAPH(ITEM("cs"), ITEM("other", 2)))
add("microsoft-graph", "reject", "the second notification has no clientState", "cs", JSON, GRAPH(ITEM("cs"), {"id": "i2"}))
add("microsoft-graph", "reject", "no notification", "cs", JSON, GRAPH())

KEY = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056"


def adyen(reference, key=KEY):
    text = f"{reference}::M:R:1130:EUR:AUTHORISATION:true".encode()
    sign = base64.b64encode(hmac.new(bytes.fromhex(key), text, hashlib.sha256).digest()).decode()
    return {"NotificationRequestItem": {"pspReference": reference, "merchantAccountCode": "M", "merchantReference": "R", "amount": {"value": 1130, "currency": "EUR"}, "eventCode": "AUTHORISATION", "success": "true", "additionalData": {"hmacSignature": sign}}}


ADYEN = lambda *items: json.dumps({"live": "false", "notificationItems": list(items)}).encode()
add("adyen", "accept", "two items, each signed", KEY, JSON, ADYEN(adyen("1"), adyen("2")), expect_id="1", expect_type="AUTHORISATION")
FORGED = adyen("2")
FORGED["NotificationRequestItem"]["amount"]["value"] = 1
add("adyen", "reject", "the second of two items is forged", KEY, JSON, ADYEN(adyen("1"), FORGED))
UNSIGNED = {"NotificationRequestItem": {"pspReference": "2", "eventCode": "AUTHORISATION"}}
add("adyen", "reject", "the second of two items is not signed", KEY, JSON, ADYEN(adyen("1"), UNSIGNED))
add("adyen", "reject", "the second of two items is signed with another key", KEY, JSON, ADYEN(adyen("1"), adyen("2", "00" * 32)))

add("fitbit", "challenge", "the right code", "fb", {}, method="GET", url=URL + "?verify=code1", params={"verify_token": "code1"}, expect_response={"status": 204, "body": ""})
add("fitbit", "reject", "a wrong code, which wants 404", "fb", {}, method="GET", url=URL + "?verify=code2", params={"verify_token": "code1"}, expect_response={"status": 404, "body": ""})
add("oura", "challenge", "the right token", "o", {}, method="GET", url=URL + "?verification_token=t&challenge=abc", params={"verify_token": "t"}, expect_response={"status": 200, "content_type": "application/json", "body": '{"challenge":"abc"}'})
add("oura", "reject", "a wrong token", "o", {}, method="GET", url=URL + "?verification_token=u&challenge=abc", params={"verify_token": "t"})
add("x", "challenge", "CRC", "consumer", {}, method="GET", url=URL + "?crc_token=MTIz", expect_response={"status": 200, "content_type": "application/json", "body": '{"response_token":"sha256=' + base64.b64encode(mac("consumer", b"MTIz")).decode() + '"}'})
add("x", "reject", "CRC over the text of an event", "consumer", {}, method="GET", url=URL + "?crc_token=%7B%22a%22%3A1%7D")
add("x", "reject", "an event that is nothing but what a CRC signs", "consumer", {**JSON, "x-twitter-webhooks-signature": "sha256=" + base64.b64encode(mac("consumer", b"MTIz")).decode()}, b"MTIz")
add("linkedin", "reject", "challengeCode that is the signed text of an event", "li", {}, method="GET", url=URL + "?challengeCode=hmacsha256%3D%7B%7D")
ZOOM = json.dumps({"event": "endpoint.url_validation", "payload": {"plainToken": f"v0:{NOW}:x"}}).encode()
add("zoom", "accept", "a plainToken that is the signed text of an event is answered nothing", "zm", {**JSON, "x-zm-request-timestamp": str(NOW), "x-zm-signature": "v0=" + mac("zm", f"v0:{NOW}:".encode() + ZOOM).hex()}, ZOOM, expect_id=None, expect_type="endpoint.url_validation")
add("wechat-mp", "challenge", "echostr", "tok", {}, method="GET", url=URL + f"?signature={hashlib.sha1(b''.join(sorted([b'tok', str(NOW).encode(), b'99']))).hexdigest()}&timestamp={NOW}&nonce=99&echostr=5836", expect_response={"status": 200, "content_type": "text/plain", "body": "5836"})
add("wechat-mp", "reject", "echostr with a wrong signature", "tok", {}, method="GET", url=URL + f"?signature={'0' * 40}&timestamp={NOW}&nonce=99&echostr=5836")
LEGACY = lambda s: urllib.parse.urlencode({"timestamp": NOW, "token": "t1", "event": "opened", "signature": mac(s, f"{NOW}t1".encode()).hex()}).encode()
add("mailgun", "accept", "legacy form", "key", FORM, LEGACY("key"), expect_id="t1", expect_type="opened")
add("mailgun", "reject", "legacy form, another key", "key", FORM, LEGACY("other"))
PARTS = "".join(f'--B\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n' for k, v in urllib.parse.parse_qsl(LEGACY("key").decode())) + "--B--\r\n"
add("mailgun", "accept", "legacy multipart form", "key", {"content-type": "multipart/form-data; boundary=B"}, PARTS.encode(), expect_id="t1", expect_type="opened")
add("mandrill", "reject", "signed with test-webhook, which anybody has", "mkey", {**FORM, "x-mandrill-signature": base64.b64encode(mac("test-webhook", (URL + "mandrill_events[]").encode(), hashlib.sha1)).decode()}, b"mandrill_events=%5B%5D")

add("okta", "reject", "another value", "t0k3n", {**JSON, "authorization": "other"}, b"{}")
add("strava", "accept", "nothing is signed: whoever knows the path may send", "", JSON, b'{"aspect_type":"create"}', expect_id=None, expect_type="create")
add("strava", "reject", "hub.verify_token is wrong", "", {}, method="GET", url=URL + "?hub.mode=subscribe&hub.verify_token=W&hub.challenge=1", params={"verify_token": "V"})

for name, lines in sorted(LINES.items()):
    with open(os.path.join(HERE, f"{name}.own.jsonl"), "w", encoding="utf-8") as out:
        for line in lines:
            out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
