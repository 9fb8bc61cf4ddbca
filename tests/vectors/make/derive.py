"""Vectors that follow from those of others: an accepted request with one byte changed, under another secret, too old.

Only what a provider's own file lacks is added.  Deterministic.  Run it without arguments; it writes NAME.derived.jsonl
beside this folder and prints nothing.
"""

import base64
import json
import pathlib
import tomllib

FOLDER = pathlib.Path(__file__).resolve().parent.parent
RECORDS = FOLDER.parent.parent / "config" / "providers"
# Schemes that do not sign the body, in whole or in part; and hand-shakes without a signature.
BODY_NOT_SIGNED = {"adyen", "dropbox-sign", "exact-online", "favro", "jira-connect", "lever", "mailgun", "mercadopago", "microsoft-graph",
                   "monday", "nowpayments", "paymob", "plivo-v2", "praxis", "sns", "vonage", "wechat-mp"}
ALIASES = {"twilio-json": "twilio", "twilio-sharedkey": "twilio", "shopify-events": "shopify"}


def record(name):
    path = RECORDS / f"{ALIASES.get(name, name)}.toml"
    found = tomllib.loads(path.read_text()) if path.exists() else None
    if found and "extends" in found:
        found = {**record(found["extends"]), **found}
    return found


def another(secret):
    """A secret of the same form: one character in the middle is another."""
    at = len(secret) // 2
    return secret[:at] + ("B" if secret[at] == "A" else "A" if not secret[at].isdigit() else str((int(secret[at]) + 1) % 10)) + secret[at + 1:]


def derived(name, lines, rules):
    kind = rules["kind"]
    kinds = {line.get("kind") for line in lines}
    good = next((line for line in lines if line["expect"] == "accept" and line.get("kind") == "valid"), None)
    if good is None or kind == "none":
        return []
    out = []

    def add(note, **changes):
        vector = {**good, **changes, "expect": "reject", "note": note, "source": "own reading of: " + good["source"]}
        for key in ("kind", "expect_id", "expect_type"):
            vector.pop(key, None)
        out.append(vector)

    body = base64.b64decode(good["body_base64"])
    if kind not in ("token", "basic") and name not in BODY_NOT_SIGNED and body:
        add("an accepted request with a byte more", body_base64=base64.b64encode(body + b" ").decode())
        last = bytes([body[-1] ^ 1])
        add("an accepted request with one bit changed", body_base64=base64.b64encode(body[:-1] + last).decode())
    if "wrong_secret" not in kinds and "BEGIN" not in good["secret"] and kind in ("hmac", "token", "basic", "digest"):
        changes = {"secret": another(good["secret"])}
        if "secrets" in good:
            changes["secrets"] = [another(secret) for secret in good["secrets"]]
        add("an accepted request under another secret", **changes)
    if "tolerance_seconds" in rules and "expired" not in kinds:
        add("an accepted request far too late", now=good["now"] + rules["tolerance_seconds"] + 86_400)
    return out


def main():
    for path in sorted(FOLDER.glob("*.jsonl")):
        if path.name.count(".") > 1:
            continue
        name = path.stem
        rules = record(name)
        if rules is None:
            continue
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        more = derived(name, lines, rules)
        if more:
            text = "".join(json.dumps(line) + "\n" for line in more)
            (FOLDER / f"{name}.derived.jsonl").write_text(text)


main()
