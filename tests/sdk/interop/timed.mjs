// Providers that sign a time with the body, in a form of their own.


import Crisp from "crisp-api";
import Finch from "@tryfinch/finch-api";
import Mux from "@mux/mux-node";
import Retell from "retell-sdk";
import * as sanity from "@sanity/webhook";
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
];
