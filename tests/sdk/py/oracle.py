"""What the SDKs on PyPI say about requests.

Reads one JSON object a line, {"provider", "secret", "method", "url", "headers", "body_base64", "params"}, and answers
each with {"ok": bool, "error"?: text}. A line {"versions": [name, ...]} is answered with the packages' versions.
"""

import base64
import importlib.metadata
import json
import sys
from types import SimpleNamespace
from urllib.parse import urlsplit


def adyen_platform(request):
    from Adyen.util import is_valid_hmac_payload

    return is_valid_hmac_payload(request.headers["hmacsignature"], request.secret, request.body)


def anymail(module, view, setting):
    """The view's own check: Django is set up without a project, and the request is one of its test requests."""

    def verify(request):
        import importlib

        import django
        from django.conf import settings
        from django.test import RequestFactory

        if not settings.configured:
            settings.configure(ALLOWED_HOSTS=["*"], ANYMAIL={})
            django.setup()
        views = importlib.import_module(f"anymail.webhooks.{module}")
        checker = getattr(views, view)(**{setting: request.secret})
        target = urlsplit(request.url)
        headers = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in request.headers.items()}
        checker.validate_request(
            RequestFactory().generic(
                request.method,
                target.path + (f"?{target.query}" if target.query else ""),
                request.body,
                content_type=request.headers.get("content-type", ""),
                secure=True,
                SERVER_NAME=target.hostname,
                SERVER_PORT="443",
                **headers,
            )
        )
        return True

    return verify


def cashfree(request):
    from cashfree_pg.api_client import Cashfree

    # Its constructor only keeps what it is given; the one that the documents show also starts an error reporter.
    client = SimpleNamespace(XClientSecret=request.secret)
    headers = request.headers
    check = Cashfree.PGVerifyWebhookSignature
    return bool(check(client, headers["x-webhook-signature"], request.text, headers["x-webhook-timestamp"]))


def elevenlabs(request):
    from elevenlabs.webhooks_custom import WebhooksClient

    check = WebhooksClient.construct_event
    return bool(check(None, request.text, request.headers.get("elevenlabs-signature"), request.secret))


def increase(request):
    from increase import Increase

    client = Increase(api_key="unused")
    return bool(client.events.unwrap(request.text, headers=request.headers, key=request.secret))


def lark(request):
    from lark_oapi.core.model import RawRequest
    from lark_oapi.event.dispatcher_handler import EventDispatcherHandler

    raw = RawRequest()
    raw.uri = request.url
    raw.headers = {name.title(): value for name, value in request.headers.items()}
    raw.body = request.body
    EventDispatcherHandler.builder(request.secret, "").build()._verify_sign(raw, request.secret)
    return True


def terra(request):
    from terra.utils.verify_signature import verify_terra_webhook_signature

    return verify_terra_webhook_signature(request.text, request.headers.get("terra-signature"), request.secret)


def viber(request):
    from viberbot import Api, BotConfiguration

    bot = Api(BotConfiguration(name="test", avatar="", auth_token=request.secret))
    return bot.verify_signature(request.body, request.headers.get("x-viber-content-signature"))


def wechat_mp(request):
    from urllib.parse import parse_qs

    from wechatpy.utils import check_signature

    query = {name: values[0] for name, values in parse_qs(urlsplit(request.url).query).items()}
    check_signature(request.secret, query["signature"], query["timestamp"], query["nonce"])
    return True


def whop(request):
    from whop_sdk.lib.verify_webhook import unwrap

    return bool(unwrap(request.text, headers=request.headers, key=request.secret))


def workos(request):
    from workos.webhooks._verification import verify_header

    verify_header(event_body=request.body, event_signature=request.headers.get("workos-signature"), secret=request.secret)
    return True


CHECKS = {
    "adyen-platform": adyen_platform,
    "cashfree": cashfree,
    "elevenlabs": elevenlabs,
    "increase": increase,
    "mailersend": anymail("mailersend", "MailerSendTrackingWebhookView", "signing_secret"),
    "mailgun": anymail("mailgun", "MailgunTrackingWebhookView", "webhook_signing_key"),
    "mailtrap": anymail("mailtrap", "MailtrapTrackingWebhookView", "tracking_secret"),
    "mandrill": anymail("mandrill", "MandrillCombinedWebhookView", "webhook_key"),
    "lark": lark,
    "terra": terra,
    "viber": viber,
    "wechat-mp": wechat_mp,
    "whop": whop,
    "workos": workos,
}


def answer(line):
    asked = json.loads(line)
    if "versions" in asked:
        return {name: importlib.metadata.version(name) for name in asked["versions"]}
    body = base64.b64decode(asked.pop("body_base64"))
    check = CHECKS[asked["provider"]]
    try:
        return {"ok": bool(check(SimpleNamespace(**asked, body=body, text=body.decode())))}
    except ImportError:
        raise
    except Exception as error:
        return {"ok": False, "error": f"{type(error).__name__}: {error}"}


for received in sys.stdin:
    print(json.dumps(answer(received)), flush=True)
