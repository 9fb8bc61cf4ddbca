// Providers that send a secret as it is.

import { basicAuthValidator } from "chargebee";

import { json } from "./common.mjs";

export const token = [
  {
    source: "chargebee",
    npm: "chargebee",
    secret: "user:pass:with-colon",
    otherSecret: "user:other",
    // Whoever knows the password is believed, whatever the body says.
    unsigned: "body",
    make: () => json({ id: "ev_1", event_type: "subscription_created" }),
    sign: ({ secret }) => ({ Authorization: `Basic ${Buffer.from(secret).toString("base64")}` }),
    verify: async ({ headers }, secret) => {
      await basicAuthValidator((user, password) => `${user}:${password}` === secret)(headers);
      return true;
    },
  },
];
