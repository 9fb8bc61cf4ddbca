// Providers that sign where a request goes.

import { createHash } from "node:crypto";

import hubspot from "@hubspot/api-client";
import { WebhookSignatureValidator as MercadoPago } from "mercadopago";
import plivo from "plivo";

import { python } from "../python.mjs";
import { form, hmac, json, oddBodies } from "./common.mjs";

const keys = { secret: "url-test-secret-0123456789abcdef", otherSecret: "url-other-secret-fedcba9876543210" };
const elsewhere = ({ url, target }) => ({ url: url.replace("/in/", "/out/"), target: target.replace("/in/", "/out/") });

export const url = [
  {
    source: "hubspot",
    npm: "@hubspot/api-client",
    ...keys,
    cases: oddBodies,
    make: () => ({ ...json({ eventId: 1, subscriptionType: "contact.creation" }), target: "/in/hubspot?a=1&b=x%20y" }),
    sign: ({ method, url, body, at, secret }) => ({
      "X-HubSpot-Request-Timestamp": String(at * 1000),
      "X-HubSpot-Signature-v3": hubspot.Signature.getSignature(method, "v3", {
        clientSecret: secret,
        requestBody: body.toString(),
        url,
        timestamp: at * 1000,
      }),
    }),
    forged: elsewhere,
    verify: ({ method, url, text, headers }, clientSecret) =>
      hubspot.Signature.isValid({
        method,
        signatureVersion: "v3",
        signature: headers["x-hubspot-signature-v3"],
        clientSecret,
        requestBody: text,
        url,
        timestamp: Number(headers["x-hubspot-request-timestamp"]),
      }),
    past: 400,
  },
  {
    source: "hubspot-v2",
    npm: "@hubspot/api-client",
    ...keys,
    cases: oddBodies,
    make: () => ({ ...json({ eventId: 1 }), target: "/in/hubspot-v2?a=1&b=x%20y" }),
    sign: ({ method, url, body, secret }) => ({
      "X-HubSpot-Signature": hubspot.Signature.getSignature(method, "v2", {
        clientSecret: secret,
        requestBody: body.toString(),
        url,
      }),
    }),
    forged: elsewhere,
    verify: ({ method, url, text, headers }, clientSecret) =>
      hubspot.Signature.isValid({
        method,
        signatureVersion: "v2",
        signature: headers["x-hubspot-signature"],
        clientSecret,
        requestBody: text,
        url,
      }),
  },
  {
    source: "mandrill",
    pypi: "django-anymail",
    by: "community",
    ...keys,
    make: () => ({ ...form({ mandrill_events: '[{"event":"send","_id":"1","text":"né ☕ plain"}]' }), target: "/in/mandrill?source=1" }),
    sign: ({ url, body, secret }) => {
      const fields = [...new URLSearchParams(body.toString())].sort(([a], [b]) => (a < b ? -1 : 1));
      return { "X-Mandrill-Signature": hmac("sha1", secret, url + fields.flat().join(""), "base64") };
    },
    forged: elsewhere,
    verify: python("mandrill"),
  },
  {
    source: "mercadopago",
    npm: "mercadopago",
    ...keys,
    unsigned: "body",
    make: () => ({
      ...json({ type: "payment", data: { id: "1" } }, { "x-request-id": "bb56a2f1-6aae-46ac-982e-9dcd3581d08e" }),
      target: "/in/mercadopago?data.id=123456&type=payment",
    }),
    sign: ({ url, headers, at, secret }) => {
      const id = new URL(url).searchParams.get("data.id");
      const text = `id:${id};request-id:${headers["x-request-id"]};ts:${at};`;
      return { "x-signature": `ts=${at},v1=${hmac("sha256", secret, text, "hex")}` };
    },
    forged: ({ url, target }) => ({ url: url.replace("123456", "123457"), target: target.replace("123456", "123457") }),
    verify: ({ url, headers }, secret) => {
      MercadoPago.validate({
        xSignature: headers["x-signature"],
        xRequestId: headers["x-request-id"],
        dataId: new URL(url).searchParams.get("data.id"),
        secret,
      });
      return true;
    },
  },
  {
    source: "plivo-v2",
    npm: "plivo",
    ...keys,
    unsigned: "body",
    make: () => ({ ...form({ MessageUUID: "1", Status: "sent" }), target: "/in/plivo-v2?a=1" }),
    sign: ({ url, secret }) => ({
      "X-Plivo-Signature-V2-Nonce": "12345",
      "X-Plivo-Signature-V2": hmac("sha256", secret, `${url.split("?")[0]}12345`, "base64"),
    }),
    forged: elsewhere,
    verify: ({ url, headers }, secret) =>
      plivo.validateSignature(url, headers["x-plivo-signature-v2-nonce"], headers["x-plivo-signature-v2"], secret),
  },
  {
    source: "plivo",
    npm: "plivo",
    ...keys,
    make: () => ({ ...form({ Event: "StartApp", To: "1", From: "né ☕", CallUUID: "1" }), target: "/in/plivo?b=2&a=x%20y" }),
    sign: ({ url, body, secret }) => {
      const nonce = "05429567804466091622";
      const fields = [...new URLSearchParams(body.toString())].sort(([a], [b]) => (a < b ? -1 : 1));
      const { origin, pathname, searchParams } = new URL(url);
      const query = [...searchParams].sort(([a], [b]) => (a < b ? -1 : 1)).map((pair) => pair.join("="));
      const text = `${origin}${pathname}?${query.join("&")}.${fields.flat().join("")}.${nonce}`;
      return { "X-Plivo-Signature-V3-Nonce": nonce, "X-Plivo-Signature-V3": hmac("sha256", secret, text, "base64") };
    },
    rolled: ([first, second]) => ({
      ...first,
      "X-Plivo-Signature-V3": `${first["X-Plivo-Signature-V3"]},${second["X-Plivo-Signature-V3"]}`,
    }),
    forged: elsewhere,
    verify: ({ method, url, text, headers }, secret) =>
      plivo.validateV3Signature(
        method,
        url,
        headers["x-plivo-signature-v3-nonce"],
        secret,
        headers["x-plivo-signature-v3"],
        Object.fromEntries(new URLSearchParams(text)),
      ),
  },
  {
    source: "wechat-mp",
    pypi: "wechatpy",
    by: "community",
    ...keys,
    unsigned: "body",
    signs: false,
    make: () => ({ headers: { "Content-Type": "text/xml" }, body: "<xml><Content>plain</Content></xml>" }),
    sign: ({ target, at, secret }) => {
      const text = [secret, String(at), "1320562132"].sort().join("");
      const signature = createHash("sha1").update(text).digest("hex");
      return { request: { target: `${target}?signature=${signature}&timestamp=${at}&nonce=1320562132` } };
    },
    forged: ({ url, target }) => ({ url: url.replace("1320562132", "1320562133"), target: target.replace("1320562132", "1320562133") }),
    verify: python("wechat-mp"),
  },
];
