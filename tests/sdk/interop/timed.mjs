// Providers that sign a time with the body, in a form of their own.

import { createHash } from "node:crypto";

import * as contentful from "@contentful/node-apps-toolkit";
import hygraph from "@hygraph/utils";
import { AwsLambdaReceiver as ZoomReceiver } from "@zoom/rivet/users";
import { WebhooksManager } from "box-node-sdk/managers/webhooks";
import cloudinary from "cloudinary";
import Crisp from "crisp-api";
import Finch from "@tryfinch/finch-api";
import Mux from "@mux/mux-node";
import Orb from "orb-billing";
import Retell from "retell-sdk";
import * as sanity from "@sanity/webhook";
import { EventSubMiddleware } from "@twurple/eventsub-http";
import { WebflowClient } from "webflow-api";
import { WorkOS } from "@workos-inc/node";

import { python } from "../python.mjs";
import { differ, hmac, json, oddBodies } from "./common.mjs";

const keys = {
  secret: "timed-test-secret-0123456789abcdef",
  otherSecret: "timed-other-secret-fedcba9876543210",
  cases: oddBodies,
};
/** Without what the SDK prints to the console. */
async function quietly(body) {
  const { debug } = console;
  console.debug = () => {};
  try {
    return await body();
  } finally {
    console.debug = debug;
  }
}
const hex = (secret, text) => hmac("sha256", secret, text, "hex");
const workos = {
  ...keys,
  make: () => json({ event: "user.created", id: "1" }),
  sign: ({ body, at, secret }) => ({ "WorkOS-Signature": `t=${at * 1000}, v1=${hex(secret, `${at * 1000}.${body}`)}` }),
};

export const timed = [
  {
    source: "box",
    npm: "box-node-sdk",
    ...keys,
    make: () => json({ trigger: "FILE.UPLOADED" }, { "BOX-DELIVERY-ID": "1" }),
    sign: ({ body, at, secret }) => {
      // Box's SDK refuses even the second that is not over yet.
      const time = new Date((at - 1) * 1000).toISOString().replace(/\.000Z$/, "-00:00");
      return {
        "BOX-DELIVERY-TIMESTAMP": time,
        "BOX-SIGNATURE-VERSION": "1",
        "BOX-SIGNATURE-ALGORITHM": "HmacSHA256",
        "BOX-SIGNATURE-PRIMARY": hmac("sha256", secret, body + time, "base64"),
      };
    },
    rolled: ([first, second]) => ({ ...first, "BOX-SIGNATURE-SECONDARY": second["BOX-SIGNATURE-PRIMARY"] }),
    verify: ({ text, headers }, secret) => WebhooksManager.validateMessage(text, headers, secret, { secondaryKey: secret }),
    past: 700,
    future: 700,
  },
  {
    source: "cashfree",
    pypi: "cashfree_pg",
    ...keys,
    make: () => json({ type: "PAYMENT_SUCCESS_WEBHOOK", data: {} }, { "x-idempotency-key": "1" }),
    sign: ({ body, at, secret }) => ({
      "x-webhook-timestamp": String(at * 1000),
      "x-webhook-signature": hmac("sha256", secret, `${at * 1000}${body}`, "base64"),
    }),
    verify: python("cashfree"),
  },
  {
    source: "cloudinary",
    npm: "cloudinary",
    ...keys,
    make: () => json({ notification_id: "1", notification_type: "upload" }),
    sign: ({ body, at, secret }) => ({
      "X-Cld-Timestamp": String(at),
      "X-Cld-Signature": createHash("sha1").update(`${body}${at}${secret}`).digest("hex"),
    }),
    verify: ({ text, headers }, secret) => {
      cloudinary.v2.config({ api_secret: secret });
      return cloudinary.v2.utils.verifyNotificationSignature(text, headers["x-cld-timestamp"], headers["x-cld-signature"]);
    },
    past: 8000,
  },
  {
    source: "contentful",
    npm: "@contentful/node-apps-toolkit",
    ...keys,
    secret: "0123456789abcdef".repeat(4),
    otherSecret: "fedcba9876543210".repeat(4),
    make: () => ({
      ...json(
        { sys: { id: "1" } },
        { "X-Contentful-Topic": "ContentManagement.Entry.publish", "X-Contentful-Webhook-Request-Id": "1" },
      ),
      target: "/in/contentful?a=1&b=x%20y",
    }),
    sign: ({ method, target: path, headers, body, at, secret }) =>
      contentful.signRequest(secret, { method, path, headers, body: body.toString() }, at * 1000),
    verify: ({ method, target: path, headers, text }, secret) =>
      contentful.verifyRequest(secret, { method, path, headers, body: text }),
    past: 60,
  },
  {
    source: "crisp",
    npm: "crisp-api",
    ...keys,
    make: () => json({ event: "message:send", website_id: "1" }),
    sign: ({ body, at, secret }) => ({
      "X-Crisp-Request-Timestamp": String(at * 1000),
      "X-Crisp-Signature": hex(secret, `[${at * 1000};${body}]`),
    }),
    verify: ({ text, headers }, secret) =>
      new Crisp.default().verifyWidget(
        secret,
        JSON.parse(text),
        headers["x-crisp-request-timestamp"],
        headers["x-crisp-signature"],
      ),
    differs: {
      ...differ(["odd JSON", "CRLF, indented"], "reject", "accept", "the SDK signs JSON that it printed anew"),
      ...differ(["one more byte"], "accept", "reject", "the SDK signs JSON that it printed anew"),
    },
  },
  {
    source: "elevenlabs",
    pypi: "elevenlabs",
    ...keys,
    make: () => json({ type: "post_call_transcription" }),
    sign: ({ body, at, secret }) => ({ "ElevenLabs-Signature": `t=${at},v0=${hex(secret, `${at}.${body}`)}` }),
    verify: python("elevenlabs"),
    past: 2000,
  },
  {
    source: "finch",
    npm: "@tryfinch/finch-api",
    ...keys,
    secret: "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    otherSecret: "wSaLaL2oIZPLI8DPUjwTrqYKG8r9QKfM",
    make: () => json({ event_type: "account.updated" }),
    sign: ({ body, id, at, secret }) => ({
      "finch-event-id": id,
      "finch-timestamp": String(at),
      "finch-signature": `v1,${hmac("sha256", Buffer.from(secret, "base64"), `${id}.${at}.${body}`, "base64")}`,
    }),
    rolled: ([first, second]) => ({
      ...first,
      "finch-signature": `${first["finch-signature"]} ${second["finch-signature"]}`,
    }),
    verify: ({ text, headers }, secret) => {
      new Finch({ accessToken: "unused" }).webhooks.verifySignature(text, headers, secret);
      return true;
    },
    past: 400,
    future: 700,
  },
  {
    source: "hygraph",
    npm: "@hygraph/utils",
    ...keys,
    make: () => json({ operation: "publish", data: { id: "1" } }),
    sign: ({ body, secret }) => ({
      "gcms-signature": hygraph.generateWebhookSignature({ rawPayload: body.toString(), secret, environmentName: "master" }),
    }),
    verify: ({ text, headers }, secret) =>
      hygraph.verifyWebhookSignature({ rawPayload: text, signature: headers["gcms-signature"], secret }),
  },
  {
    source: "lark",
    pypi: "lark-oapi",
    ...keys,
    make: () => json({ schema: "2.0", header: { event_id: "1", event_type: "im.message" } }),
    sign: ({ body, at, secret }) => ({
      "X-Lark-Request-Timestamp": String(at),
      "X-Lark-Request-Nonce": "nonce",
      "X-Lark-Signature": createHash("sha256").update(`${at}nonce${secret}${body}`).digest("hex"),
    }),
    verify: python("lark"),
  },
  {
    source: "mux",
    npm: "@mux/mux-node",
    ...keys,
    make: () => json({ type: "video.asset.ready", id: "1" }),
    sign: ({ body, at, secret }) => ({ "Mux-Signature": `t=${at},v1=${hex(secret, `${at}.${body}`)}` }),
    rolled: ([first, second]) => ({ "Mux-Signature": `${first["Mux-Signature"]},${second["Mux-Signature"].split(",")[1]}` }),
    verify: async ({ text, headers }, secret) => {
      await new Mux({ tokenId: "unused", tokenSecret: "unused" }).webhooks.verifySignature(text, headers, secret);
      return true;
    },
    past: 400,
  },
  {
    source: "orb",
    npm: "orb-billing",
    ...keys,
    make: () => json({ type: "invoice.issued", id: "1" }),
    sign: ({ body, at, secret }) => {
      // As Orb writes it: without a zone, which is UTC.
      const time = new Date(at * 1000).toISOString().replace(/Z$/, "");
      return { "X-Orb-Timestamp": time, "X-Orb-Signature": `v1=${hex(secret, `v1:${time}:${body}`)}` };
    },
    rolled: ([first, second]) => ({
      ...first,
      "X-Orb-Signature": `${first["X-Orb-Signature"]} ${second["X-Orb-Signature"]}`,
    }),
    verify: ({ text, headers }, secret) => {
      new Orb({ apiKey: "unused" }).webhooks.verifySignature(text, headers, secret);
      return true;
    },
    past: 400,
    future: 700,
  },
  {
    source: "retell",
    npm: "retell-sdk",
    ...keys,
    make: () => json({ event: "call_ended", call: { call_id: "1" } }),
    sign: ({ body, at, secret }) => ({
      "X-Retell-Signature": `v=${at * 1000},d=${hex(secret, `${body}${at * 1000}`)}`,
    }),
    verify: ({ text, headers }, secret) => Retell.verify(text, secret, headers["x-retell-signature"]),
    past: 400,
    future: 700,
  },
  {
    source: "sanity",
    npm: "@sanity/webhook",
    ...keys,
    make: () => json({ _id: "1" }, { "idempotency-key": "1", "sanity-operation": "create" }),
    sign: async ({ body, at, secret }) => ({
      [sanity.SIGNATURE_HEADER_NAME]: await sanity.encodeSignatureHeader(body.toString(), at * 1000, secret),
    }),
    verify: (received, secret) => sanity.isValidRequest({ headers: received.headers, body: received.text }, secret),
  },
  {
    source: "terra",
    pypi: "terra-python",
    ...keys,
    make: () => json({ type: "activity" }, { "terra-reference": "1" }),
    sign: ({ body, at, secret }) => ({ "terra-signature": `t=${at},v1=${hex(secret, `${at}.${body}`)}` }),
    rolled: ([first, second]) => ({
      "terra-signature": `${first["terra-signature"]},${second["terra-signature"].split(",")[1]}`,
    }),
    verify: python("terra"),
    past: 400,
    future: 700,
  },
  {
    source: "twitch",
    npm: "@twurple/eventsub-http",
    by: "community",
    ...keys,
    make: ({ id }) =>
      json(
        { subscription: { type: "channel.follow" }, event: {} },
        {
          "Twitch-Eventsub-Message-Id": id,
          "Twitch-Eventsub-Message-Type": "notification",
          "Twitch-Eventsub-Subscription-Type": "channel.follow",
        },
      ),
    sign: ({ body, id, at, secret }) => {
      const time = new Date(at * 1000).toISOString().replace(".000Z", ".123456789Z");
      return {
        "Twitch-Eventsub-Message-Timestamp": time,
        "Twitch-Eventsub-Message-Signature": `sha256=${hex(secret, `${id}${time}${body}`)}`,
      };
    },
    verify: ({ text, headers }, secret) => {
      const [id, time, signature] = ["id", "timestamp", "signature"].map((name) => headers[`twitch-eventsub-message-${name}`]);
      // The middleware's own check, which it calls with what it read from an HTTP server.
      return EventSubMiddleware.prototype._verifyData.call({ _secret: secret }, id, time, text, signature);
    },
    past: 800,
    differs: differ(["signed 800 s ago"], "accept", "reject", "the library does not look at the time; Twitch's documents ask to"),
  },
  {
    source: "webflow",
    npm: "webflow-api",
    ...keys,
    make: () => json({ _id: "1", triggerType: "form_submission" }),
    sign: ({ body, at, secret }) => ({
      "x-webflow-timestamp": String(at * 1000),
      "x-webflow-signature": hex(secret, `${at * 1000}:${body}`),
    }),
    verify: ({ text, headers }, secret) =>
      new WebflowClient({ accessToken: "unused" }).webhooks.verifySignature({ headers, body: text, secret }),
    past: 400,
    differs: differ(["signed 400 s ago"], "accept", "reject", "the SDK leaves the time to the app; the documents ask to look at it"),
  },
  {
    source: "workos",
    pypi: "workos",
    ...workos,
    verify: python("workos"),
    past: 400,
    future: 700,
  },
  {
    source: "workos",
    npm: "@workos-inc/node",
    ...workos,
    verify: ({ text, headers }, secret) =>
      new WorkOS("unused").webhooks.verifyHeader({ payload: JSON.parse(text), sigHeader: headers["workos-signature"], secret }),
    past: 400,
    differs: {
      ...differ(["odd JSON", "CRLF, indented"], "reject", "accept", "the SDK signs JSON that it printed anew"),
      ...differ(["one more byte"], "accept", "reject", "the SDK signs JSON that it printed anew"),
    },
  },
  {
    source: "zoom",
    npm: "@zoom/rivet",
    ...keys,
    make: () => json({ event: "meeting.started", event_ts: 1, payload: {} }),
    sign: ({ body, at, secret }) => ({
      "x-zm-request-timestamp": String(at),
      "x-zm-signature": `v0=${hex(secret, `v0:${at}:${body}`)}`,
    }),
    verify: async ({ text, headers }, webhooksSecretToken) => {
      const answer = await quietly(() =>
        new ZoomReceiver({ webhooksSecretToken }).start()({ body: text, headers, isBase64Encoded: false }, {}),
      );
      return answer.statusCode === 200;
    },
    past: 400,
    differs: {
      ...differ(["odd JSON", "CRLF, indented"], "reject", "accept", "the SDK signs JSON that it printed anew"),
      ...differ(["one more byte"], "accept", "reject", "the SDK signs JSON that it printed anew"),
      ...differ(["signed 400 s ago"], "accept", "reject", "the SDK does not look at the time; the documents advise to"),
    },
  },
];
