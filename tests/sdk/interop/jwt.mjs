// Providers that send a JWT or a detached JWS with the request.

import { createHash, createSecretKey, generateKeyPairSync, sign as signBytes } from "node:crypto";

import { verifySignatureWithJwks as saleor } from "@saleor/app-sdk/auth";
import { decodeWebhook } from "@kinde/webhooks";
import { Receiver as QStash } from "@upstash/qstash";
import { verifySignature as vonage } from "@vonage/jwt";
import jira from "atlassian-jwt";
import { WebhookReceiver as LiveKit } from "livekit-server-sdk";
import messagebird from "messagebird/lib/webhook-signature-jwt.js";
import * as truelayer from "truelayer-signing";

import { differ, hmac, json, oddBodies } from "./common.mjs";

const keys = {
  secret: "jwt-test-secret-0123456789abcdef0123456789abcdef",
  otherSecret: "jwt-other-secret-fedcba9876543210fedcba9876543210",
  cases: oddBodies,
  signs: false,
};
const encoded = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
/** A token with these claims. */
function hs256(claims, secret) {
  const text = `${encoded({ alg: "HS256", typ: "JWT" })}.${encoded(claims)}`;
  return `${text}.${hmac("sha256", secret, text, "base64url")}`;
}
const sha256 = (text, encoding) => createHash("sha256").update(text).digest(encoding);

/** A key pair whose public half both sides get as a key set. */
function pair(type, options, id) {
  const [own, other] = [generateKeyPairSync(type, options), generateKeyPairSync(type, options)];
  const jwk = { ...own.publicKey.export({ format: "jwk" }), kid: id };
  return { secret: JSON.stringify({ keys: [jwk] }), key: own.privateKey, otherKey: other.privateKey, signs: false };
}

const elsewhere = ({ url, target }) => ({ url: url.replace("/in/", "/out/"), target: target.replace("/in/", "/out/") });

export const jwt = [
  {
    source: "jira-connect",
    npm: "atlassian-jwt",
    ...keys,
    // The claim covers method, path and query.
    unsigned: "body",
    make: () => ({ ...json({ webhookEvent: "jira:issue_created" }), target: "/in/jira-connect?user=a%20b&x=1&x=0" }),
    forged: elsewhere,
    sign: ({ method, target, at, secret }) => {
      const qsh = jira.createQueryStringHash(jira.fromMethodAndUrl(method, target), false, "");
      const claims = { iss: "client-key", iat: at, exp: at + 180, qsh };
      return { Authorization: `JWT ${jira.encodeSymmetric(claims, secret, "HS256")}` };
    },
    verify: ({ method, url, headers }, secret) => {
      const claims = jira.decodeSymmetric(headers.authorization.replace(/^JWT /, ""), secret, "HS256");
      const { pathname, search } = new URL(url);
      const expected = jira.createQueryStringHash(jira.fromMethodAndUrl(method, pathname + search), false, "");
      // As the documents have the app compare them: the library only decodes.
      return claims.qsh === expected && claims.exp > Date.now() / 1000;
    },
  },
  {
    source: "kinde",
    npm: "@kinde/webhooks",
    ...pair("rsa", { modulusLength: 2048 }, "kinde-1"),
    // The body is the token; white space around it counts for nothing.
    signsBytes: false,
    make: () => ({ headers: { "Content-Type": "application/jwt" }, body: "plain" }),
    sign: ({ id, at, secret }) => {
      const claims = { event_id: id, type: "user.created", source: "admin", timestamp: new Date(at * 1000).toISOString(), data: {} };
      const text = `${encoded({ alg: "RS256", kid: "kinde-1", typ: "JWT" })}.${encoded(claims)}`;
      return { request: { body: `${text}.${signBytes("sha256", Buffer.from(text), secret).toString("base64url")}` } };
    },
    forgery: ({ body }) => {
      const [header, claims, signature] = body.toString().split(".");
      const forged = Buffer.from(claims, "base64url").toString().replace("user.created", "user.deleted");
      return { body: Buffer.from([header, Buffer.from(forged).toString("base64url"), signature].join(".")) };
    },
    // The SDK asks the domain for its keys; no test asks the internet.
    verify: async ({ text }, jwks) => {
      const real = globalThis.fetch;
      globalThis.fetch = async () => new Response(jwks, { headers: { "Content-Type": "application/json" } });
      try {
        return (await decodeWebhook(text, "https://example.kinde.com")) !== null;
      } finally {
        globalThis.fetch = real;
      }
    },
  },
  {
    source: "livekit",
    npm: "livekit-server-sdk",
    ...keys,
    params: { api_key: "APItest" },
    make: () => json({ event: "room_started", id: "EV_1" }),
    sign: ({ body, at, secret }) => ({
      Authorization: hs256({ iss: "APItest", nbf: at, exp: at + 300, sha256: sha256(body, "base64") }, secret),
    }),
    verify: ({ text, headers, params }, secret) => new LiveKit(params.api_key, secret).receive(text, headers.authorization),
    past: 500,
  },
  {
    source: "messagebird",
    npm: "messagebird",
    ...keys,
    make: () => ({ ...json({ id: "1" }), target: "/in/messagebird?a=1" }),
    forged: elsewhere,
    sign: ({ url, body, id, at, secret }) => ({
      "MessageBird-Signature-JWT": hs256(
        {
          iss: "MessageBird",
          jti: id,
          nbf: at,
          exp: at + 60,
          url_hash: sha256(url, "hex"),
          payload_hash: sha256(body, "hex"),
        },
        secret,
      ),
    }),
    verify: async ({ url, body, headers }, secret) => {
      await messagebird.verify(url, body, headers["messagebird-signature-jwt"], createSecretKey(Buffer.from(secret)));
      return true;
    },
    past: 160,
    future: 300,
  },
  {
    source: "qstash",
    npm: "@upstash/qstash",
    ...keys,
    make: () => json({ id: "1" }, { "Upstash-Message-Id": "msg_1" }),
    sign: ({ url, body, id, at, secret }) => ({
      "Upstash-Signature": hs256(
        { iss: "Upstash", sub: url, jti: id, iat: at, nbf: at, exp: at + 300, body: sha256(body, "base64url") },
        secret,
      ),
    }),
    forged: elsewhere,
    verify: ({ url, text, headers }, secret) =>
      new QStash({ currentSigningKey: secret, nextSigningKey: secret }).verify({
        signature: headers["upstash-signature"],
        body: text,
        url,
      }),
    past: 500,
    future: 300,
  },
  {
    source: "saleor",
    npm: "@saleor/app-sdk",
    ...pair("rsa", { modulusLength: 2048 }, "1"),
    cases: oddBodies,
    make: () => json({ id: "1" }, { "Saleor-Event": "order_created" }),
    sign: ({ body, secret }) => {
      const header = encoded({ alg: "RS256", kid: "1", b64: false, crit: ["b64"] });
      const signature = signBytes("sha256", Buffer.concat([Buffer.from(`${header}.`), body]), secret);
      return { "Saleor-Signature": `${header}..${signature.toString("base64url")}` };
    },
    verify: async ({ text, headers }, secret) => {
      await saleor(secret, headers["saleor-signature"], text);
      return true;
    },
  },
  {
    source: "truelayer",
    npm: "truelayer-signing",
    ...pair("ec", { namedCurve: "secp521r1" }, "test-key"),
    cases: oddBodies,
    make: () => json({ type: "payment_executed" }, { "X-Tl-Webhook-Timestamp": "2026-11-30T00:00:00Z", "X-TL-Webhook-Id": "1" }),
    sign: ({ target, headers, body, secret }) => ({
      "Tl-Signature": truelayer.sign({
        kid: "test-key",
        privateKeyPem: secret.export({ format: "pem", type: "sec1" }),
        method: "POST",
        path: target,
        headers: { "X-Tl-Webhook-Timestamp": headers["X-Tl-Webhook-Timestamp"] },
        body: body.toString(),
      }),
    }),
    forged: elsewhere,
    verify: ({ target, text, headers }, jwks) => {
      truelayer.verify({ jwks, signature: headers["tl-signature"], method: "POST", path: target, body: text, headers });
      return true;
    },
  },
  {
    source: "vonage",
    npm: "@vonage/jwt",
    ...keys,
    make: () => json({ status: "delivered" }),
    sign: ({ body, id, at, secret }) => ({
      Authorization: `Bearer ${hs256(
        { iss: "Vonage", api_key: "k", jti: id, iat: at, exp: at + 300, payload_hash: sha256(body, "hex") },
        secret,
      )}`,
    }),
    verify: ({ headers }, secret) => vonage(headers.authorization.replace(/^Bearer /, ""), secret),
    past: 500,
    differs: differ(
      ["a forged value", "one more byte"],
      "accept",
      "reject",
      "the SDK leaves the claim payload_hash to the app; the documents ask to compare it",
    ),
  },
];
