// Providers whose signature stands inside the body.

import dropboxSign from "@dropbox/sign";
import adyen from "@adyen/api-library";
import braintree from "braintree";

import { python } from "../python.mjs";
import { hmac } from "./common.mjs";

const keys = { secret: "inside-test-secret-0123456789abcdef", otherSecret: "inside-other-secret-fedcba9876543210" };
const hexKeys = {
  secret: "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056",
  otherSecret: "14782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056",
};
const JSON_HEADERS = { "Content-Type": "application/json" };
const edited = (message, edit) => {
  const value = JSON.parse(message.body);
  edit(value);
  return { body: Buffer.from(JSON.stringify(value)) };
};

const multipart = (value) =>
  `------B\r\nContent-Disposition: form-data; name="json"\r\n\r\n${JSON.stringify(value)}\r\n------B--\r\n`;
const fieldOf = (body) => JSON.parse(/\r\n\r\n(.*)\r\n------B--/s.exec(body.toString())[1]);

const gateway = (privateKey, publicKey) =>
  new braintree.BraintreeGateway({
    environment: braintree.Environment.Sandbox,
    merchantId: "merchant",
    publicKey,
    privateKey,
  });

const itemOf = (value) => value.notificationItems[0].NotificationRequestItem;

export const inside = [
  {
    source: "adyen",
    npm: "@adyen/api-library",
    ...hexKeys,
    // What is signed are some fields; the others can be forged.
    unsigned: "body",
    signs: false,
    make: () => ({
      headers: JSON_HEADERS,
      body: JSON.stringify({
        live: "false",
        notificationItems: [
          {
            NotificationRequestItem: {
              additionalData: { note: "plain" },
              amount: { currency: "EUR", value: 1130 },
              pspReference: "7914073381342284",
              eventCode: "AUTHORISATION",
              eventDate: "2026-11-30T00:00:00.50Z",
              merchantAccountCode: "TestMerchant",
              merchantReference: "TestPayment-1407325143704",
              paymentMethod: "visa",
              success: "true",
            },
          },
        ],
      }),
    }),
    sign: (message) => ({
      request: edited(message, (value) => {
        const item = itemOf(value);
        item.additionalData.hmacSignature = new adyen.hmacValidator().calculateHmac(item, message.secret);
      }),
    }),
    forged: (message) => edited(message, (value) => (itemOf(value).amount.value = 1)),
    verify: ({ text }, secret) => new adyen.hmacValidator().validateHMAC(itemOf(JSON.parse(text)), secret),
  },
  {
    source: "braintree",
    npm: "braintree",
    ...keys,
    params: { public_key: "integration_public_key" },
    unsigned: "body",
    signs: false,
    make: () => ({ headers: { "Content-Type": "application/x-www-form-urlencoded" }, body: "note=plain" }),
    sign: ({ body, secret, params }) => {
      const { WebhookNotification } = braintree;
      const sample = gateway(secret, params.public_key).webhookTesting.sampleNotification(WebhookNotification.Kind.DisputeOpened, "1");
      return Promise.resolve(sample).then((fields) => ({ request: { body: `${new URLSearchParams(fields)}&${body}` } }));
    },
    forged: ({ body }) => ({ body: Buffer.from(body.toString().replace(/bt_payload=.{8}/, "bt_payload=AAAABBBB")) }),
    verify: ({ text, params }, secret) => {
      const fields = new URLSearchParams(text);
      return gateway(secret, params.public_key).webhookNotification.parse(fields.get("bt_signature"), fields.get("bt_payload"));
    },
  },
  {
    source: "dropbox-sign",
    npm: "@dropbox/sign",
    ...keys,
    unsigned: "body",
    signs: false,
    make: ({ at }) => ({
      headers: { "Content-Type": "multipart/form-data; boundary=----B" },
      body: multipart({ event: { event_time: String(at), event_type: "signature_request_sent", event_hash: "", event_metadata: {} }, note: "plain" }),
    }),
    sign: ({ body, at, secret }) => {
      const event_hash = hmac("sha256", secret, `${at}signature_request_sent`, "hex");
      const value = fieldOf(body);
      return { request: { body: multipart({ ...value, event: { ...value.event, event_hash } }) } };
    },
    forged: ({ body }) => ({ body: Buffer.from(body.toString().replace("signature_request_sent", "signature_request_done")) }),
    verify: ({ body }, secret) => {
      const { event_time: eventTime, event_type: eventType, event_hash: eventHash } = fieldOf(body).event;
      return dropboxSign.EventCallbackHelper.isValid(secret, { event: { eventTime, eventType, eventHash } });
    },
  },
  {
    source: "mailgun",
    pypi: "django-anymail",
    by: "community",
    ...keys,
    unsigned: "body",
    signs: false,
    make: () => ({
      headers: JSON_HEADERS,
      body: JSON.stringify({ signature: {}, "event-data": { event: "opened", note: "plain" } }),
    }),
    sign: (message) => ({
      request: edited(message, (value) => {
        const timestamp = String(message.at);
        const token = "ae617a6ec47a1d3a2b6c8b3d7e8a4c9b0a1d2e3f4a5b6c7d8e";
        const signature = hmac("sha256", message.secret, timestamp + token, "hex");
        value.signature = { timestamp, token, signature };
      }),
    }),
    forged: (message) => edited(message, (value) => (value.signature.token = "b".repeat(50))),
    verify: python("mailgun"),
  },
];
