// `signature = "standard-webhooks"`: whoever sent an event, the app checks one signature with the libraries of Standard
// Webhooks (npm and PyPI). Two of the apps are the README's own.

import { strict as assert } from "node:assert";
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createSocket } from "node:net";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { Webhook } from "standardwebhooks";

import { serve } from "./hooksluice.mjs";
import { compose, now, providers, secretVariable } from "./providers.mjs";

const HERE = dirname(fileURLToPath(import.meta.url));
/** With the packages of py/requirements.lock; tests/sdk/run makes it. */
const PYTHON = process.env.SDK_TEST_PYTHON;
const OLD = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NEW = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const OTHER = "whsec_wSaLaL2oIZPLI8DPUjwTrqYKG8r9QKfM";
/** A scheme with a time, one without, one that cannot be signed anew, and the very scheme. */
const senders = ["stripe", "github", "linear", "standard-webhooks"].map((name) => providers.find(({ source }) => source === name));
const OWN = ["webhook-id", "webhook-timestamp", "webhook-signature"];

/** An app that says which of the secrets it would accept each request with; the first attempt finds it away. */
async function startJudge() {
  const received = [];
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks);
    const accepts = (secret) => {
      try {
        new Webhook(secret).verify(body, request.headers);
        return true;
      } catch {
        return false;
      }
    };
    received.push({ headers: request.headers, body, by: [OLD, NEW, OTHER].filter(accepts) });
    if (request.headers["hooksluice-attempt"] === "1") response.writeHead(503, { "Retry-After": "1" });
    response.end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    origin: `http://127.0.0.1:${server.address().port}`,
    of: (message) => received.filter(({ headers }) => headers["x-test-message"] === message),
    stop: () => void server.close() ?? server.closeAllConnections(),
  };
}

async function freePort() {
  const socket = createSocket().listen(0, "127.0.0.1");
  await once(socket, "listening");
  const { port } = socket.address();
  socket.close();
  return port;
}

/** The README's app in that language, on a port of its own. */
async function startExample(folder, language, secret, until) {
  const port = await freePort();
  const readme = readFileSync(join(HERE, "../../README.md"), "utf8");
  const block = [...readme.matchAll(/^```(\w+)\n([^]*?)^```$/gm)].find(([, word, text]) => word === language && text.includes("APP_SIGNING_SECRET"));
  assert.ok(block, `the README has a block of ${language}`);
  const file = join(folder, language === "js" ? "app.mjs" : "app.py");
  writeFileSync(file, block[2].replace("3000", String(port)));
  const child = spawn(language === "js" ? process.execPath : PYTHON, [file], {
    env: { PATH: process.env.PATH, APP_SIGNING_SECRET: secret },
    stdio: ["ignore", "ignore", "pipe"],
  });
  const said = [];
  child.stderr.on("data", (data) => said.push(String(data)));
  const kill = () => child.kill("SIGKILL");
  process.once("exit", kill);
  const answers = () => fetch(`http://127.0.0.1:${port}/`, { method: "POST", body: "{}" }).then(({ status }) => status, () => null);
  await until(`the README's app in ${language}: ${said.join("")}`, async () => (await answers()) === 401);
  return {
    origin: `http://127.0.0.1:${port}`,
    stop() {
      process.removeListener("exit", kill);
      kill();
    },
  };
}

function configuration(folder, judge, js, python, keys) {
  const upstream = (name, { origin }, own) => `
[upstreams.${name}]
url = "${origin}"
signature = "standard-webhooks"
${own}
`;
  const sources = senders.map(
    (provider) => `
[sources.${provider.source}]
path = "/webhooks/${provider.source}"
provider = "${provider.source}"
secrets = [{ env = "${secretVariable(provider)}" }]
upstreams = ["judge", "js", "python"]
`,
  );
  const both = 'signing_secrets = [{ env = "SIGNING_NEW" }, { env = "SIGNING_OLD" }]';
  return `
listen = "127.0.0.1:0"
[admin]
listen = "127.0.0.1:0"
[store.sqlite]
path = "${join(folder, "data")}"
${upstream("judge", judge, keys)}
${upstream("js", js, both)}
${upstream("python", python, both)}
${sources.join("")}`;
}

/** `check(name, body)` counts, `until(what, found)` waits, as in run.mjs. */
export async function signedForwards(binary, check, until) {
  const folder = mkdtempSync(join(tmpdir(), "hooksluice-signing-"));
  symlinkSync(join(HERE, "node_modules"), join(folder, "node_modules"));
  const apps = [];
  let server;
  try {
    const judge = await startJudge();
    apps.push(judge);
    const ready = await check("standard-webhooks: the README's apps and hooksluice start", async () => {
      // One knows the new secret already, the other only the old one.
      apps.push(await startExample(folder, "js", NEW, until));
      apps.push(await startExample(folder, "python", OLD, until));
      const secrets = Object.fromEntries(senders.map((provider) => [secretVariable(provider), provider.secret]));
      const signing = { SIGNING_OLD: OLD, SIGNING_NEW: NEW };
      const text = configuration(folder, ...apps, 'signing_secret = { env = "SIGNING_OLD" }');
      server = await serve(binary, folder, text, { ...secrets, ...signing });
    });
    if (!ready) return;
    for (const provider of senders) await check(`standard-webhooks: ${provider.source}`, () => oneSender(server, judge, provider, until));
    await check("standard-webhooks: the README's apps, in JavaScript and Python, accepted every event at once", async () => {
      for (const upstream of ["js", "python"]) {
        const delivered = () => server.metric("hooksluice_attempts_total", { upstream, outcome: "delivered" });
        await until(upstream, async () => (await delivered()) === senders.length);
        assert.equal(await server.metric("hooksluice_attempts_total", { upstream }), senders.length, `${upstream}: attempts`);
      }
    });
    await check("standard-webhooks: a replay has the same id, a new time and a signature that holds", async () => {
      const [first] = judge.of("stripe");
      const before = judge.of("stripe").length;
      const id = first.headers["hooksluice-event-id"];
      const args = ["events", "replay", id, "--to", "judge", "--admin", `http://${server.admin}`];
      const { status, stderr, stdout } = spawnSync(binary, args, { cwd: folder, env: { PATH: process.env.PATH } });
      assert.equal(status, 0, `${stdout}${stderr}`);
      const got = await until("the replay", () => judge.of("stripe")[before]);
      assert.equal(got.headers["hooksluice-replay"], "true");
      assert.equal(got.headers["webhook-id"], id);
      assert.ok(Number(got.headers["webhook-timestamp"]) >= now() - 60);
      assert.deepEqual(got.by, [OLD]);
    });
    await check("standard-webhooks: after a reload both secrets sign, then only the new one", async () => {
      for (const [keys, expected] of [
        ['signing_secrets = [{ env = "SIGNING_NEW" }, { env = "SIGNING_OLD" }]', [OLD, NEW]],
        ['signing_secret = { env = "SIGNING_NEW" }', [NEW]],
      ]) {
        const told = server.output.length;
        writeFileSync(join(folder, "hooksluice.toml"), configuration(folder, ...apps, keys));
        server.reload();
        await until("the reload", () => server.output.slice(told).some((line) => line.includes("upstream `judge` changed")));
        const message = `rolled-${expected.length}`;
        await post(server, senders[1], message);
        const got = await until("an event after the reload", () => judge.of(message)[0]);
        assert.deepEqual(got.by, expected);
      }
    });
    await check("standard-webhooks: it ends with 0, and printed no secret", async () => {
      assert.equal(await server.stop(), 0);
      for (const secret of [OLD, NEW]) assert.ok(!server.output.some((line) => line.includes(secret.slice(6))));
    });
  } finally {
    await server?.stop();
    for (const app of apps) app.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** What was sent, which the judge knows by `message`. */
async function post(server, provider, message) {
  const sent = await compose(provider, 0);
  const headers = { ...sent.headers, "X-Test-Message": message };
  const { method, body } = sent;
  const answer = await fetch(`http://${server.listen}${sent.target}`, { method, headers, body });
  assert.equal(answer.status, 200, `${provider.source} is accepted`);
  return sent;
}

async function oneSender(server, judge, provider, until) {
  const { headers, body } = await post(server, provider, provider.source);
  const [first, second] = await until("two attempts", () => judge.of(provider.source)[1] && judge.of(provider.source));
  for (const got of [first, second]) {
    assert.deepEqual(got.by, [OLD], "the secret that npm's standardwebhooks accepts it with");
    assert.equal(got.headers["webhook-id"], got.headers["hooksluice-event-id"]);
    assert.ok(got.body.equals(body), "the body's bytes");
    for (const [name, value] of Object.entries(headers)) {
      // The provider's own of these names would mislead; everything else goes on.
      if (!OWN.includes(name.toLowerCase())) assert.equal(got.headers[name.toLowerCase()], value, name);
    }
  }
  assert.equal(second.headers["webhook-id"], first.headers["webhook-id"], "stable over attempts");
  assert.ok(Number(second.headers["webhook-timestamp"]) > Number(first.headers["webhook-timestamp"]), "each attempt's own time");
  const program = "import sys, json; from standardwebhooks.webhooks import Webhook; m = json.load(sys.stdin); Webhook(m['secret']).verify(m['body'], m['headers'])";
  const input = JSON.stringify({ secret: OLD, body: body.toString(), headers: second.headers });
  const found = spawnSync(PYTHON, ["-c", program], { input });
  assert.equal(found.status, 0, `PyPI's standardwebhooks: ${found.stderr}`);
}
