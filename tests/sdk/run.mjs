// The providers' own SDKs → hooksluice → an app that verifies again with the same SDK.
//
//   node run.mjs --hooksluice BINARY    the whole way
//   node run.mjs --sdk-only             only that each SDK accepts its own requests and refuses others
//
// Prints a line per check and "N passed, M failed" at the end; exit code 0 only if all passed.

import { strict as assert } from "node:assert";
import { Agent, request as httpRequest } from "node:http";
import { resolve as absolute } from "node:path";
import { parseArgs } from "node:util";

import { lines, startApp } from "./app.mjs";
import { judge, signAnew } from "./commands.mjs";
import { startHooksluice } from "./hooksluice.mjs";
import { interop } from "./interop.mjs";
import { lateForwards } from "./late.mjs";
import { compose, now, providers, sdkAccepts } from "./providers.mjs";
import { signedForwards } from "./signing.mjs";

const WHOLE_RUN_MS = 240_000;
const INTEROP_MS = 300_000;
const FORWARD_MS = 15_000;
const ANSWER_MS = 15_000;

/** Longer than Paddle's tolerance, which is the only one that a test can wait for. */
const OUTAGE_S = 7;

/** What hooksluice may add to a forwarded request (DESIGN section 4). */
const ADDED = /^(host|content-length|x-forwarded-(for|proto|host)|hooksluice-(event-id|source|delivery-id|attempt|received-at|scope))$/;

const totals = { passed: 0, failed: 0 };

async function check(name, body) {
  try {
    await body();
    totals.passed += 1;
    console.log(`ok    ${name}`);
    return true;
  } catch (error) {
    totals.failed += 1;
    console.log(`FAIL  ${name}\n      ${error.message.replaceAll("\n", "\n      ")}`);
    return false;
  }
}

/** Waits for a level, not for a time: `found` is asked until it says something. */
async function until(what, found, limit = FORWARD_MS) {
  for (const deadline = Date.now() + limit; ; ) {
    const value = await found();
    if (value) return value;
    if (Date.now() > deadline) throw new Error(`${what}: not within ${limit / 1000} s`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** Sends a message byte for byte; resolves to the answer. */
function send(address, message) {
  const [host, port] = address.split(":");
  const { method, target, chunked, body } = message;
  const framing = chunked ? { "Transfer-Encoding": "chunked" } : { "Content-Length": body.length };
  const headers = { ...message.headers, "X-Test-Message": message.key, ...framing };
  return new Promise((resolve, reject) => {
    const request = httpRequest({ agent, host, port, method, path: target, headers, timeout: ANSWER_MS });
    request.once("timeout", () => request.destroy(new Error("no answer in time")));
    request.once("error", reject);
    request.once("response", async (response) => {
      const chunks = [];
      for await (const chunk of response) chunks.push(chunk);
      resolve({ status: response.statusCode, headers: response.headers, body: Buffer.concat(chunks).toString() });
    });
    if (chunked) {
      // Boundaries inside of multi-byte characters.
      for (let at = 0; at < body.length; at += 10_007) request.write(body.subarray(at, at + 10_007));
    }
    request.end(chunked ? undefined : body);
  });
}

const agent = new Agent({ keepAlive: true });

/** A test message, with a key by which the apps recognise it. */
let made = 0;
async function message(provider, index, options) {
  made += 1;
  return { ...(await compose(provider, index, options)), key: `${provider.source}-${made}` };
}

const changed = (original) => ({ ...original, body: Buffer.concat([original.body, Buffer.from(" ")]) });

/** Each SDK by itself. Without this, an app that accepts everything would make all that follows look right. */
async function sdkAlone(provider) {
  for (const index of provider.cases("id", now()).keys()) {
    const { name } = provider.cases("id", now())[index];
    await check(`${provider.source} SDK alone: ${name}: its own request, not a changed one nor another secret's`, async () => {
      const own = await compose(provider, index);
      assert.equal(await sdkAccepts(provider, own), true, "its own request");
      assert.equal(await sdkAccepts(provider, changed(own)), false, "a changed body");
      const foreign = await compose(provider, index, { secret: provider.otherSecret });
      assert.equal(await sdkAccepts(provider, foreign), false, "another secret");
    });
  }
}

/** The commands that need no server, in both directions. */
async function commands(binary, provider) {
  const { source } = provider;
  const indices = [...provider.cases("id", now()).keys()];
  await check(`${source}: \`hooksluice verify\` says of each request what the SDK says`, async () => {
    const messages = [];
    // Each is judged at once and `verify` is told when that was, so that a slow machine makes nothing stale.
    const add = async (sent) => messages.push({ ...sent, now: Date.now() / 1000, sdk: await sdkAccepts(provider, sent) });
    for (const index of indices) {
      const own = await compose(provider, index);
      await add(own);
      await add(changed(own));
      await add(await compose(provider, index, { secret: provider.otherSecret }));
      if (provider.signRolled) await add(await compose(provider, index, { rolled: true }));
      if (provider.stale) await add(await compose(provider, index, { at: now() - provider.stale }));
    }
    const judgements = judge(binary, provider, messages);
    assert.equal(judgements.length, messages.length);
    for (const [at, sent] of messages.entries()) {
      const expected = sent.sdk ? "accept" : "reject";
      assert.equal(judgements[at].verdict, expected, `${at}, ${sent.name}: ${JSON.stringify(judgements[at])}`);
    }
  });
  await check(`${source}: what \`hooksluice sign\` signs, the SDK accepts`, async () => {
    for (const index of indices) {
      // Signed with another secret, so that nothing is accepted that was only handed through.
      const foreign = await compose(provider, index, { secret: provider.otherSecret });
      const signed = signAnew(binary, provider, foreign);
      assert.ok(await sdkAccepts(provider, signed), `${foreign.name}: ${JSON.stringify(signed.headers)}`);
    }
  });
}

async function accepted(server, sent) {
  const answer = await send(server.listen, sent);
  assert.deepEqual([answer.status, answer.body], [200, ""], "the answer");
  return answer;
}

async function refused(server, sent) {
  const answer = await send(server.listen, sent);
  assert.deepEqual([answer.status, answer.body], [401, ""], "the answer");
}

const arrival = (app, sent) => until(`${sent.key} at ${app.name}`, () => app.of(sent.key)[0]);

/** What must hold wherever a request is forwarded to; `resigned` names the headers that may differ. */
function forwardedAsSent(sent, got, resigned, attempt = 1) {
  assert.equal(got.method, sent.method);
  assert.equal(got.target, sent.target, "the target");
  assert.ok(got.body.equals(sent.body), "the body's bytes");
  assert.deepEqual(got.lines.get("content-length"), [String(sent.body.length)]);
  const expected = lines(Object.entries(sent.headers).flat());
  for (const [name, values] of expected) {
    if (!resigned.includes(name)) assert.deepEqual(got.lines.get(name), values, `the header ${name}`);
  }
  const added = [...got.lines.keys()].filter((name) => !expected.has(name) && name !== "x-test-message");
  assert.deepEqual(added.filter((name) => !ADDED.test(name)), [], "headers that nobody asked for");
  assert.equal(got.headers["hooksluice-source"], sent.source);
  assert.equal(got.headers["hooksluice-attempt"], String(attempt));
  assert.ok(got.accepted, `the SDK refused what was forwarded: ${JSON.stringify([...got.lines])}`);
}

/** A provider's whole story. Returns what was sent, for the balance at the end. */
async function story(server, app, later, provider) {
  const { source } = provider;
  const tally = { source, events: [], duplicates: 0, refused: [] };
  let first;

  for (const index of provider.cases("id", now()).keys()) {
    const sent = await message(provider, index);
    first ??= sent;
    const began = Date.now();
    const ok = await check(`${source}: ${sent.name}: accepted`, () => accepted(server, sent));
    if (!ok) continue;
    tally.events.push(sent);
    if (sent === first) {
      // At once, before it can be stale (Paddle: 5 s) and perhaps before it was forwarded.
      await check(`${source}: the same again: 200`, async () => {
        tally.duplicates += 1;
        await accepted(server, first);
      });
    }
    await check(`${source}: ${sent.name}: forwarded byte for byte, and the SDK accepts it`, async () => {
      const got = await arrival(app, sent);
      // `auto` may sign anew once half of the tolerance has passed: with Paddle's 5 s, on a slow machine.
      const late = got.at - began > (provider.tolerance * 1000) / 2;
      forwardedAsSent(sent, got, late ? provider.signed : []);
      if (provider.deliveryId) {
        assert.equal(got.headers["hooksluice-delivery-id"], provider.deliveryId(sent.id));
      }
    });
    await check(`${source}: ${sent.name}: forwarded signed anew, and the SDK accepts it`, async () => {
      const got = await arrival(later, sent);
      forwardedAsSent(sent, got, provider.signed);
      const original = await arrival(app, sent);
      assert.equal(got.headers["hooksluice-event-id"], original.headers["hooksluice-event-id"]);
    });
  }

  if (provider.time) {
    const age = Math.floor(provider.tolerance * 0.2);
    await check(`${source}: signed ${age} s ago: forwarded with a new time, and the SDK accepts it`, async () => {
      const sent = await message(provider, 0, { at: now() - age });
      tally.events.push(sent);
      const before = now();
      await accepted(server, sent);
      const got = await arrival(later, sent);
      forwardedAsSent(sent, got, provider.signed);
      assert.ok(provider.time(got.headers) >= before, `the time is ${provider.time(got.headers)}, not ${before} or later`);
    });
  }
  if (provider.time && provider.tolerance < OUTAGE_S) {
    await check(`${source}: an app that is away for ${OUTAGE_S} s gets a signature that is not stale`, async () => {
      const sent = await message(provider, 0);
      sent.headers["X-Test-Outage"] = `app=${OUTAGE_S}`;
      sent.attempts = { app: 2 };
      tally.events.push(sent);
      await accepted(server, sent);
      const got = await until(`${sent.key} once more`, () => app.of(sent.key)[1], (OUTAGE_S + 20) * 1000);
      const age = Math.floor(got.at / 1000) - sent.at;
      assert.ok(age > provider.tolerance, `it came after ${age} s, too early to tell`);
      forwardedAsSent(sent, got, provider.signed, 2);
    });
  }
  if (provider.signRolled) {
    await check(`${source}: signed with two secrets during a roll: accepted, and the SDK accepts both forwards`, async () => {
      const sent = await message(provider, 0, { rolled: true });
      tally.events.push(sent);
      await accepted(server, sent);
      forwardedAsSent(sent, await arrival(app, sent), []);
      forwardedAsSent(sent, await arrival(later, sent), provider.signed);
    });
  }

  await check(`${source}: the same event signed anew, as a retry is: 200`, async () => {
    const at = provider.time ? Math.max(now(), first.at + 1) : first.at;
    const retry = await compose(provider, 0, { id: first.id, at });
    tally.duplicates += 1;
    await accepted(server, { ...retry, key: first.key });
  });

  const refusals = [
    ["a body with one more byte", async () => changed(await message(provider, 0))],
    ["another secret's signature", () => message(provider, 0, { secret: provider.otherSecret })],
    ["no signature", async () => unsigned(await message(provider, 0))],
  ];
  if (provider.stale) {
    const at = now() - provider.stale;
    refusals.push([`signed ${provider.stale} s ago`, () => message(provider, 0, { at })]);
  }
  for (const [what, make] of refusals) {
    await check(`${source}: ${what}: 401`, async () => {
      const sent = await make();
      tally.refused.push(sent);
      await refused(server, sent);
    });
  }
  return tally;
}

function unsigned(sent) {
  const headers = Object.entries(sent.headers).filter(([name]) => !/signature(-256)?$|hmac-sha256$/i.test(name));
  assert.ok(headers.length < Object.keys(sent.headers).length, "a signature to leave out");
  return { ...sent, headers: Object.fromEntries(headers) };
}

/** What is only true of the whole run: once everything has settled, nothing came twice and every request is counted. */
async function balance(server, apps, tallies) {
  const drained = await check("everything settled", () =>
    until("pending and leased dispatches and unadmitted events at 0", async () => {
      const dispatches = ["pending", "leased"].map((state) => server.metric("hooksluice_dispatches", { state }));
      const open = await Promise.all([server.metric("hooksluice_unadmitted"), ...dispatches]);
      return open.every((count) => count === 0);
    }),
  );
  if (!drained) return;
  for (const { source, events, duplicates, refused } of tallies) {
    await check(`${source}: each of ${events.length} events came once to each app, and nothing that was refused`, () => {
      for (const app of apps) {
        for (const sent of events) {
          const attempts = sent.attempts?.[app.name] ?? 1;
          assert.equal(app.of(sent.key).length, attempts, `${sent.key} (${sent.name}) at ${app.name}`);
        }
        for (const sent of refused) assert.equal(app.of(sent.key).length, 0, `${sent.key} at ${app.name}`);
      }
    });
    await check(`${source}: the metrics say the same`, async () => {
      const rejections = await server.metric("hooksluice_rejections_total", { source });
      const counted = [
        await server.metric("hooksluice_events_stored_total", { source }),
        await server.metric("hooksluice_duplicates_total", { source }),
        rejections,
        await server.metric("hooksluice_requests_total", { source }),
      ];
      const sent = [events.length, duplicates, refused.length, events.length + duplicates + refused.length];
      assert.deepEqual(counted, sent, "[stored, duplicates, rejections, requests]");
    });
  }
}

async function wholeWay(binary) {
  const apps = [await startApp("app"), await startApp("later")];
  const [app, later] = apps;
  let server;
  try {
    if (!(await check("hooksluice starts with every provider", async () => (server = await startHooksluice(binary, app, later))))) return;
    const tallies = [];
    for (const provider of providers) tallies.push(await story(server, app, later, provider));
    await balance(server, apps, tallies);
    await check("it ends with 0 on SIGTERM", async () => assert.equal(await server.stop(), 0, "exit code"));
    await check("it warned of what it should warn of, and of nothing else", () => {
      const expected = [/source `linear` cannot be signed anew/, /"attempt failed".*"source":"paddle".*"detail":"503"/];
      const found = server.complaints();
      assert.equal(found.length, expected.length, found.join("\n"));
      for (const [at, pattern] of expected.entries()) assert.match(found[at], pattern);
    });
    await check("it printed no secret", () => {
      for (const { source, secret } of providers) {
        assert.ok(!server.output.some((line) => line.includes(secret)), `the secret of ${source}`);
      }
    });
  } finally {
    agent.destroy();
    for (const app of apps) app.stop();
    await server?.stop();
  }
}

/** A line per provider, of those with the whole story too. */
function summary(rows) {
  const width = Math.max(...rows.map(({ source }) => source.length));
  for (const { source, judge, passed, total } of rows) {
    console.log(`${source.padEnd(width)}  ${String(passed).padStart(3)} of ${total}  ${judge}`);
  }
  const covered = new Set([...rows, ...providers].map(({ source }) => source));
  const own = new Set([...rows.filter((row) => row.own), ...providers].map(({ source }) => source));
  console.log(
    `${covered.size} providers: ${own.size} with an SDK of their own, ${covered.size - own.size} with a community library; ${providers.length} the whole way`,
  );
}

/** Ends the run as failed if this part of it takes longer than `limit`; the next part's limit takes its place. */
let running;
function limitTo(part, limit) {
  clearTimeout(running);
  running = setTimeout(() => {
    totals.failed += 1;
    console.log(`FAIL  ${part}\n      not within ${limit / 1000} s`);
    finish();
  }, limit).unref();
}

function finish() {
  console.log(`${totals.passed} passed, ${totals.failed} failed`);
  process.exit(totals.failed === 0 && totals.passed > 0 ? 0 : 1);
}

const { values } = parseArgs({ options: { hooksluice: { type: "string" }, "sdk-only": { type: "boolean" } } });
if (!values.hooksluice && !values["sdk-only"]) {
  console.error("usage: node run.mjs --hooksluice BINARY | --sdk-only");
  process.exit(2);
}
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(1));
limitTo("the table", INTEROP_MS);
const rows = await interop(check, values.hooksluice && absolute(values.hooksluice));
limitTo("the whole way", WHOLE_RUN_MS);
for (const provider of providers) await sdkAlone(provider);
if (values.hooksluice) {
  const binary = absolute(values.hooksluice);
  for (const provider of providers) await commands(binary, provider);
  await wholeWay(binary);
  await lateForwards(binary, check, until);
  await signedForwards(binary, check, until);
}
summary(rows);
finish();
