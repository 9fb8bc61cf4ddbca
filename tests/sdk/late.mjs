// A forward that comes late: the app was away when the event came in, and is back ten minutes or two days after.
//
// hooksluice runs twice on one store: first with a wall clock that is as far behind (clock.c), where the app answers 503,
// then with the true one. The SDKs judge with their own defaults and the true clock throughout.

import { strict as assert } from "node:assert";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { startApp } from "./app.mjs";
import { configuration, secretsOf, serve } from "./hooksluice.mjs";
import { compose, now, providers } from "./providers.mjs";

const DELAYS = { "10 minutes": 600, "2 days": 2 * 86_400 };
const late = ["stripe", "svix", "slack"].map((name) => providers.find(({ source }) => source === name));

/** `check(name, body)` counts, `until(what, found)` waits, as in run.mjs. */
export async function lateForwards(binary, check, until) {
  const folder = mkdtempSync(join(tmpdir(), "hooksluice-late-"));
  try {
    const clock = join(folder, "clock.so");
    const built = spawnSync("cc", ["-shared", "-fPIC", "-O", "-o", clock, new URL("clock.c", import.meta.url).pathname, "-ldl"]);
    assert.equal(built.status, 0, String(built.stderr));
    for (const [name, seconds] of Object.entries(DELAYS)) {
      await check(`late by ${name}: stopped and started again around it`, () => story(binary, clock, name, seconds, check, until));
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function story(binary, clock, name, seconds, check, until) {
  const folder = mkdtempSync(join(tmpdir(), "hooksluice-late-"));
  // Both are away at the first attempt.
  const apps = { auto: await startApp("late"), original: await startApp("late") };
  const upstreams = { auto: { app: apps.auto }, original: { app: apps.original, signature: "original" } };
  const text = configuration(folder, late, upstreams);
  const secrets = secretsOf(late);
  let server;
  try {
    const shifted = { ...secrets, LD_PRELOAD: clock, CLOCK_SHIFT_S: String(-seconds) };
    server = await serve(binary, folder, text, shifted, { keep: true });
    const then = now() - seconds;
    for (const provider of late) {
      const sent = await compose(provider, 0, { at: then });
      // The attempt after this one is due long before the second start.
      const headers = { ...sent.headers, "X-Test-Message": provider.source, "X-Test-Outage": "late=30" };
      const { method, body } = sent;
      const answer = await fetch(`http://${server.listen}${sent.target}`, { method, headers, body });
      assert.equal(answer.status, 200, `${provider.source}: received then`);
    }
    for (const { source } of late) {
      for (const app of Object.values(apps)) await until(`${source} at an app that is away`, () => app.of(source)[0]);
    }
    assert.equal(await server.stop(), 0, "exit code");

    server = await serve(binary, folder, text, secrets, { keep: true });
    for (const provider of late) {
      const { source } = provider;
      const second = (app) => until(`${source}, once more`, () => app.of(source)[1]);
      await check(`${source}: ${name} late, by default: the SDK accepts it`, async () => {
        const got = await second(apps.auto);
        const age = (got.at - Date.parse(got.headers["hooksluice-received-at"])) / 1000;
        assert.ok(age >= seconds - 5, `received ${age} s before`);
        assert.ok(provider.time(got.headers) >= now() - 60, `signed at ${provider.time(got.headers)}`);
        assert.ok(got.accepted, JSON.stringify([...got.lines]));
      });
      await check(`${source}: ${name} late, with signature = "original": the SDK refuses it`, async () => {
        const got = await second(apps.original);
        assert.ok(Math.abs(provider.time(got.headers) - then) <= 1, `signed at ${provider.time(got.headers)}`);
        assert.equal(got.accepted, false);
      });
    }
    assert.equal(await server.stop(), 0, "exit code");
  } finally {
    await server?.stop();
    for (const app of Object.values(apps)) app.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}
