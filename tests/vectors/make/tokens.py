"""Vectors for schemes with a token. Run: python3 tests/vectors/make/tokens.py"""

import hashlib
import hmac
import json

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from common import (NOW, URL, File, b64, b64url, ec_key, ed_key, jwks, pem, public, rsa_key, sign_ec, sign_rsa)

RSA, OTHER_RSA = rsa_key("rsa"), rsa_key("other rsa")
EC, OTHER_EC = ec_key("ec"), ec_key("other ec")
P521, OTHER_P521 = ec_key("p521", "P-521"), ec_key("other p521", "P-521")
ED, OTHER_ED = ed_key("ed"), ed_key("other ed")
JSON = {"content-type": "application/json"}
SECRET, OTHER = "a shared secret of 32 characters", "another secret of 32 characters!"


def sha(data, form):
    digest = hashlib.sha256(data).digest()
    return {"hex": digest.hex(), "base64": b64(digest), "base64url": b64url(digest)}[form]


def signature(alg, key, text):
    if alg.startswith("HS"):
        return hmac.new(key.encode(), text, "sha" + alg[2:]).digest()
    if alg.startswith("RS"):
        return sign_rsa(key, text, "sha" + alg[2:])
    if alg.startswith("ES"):
        return sign_ec(key, text, "sha" + alg[2:], fixed=True)
    return key.sign(text)


def dump(members):
    return b64url(members if isinstance(members, bytes) else json.dumps(members, separators=(",", ":")).encode())


def jwt(claims, key=SECRET, alg="HS256", header=None):
    text = dump(header if header is not None else {"alg": alg, "typ": "JWT"}) + "." + dump(claims)
    return text + "." + (b64url(signature(alg, key, text.encode())) if key is not None else "")


def detached(payload, key, alg, header=None):
    head = header if header is not None else {"alg": alg}
    middle = payload if isinstance(head, dict) and head.get("b64") is False else b64url(payload).encode()
    return dump(head) + ".." + b64url(signature(alg, key, dump(head).encode() + b"." + middle))


def shared(file, name, claims, body, prefix="", alg="HS256", url=URL, headers={}, params=None, covers=True, **named):
    """What every scheme with a shared secret must accept and refuse."""
    more = {"params": params} if params else {}

    def add(expect, note, body, token, secret=SECRET, **rest):
        extra = named if expect == "accept" else {}
        file.add(expect, note, body, JSON | headers | {name: prefix + token}, secret, url=url, **more, **extra, **rest)

    good = jwt(claims, alg=alg)
    add("accept", "simple", body, good)
    add("accept", "two secrets, the second one signed", body, good, [OTHER, SECRET])
    add("reject", "another secret", body, jwt(claims, OTHER, alg))
    if covers:
        add("reject", "one byte appended", body + b" ", good)
        add("reject", "amount changed after signing", body.replace(b"1000", b"9999"), good)
    else:
        add("accept", "NOT SIGNED: another body passes", body.replace(b"1000", b"9999"), good)
    add("reject", "alg none", body, jwt(claims, None, "none"))
    add("reject", "alg none with the signature of another", body, jwt(claims, None, "none") + good.split(".")[2])
    add("reject", "an algorithm that is not pinned", body, jwt(claims, RSA, "RS256"))
    add("reject", "truncated", body, good[:-6])
    add("reject", "garbage", body, "a.b.c")
    add("reject", "a part too many", body, good + ".AAAA")
    twice = b'{"alg":"%s","alg":"%s"}' % (alg.encode(), alg.encode())
    add("reject", "a header member twice", body, jwt(claims, alg=alg, header=twice))
    add("reject", "an unknown critical member", body, jwt(claims, alg=alg, header={"alg": alg, "crit": ["x"], "x": 1}))
    add("reject", "expired", body, jwt(claims | {"exp": NOW - 3600}, alg=alg))
    add("reject", "not yet", body, jwt(claims | {"nbf": NOW + 3600}, alg=alg))
    if "exp" in claims:
        add("reject", "no exp", body, jwt({k: v for k, v in claims.items() if k != "exp"}, alg=alg))
    add("reject", "exp is no number", body, jwt(claims | {"exp": "soon"}, alg=alg))
    file.add("reject", "no token", body, JSON | headers, SECRET, url=url, **more)
    file.add("reject", "empty", body, JSON | headers | {name: ""}, SECRET, url=url, **more)
    if "iss" in claims:
        add("reject", "another issuer", body, jwt(claims | {"iss": "somebody"}, alg=alg))
        add("reject", "no issuer", body, jwt({k: v for k, v in claims.items() if k != "iss"}, alg=alg))


def livekit():
    file = File("livekit", "livekit-api 1.2.2 webhook.py")
    body = b'{"id":"EV_1","event":"room_started","amount":1000}'
    claims = {"iss": "APIkey", "nbf": NOW, "exp": NOW + 300, "sha256": sha(body, "base64")}
    shared(file, "authorization", claims, body, params={"api_key": "APIkey"}, id="EV_1", type="room_started")
    file.write()


def netlify():
    file = File("netlify", "docs.netlify.com notifications")
    body = b'{"id":"d1","amount":1000}'
    shared(file, "x-webhook-signature", {"iss": "netlify", "sha256": sha(body, "hex")}, body,
           headers={"x-netlify-event": "deploy_created"}, id="d1", type="deploy_created")
    file.write()


def vonage():
    file = File("vonage", "developer.vonage.com signed webhooks")
    body = b'{"amount":1000}'
    claims = {"iss": "Vonage", "iat": NOW, "jti": "j1", "payload_hash": sha(body, "hex")}
    shared(file, "authorization", claims, body, prefix="Bearer ", id="j1")
    without = {k: v for k, v in claims.items() if k != "payload_hash"}
    file.add("accept", "no body, and no digest of it", b"", JSON | {"authorization": "Bearer " + jwt(without)}, SECRET, id="j1")
    file.add("reject", "a body, and no digest of it", body, JSON | {"authorization": "Bearer " + jwt(without)}, SECRET)
    file.write()


def messagebird():
    file = File("messagebird", "messagebird 4.0.1 webhook-signature-jwt.js")
    body, url = b'{"amount":1000}', "https://hooks.example.com/mb?x=1"
    claims = {"iss": "MessageBird", "nbf": NOW - 60, "exp": NOW + 60, "jti": "j1",
              "url_hash": sha(url.encode(), "hex"), "payload_hash": sha(body, "hex")}
    shared(file, "messagebird-signature-jwt", claims, body, url=url, id="j1")
    for alg in ("HS384", "HS512"):
        file.add("accept", alg, body, JSON | {"messagebird-signature-jwt": jwt(claims, alg=alg)}, SECRET, url=url, id="j1")
    file.add("reject", "another URL", body, JSON | {"messagebird-signature-jwt": jwt(claims)}, SECRET, url=url + "2")
    file.write()


def qstash():
    file = File("qstash", "@upstash/qstash 2.12.0 Receiver")
    body = b'{"amount":1000}'
    claims = {"iss": "Upstash", "sub": URL, "nbf": NOW, "exp": NOW + 300, "iat": NOW, "jti": "j", "body": sha(body, "base64url")}
    shared(file, "upstash-signature", claims, body, headers={"upstash-message-id": "m1"}, id="m1")
    headers = JSON | {"upstash-message-id": "m1"}
    padded = claims | {"body": claims["body"] + "="}
    file.add("accept", "the digest with padding", body, headers | {"upstash-signature": jwt(padded)}, SECRET, id="m1")
    file.add("reject", "another destination", body, headers | {"upstash-signature": jwt(claims)}, SECRET, url=URL + "/x")
    file.add("reject", "no digest of the body", body, headers | {"upstash-signature": jwt({k: v for k, v in claims.items() if k != "body"})}, SECRET)
    file.write()


def monday():
    file = File("monday", "developer.monday.com webhooks")
    body = b'{"event":{"triggerUuid":"t1","type":"update"},"amount":1000}'
    claims = {"aud": URL, "exp": NOW + 300, "iat": NOW}
    shared(file, "authorization", claims, body, covers=False, id="t1", type="update")
    headers = JSON | {"authorization": jwt(claims)}
    file.add("reject", "the token of another endpoint", body, headers, SECRET, url=URL + "/other")
    file.add("accept", "several audiences", body, JSON | {"authorization": jwt(claims | {"aud": ["x", URL]})}, SECRET, id="t1", type="update")
    file.write()


def jira_connect():
    file = File("jira-connect", "atlassian-jwt 2.0.3 createCanonicalRequest")
    url = "https://hooks.example.com/in/hook?b=2&a=x%20y&a=x%21"
    qsh = hashlib.sha256(b"POST&/in/hook&a=x%20y,x%21&b=2").hexdigest()
    claims = {"iss": "client", "iat": NOW, "exp": NOW + 180, "qsh": qsh}
    shared(file, "authorization", {k: v for k, v in claims.items() if k != "iss"}, b'{"amount":1000}', prefix="JWT ", url=url, covers=False)
    token = jwt(claims)
    file.add("accept", "the token in the query", b"{}", JSON, SECRET, url=url + "&jwt=" + token)
    file.add("reject", "another path", b"{}", JSON | {"authorization": "JWT " + token}, SECRET, url=url.replace("/in/", "/out/"))
    file.add("reject", "another method", b"{}", JSON | {"authorization": "JWT " + token}, SECRET, url=url, method="PUT")
    file.write()


def with_keys(file, make, body, keys, alg, headers=JSON, **named):
    """What every scheme with the provider's key must accept and refuse; `make(key, body, alg, header)` gives the headers."""
    key, other = keys
    good = make(key, body, alg, None)
    add = file.add
    add("accept", "simple", body, headers | good, pem(key), **named)
    add("accept", "the key set", body, headers | make(key, body, alg, {"alg": alg, "kid": "k1"}), jwks(("k0", other), ("k1", key)), **named)
    add("accept", "the key set, and a token that names no key", body, headers | good, jwks(("k0", other), ("k1", key)), **named)
    add("accept", "two keys, the second one signed", body, headers | good, [pem(other), pem(key)], **named)
    add("reject", "the key set, and a token that names another key", body, headers | make(key, body, alg, {"alg": alg, "kid": "k0"}), jwks(("k0", other), ("k1", key)))
    add("reject", "the key of somebody else", body, headers | good, pem(other))
    add("reject", "an HMAC under the public key", body, headers | make(pem(key), body, "HS256", None), pem(key))
    add("reject", "alg none", body, headers | {name: dump({"alg": "none"}) + "." + value.split(".")[1] + "." for name, value in good.items()}, pem(key))
    add("reject", "a member twice", body, headers | make(key, body, alg, b'{"alg":"%s","kid":"a","kid":"b"}' % alg.encode()), pem(key))


def plaid():
    file = File("plaid", "plaid.com webhook verification")

    def make(key, body, alg, header):
        claims = {"iat": NOW, "request_body_sha256": sha(body, "hex")}
        return {"plaid-verification": jwt(claims, key, alg, header)}

    body = b'{\n  "webhook_code": "ERROR",\n  "amount": 1000\n}'
    with_keys(file, make, body, (EC, OTHER_EC), "ES256", type="ERROR")
    token = make(EC, body, "ES256", None)
    file.add("accept", "the key as JWK", body, JSON | token, json.dumps(public(EC) | {"kid": "k", "alg": "ES256", "use": "sig"}), type="ERROR")
    file.add("reject", "one byte appended", body + b" ", JSON | token, pem(EC))
    file.add("accept", "five minutes old", body, JSON | token, pem(EC), now=NOW + 300, type="ERROR")
    file.add("reject", "older", body, JSON | token, pem(EC), now=NOW + 301)
    file.add("reject", "no iat", body, JSON | {"plaid-verification": jwt({"request_body_sha256": sha(body, "hex")}, EC, "ES256")}, pem(EC))
    file.add("reject", "no digest of the body", body, JSON | {"plaid-verification": jwt({"iat": NOW}, EC, "ES256")}, pem(EC))
    file.write()


def fusionauth():
    file = File("fusionauth", "fusionauth.io signing")
    body = b'{"event":{"id":"e1","type":"user.create"},"amount":1000}'

    def make(key, body, alg, header):
        return {"x-fusionauth-signature-jwt": jwt({"request_body_sha256": sha(body, "base64")}, key, alg, header)}

    named = {"id": "e1", "type": "user.create"}
    with_keys(file, make, body, (RSA, OTHER_RSA), "RS256", **named)
    for alg, key, shown in [("ES256", EC, pem(EC)), ("ES512", P521, pem(P521)), ("EdDSA", ED, pem(ED)), ("HS256", SECRET, SECRET), ("HS512", SECRET, SECRET)]:
        file.add("accept", alg, body, JSON | make(key, body, alg, None), shown, **named)
        file.add("reject", alg + ", body changed", body + b" ", JSON | make(key, body, alg, None), shown)
    file.add("reject", "ES256 by a key on another curve", body, JSON | make(P521, body, "ES256", None), pem(P521))
    file.write()


def kinde():
    file = File("kinde", "@kinde/webhooks 1.0.0")
    claims = {"event_id": "ev1", "type": "user.created", "data": {"amount": 1000}}
    body = jwt(claims, RSA, "RS256", {"alg": "RS256", "kid": "k1"}).encode()
    headers, named = {"content-type": "application/jwt"}, {"id": "ev1", "type": "user.created"}
    file.add("accept", "simple", body, headers, pem(RSA), **named)
    file.add("accept", "the key set", body, headers, jwks(("k0", OTHER_RSA), ("k1", RSA)), **named)
    file.add("accept", "a line end behind the token", body + b"\n", headers, pem(RSA), **named)
    file.add("accept", "two keys", body, headers, [pem(OTHER_RSA), pem(RSA)], **named)
    file.add("reject", "somebody else's key", body, headers, pem(OTHER_RSA))
    file.add("reject", "no body", b"", headers, pem(RSA))
    file.add("reject", "JSON in place of the token", b'{"event_id":"ev1"}', headers, pem(RSA))
    head, _, sign = body.split(b".")
    forged = head + b"." + dump(claims | {"type": "user.deleted"}).encode() + b"." + sign
    file.add("reject", "claims changed", forged, headers, pem(RSA))
    file.add("reject", "alg none", jwt(claims, None, "none").encode(), headers, pem(RSA))
    file.add("reject", "an HMAC under the public key", jwt(claims, pem(RSA), "HS256").encode(), headers, pem(RSA))
    file.write()


def wix():
    file = File("wix", "dev.wix.com verify requests")
    claims = {"data": json.dumps({"data": json.dumps({"amount": 1000}), "eventType": "e"}), "iat": NOW, "exp": NOW + 3600}
    body = jwt(claims, RSA, "RS256").encode()
    headers = {"content-type": "text/plain"}
    file.add("accept", "simple", body, headers, pem(RSA))
    file.add("accept", "two keys", body, headers, [pem(OTHER_RSA), pem(RSA)])
    file.add("reject", "somebody else's key", body, headers, pem(OTHER_RSA))
    file.add("reject", "expired", body, headers, pem(RSA), now=NOW + 3600)
    for_ever = {k: v for k, v in claims.items() if k != "exp"}
    file.add("reject", "no exp", jwt(for_ever, RSA, "RS256").encode(), headers, pem(RSA))
    file.add("reject", "one character changed", body.replace(b"eyJ", b"eyK"), headers, pem(RSA))
    file.add("reject", "alg none", jwt(claims, None, "none").encode(), headers, pem(RSA))
    file.write()


def saleor():
    file = File("saleor", "@saleor/app-sdk 1.15.0 verify-signature")
    headers = JSON | {"saleor-event": "order_created"}
    plain = {"alg": "RS256", "crit": ["b64"], "b64": False}

    def make(key, body, alg, header):
        usual = plain | {"alg": alg}
        header = usual | header if isinstance(header, dict) else header or usual
        return {"saleor-signature": detached(body, key, alg, header)}

    body = b'{"amount":1000,"note":"\xe2\x82\xac"}'
    with_keys(file, make, body, (RSA, OTHER_RSA), "RS256", headers=headers, type="order_created")
    file.add("reject", "one byte appended", body + b" ", headers | make(RSA, body, "RS256", None), pem(RSA))
    file.add("accept", "the payload in base64url", body, headers | {"saleor-signature": detached(body, RSA, "RS256")}, pem(RSA), type="order_created")
    file.add("reject", "b64 that is not critical", body, headers | make(RSA, body, "RS256", b'{"alg":"RS256","b64":false}'), pem(RSA))
    whole = jwt(body, RSA, "RS256")
    file.add("reject", "a token with a payload of its own", body, headers | {"saleor-signature": whole}, pem(RSA))
    file.write()


def fireblocks():
    file = File("fireblocks-jwks", "developers.fireblocks.com validating webhooks (JWKS)")
    body = b'{"id":"n1","eventType":"transaction.created","amount":1000}'

    def make(key, body, alg, header):
        return {"fireblocks-webhook-signature": detached(body, key, alg, header)}

    with_keys(file, make, body, (RSA, OTHER_RSA), "RS512", id="n1", type="transaction.created")
    good = JSON | make(RSA, body, "RS512", None)
    file.add("reject", "one byte appended", body + b" ", good, pem(RSA))
    file.add("reject", "amount changed after signing", body.replace(b"1000", b"9999"), good, pem(RSA))
    file.add("reject", "another algorithm", body, JSON | make(RSA, body, "RS256", None), pem(RSA))
    file.add("reject", "no signature", body, JSON | {"fireblocks-signature": "AAAA"}, pem(RSA))
    file.write()


def truelayer():
    file = File("truelayer", "truelayer-signing 0.4.0")
    stamp = {"x-tl-webhook-timestamp": "2025-11-29T17:00:00Z", "x-tl-webhook-id": "w1"}

    def make(key, body, alg, header, names="X-TL-Webhook-Timestamp"):
        if header is None or isinstance(header, dict):
            header = {"alg": alg, "kid": "k1", "tl_version": "2", "tl_headers": names} | (header or {})
        lines = "".join(f"{name}: {stamp[name.lower()]}\n" for name in names.split(",") if name) if isinstance(header, dict) else ""
        payload = f"POST /in/abc123\n{lines}".encode() + body
        return {"tl-signature": detached(payload, key, alg, header)}

    body = b'{"type":"payment_executed","amount":1000}'
    with_keys(file, make, body, (P521, OTHER_P521), "ES512", headers=JSON | stamp, id="w1")
    headers = JSON | stamp
    file.add("accept", "two headers", body, headers | make(P521, body, "ES512", None, "X-TL-Webhook-Timestamp,X-TL-Webhook-Id"), pem(P521), id="w1")
    file.add("accept", "no headers", body, headers | make(P521, body, "ES512", None, ""), pem(P521), id="w1")
    good = make(P521, body, "ES512", None)
    file.add("reject", "a signed header is missing", body, JSON | good, pem(P521))
    file.add("reject", "another path", body, headers | good, pem(P521), url=URL + "/")
    file.add("reject", "another method", body, headers | good, pem(P521), method="PUT")
    file.write()


def neon():
    file = File("neon", "neon.com auth webhooks")
    headers = JSON | {"x-neon-event-id": "e1", "x-neon-event-type": "user.created", "x-neon-timestamp": f"{NOW}000"}

    def make(key, body, alg, header):
        return {"x-neon-signature": detached(f"{NOW}000.{b64url(body)}".encode(), key, alg, header)}

    body = b'{"amount":1000}'
    named = {"id": "e1", "type": "user.created"}
    with_keys(file, make, body, (ED, OTHER_ED), "EdDSA", headers=headers, **named)
    good = make(ED, body, "EdDSA", None)
    file.add("reject", "one byte appended", body + b" ", headers | good, pem(ED))
    file.add("reject", "stale", body, headers | good, pem(ED), now=NOW + 301)
    file.add("reject", "another time", body, headers | good | {"x-neon-timestamp": f"{NOW}001"}, pem(ED))
    file.write()


def lark():
    """Bodies that are encrypted under the Encrypt Key; those that are not are in another file."""
    file = File("lark", "lark-oapi 1.7.5 core/utils/decryptor.py and event/dispatcher_handler.py")

    def sealed(text, key=SECRET):
        iv = hashlib.md5(text).digest()
        pad = 16 - len(text) % 16
        encryptor = Cipher(algorithms.AES(hashlib.sha256(key.encode()).digest()), modes.CBC(iv)).encryptor()
        whole = encryptor.update(text + bytes([pad]) * pad) + encryptor.finalize()
        return json.dumps({"encrypt": b64(iv + whole)}).encode()

    def headers(body, key=SECRET):
        signature = hashlib.sha256(f"{NOW}nonce{key}".encode() + body).hexdigest()
        return JSON | {"x-lark-request-timestamp": str(NOW), "x-lark-request-nonce": "nonce", "x-lark-signature": signature}

    event = json.dumps({"schema": "2.0", "header": {"event_id": "e1", "event_type": "im.message.receive_v1", "token": "t"}}).encode()
    body, named = sealed(event), {"id": "e1", "type": "im.message.receive_v1"}
    file.add("accept", "encrypted", body, headers(body), SECRET, **named)
    file.add("accept", "encrypted, under the second of two keys", body, headers(body), [OTHER, SECRET], **named)
    file.add("reject", "encrypted, signed with another key", body, headers(body, OTHER), SECRET)
    file.add("reject", "encrypted, not signed", body, JSON, SECRET)
    other = sealed(event, OTHER)
    file.add("accept", "signed, and encrypted under a key that is not ours: nothing in it can be named", other, headers(other), SECRET)
    broken = json.dumps({"encrypt": "AAAA"}).encode()
    file.add("accept", "signed, and not encrypted as it says", broken, headers(broken), SECRET)
    ask = json.dumps({"challenge": "c-1", "token": "t", "type": "url_verification"}).encode()
    answer = {"expect_response": {"status": 200, "body": '{"challenge":"c-1"}'}}
    file.add("challenge", "encrypted hand-shake", sealed(ask), JSON, SECRET, **answer)
    file.add("challenge", "encrypted hand-shake, two keys", sealed(ask), JSON, [OTHER, SECRET], **answer)
    file.add("reject", "hand-shake encrypted under another key", sealed(ask, OTHER), JSON, SECRET)
    file.write()


if __name__ == "__main__":
    for make in (lark, fireblocks, livekit, netlify, vonage, messagebird, qstash, monday, jira_connect, plaid, fusionauth, kinde, wix, saleor, truelayer, neon):
        make()
