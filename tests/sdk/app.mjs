// The upstream: an app that verifies each request again with the provider's SDK, and remembers what it received.

import { once } from "node:events";
import { createServer } from "node:http";

import { providers, sdkAccepts } from "./providers.mjs";

/**
 * Starts an app on a free loopback port. A request with `X-Test-Outage: NAME=SECONDS` finds the app of that name away
 * at its first attempt: 503 with that `Retry-After`.
 */
export async function startApp(name) {
  const received = [];
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks);
    const { method, url: target, headers, rawHeaders } = request;
    const provider = providers.find(({ source }) => source === headers["hooksluice-source"]);
    const accepted = provider !== undefined && (await sdkAccepts(provider, { method, target, headers, body }));
    received.push({ at: Date.now(), method, target, headers, lines: lines(rawHeaders), body, accepted });
    const outage = headers["x-test-outage"];
    if (outage?.startsWith(`${name}=`) && headers["hooksluice-attempt"] === "1") {
      response.writeHead(503, { "Retry-After": outage.slice(name.length + 1) }).end();
      return;
    }
    // As an app would: what its SDK refuses is refused, and hooksluice sees it.
    response.writeHead(accepted ? 200 : 401).end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    name,
    origin: `http://127.0.0.1:${server.address().port}`,
    /** Everything received of the test message `key`. */
    of: (key) => received.filter(({ headers }) => headers["x-test-message"] === key),
    count: () => received.length,
    stop() {
      server.close();
      server.closeAllConnections();
    },
  };
}

/** Header lines as a map from lower-case name to its values in order. */
export function lines(rawHeaders) {
  const found = new Map();
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i].toLowerCase();
    found.set(name, [...(found.get(name) ?? []), rawHeaders[i + 1]]);
  }
  return found;
}
