// `hooksluice verify` and `hooksluice sign`, which need no server.

import { spawnSync } from "node:child_process";

import { PUBLIC_URL, secretVariable } from "./providers.mjs";

const LIMIT_MS = 30_000;

/** What `verify --jsonl` says about each message, in order; `now` is when it should judge it. */
export function judge(binary, provider, messages) {
  const captures = messages.map(({ now, method, target, headers, body }) =>
    JSON.stringify({
      provider: provider.source,
      secret: provider.secret,
      now,
      method,
      url: PUBLIC_URL + target,
      headers,
      body_base64: body.toString("base64"),
    }),
  );
  const found = run(binary, ["verify", "--jsonl", "-"], {}, captures.join("\n"));
  return found.trim().split("\n").map((line) => JSON.parse(line));
}

/** The message with the headers that `sign` makes for it. */
export function signAnew(binary, provider, message) {
  const variable = secretVariable(provider);
  const headers = Object.entries(message.headers).flatMap(([name, value]) => ["-H", `${name}: ${value}`]);
  const args = ["sign", "--provider", provider.source, "--secret-env", variable, "--public-url", PUBLIC_URL];
  args.push("--url", PUBLIC_URL + message.target, "--method", message.method, "--body", "-", ...headers);
  const printed = run(binary, args, { [variable]: provider.secret }, message.body);
  const lines = printed.trim().split(/\r?\n/).map((line) => line.split(/: (.*)/s));
  return { ...message, headers: Object.fromEntries(lines) };
}

/** What one `verify --jsonl` says about the messages of many providers, in order, each judged at its `now`. */
export function judgeAll(binary, captures) {
  const lines = captures.map(({ entry, message }) =>
    JSON.stringify({
      provider: entry.source,
      secret: entry.secret,
      params: entry.params,
      now: message.now,
      method: message.method,
      url: message.url,
      headers: message.headers,
      body_base64: message.body.toString("base64"),
    }),
  );
  const found = run(binary, ["verify", "--jsonl", "-"], {}, lines.join("\n"));
  return found.trim().split("\n").map((line) => JSON.parse(line));
}

/** The message of an entry of the table in interop.mjs with the headers that `sign` makes for it. */
export function signWith(binary, entry, message) {
  const headers = Object.entries(message.headers).flatMap(([name, value]) => ["-H", `${name}: ${value}`]);
  const params = Object.entries(entry.params ?? {}).flatMap(([name, value]) => ["--param", `${name}=${value}`]);
  const args = ["sign", "--provider", entry.source, "--secret-env", "SECRET", "--url", message.url, ...params];
  args.push("--method", message.method, "--body", "-", ...headers);
  const printed = run(binary, args, { SECRET: entry.secret }, message.body);
  const lines = printed.trim().split(/\r?\n/).map((line) => line.split(/: (.*)/s));
  return { ...message, headers: Object.fromEntries(lines) };
}

function run(binary, args, env, input) {
  const options = { env: { PATH: process.env.PATH, ...env }, input, timeout: LIMIT_MS, maxBuffer: 64 << 20 };
  const { error, status, stdout, stderr } = spawnSync(binary, args, options);
  if (error) throw error;
  // 1: some of the captures were rejected. 2: some could not be judged, which their lines say.
  if (status !== 0 && !(args[0] === "verify" && status <= 2)) throw new Error(`${args[0]} ended with ${status}: ${stderr}`);
  return stdout.toString();
}
