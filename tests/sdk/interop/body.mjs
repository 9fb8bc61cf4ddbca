// Providers that sign the body and nothing else.

import { gunzipSync, gzipSync } from "node:zlib";

import EasyPost from "@easypost/api";
import hubspot from "@hubspot/api-client";
import * as gocardless from "gocardless-nodejs/webhooks";
import { signatureHelper as kontent } from "@kontent-ai/webhook-helper";
import { validateSignature as line } from "@line/bot-sdk";
import { ApiUtils } from "@moralisweb3/api-utils";
import { Core as MoralisCore } from "@moralisweb3/common-core";
import { Streams } from "@moralisweb3/streams";
import ModernTreasury from "modern-treasury";
import { signWebhookPayload, verifyWebhookSignature } from "@notionhq/client";
import { WebhookEventVerifier as Onfido } from "@onfido/api";
import coinbase from "coinbase-commerce-node";
import { verifyWebhookSignature as hookdeck } from "@hookdeck/sdk/webhooks/helpers.js";
import mailtrap from "mailtrap";
import Pusher from "pusher";
import razorpay from "razorpay/dist/utils/razorpay-utils.js";
import smartcar from "smartcar";
import { StreamChat } from "stream-chat";
import web3 from "web3-utils";

import { python } from "../python.mjs";
import { differ, hmac, json, oddBodies } from "./common.mjs";

const keys = {
  secret: "body-test-secret-0123456789abcdef",
  otherSecret: "body-other-secret-fedcba9876543210",
  cases: oddBodies,
};
const hexKeys = {
  ...keys,
  secret: "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056",
  otherSecret: "14782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056",
};
/** HMAC-SHA256 of the body in the header `name`. */
const sha256 = (name, encoding) => ({ sign: ({ body, secret }) => ({ [name]: hmac("sha256", secret, body, encoding) }) });

export const body = [
  {
    source: "adyen-platform",
    pypi: "Adyen",
    ...hexKeys,
    make: () => json({ type: "balancePlatform.transfer.created", data: { id: "1" } }),
    sign: ({ body, secret }) => ({ HmacSignature: hmac("sha256", Buffer.from(secret, "hex"), body, "base64") }),
    verify: python("adyen-platform"),
  },
  {
    source: "coinbase-commerce",
    npm: "coinbase-commerce-node",
    ...keys,
    ...sha256("X-CC-Webhook-Signature", "hex"),
    make: () => json({ id: 1, event: { id: "1", type: "charge:created", data: {} } }),
    verify: ({ text, headers }, secret) =>
      coinbase.Webhook.verifyEventBody(text, headers["x-cc-webhook-signature"], secret),
  },
  {
    source: "easypost",
    npm: "@easypost/api",
    ...keys,
    // It is normalised (NFKD) before it is the key.
    secret: "sécret™-0123456789abcdef",
    make: () => json({ id: "evt_1", description: "tracker.updated" }),
    sign: ({ body, secret }) => ({
      "X-Hmac-Signature": `hmac-sha256-hex=${hmac("sha256", secret.normalize("NFKD"), body, "hex")}`,
    }),
    verify: ({ body, headers }, secret) => new EasyPost("unused").Utils.validateWebhook(body, headers, secret),
  },
  {
    source: "gocardless",
    npm: "gocardless-nodejs",
    ...keys,
    ...sha256("Webhook-Signature", "hex"),
    make: () => json({ events: [{ id: "EV1", action: "created" }], meta: { webhook_id: "WB1" } }),
    verify: ({ text, headers }, secret) => gocardless.parse(text, secret, headers["webhook-signature"]),
  },
  {
    source: "hookdeck",
    npm: "@hookdeck/sdk",
    ...keys,
    ...sha256("x-hookdeck-signature", "base64"),
    make: () => json({ id: 1 }, { "x-hookdeck-eventid": "evt_1" }),
    rolled: ([first, second]) => ({ ...first, "x-hookdeck-signature-2": second["x-hookdeck-signature"] }),
    verify: async ({ text, headers }, signingSecret) =>
      (await hookdeck({ headers, rawBody: text, signingSecret })).isValidSignature,
  },
  {
    source: "hubspot-v1",
    npm: "@hubspot/api-client",
    ...keys,
    make: () => json({ eventId: 1 }),
    sign: ({ method, body, secret }) => ({
      "X-HubSpot-Signature": hubspot.Signature.getSignature(method, "v1", { clientSecret: secret, requestBody: body.toString() }),
    }),
    verify: ({ text, headers }, clientSecret) =>
      hubspot.Signature.isValid({ signature: headers["x-hubspot-signature"], clientSecret, requestBody: text }),
  },
  {
    source: "kontent-ai",
    npm: "@kontent-ai/webhook-helper",
    ...keys,
    ...sha256("X-Kontent-ai-Signature", "base64"),
    make: () => json({ notifications: [{ message: { action: "published" } }] }),
    verify: ({ text, headers }, secret) =>
      kontent.isValidSignatureFromString(text, secret, headers["x-kontent-ai-signature"]),
  },
  {
    source: "line",
    npm: "@line/bot-sdk",
    ...keys,
    ...sha256("x-line-signature", "base64"),
    make: () => json({ events: [{ type: "message", webhookEventId: "1" }] }),
    verify: ({ body, headers }, secret) => line(body, secret, headers["x-line-signature"]),
  },
  {
    source: "mailersend",
    pypi: "django-anymail",
    by: "community",
    ...keys,
    ...sha256("Signature", "hex"),
    make: () => json({ type: "activity.sent", data: { id: "1" } }),
    verify: python("mailersend"),
  },
  {
    source: "mailtrap",
    pypi: "django-anymail",
    by: "community",
    ...keys,
    ...sha256("Mailtrap-Signature", "hex"),
    make: () => json({ events: [{ event: "delivery", event_id: "1" }] }),
    verify: python("mailtrap"),
  },
  {
    source: "mailtrap",
    npm: "mailtrap",
    ...keys,
    ...sha256("Mailtrap-Signature", "hex"),
    make: () => json({ events: [{ event: "delivery", event_id: "1" }] }),
    verify: ({ body, headers }, secret) => mailtrap.verifyWebhookSignature(body, headers["mailtrap-signature"], secret),
  },
  {
    source: "modern-treasury",
    npm: "modern-treasury",
    ...keys,
    make: () => json({ event: "created" }, { "X-Topic": "payment_order", "X-Webhook-ID": "1" }),
    sign: ({ body, secret: key }) => ({
      "X-Signature": new ModernTreasury({ organizationID: "unused", apiKey: "unused" }).webhooks.getSignature(
        body.toString(),
        { key },
      ),
    }),
    verify: ({ text, headers }, key) =>
      new ModernTreasury({ organizationID: "unused", apiKey: "unused" }).webhooks.validateSignature(text, headers, { key }),
  },
  {
    source: "moralis",
    npm: "@moralisweb3/streams",
    ...keys,
    make: () => json({ tag: "t", confirmed: true }),
    sign: ({ body, secret }) => ({ "x-signature": web3.sha3(body.toString() + secret) }),
    verify: ({ text, headers }, secret) => {
      const core = MoralisCore.create();
      core.registerModules([ApiUtils, Streams]);
      core.config.set("streamsSecret", secret);
      return core.getModule(Streams.moduleName).verifySignature({ body: JSON.parse(text), signature: headers["x-signature"] });
    },
    differs: {
      ...differ(["odd JSON", "CRLF, indented"], "reject", "accept", "the SDK signs JSON that it printed anew"),
      ...differ(["one more byte"], "accept", "reject", "the SDK signs JSON that it printed anew"),
    },
  },
  {
    source: "notion",
    npm: "@notionhq/client",
    ...keys,
    make: () => json({ id: "367cba44-b6f3-4c92-81e7-6a2e9659efd4", type: "page.created" }),
    sign: async ({ body, secret }) => ({
      "X-Notion-Signature": await signWebhookPayload({ body: body.toString(), verificationToken: secret }),
    }),
    verify: ({ text, headers }, verificationToken) =>
      verifyWebhookSignature({ body: text, signature: headers["x-notion-signature"], verificationToken }),
  },
  {
    source: "onfido",
    npm: "@onfido/api",
    ...keys,
    ...sha256("X-SHA2-Signature", "hex"),
    make: () => json({ payload: { action: "check.completed", object: { id: "1" } } }),
    verify: ({ body, headers }, secret) => new Onfido(secret).readPayload(body, headers["x-sha2-signature"]),
  },
  {
    source: "pusher",
    npm: "pusher",
    ...keys,
    params: { key_id: "278d425bdf160c739803" },
    ...sha256("X-Pusher-Signature", "hex"),
    make: ({ at }) => json({ time_ms: at * 1000, events: [{ name: "channel_occupied" }] }, { "X-Pusher-Key": "278d425bdf160c739803" }),
    verify: ({ text, headers, params }, secret) =>
      new Pusher({ appId: "1", key: params.key_id, secret }).webhook({ headers, rawBody: text }).isValid(),
  },
  {
    source: "razorpay",
    npm: "razorpay",
    ...keys,
    ...sha256("X-Razorpay-Signature", "hex"),
    make: () => json({ event: "payment.captured" }, { "x-razorpay-event-id": "1" }),
    verify: ({ text, headers }, secret) =>
      razorpay.validateWebhookSignature(text, headers["x-razorpay-signature"], secret),
  },
  {
    source: "smartcar",
    npm: "smartcar",
    ...keys,
    ...sha256("SC-Signature", "hex"),
    make: () => json({ eventId: "1", eventType: "VEHICLE_STATE" }),
    verify: ({ text, headers }, secret) => smartcar.verifyPayload(secret, headers["sc-signature"], JSON.parse(text)),
    differs: {
      ...differ(["odd JSON", "CRLF, indented"], "reject", "accept", "the SDK signs JSON that it printed anew"),
      ...differ(["one more byte"], "accept", "reject", "the SDK signs JSON that it printed anew"),
    },
  },
  {
    source: "stream",
    npm: "stream-chat",
    ...keys,
    // Compressed after signing.
    sign: ({ body, headers, secret }) => {
      const text = headers["Content-Encoding"] === "gzip" ? gunzipSync(body) : body;
      return { "X-Signature": hmac("sha256", secret, text, "hex") };
    },
    cases: (message) => [
      ...oddBodies(message),
      {
        name: "compressed",
        request: ({ headers, body }) => ({ headers: { ...headers, "Content-Encoding": "gzip" }, body: gzipSync(body) }),
      },
    ],
    make: () => json({ type: "message.new" }, { "X-Webhook-Id": "1", "X-Api-Key": "key" }),
    verify: ({ body, headers }, secret) => new StreamChat("key", secret).verifyAndParseWebhook(body, headers["x-signature"]),
  },
  {
    source: "viber",
    pypi: "viberbot",
    ...keys,
    ...sha256("X-Viber-Content-Signature", "hex"),
    make: () => json({ event: "message", message_token: 1 }),
    verify: python("viber"),
  },
];
