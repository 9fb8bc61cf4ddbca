// Providers that sign with a key pair: their documents give the public key, a new pair is made for each run.

import { execFileSync } from "node:child_process";
import { createPrivateKey, generateKeyPairSync, sign } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import https from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";

import sendgrid from "@sendgrid/eventwebhook";
import { verifyKey as discord } from "discord-interactions";
import SnsValidator from "sns-validator";
import { TelnyxWebhook } from "telnyx/lib/webhooks.js";

import { json, oddBodies } from "./common.mjs";

/** `secret` is the public half of `key`, as the provider writes it. */
function keys(type, options, write) {
  const [own, other] = [generateKeyPairSync(type, options), generateKeyPairSync(type, options)];
  return { secret: write(own.publicKey), key: own.privateKey, otherKey: other.privateKey, cases: oddBodies, signs: false };
}

const spki = (key) => key.export({ format: "der", type: "spki" });
/** The last 32 bytes of an Ed25519 key's envelope are the key. */
const ed25519 = (encoding) => keys("ed25519", {}, (key) => spki(key).subarray(-32).toString(encoding));

const discordSign = ({ body, at, secret }) => ({
  "X-Signature-Timestamp": String(at),
  "X-Signature-Ed25519": sign(null, Buffer.concat([Buffer.from(String(at)), body]), secret).toString("hex"),
});
const discordVerify = ({ body, headers }, key) =>
  discord(body, headers["x-signature-ed25519"], headers["x-signature-timestamp"], key);

/** SNS signs members of the body, and the validator fetches the certificate that the body names. */
const CERTIFICATE = "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-test.pem";
function sns() {
  const folder = mkdtempSync(join(tmpdir(), "hooksluice-sdk-"));
  const [keyFile, certificateFile] = [join(folder, "key.pem"), join(folder, "certificate.pem")];
  const args = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", keyFile, "-out", certificateFile];
  execFileSync("openssl", [...args, "-subj", "/CN=sns.amazonaws.com", "-days", "1"], { stdio: "ignore" });
  const [privateKey, certificate] = [createPrivateKey(readFileSync(keyFile)), readFileSync(certificateFile, "utf8")];
  rmSync(folder, { recursive: true });
  const own = { secret: certificate, key: privateKey };
  const otherKey = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey;
  const signed = ["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"];
  return {
    ...own,
    otherKey,
    signs: false,
    make: ({ id, at }) => ({
      headers: { "Content-Type": "text/plain; charset=UTF-8", "x-amz-sns-message-type": "Notification" },
      body: JSON.stringify({
        Type: "Notification",
        MessageId: id,
        TopicArn: "arn:aws:sns:eu-west-1:123456789012:topic",
        Subject: "né ☕",
        Message: '{"note": "plain"}\r\n',
        Timestamp: new Date(at * 1000).toISOString(),
        SigningCertURL: CERTIFICATE,
      }),
    }),
    sign: ({ body, secret }) => {
      const value = JSON.parse(body);
      const text = signed.map((name) => `${name}\n${value[name]}\n`).join("");
      const Signature = sign("sha256", Buffer.from(text), secret).toString("base64");
      return { request: { body: JSON.stringify({ ...value, SignatureVersion: "2", Signature }) } };
    },
    /** White space around JSON is not signed. */
    signsBytes: false,
    verify: ({ text }) =>
      new Promise((resolve, reject) => {
        const real = https.get;
        // The validator's own `https.get`, and nothing else, is answered here: no test asks the internet.
        https.get = (_url, answer) => {
          const response = Object.assign(Readable.from([certificate]), { statusCode: 200 });
          queueMicrotask(() => answer(response));
          return { on: () => {} };
        };
        new SnsValidator().validate(text, (error) => (error ? reject(error) : resolve(true)));
        https.get = real;
      }),
  };
}

export const asymmetric = [
  {
    source: "discord",
    npm: "discord-interactions",
    ...ed25519("hex"),
    make: () => json({ type: 2, id: "1", token: "t" }),
    sign: discordSign,
    verify: discordVerify,
  },
  {
    source: "discord-events",
    npm: "discord-interactions",
    ...ed25519("hex"),
    make: () => json({ version: 1, type: 1, event: { type: "APPLICATION_AUTHORIZED", data: {} } }),
    sign: discordSign,
    verify: discordVerify,
  },
  {
    source: "sendgrid",
    npm: "@sendgrid/eventwebhook",
    ...keys("ec", { namedCurve: "prime256v1" }, (key) => spki(key).toString("base64")),
    cases: undefined,
    make: () => ({ headers: { "Content-Type": "application/json" }, body: '[{"event":"open","sg_event_id":"1","note":"plain"}]\r\n' }),
    sign: ({ body, at, secret }) => ({
      "X-Twilio-Email-Event-Webhook-Timestamp": String(at),
      "X-Twilio-Email-Event-Webhook-Signature": sign("sha256", `${at}${body}`, secret).toString("base64"),
    }),
    verify: ({ text, headers }, key) => {
      const { EventWebhook, EventWebhookHeader } = sendgrid;
      const checker = new EventWebhook();
      const signature = headers[EventWebhookHeader.SIGNATURE().toLowerCase()];
      const timestamp = headers[EventWebhookHeader.TIMESTAMP().toLowerCase()];
      return checker.verifySignature(checker.convertPublicKeyToECDSA(key), text, signature, timestamp);
    },
  },
  { source: "sns", npm: "sns-validator", ...sns() },
  {
    source: "telnyx",
    npm: "telnyx",
    ...ed25519("base64"),
    make: () => json({ data: { id: "1", event_type: "message.received" } }),
    sign: ({ body, at, secret }) => ({
      "telnyx-timestamp": String(at),
      "telnyx-signature-ed25519": sign(null, Buffer.from(`${at}|${body}`), secret).toString("base64"),
    }),
    verify: async ({ text, headers }, key) => {
      await new TelnyxWebhook(key).verify(text, headers);
      return true;
    },
    past: 400,
    future: 700,
  },
];
