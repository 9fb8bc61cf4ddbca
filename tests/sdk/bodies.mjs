// Bodies that break receivers which look at them too early: parsed and printed again, re-encoded, or cut.

import { stringify } from "node:querystring";

/** JSON bodies that all carry `fields`, which say what the provider's preset looks for. */
export function bodies(fields) {
  const own = JSON.stringify(fields).slice(1, -1);
  // Printing any of these again changes bytes: escapes, number forms, a repeated key, a 20-digit integer, odd spaces.
  const odd =
    '"esc": "\\u001B[0m \\/ \\u20AC \\ud83d\\ude0a", "literal":"₹ 500 😊 é e\u0301 \u2028 <>&\'" ,"n":[1.0,1e2,-0,12345678901234567890], "a":1,"a":2';
  return [
    { name: "plain", body: Buffer.from(JSON.stringify({ ...fields, note: "plain" })) },
    { name: "unicode and escapes", body: Buffer.from(`{${own},${odd}}`) },
    { name: "CRLF, indented", body: Buffer.from(`{\r\n\t${own},\r\n\t"note": "a\\r\\nb",\r\n\t${odd}\r\n}\r\n`) },
    { name: "100 KB", body: Buffer.from(`{${own},"pad":"${"é☕😊x".repeat(10_240)}"}`) },
    { name: "100 KB, chunked", chunked: true, body: Buffer.from(`{${own},"pad":"${"x☕😊é".repeat(10_240)}"}`) },
  ];
}

/** A form body; `+` for spaces and upper-case escapes, as senders write it. */
export function form(name, fields, query = "", headers = {}) {
  const body = Buffer.from(stringify(fields).replaceAll("%20", "+"));
  return { name, body, query, headers: { "Content-Type": "application/x-www-form-urlencoded", ...headers } };
}
