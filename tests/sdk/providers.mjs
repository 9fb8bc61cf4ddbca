// What each provider sends, and what its own SDK says about it.
//
// `sign` is the SDK's own signer where it has one (Stripe, GitHub, Svix, Standard Webhooks, Twilio). The other SDKs
// only verify: their signature is made here from the provider's documents, and run.mjs first asks the SDK whether it
// agrees. `verify` is always the SDK's, called as the provider's documents tell an app to call it.

import { createHash, createHmac, randomUUID } from "node:crypto";
import { parse as parseForm } from "node:querystring";

import "@shopify/shopify-api/adapters/node";
import { LinearWebhookClient } from "@linear/sdk/webhooks";
import { sign as signGithub, verify as verifyGithub } from "@octokit/webhooks-methods";
import { Paddle } from "@paddle/paddle-node-sdk";
import { ApiVersion, LogSeverity, shopifyApi } from "@shopify/shopify-api";
import slack from "@slack/bolt";
import square from "square";
import * as standard from "standardwebhooks";
import Stripe from "stripe";
import * as svix from "svix";
import twilio from "twilio";

import { bodies, form } from "./bodies.mjs";

/** What providers were told: the schemes of Square and Twilio sign it. Nothing ever connects to it. */
export const PUBLIC_URL = "https://hooks.example.com";

const JSON_HEADERS = { "Content-Type": "application/json; charset=utf-8" };

const hmac = (hash, secret, text, encoding) => createHmac(hash, secret).update(text).digest(encoding);

/** The header lines of a Standard Webhooks request under `prefix`. */
function standardHeaders(Webhook, prefix) {
  return ({ body, id, at, secret }) => ({
    [`${prefix}-id`]: id,
    [`${prefix}-timestamp`]: String(at),
    [`${prefix}-signature`]: new Webhook(secret).sign(id, new Date(at * 1000), body.toString()),
  });
}

/** During a roll the sender signs with two secrets; ours is the second. */
function standardRolled(Webhook, prefix) {
  const sign = standardHeaders(Webhook, prefix);
  const name = `${prefix}-signature`;
  return (message) => {
    const [other, own] = [sign({ ...message, secret: message.otherSecret }), sign(message)];
    return { ...own, [name]: `${other[name]} ${own[name]}` };
  };
}

const shopify = (secret) =>
  shopifyApi({
    apiKey: "key",
    apiSecretKey: secret,
    apiVersion: Object.values(ApiVersion)[0],
    hostName: "app.example.com",
    isEmbeddedApp: false,
    logger: { level: LogSeverity.Error },
  });

/** Shopify's two families of headers, which differ in their prefix only. */
const shopifyFamily = (source, prefix) => ({
  source,
  secret: "hush-0123456789abcdef0123456789abcdef",
  otherSecret: "other-0123456789abcdef0123456789abcdef",
  signed: [`${prefix.toLowerCase()}-hmac-sha256`],
  cases: () => bodies({ id: 1001, email: "jon@example.com" }),
  sign: ({ body, id, secret }) => ({
    [`${prefix}-API-Version`]: "2026-01",
    [`${prefix}-Event-Id`]: id,
    [`${prefix}-Hmac-Sha256`]: hmac("sha256", secret, body, "base64"),
    [`${prefix}-Shop-Domain`]: "johns-apparel.myshopify.com",
    [`${prefix}-Topic`]: "orders/create",
    [`${prefix}-Webhook-Id`]: `webhook-${id}`,
  }),
  verify: async ({ method, target, headers, body }, secret) => {
    const rawRequest = { method, url: target, headers };
    const found = await shopify(secret).webhooks.validate({ rawBody: body.toString(), rawRequest, rawResponse: {} });
    return found.valid;
  },
  deliveryId: (id) => id,
});

const stripeHeader = ({ body, at, secret }) =>
  Stripe.webhooks.generateTestHeaderString({ payload: body.toString(), secret, timestamp: at });

/** The number that `pattern` finds in a header. */
const timeIn = (name, pattern = /^(\d+)$/) => (headers) => Number(pattern.exec(headers[name] ?? "")?.[1]);

/**
 * One entry a provider.
 * - `source`: also the preset's name and the path, `/webhooks/SOURCE`.
 * - `secret`, `otherSecret`: the configured one, and one that must be refused.
 * - `signed`: names of the headers that the scheme replaces when it signs anew.
 * - `time`, `tolerance`: for schemes whose header carries the time: where it is in the headers of a request, in
 *   seconds, and how old the SDK lets it be.
 * - `stale`: an age in seconds that must be refused, for schemes that carry a time.
 * - `cases(id, at)`: the requests to send, each `{ name, body, query?, headers?, chunked? }`.
 * - `sign(message)`, `signRolled(message)`: headers for `{ body, id, at, secret, otherSecret, url, headers }`.
 * - `verify(received, secret)`: whether the SDK accepts `{ method, target, url, headers, body }`; may throw.
 * - `deliveryId(id)`: what must arrive as `Hooksluice-Delivery-Id`, where the provider sends an id.
 */
export const providers = [
  {
    source: "stripe",
    secret: "whsec_stripeTestSecret0123456789",
    otherSecret: "whsec_stripeOtherSecret012345678",
    signed: ["stripe-signature"],
    time: timeIn("stripe-signature", /(?:^|,)t=(\d+)/),
    tolerance: 300,
    stale: 400,
    cases: (id) => bodies({ id, object: "event", type: "charge.succeeded", pending_webhooks: 1 }),
    sign: (message) => ({ "Stripe-Signature": stripeHeader(message) }),
    signRolled: (message) => {
      const other = stripeHeader({ ...message, secret: message.otherSecret });
      const own = stripeHeader(message).split(",")[1];
      return { "Stripe-Signature": `${other},${own}` };
    },
    verify: ({ body, headers }, secret) =>
      Boolean(Stripe.webhooks.constructEvent(body, headers["stripe-signature"], secret)),
    newId: () => `evt_${randomUUID()}`,
    deliveryId: (id) => id,
  },
  {
    source: "github",
    secret: "test-secret-0123456789abcdef",
    otherSecret: "other-secret-0123456789abcdef",
    signed: ["x-hub-signature-256"],
    cases: () => [
      ...bodies({ action: "opened", zen: "Non-blocking is better than blocking." }),
      form("form", { payload: JSON.stringify({ zen: "Été ☕ + 100 % & more", sha: "\u001b[0m" }) }),
    ],
    sign: async ({ body, id, secret }) => ({
      "User-Agent": "GitHub-Hookshot/044aadd",
      "X-GitHub-Delivery": id,
      "X-GitHub-Event": "push",
      "X-GitHub-Hook-ID": "292430182",
      "X-Hub-Signature-256": await signGithub(secret, body.toString()),
    }),
    verify: ({ body, headers }, secret) => verifyGithub(secret, body.toString(), headers["x-hub-signature-256"]),
    deliveryId: (id) => id,
  },
  shopifyFamily("shopify", "X-Shopify"),
  shopifyFamily("shopify-events", "Shopify"),
  {
    source: "svix",
    secret: "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcY",
    otherSecret: "whsec_GBcWFRQTEhEQDw4NDAsKCQgHBgUEAwIB",
    signed: ["svix-timestamp", "svix-signature"],
    time: timeIn("svix-timestamp"),
    tolerance: 300,
    stale: 400,
    cases: () => bodies({ type: "invoice.paid", data: { amount: 1 } }),
    sign: standardHeaders(svix.Webhook, "svix"),
    signRolled: standardRolled(svix.Webhook, "svix"),
    verify: ({ body, headers }, secret) => Boolean(new svix.Webhook(secret).verify(body, headers)),
    newId: () => `msg_${randomUUID()}`,
    deliveryId: (id) => id,
  },
  {
    source: "standard-webhooks",
    secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    otherSecret: "whsec_wSaLaL2oIZPLI8DPUjwTrqYKG8r9QKfM",
    signed: ["webhook-timestamp", "webhook-signature"],
    time: timeIn("webhook-timestamp"),
    tolerance: 300,
    stale: 400,
    cases: () => bodies({ type: "contact.created", timestamp: "2026-11-29T20:00:00Z" }),
    sign: standardHeaders(standard.Webhook, "webhook"),
    signRolled: standardRolled(standard.Webhook, "webhook"),
    verify: ({ body, headers }, secret) => Boolean(new standard.Webhook(secret).verify(body, headers)),
    newId: () => `msg_${randomUUID()}`,
    deliveryId: (id) => id,
  },
  {
    source: "slack",
    secret: "8f742231b10e8888abcd99yyyzzz85a5",
    otherSecret: "5a58zzzyyy99dcba8888e01b132247f8",
    signed: ["x-slack-request-timestamp", "x-slack-signature"],
    time: timeIn("x-slack-request-timestamp"),
    tolerance: 300,
    stale: 400,
    cases: (id) => [
      ...bodies({ type: "event_callback", event_id: id, event: { type: "message" } }),
      form("form (interaction)", { payload: JSON.stringify({ type: "block_actions", trigger_id: id, text: "né ☕" }) }),
    ],
    sign: ({ body, at, secret }) => ({
      "X-Slack-Request-Timestamp": String(at),
      "X-Slack-Signature": `v0=${hmac("sha256", secret, `v0:${at}:${body}`, "hex")}`,
    }),
    verify: ({ body, headers }, secret) => {
      slack.verifySlackRequest({ signingSecret: secret, body: body.toString(), headers });
      return true;
    },
    newId: () => `Ev${randomUUID()}`,
  },
  {
    source: "twilio",
    secret: "12345678901234567890123456789012",
    otherSecret: "21098765432109876543210987654321",
    signed: ["x-twilio-signature"],
    cases: (id) => {
      const json = Buffer.from(`{"MessageSid":"${id}","Body":"né ☕ \\u001B"}\r\n`);
      const bodySHA256 = createHash("sha256").update(json).digest("hex");
      const settings = { "X-Twilio-Webhooks-Signature-Settings": "key=webhooks_sharedkey_1,algorithm=HMAC_SHA256" };
      const call = { CallSid: id, Caller: "+14158675309", From: "+14158675309", To: "+18005551212" };
      return [
        form("form", call, "?region=us1&who=O'Brien&x=%2f"),
        form("form, unicode", { ...call, Body: "né ☕ 100 % & a=b + c\r\n", Empty: "" }),
        form("form, repeated keys", { ...call, Media: ["b", "a", "b"] }),
        form("form, 100 KB", { ...call, Body: "☕ ".repeat(20_000) }),
        form("form, shared key", call, "", settings),
        { name: "JSON", body: json, query: `?a=1&bodySHA256=${bodySHA256}` },
      ];
    },
    sign: ({ body, id, secret, url, headers }) => {
      const params = url.includes("bodySHA256") ? {} : { ...parseForm(body.toString()) };
      const algorithm = twilio.getSignatureAlgorithm(headers["X-Twilio-Webhooks-Signature-Settings"]);
      return {
        "I-Twilio-Idempotency-Token": id,
        "X-Twilio-Signature": twilio.getExpectedTwilioSignature(secret, url, params, algorithm),
      };
    },
    verify: ({ body, headers, url }, secret) => {
      const signature = headers["x-twilio-signature"];
      const algorithm = twilio.getSignatureAlgorithm(headers["x-twilio-webhooks-signature-settings"]);
      if (url.includes("bodySHA256")) {
        return twilio.validateRequestWithBody(secret, signature, url, body.toString(), algorithm);
      }
      return twilio.validateRequest(secret, signature, url, { ...parseForm(body.toString()) }, algorithm);
    },
  },
  {
    source: "square",
    secret: "asdf1234-test-signature-key",
    otherSecret: "4321fdsa-test-signature-key",
    signed: ["x-square-hmacsha256-signature"],
    cases: (id) => bodies({ merchant_id: "MLEFBHHSJGVHD", type: "payment.created", event_id: id }),
    sign: ({ body, secret, url }) => ({
      "X-Square-HmacSha256-Signature": hmac("sha256", secret, url + body, "base64"),
    }),
    verify: ({ body, headers, url }, secret) =>
      square.WebhooksHelper.verifySignature({
        requestBody: body.toString(),
        signatureHeader: headers["x-square-hmacsha256-signature"],
        signatureKey: secret,
        notificationUrl: url,
      }),
    deliveryId: (id) => id,
  },
  {
    source: "linear",
    secret: "lin_wh_0123456789abcdef0123456789abcdef",
    otherSecret: "lin_wh_fedcba9876543210fedcba9876543210",
    // The time is a field of the body: no signature can renew it.
    signed: [],
    stale: 86_400,
    cases: (_id, at) => bodies({ action: "create", type: "Issue", webhookTimestamp: at * 1000 }),
    sign: ({ body, id, secret }) => ({
      "Linear-Delivery": id,
      "Linear-Event": "Issue",
      "Linear-Signature": hmac("sha256", secret, body, "hex"),
    }),
    verify: ({ body, headers }, secret) =>
      new LinearWebhookClient(secret).verify(body, headers["linear-signature"]),
    deliveryId: (id) => id,
  },
  {
    source: "paddle",
    secret: "pdl_ntfset_01test_0123456789abcdef",
    otherSecret: "pdl_ntfset_02test_fedcba9876543210",
    signed: ["paddle-signature"],
    time: timeIn("paddle-signature", /(?:^|;)ts=(\d+)/),
    tolerance: 5,
    stale: 60,
    cases: (id) => bodies({ event_id: id, event_type: "transaction.paid", notification_id: `ntf_${id}`, data: {} }),
    sign: ({ body, at, secret }) => ({
      "Paddle-Signature": `ts=${at};h1=${hmac("sha256", secret, `${at}:${body}`, "hex")}`,
    }),
    verify: ({ body, headers }, secret) =>
      new Paddle("unused").webhooks.isSignatureValid(body.toString(), secret, headers["paddle-signature"]),
    newId: () => `evt_${randomUUID()}`,
    deliveryId: (id) => id,
  },
];

/** The environment variable that holds a provider's secret. */
export const secretVariable = ({ source }) => `SDK_TEST_${source.toUpperCase().replaceAll("-", "_")}_SECRET`;

/** A signed request for the case at `index`, made at `at` (seconds) and sent to the provider's source. */
export async function compose(provider, index, { at = now(), id = newId(provider), secret, rolled = false } = {}) {
  const { source, otherSecret } = provider;
  const { name, body, query = "", headers = JSON_HEADERS, chunked = false } = provider.cases(id, at)[index];
  const target = `/webhooks/${source}${query}`;
  const sign = rolled ? provider.signRolled : provider.sign;
  const message = { body, id, at, secret: secret ?? provider.secret, otherSecret, url: PUBLIC_URL + target, headers };
  return { source, name, id, at, target, body, chunked, method: "POST", headers: { ...headers, ...(await sign(message)) } };
}

/** What the SDK says about a request; an exception of its own is a no. */
export async function sdkAccepts(provider, { method, target, headers, body }) {
  const lower = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
  try {
    return await provider.verify({ method, target, url: PUBLIC_URL + target, headers: lower, body }, provider.secret);
  } catch {
    return false;
  }
}

export const now = () => Math.floor(Date.now() / 1000);
const newId = (provider) => provider.newId?.() ?? randomUUID();
