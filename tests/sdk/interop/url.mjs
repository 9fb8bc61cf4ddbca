// Providers that sign where a request goes.


import hubspot from "@hubspot/api-client";
import { WebhookSignatureValidator as MercadoPago } from "mercadopago";
import plivo from "plivo";

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
];
