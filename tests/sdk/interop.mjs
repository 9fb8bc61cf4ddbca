// A second, lighter look at many more providers than providers.mjs: one table of requests, judged twice. The provider's
// own SDK says what it thinks of each request, and one `hooksluice verify --jsonl` of all of them must say the same.

import { strict as assert } from "node:assert";
import { createRequire } from "node:module";

import { judgeAll, signWith } from "./commands.mjs";
import { asymmetric } from "./interop/asymmetric.mjs";
import { body } from "./interop/body.mjs";
import { inside } from "./interop/inside.mjs";
import { jwt } from "./interop/jwt.mjs";
import { standard } from "./interop/standard.mjs";
import { timed } from "./interop/timed.mjs";
import { token } from "./interop/token.mjs";
import { url } from "./interop/url.mjs";
import { loadVersions, version as pythonVersion } from "./python.mjs";

const HOST = "https://hooks.example.com";

/**
 * One entry a provider.
 * - `source`: the preset's name.
 * - `npm` or `pypi`: the package whose code says yes or no; `by: "community"` where it is not the provider's own.
 * - `secret`, `otherSecret`: the configured one, and one whose signatures must be refused; for schemes with a key pair
 *   `key` and `otherKey` sign, and `secret` is the public half of `key`.
 * - `params`: second inputs of the scheme.
 * - `make({ id, at })`: what is sent before it is signed, `{ target?, method?, headers?, body }`, and at best has
 *   `"plain"` somewhere, which is what the test forges. `at` is in seconds.
 * - `sign(message)`: the signature's headers for `{ id, at, method, target, url, headers, body, secret }`, or where the
 *   signature is not in a header, the request with it: `{ headers?, body?, target? }` in `request`.
 * - `rolled(message, otherMessage)`: the same, with the signatures of two secrets, ours last.
 * - `verify(received, secret)`: whether the SDK accepts; may throw. Names of headers are in lower case.
 * - `past`, `future`: ages in seconds that must be refused, for schemes that carry a time.
 * - `cases(message)`: more requests, each `{ name, request }`, where `request` changes what `make` made, before signing.
 * - `forgery`: how to forge a body in which `"plain"` cannot be seen: changes a signed request.
 * - `forged`: how to forge where the body is not what is signed: changes a signed request.
 * - `unsigned`: "body" where the scheme does not sign the body, so that a forged one is accepted by both.
 * - `signsBytes`: false where members of the body are signed, and not the white space around them.
 * - `differs`: where SDK and documents part, by the case's name: `{ sdk, hooksluice, why }`, each "accept" or "reject".
 * - `signs`: false where `hooksluice sign` cannot make what is sent.
 */
const table = [...standard, ...body, ...timed, ...url, ...inside, ...token, ...asymmetric, ...jwt];

const require = createRequire(import.meta.url);
const paths = require.resolve.paths("x")[0];
function packageOf({ npm, pypi, by }) {
  const name = npm ? `npm ${npm}@${require(`${paths}/${npm}/package.json`).version}` : `pypi ${pypi}==${pythonVersion(pypi)}`;
  return by ? `${name} (${by})` : name;
}

const seconds = () => Math.floor(Date.now() / 1000);

function made(entry, { id = "evt_0123456789", at = seconds(), request } = {}) {
  const plain = entry.make({ id, at });
  const changed = request ? { ...plain, ...request(plain) } : plain;
  const { target = `/in/${entry.source}`, method = "POST", headers = {}, body } = changed;
  return { id, at, method, target, url: HOST + target, headers, body: Buffer.from(body) };
}

async function signed(entry, message, secret = entry.key ?? entry.secret, sign = entry.sign) {
  const { request, ...own } = await sign({ ...message, secret, params: entry.params ?? {} });
  if (!request) return { ...message, headers: { ...message.headers, ...own } };
  const target = request.target ?? message.target;
  return {
    ...message,
    target,
    url: HOST + target,
    headers: { ...message.headers, ...request.headers },
    body: request.body === undefined ? message.body : Buffer.from(request.body),
  };
}

function forge(entry, message) {
  if (entry.forgery) return { ...message, ...entry.forgery(message) };
  const forged = message.body.toString().replaceAll("plain", "pl4in");
  assert.notEqual(forged, message.body.toString(), "something to forge");
  return { ...message, body: Buffer.from(forged) };
}

/** The requests of one provider, each with what both must say of it, one after the other. */
async function* requestsOf(entry, binary) {
  const mine = entry.key ?? entry.secret;
  const other = entry.otherKey ?? entry.otherSecret;
  const ours = (options) => signed(entry, made(entry, options));
  yield { name: "its own", expect: "accept", sent: await ours() };
  for (const { name, request } of entry.cases?.(made(entry)) ?? []) {
    yield { name, expect: "accept", sent: await ours({ request }) };
  }
  yield { name: "a forged value", expect: entry.unsigned ? "accept" : "reject", sent: forge(entry, await ours()) };
  if (entry.forged) {
    const own = await ours();
    yield { name: "what is signed, forged", expect: "reject", sent: { ...own, ...entry.forged(own) } };
  }
  if (!entry.unsigned && entry.signsBytes !== false) {
    const own = await ours();
    yield { name: "one more byte", expect: "reject", sent: { ...own, body: Buffer.concat([own.body, Buffer.from(" ")]) } };
  }
  yield { name: "another secret's", expect: "reject", sent: await signed(entry, made(entry), other) };
  yield { name: "no signature", expect: "reject", sent: made(entry) };
  if (entry.past) {
    const fresh = Math.floor(entry.past / 4);
    yield { name: "signed a while ago", expect: "accept", sent: await ours({ at: seconds() - fresh }) };
    yield { name: `signed ${entry.past} s ago`, expect: "reject", sent: await ours({ at: seconds() - entry.past }) };
  }
  if (entry.future) {
    const name = `signed ${entry.future} s ahead`;
    yield { name, expect: "reject", sent: await ours({ at: seconds() + entry.future }) };
  }
  if (entry.rolled) {
    const two = (first, second) =>
      signed(entry, made(entry), undefined, async (input) => {
        const signatures = [await entry.sign({ ...input, secret: first }), await entry.sign({ ...input, secret: second })];
        return entry.rolled(signatures);
      });
    yield { name: "two signatures, ours last", expect: "accept", sent: await two(other, mine) };
    yield { name: "two signatures, ours first", expect: "accept", sent: await two(mine, other) };
    yield { name: "two signatures, none ours", expect: "reject", sent: await two(other, other) };
  }
  if (binary && entry.signs !== false) {
    // From a request that another secret signed, so that nothing is accepted that was only handed through.
    const foreign = await signed(entry, made(entry), other);
    const item = { name: "signed by `hooksluice sign`", expect: "accept" };
    try {
      item.sent = signWith(binary, entry, foreign);
    } catch (error) {
      Object.assign(item, { sent: foreign, failure: error.message });
    }
    yield item;
  }
}

/** What the SDK says; an exception of its own is a no. */
async function sdkSays(entry, { method, target, url, headers, body }) {
  const lower = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
  const received = { method, target, url, headers: lower, body, text: body.toString(), params: entry.params ?? {} };
  try {
    return (await entry.verify(received, entry.secret)) ? { verdict: "accept" } : { verdict: "reject" };
  } catch (error) {
    return { verdict: "reject", why: String(error?.message ?? error) };
  }
}

/** Judges everything; `binary` may be missing, then only the SDKs are asked. Returns a line per provider. */
export async function interop(check, binary) {
  await loadVersions(table.flatMap(({ pypi }) => pypi ?? []));
  const rows = [];
  const captures = [];
  for (const entry of table) {
    const list = [];
    for await (const item of requestsOf(entry, binary)) {
      // Judged at once, and `verify` is told when that was, so that a slow machine makes nothing stale.
      const now = Date.now() / 1000;
      list.push({ ...item, now, sdk: await sdkSays(entry, item.sent) });
    }
    for (const item of list) captures.push({ entry, item });
    rows.push({ entry, list });
  }
  if (binary) {
    const found = judgeAll(binary, captures.map(({ entry, item }) => ({ entry, message: { ...item.sent, now: item.now } })));
    assert.equal(found.length, captures.length, "a judgement a request");
    for (const [at, { item }] of captures.entries()) item.hooksluice = found[at];
  }
  const lines = [];
  for (const { entry, list } of rows) {
    const { source } = entry;
    const judge = packageOf(entry);
    let passed = 0;
    const differences = new Set(Object.keys(entry.differs ?? {}));
    for (const { name, expect, sent, failure, sdk, hooksluice } of list) {
      differences.delete(name);
      const wanted = entry.differs?.[name] ?? { sdk: expect, hooksluice: expect };
      const ok = await check(`${source}: ${judge}: ${name}: ${verdicts(wanted)}`, () => {
        const found = { sdk: sdk.verdict, hooksluice: hooksluice?.verdict ?? wanted.hooksluice };
        const told = `${failure ?? ""} ${JSON.stringify(sdk)} ${JSON.stringify(hooksluice)} ${sent.url} ${JSON.stringify(sent.headers)}`;
        assert.deepEqual(found, { sdk: wanted.sdk, hooksluice: wanted.hooksluice }, told);
      });
      passed += ok ? 1 : 0;
    }
    if (entry.differs) {
      const tried = await check(`${source}: ${judge}: every difference in the table was tried`, () =>
        assert.deepEqual([...differences].filter((name) => binary || !name.includes("hooksluice")), []),
      );
      passed += tried ? 1 : 0;
    }
    lines.push({ source, judge, own: !entry.by, passed, total: list.length + (entry.differs ? 1 : 0) });
  }
  return lines;
}

function verdicts({ sdk, hooksluice, why }) {
  if (sdk === hooksluice) return `both ${sdk}`;
  return `the SDK would ${sdk}, hooksluice would ${hooksluice} (${why})`;
}
