"""Vectors for schemes with a provider's public key. Run: python3 tests/vectors/make/public_keys.py"""

import hashlib
import json
import urllib.parse

from common import (NOW, URL, File, b64, b64url, der, ec_key, ed_key, jwks, pem, raw, rsa_key, sign_ec, sign_pss, sign_rsa)

RSA, OTHER_RSA = rsa_key("rsa"), rsa_key("other rsa")
EC, OTHER_EC = ec_key("ec"), ec_key("other ec")
ED, OTHER_ED = ed_key("ed"), ed_key("other ed")
JSON = {"content-type": "application/json"}


def usual(file, make, body, keys, show, tamper=b"1000", stale=None, **named):
    """accept, tampered, wrong secret, rotation, missing, empty, garbage, truncated; and the age where it is judged.

    `make(key, body, time)` gives the headers, the signature's last.
    """
    key, other = keys
    headers = make(key, body, NOW)
    name = list(headers)[-1]
    file.add("accept", "simple", body, JSON | headers, show(key), **named)
    file.add("reject", "amount changed after signing", body.replace(tamper, b"9999"), JSON | headers, show(key))
    file.add("reject", "one byte appended", body + b" ", JSON | headers, show(key))
    file.add("reject", "the public key of somebody else", body, JSON | headers, show(other))
    file.add("accept", "two keys, the second one signed", body, JSON | headers, [show(other), show(key)], **named)
    without = {k: v for k, v in headers.items() if k != name}
    file.add("reject", "no signature", body, JSON | without, show(key))
    file.add("reject", "empty signature", body, JSON | without | {name: ""}, show(key))
    file.add("reject", "garbage signature", body, JSON | without | {name: "AAAA"}, show(key))
    file.add("reject", "truncated signature", body, JSON | without | {name: headers[name][:-8]}, show(key))
    if stale:
        late = make(key, body, NOW)
        file.add("accept", "as old as is allowed", body, JSON | late, show(key), now=NOW + stale, **named)
        file.add("reject", "a second too old", body, JSON | late, show(key), now=NOW + stale + 1)
        file.add("reject", "from the future", body, JSON | late, show(key), now=NOW - stale - 1)


def telnyx():
    file = File("telnyx", "telnyx 4.189.0 webhook_verification.py")

    def make(key, body, time):
        signature = key.sign(str(time).encode() + b"|" + body)
        return {"telnyx-timestamp": str(time), "telnyx-signature-ed25519": b64(signature)}

    body = b'{"data":{"id":"d1","event_type":"message.received"},"amount":1000}'
    usual(file, make, body, (ED, OTHER_ED), lambda key: b64(raw(key)), stale=300, id="d1", type="message.received")
    headers = JSON | make(ED, body, NOW)
    for form, text in [("PEM", pem(ED)), ("DER in base64", b64(der(ED))), ("hexadecimal", raw(ED).hex()),
                       ("base64url", b64url(raw(ED))), ("DER in hexadecimal", der(ED).hex())]:
        file.add("accept", "the key in " + form, body, headers, text, id="d1", type="message.received")
    file.write()


def tokenio():
    file = File("tokenio", "docs.token.io webhooks")
    usual(file, lambda key, body, time: {"token-event": "E", "token-signature": b64url(key.sign(body))},
          b'{"amount":1000}', (ED, OTHER_ED), lambda key: b64url(raw(key)), type="E")
    file.write()


def discord_events():
    file = File("discord-events", "docs.discord.com webhook events")

    def make(key, body, time):
        signature = key.sign(str(time).encode() + body)
        return {"x-signature-timestamp": str(time), "x-signature-ed25519": signature.hex()}

    body = b'{"version":1,"application_id":"1","type":1,"event":{"type":"ENTITLEMENT_CREATE"},"amount":1000}'
    file.add("challenge", "PING", b'{"version":1,"type":0}', JSON | make(ED, b'{"version":1,"type":0}', NOW), raw(ED).hex(),
             expect_response={"status": 204, "body": ""})
    usual(file, make, body, (ED, OTHER_ED), lambda key: raw(key).hex(), type="ENTITLEMENT_CREATE")
    file.write()


def utila():
    file = File("utila", "docs.utila.io webhooks")
    usual(file, lambda key, body, time: {"x-utila-signature": b64(sign_pss(key, body))},
          b'{"id":"u1","type":"TRANSACTION_CREATED","amount":1000}', (RSA, OTHER_RSA), pem, id="u1", type="TRANSACTION_CREATED")
    body = b'{"id":"u1","type":"T","amount":1000}'
    file.add("reject", "PKCS #1 v1.5 in place of PSS", body, JSON | {"x-utila-signature": b64(sign_rsa(RSA, body, "sha512"))}, pem(RSA))
    file.write()


def bridge():
    file = File("bridge-xyz", "apidocs.bridge.xyz webhook signature")

    def make(key, body, time):
        digest = hashlib.sha256(f"{time}000.".encode() + body).digest()
        return {"x-webhook-signature": f"t={time}000,v0={b64(sign_rsa(key, digest))}"}

    usual(file, make, b'{"amount":1000}', (RSA, OTHER_RSA), pem, stale=600)
    once = sign_rsa(RSA, f"{NOW}000.".encode() + b'{"amount":1000}')
    file.add("reject", "hashed only once", b'{"amount":1000}', JSON | {"x-webhook-signature": f"t={NOW}000,v0={b64(once)}"}, pem(RSA))
    file.write()


def shipstation():
    file = File("shipstation-v2", "docs.shipstation.com webhooks")

    def make(key, body, time):
        stamp = "2025-11-29T17:00:00Z"
        return {"x-shipengine-timestamp": stamp, "x-shipengine-rsa-sha256-key-id": "k1",
                "x-shipengine-rsa-sha256-signature": b64(sign_rsa(key, stamp.encode() + b"." + body))}

    usual(file, make, b'{"resource_type":"API_TRACK","amount":1000}', (RSA, OTHER_RSA), pem, type="API_TRACK")
    body, named = b'{"resource_type":"API_TRACK"}', {"type": "API_TRACK"}
    both = jwks(("k1", RSA), ("k2", OTHER_RSA))
    file.add("accept", "the key set", body, JSON | make(RSA, body, NOW), both, **named)
    other = JSON | make(OTHER_RSA, body, NOW)
    file.add("accept", "the key set, and the other key is named", body, other | {"x-shipengine-rsa-sha256-key-id": "k2"}, both, **named)
    file.add("reject", "the key set, and another key than the named one signed", body, other, both)
    unknown = JSON | make(RSA, body, NOW) | {"x-shipengine-rsa-sha256-key-id": "k9"}
    file.add("reject", "the key set, and a key is named that is not in it", body, unknown, both)
    file.write()


def sns():
    file = File("sns", "sns-validator 0.3.5 index.js")

    def message(version, key, **members):
        names = ["Message", "MessageId", "Subject", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"]
        text = "".join(f"{name}\n{members[name]}\n" for name in names if name in members)
        name = "sha256" if version == "2" else "sha1"
        signed = members | {"SignatureVersion": version, "Signature": b64(sign_rsa(key, text.encode(), name)),
                            "SigningCertURL": "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-1.pem"}
        return json.dumps(signed, indent=2).encode()

    usual_members = {"Type": "Notification", "MessageId": "m1", "TopicArn": "arn:aws:sns:eu-west-1:1:t",
                     "Message": "line one\nline two \u20ac", "Timestamp": "2025-11-29T17:00:00.000Z"}
    headers = {"content-type": "text/plain; charset=UTF-8", "x-amz-sns-message-type": "Notification"}
    for version in ("1", "2"):
        body = message(version, RSA, **usual_members)
        note = f"version {version}, "
        named = {"id": "m1", "type": "Notification"}
        file.add("accept", note + "no Subject", body, headers, pem(RSA), **named)
        file.add("accept", note + "Subject", message(version, RSA, Subject="S", **usual_members), headers, pem(RSA), **named)
        file.add("reject", note + "Message changed", body.replace(b"line one", b"line 0ne"), headers, pem(RSA))
        file.add("reject", note + "somebody else's key", body, headers, pem(OTHER_RSA))
        other = b'"SignatureVersion": "%s"' % (b"2" if version == "1" else b"1")
        changed = body.replace(b'"SignatureVersion": "%s"' % version.encode(), other)
        file.add("reject", note + "the other version said", changed, headers, pem(RSA))
        file.add("reject", note + "a Subject put in", body.replace(b'"Message":', b'"Subject": "x", "Message":'), headers, pem(RSA))
    body, topic = message("2", RSA, **usual_members), usual_members["TopicArn"]
    file.add("accept", "the topic that is ours", body, headers, pem(RSA), params={"topic_arn": topic}, id="m1", type="Notification")
    file.add("reject", "somebody else's topic", body, headers, pem(RSA), params={"topic_arn": topic + "2"})
    asked = usual_members | {"Type": "SubscriptionConfirmation", "Token": "2336412f", "SubscribeURL":
                             "https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn=" + topic + "&Token=2336412f"}
    of_hand_shake = headers | {"x-amz-sns-message-type": "SubscriptionConfirmation"}
    file.add("challenge", "SubscriptionConfirmation", message("1", RSA, **asked), of_hand_shake, pem(RSA), expect_response={"status": 200, "body": ""})
    file.add("reject", "SubscriptionConfirmation with somebody else's key", message("1", OTHER_RSA, **asked), of_hand_shake, pem(RSA))
    unsigned = json.dumps(usual_members).encode()
    file.add("reject", "no Signature", unsigned, headers, pem(RSA))
    file.add("reject", "raw message delivery", b"hello", headers, pem(RSA))
    file.write()


def alipay():
    file = File("alipay", "docs.antom.com digital_signature")

    def make(key, body, time):
        signature = b64(sign_rsa(key, b"POST /in/abc123\nclient.1764435600." + body))
        return {"client-id": "client", "request-time": "1764435600",
                "signature": "algorithm=RSA256,keyVersion=1,signature=" + urllib.parse.quote(signature, safe="")}

    usual(file, make, b'{"amount":1000}', (RSA, OTHER_RSA), lambda key: b64(der(key)))
    file.write()


def ebay():
    file = File("ebay", "event-notification-nodejs-sdk 1.0.3 validator.js")

    def make(key, body, time):
        signature = {"alg": "ecdsa", "kid": "k1", "signature": b64(sign_ec(key, body, "sha1")), "digest": "SHA1"}
        return {"x-ebay-signature": b64(json.dumps(signature).encode())}

    body = b'{"metadata":{"topic":"MARKETPLACE_ACCOUNT_DELETION"},"notification":{"notificationId":"n1"},"amount":1000}'
    usual(file, make, body, (EC, OTHER_EC), pem, id="n1", type="MARKETPLACE_ACCOUNT_DELETION")
    one_line = pem(EC).replace("\n", "")
    file.add("accept", "the key on one line, as eBay shows it", body, JSON | make(EC, body, NOW), one_line, id="n1", type="MARKETPLACE_ACCOUNT_DELETION")
    code, token, url = "abc", "token-0123456789", "https://hooks.example.com/ebay"
    answer = hashlib.sha256((code + token + url).encode()).hexdigest()
    file.add("challenge", "challenge_code", b"", {}, "", url=url + "?challenge_code=" + code, method="GET",
             params={"verification_token": token, "endpoint_url": url},
             expect_response={"status": 200, "content_type": "application/json", "body": json.dumps({"challengeResponse": answer}, separators=(",", ":"))})
    file.write()


def paypal():
    import zlib
    file = File("paypal", "developer.paypal.com webhooks")

    def make(key, body, time):
        text = f"id1|2025-11-29T17:00:00Z|WH1|{zlib.crc32(body)}".encode()
        return {"paypal-transmission-id": "id1", "paypal-transmission-time": "2025-11-29T17:00:00Z",
                "paypal-cert-url": "https://api.paypal.com/v1/notifications/certs/CERT-1", "paypal-auth-algo": "SHA256withRSA",
                "paypal-transmission-sig": b64(sign_rsa(key, text))}

    body = b'{"id":"WH-1","event_type":"E","amount":1000}'
    headers = JSON | make(RSA, body, NOW)
    file.add("accept", "simple", body, headers, pem(RSA), params={"webhook_id": "WH1"}, id="WH-1", type="E")
    file.add("reject", "another webhook's id", body, headers, pem(RSA), params={"webhook_id": "WH2"})
    file.write()


def published():
    """Figures that the providers publish."""
    key = ("-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAtqsEE4eI7EmzhcquGJXt\nLX9PMK0UH6Kl1WIR21sv8HtueG8BuvvpP3MiN7ltzmIhS8KaynCjN4l+620PnXeu\n"
           "xWG+CSnEdkinL9hCqbEid5vv9zl0j9LWiJx3FkKHqADU7cgm46aa8dKUdIQYF2X+\nO7WmyLkC4wUM/mWhBPMsIQBznashRMZxx7XJjsVp27ACUE4eNIjEXbVYN6U8jSbU\n"
           "hG++CfL8xXu+GHDqKmFE6Po6HnuURvLFVnCtE3mXXBcVFlPy+octfx8nOMLT3X8O\n9UehIigJ34o2yMm/Fq3HUJzg2BsiAiGgtr0vmeoV9Q7upSNj9TuOumAzZFi4pYA+\nqwIDAQAB\n-----END PUBLIC KEY-----")
    signature = ("jz/0dmHJ63FAzacGutrDTEoq+iSz/PHm/ugdooXDQu5NwuVIT2LmZGjsnCsBHgR9Py6OBP9zurzW4dHgygU4EDqmMPTUOvhvndYb4lWt+TY66LihaFI2whL6DAf/jb1Q"
                 "jYjNU0A6x9SLzC45dgE6X7zTDUM+2Z+scG/WEQf6SxQMt4E2sEipl5PqMK5lYUe3otdJV+X2c9D64bGwCEE7QSia+Vhozg8QNOQEk/rdz2IEONIg6oC43CeiN4E2kF9X"
                 "LAGuy9uAHx9O9OJH5ZPLJZjyo4VcXYeWQgxaQ1gZ1Qu6hEEzgiPSff/1nou58dm4bIIazgCWli/mO0NyGcpfFw==")
    file = File("bridge-xyz", "")
    file.add("accept", "published figure", b'{"message":"Hello World!"}', JSON | {"x-webhook-signature": "t=1705854411204,v0=" + signature}, key, now=1705854411)
    file.add("reject", "published figure, changed", b'{"message":"Hello world!"}', JSON | {"x-webhook-signature": "t=1705854411204,v0=" + signature}, key, now=1705854411)
    publish(file, "published figure of apidocs.bridge.xyz")
    key = ("-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAwpb91cEYuyJNQepZAVfP\nZIlPZfNUefH+n6w9SW3fykqKu938cR7WadQv87oF2VuT+fDt7kqeRziTmPSUhqPU\n"
           "ys/V2Q1rlfJuXbE+Gga37t7zwd0egQ+KyOEHQOpcTwKmtZ81ieGHynAQzsn1We3j\nwt760MsCPJ7GMT141ByQM+yW1Bx+4SG3IGjXWyqOWrcXsxAvIXkpUD/jK/L958Cg\n"
           "nZEgz0BSEh0QxYLITnW1lLokSx/dTianWPFEhMC9BgijempgNXHNfcVirg1lPSyg\nz7KqoKUN0oHqWLr2U1A+7kqrl6O2nx3CKs1bj1hToT1+p4kcMoHXA7kA+VBLUpEs\nVwIDAQAB\n-----END PUBLIC KEY-----")
    signature = ("wKcKCYXAzxNgiu7xmoDm943NUni7Rz33QN8JkEA9dWSGebgndonabgSj18Y4C08OrwVmueGsED2s00M7DtJVcYKOS1i3G4TMVx+mgM3aL9djMBkQtiYNBFUd6wrPI7ZUNHv/"
                 "TrlKSjTMc+6JFvUvJ7owY3z85e3I4jLRLJowMFvO8kvCJ60+1pY9wDwZvtZ//WS93LrwGjk9Dvwzpmu0w+P4J75tETT5qC3Uv0y5G2yO8SEoO3yNP/tg/BOli02niHb5"
                 "3vEOUWUb9bly6thnfMoXoiV/osoGxgF20R58RlvkAmezyyl1Sv542TfS2DpiwVnmjjjkCyXeSUcKookYLQ==")
    body = (b'{"data":{"resource":{"id":49983981,"profile_id":16055450,"account_id":14124090,"type":"transfer"},"current_state":"incoming_payment_waiting",'
            b'"previous_state":null,"occurred_at":"2021-08-23T10:12:50Z"},"subscription_id":"90aa8e14-4ef1-4a56-861c-f3c9cde097ea",'
            b'"event_type":"transfers#state-change","schema_version":"2.0.0","sent_at":"2021-08-23T10:12:50Z"}')
    file = File("wise", "")
    headers = JSON | {"x-signature-sha256": signature}
    file.add("accept", "published figure", body, headers, key, type="transfers#state-change")
    file.add("reject", "published figure, changed", body.replace(b"49983981", b"49983982"), headers, key)
    publish(file, "published figure of github transferwise/digital-signatures-examples")


def publish(file, source):
    from common import FOLDER
    for line in file.lines:
        line["source"] = source
    path = FOLDER / (file.provider + ".published.jsonl")
    path.write_text("".join(json.dumps(line) + "\n" for line in file.lines))


def standard_webhooks():
    import base64
    import hmac
    file = File("standard-webhooks", "the Standard Webhooks specification, section on asymmetric signatures")
    body, secret = b'{"type":"t","amount":1000}', b"0123456789abcdefghijklmn"
    text = f"msg_1.{NOW}.".encode() + body
    shared = "v1," + b64(hmac.new(secret, text, hashlib.sha256).digest())
    public = "v1a," + b64(ED.sign(text))
    whsec, whpk, other = "whsec_" + b64(secret), "whpk_" + b64(raw(ED)), "whpk_" + b64(raw(OTHER_ED))

    def headers(signature):
        return JSON | {"webhook-id": "msg_1", "webhook-timestamp": str(NOW), "webhook-signature": signature}

    named = {"id": "msg_1", "type": "t"}
    file.add("accept", "v1a under a whpk_ key", body, headers(public), whpk, **named)
    file.add("accept", "v1 and v1a, each by its key", body, headers(shared + " " + public), [whsec, whpk], **named)
    file.add("accept", "v1a behind a wrong v1", body, headers("v1," + b64(bytes(32)) + " " + public), [whsec, whpk], **named)
    file.add("accept", "v1 where only the secret is known", body, headers(public + " " + shared), whsec, **named)
    file.add("reject", "v1a where only the secret is known", body, headers(public), whsec)
    file.add("reject", "v1 where only the public key is known", body, headers(shared), whpk)
    file.add("reject", "v1a under another key", body, headers(public), other)
    file.add("reject", "v1a, body changed", body + b" ", headers(public), whpk)
    file.add("reject", "v1a, stale", body, headers(public), whpk, now=NOW + 301)
    # The public key is known to everybody: an HMAC under it proves nothing.
    forged = "v1," + b64(hmac.new(raw(ED), text, hashlib.sha256).digest())
    file.add("reject", "an HMAC under the public key", body, headers(forged), whpk)
    file.write()


if __name__ == "__main__":
    for make in (telnyx, tokenio, discord_events, utila, bridge, shipstation, sns, alipay, ebay, paypal, published, standard_webhooks):
        make()
