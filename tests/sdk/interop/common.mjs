// What the families of the table share.

import { createHmac } from "node:crypto";

/** An HMAC of `text`. */
export const hmac = (hash, secret, text, encoding) => createHmac(hash, secret).update(text).digest(encoding);

/** A JSON request that carries `fields`, and what the tests forge. */
export const json = (fields, headers = {}) => ({
  headers: { "Content-Type": "application/json", ...headers },
  body: JSON.stringify({ ...fields, note: "plain" }),
});

/** A form request; `+` for spaces, as senders write it. */
export const form = (fields, headers = {}) => ({
  headers: { "Content-Type": "application/x-www-form-urlencoded", ...headers },
  body: new URLSearchParams({ ...fields, note: "plain" }).toString(),
});

/** Bodies that break whoever parses before verifying, made from a JSON body. */
export const oddBodies = ({ body }) => {
  const rest = body.toString().slice(1);
  const odd = '"esc":"\\u001B \\/ \\u20AC \\ud83d\\ude0a", "lit":"₹ 😊 é e\u0301 \u2028 <>&\'" ,"n":[1.0,1e2,-0,12345678901234567890],';
  return [
    { name: "odd JSON", request: () => ({ body: `{${odd} ${rest}` }) },
    { name: "CRLF, indented", request: () => ({ body: `{\r\n\t${odd}\r\n\t${rest}\r\n` }) },
  ];
};

/** Entries of `differs` for several cases. */
export const differ = (names, sdk, hooksluice, why) => Object.fromEntries(names.map((name) => [name, { sdk, hooksluice, why }]));
