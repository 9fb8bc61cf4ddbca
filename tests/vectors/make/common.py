"""Keys and the file format for vectors of our own. Deterministic: the same bytes in every run.

The signatures are made by pyca/cryptography, which shares no code with the product, by our own reading of the documents.
"""

import base64
import hashlib
import json
import pathlib
import random

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils

FOLDER = pathlib.Path(__file__).resolve().parent.parent
NOW = 1_764_435_600
URL = "https://hooks.example.com/in/abc123"
CURVES = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
HASHES = {"sha1": hashes.SHA1(), "sha256": hashes.SHA256(), "sha384": hashes.SHA384(), "sha512": hashes.SHA512()}


def is_prime(n):
    if any(n % p == 0 for p in (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)):
        return False
    d, s = n - 1, 0
    while d % 2 == 0:
        d, s = d // 2, s + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        x = pow(base, d, n)
        if x in (1, n - 1):
            continue
        for _ in range(s - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True


def rsa_key(name, bits=2048):
    dice = random.Random("hooksluice test key " + name)

    def prime():
        while True:
            n = dice.getrandbits(bits // 2) | (3 << (bits // 2 - 2)) | 1
            if n % 65537 != 1 and is_prime(n):
                return n

    p, q = prime(), prime()
    d = pow(65537, -1, (p - 1) * (q - 1))
    public = rsa.RSAPublicNumbers(65537, p * q)
    return rsa.RSAPrivateNumbers(p, q, d, d % (p - 1), d % (q - 1), pow(q, -1, p), public).private_key()


def ec_key(name, curve="P-256"):
    seed = hashlib.sha512(("hooksluice test key " + name).encode()).digest()
    return ec.derive_private_key(int.from_bytes(seed[:30], "big"), CURVES[curve])


def ed_key(name):
    return ed25519.Ed25519PrivateKey.from_private_bytes(hashlib.sha256(("hooksluice test key " + name).encode()).digest())


def pem(key):
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()


def der(key):
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.DER, form)


def raw(key):
    return key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def b64(data):
    return base64.b64encode(data).decode()


def b64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def public(key):
    """As a JWK."""
    numbers = key.public_key().public_numbers() if hasattr(key, "private_numbers") else None
    if numbers is None:
        return {"kty": "OKP", "crv": "Ed25519", "x": b64url(raw(key))}
    if hasattr(numbers, "n"):
        size = (numbers.n.bit_length() + 7) // 8
        return {"kty": "RSA", "n": b64url(numbers.n.to_bytes(size, "big")), "e": "AQAB"}
    size = (key.curve.key_size + 7) // 8
    curve = {256: "P-256", 384: "P-384", 521: "P-521"}[key.curve.key_size]
    return {"kty": "EC", "crv": curve, "x": b64url(numbers.x.to_bytes(size, "big")), "y": b64url(numbers.y.to_bytes(size, "big"))}


def jwks(*keys):
    return json.dumps({"keys": [public(key) | {"kid": kid, "use": "sig"} for kid, key in keys]})


def sign_rsa(key, message, name="sha256"):
    return key.sign(message, padding.PKCS1v15(), HASHES[name])


def sign_pss(key, message, name="sha512"):
    """RSASSA-PSS (RFC 8017 section 8.1.1) with a salt that is made from the message, so that runs are equal."""
    def run(data):
        return hashlib.new(name, data).digest()

    size = len(run(b""))
    salt = run(b"salt" + message)
    numbers = key.private_numbers()
    bits = numbers.public_numbers.n.bit_length() - 1
    length = (bits + 7) // 8
    digest = run(bytes(8) + run(message) + salt)
    block = bytes(length - 2 * size - 2) + b"\x01" + salt
    mask = b"".join(run(digest + counter.to_bytes(4, "big")) for counter in range(length // size + 1))[: len(block)]
    masked = bytearray(a ^ b for a, b in zip(block, mask))
    masked[0] &= 0xFF >> (8 * length - bits)
    encoded = bytes(masked) + digest + b"\xbc"
    number = pow(int.from_bytes(encoded, "big"), numbers.d, numbers.public_numbers.n)
    signature = number.to_bytes((bits + 8) // 8, "big")
    pss = padding.PSS(padding.MGF1(HASHES[name]), size)
    key.public_key().verify(signature, message, pss, HASHES[name])
    return signature


def sign_ec(key, message, name="sha256", fixed=False):
    signature = key.sign(message, ec.ECDSA(HASHES[name], deterministic_signing=True))
    if not fixed:
        return signature
    size = (key.curve.key_size + 7) // 8
    return b"".join(number.to_bytes(size, "big") for number in utils.decode_dss_signature(signature))


class File:
    """The vectors of one provider."""

    def __init__(self, provider, source):
        self.provider, self.source, self.lines = provider, source, []

    def add(self, expect, note, body, headers, secret, now=NOW + 3, url=URL, method="POST", **more):
        vector = {
            "provider": self.provider, "note": note, "expect": expect,
            "secret": secret if isinstance(secret, str) else secret[0],
            "method": method, "url": url, "headers": headers,
            "body_base64": b64(body), "now": now,
            "source": "own reading of " + self.source,
        }
        if not isinstance(secret, str):
            vector["secrets"] = secret
        if expect == "accept":
            vector["expect_id"] = more.pop("id", None)
            vector["expect_type"] = more.pop("type", None)
        vector.update(more)
        self.lines.append(vector)

    def write(self):
        path = FOLDER / (self.provider + ".own.jsonl")
        path.write_text("".join(json.dumps(line) + "\n" for line in self.lines))
