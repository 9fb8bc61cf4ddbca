// Providers that speak Standard Webhooks. Their SDKs only verify; the reference library signs.

import Anthropic from "@anthropic-ai/sdk";
import { verifyWebhook as clerk } from "@clerk/backend/webhooks";
import { WebhookHandler as Liveblocks } from "@liveblocks/node";
import { validateEvent as polar } from "@polar-sh/sdk/webhooks";
import DodoPayments from "dodopayments";
import Lithic from "lithic";
import OpenAI from "openai";
import { validateWebhook as replicate } from "replicate";
import { Resend } from "resend";
import * as standardwebhooks from "standardwebhooks";

import { python } from "../python.mjs";
import { differ, hmac, json, oddBodies } from "./common.mjs";

const decoded = {
  secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
  otherSecret: "whsec_wSaLaL2oIZPLI8DPUjwTrqYKG8r9QKfM",
};
/** The scheme's headers under `prefix`, signed with what `signer` makes of the secret. */
const family = (prefix = "webhook") => ({
  sign: ({ body, id, at, secret }) => ({
    [`${prefix}-id`]: id,
    [`${prefix}-timestamp`]: String(at),
    [`${prefix}-signature`]: new standardwebhooks.Webhook(secret).sign(id, new Date(at * 1000), body.toString()),
  }),
  rolled: ([first, second]) => ({
    ...first,
    [`${prefix}-signature`]: `${first[`${prefix}-signature`]} ${second[`${prefix}-signature`]}`,
  }),
  cases: oddBodies,
  past: 400,
  future: 700,
});
/** The text of the secret is the key. */
const raw = {
  ...family(),
  sign: ({ body, id, at, secret }) => ({
    "webhook-id": id,
    "webhook-timestamp": String(at),
    "webhook-signature": `v1,${hmac("sha256", secret, `${id}.${at}.${body}`, "base64")}`,
  }),
};

/** The SDKs' clients want keys for calls that nobody makes here. */
const unused = "unused";

export const standard = [
  {
    source: "anthropic",
    npm: "@anthropic-ai/sdk",
    ...decoded,
    ...family(),
    make: () => json({ type: "session.completed" }),
    verify: ({ text, headers }, key) => new Anthropic({ apiKey: unused }).beta.webhooks.unwrap(text, { headers, key }),
  },
  {
    source: "clerk",
    npm: "@clerk/backend",
    ...decoded,
    ...family("svix"),
    make: () => json({ type: "user.created", data: { id: "user_1" } }),
    verify: ({ method, url, headers, body }, signingSecret) =>
      clerk(new Request(url, { method, headers, body }), { signingSecret }),
  },
  {
    source: "dodopayments",
    npm: "dodopayments",
    ...decoded,
    ...family(),
    make: () => json({ type: "payment.succeeded" }),
    verify: ({ text, headers }, key) => new DodoPayments({ bearerToken: unused }).webhooks.unwrap(text, { headers, key }),
  },
  {
    source: "increase",
    pypi: "increase",
    ...decoded,
    ...family(),
    make: () => json({ category: "account.created", id: "event_1" }),
    verify: python("increase"),
  },
  {
    source: "lithic",
    npm: "lithic",
    ...decoded,
    ...family(),
    make: () => json({ event_type: "card.created" }),
    verify: ({ text, headers }, secret) => {
      new Lithic({ apiKey: unused }).webhooks.verifySignature(text, headers, secret);
      return true;
    },
  },
  {
    source: "liveblocks",
    npm: "@liveblocks/node",
    ...decoded,
    ...family(),
    make: () => json({ type: "storageUpdated", data: {} }),
    verify: ({ text, headers }, secret) => new Liveblocks(secret).verifyRequest({ headers, rawBody: text }),
  },
  {
    source: "openai",
    npm: "openai",
    ...decoded,
    ...family(),
    make: () => json({ type: "response.completed", id: "evt_1" }),
    verify: async ({ text, headers }, secret) => {
      await new OpenAI({ apiKey: unused }).webhooks.verifySignature(text, headers, secret);
      return true;
    },
  },
  {
    source: "polar",
    npm: "@polar-sh/sdk",
    ...raw,
    secret: "polar_whs_0123456789abcdef",
    otherSecret: "polar_whs_fedcba9876543210",
    make: () => json({ type: "order.created", timestamp: "2026-11-30T00:00:00Z", data: {} }),
    verify: ({ text, headers }, secret) => {
      try {
        return polar(text, headers, secret);
      } catch (error) {
        // It verifies before it looks at the event's fields, of which the test sends few.
        if (error.constructor.name === "SDKValidationError") return true;
        throw error;
      }
    },
  },
  {
    source: "replicate",
    npm: "replicate",
    ...decoded,
    ...family(),
    make: () => json({ status: "succeeded", id: "p1" }),
    verify: (received, secret) => replicate({ headers: received.headers, body: received.text }, secret),
    differs: differ(
      ["signed 400 s ago", "signed 700 s ahead"],
      "accept",
      "reject",
      "the SDK leaves the time to the app; the documents ask to look at it",
    ),
  },
  {
    source: "resend",
    npm: "resend",
    ...decoded,
    ...family("svix"),
    make: () => json({ type: "email.sent", data: {} }),
    verify: ({ text, headers }, webhookSecret) =>
      new Resend(unused).webhooks.verify({
        payload: text,
        webhookSecret,
        headers: { id: headers["svix-id"], timestamp: headers["svix-timestamp"], signature: headers["svix-signature"] },
      }),
  },
  {
    source: "whop",
    pypi: "whop-sdk",
    ...raw,
    secret: "ws_0123456789abcdef0123456789abcdef",
    otherSecret: "ws_fedcba9876543210fedcba9876543210",
    make: () => json({ type: "payment.succeeded", data: {} }),
    verify: python("whop"),
  },
];
