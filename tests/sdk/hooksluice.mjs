// The product under test: the real binary, as a child process with a configuration in a folder of its own.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { PUBLIC_URL, providers, secretVariable } from "./providers.mjs";

const START_MS = 20_000;
const STOP_MS = 30_000;

/**
 * The configuration of a server in `folder` with a source for each of `senders`, whose events go to every one of
 * `upstreams`: `{ NAME: { app, signature } }`, the signature where it is not the default.
 */
export function configuration(folder, senders, upstreams) {
  const names = JSON.stringify(Object.keys(upstreams));
  const sources = senders.map(
    (provider) => `
[sources.${provider.source}]
path = "/webhooks/${provider.source}"
provider = "${provider.source}"
secrets = [{ env = "${secretVariable(provider)}" }]
upstreams = ${names}
`,
  );
  const apps = Object.entries(upstreams).map(
    ([name, { app, signature }]) => `
[upstreams.${name}]
url = "${app.origin}"
${signature ? `signature = "${signature}"` : ""}`,
  );
  return `
listen = "127.0.0.1:0"
public_url = "${PUBLIC_URL}"
[admin]
listen = "127.0.0.1:0"
[store.sqlite]
path = "${join(folder, "data")}"
${apps.join("")}
${sources.join("")}`;
}

/** The environment that holds the secrets of `senders`. */
export function secretsOf(senders) {
  return Object.fromEntries(senders.map((provider) => [secretVariable(provider), provider.secret]));
}

/**
 * Starts `binary serve` with every provider as a source and waits until it is ready. Every source goes to both apps: `app`
 * with the default signatures, `later` re-signed, as after an outage.
 */
export async function startHooksluice(binary, app, later) {
  const folder = mkdtempSync(join(tmpdir(), "hooksluice-sdk-"));
  const upstreams = { app: { app }, later: { app: later, signature: "fresh" } };
  return serve(binary, folder, configuration(folder, providers, upstreams), secretsOf(providers));
}

/**
 * Starts `binary serve` in `folder`, with that configuration and environment, and waits until it is ready. When it has
 * ended the folder goes, unless it is to be kept for another start.
 */
export async function serve(binary, folder, text, environment, { keep = false } = {}) {
  const file = join(folder, "hooksluice.toml");
  writeFileSync(file, text);
  const child = spawn(binary, ["serve", "-c", file], { cwd: folder, env: { PATH: process.env.PATH, ...environment } });
  // Whatever ends this process, the child does not outlive it.
  const killAtExit = () => child.kill("SIGKILL");
  process.once("exit", killAtExit);

  const output = [];
  const ended = new Promise((resolve) => {
    child.once("error", (error) => {
      output.push(String(error));
      resolve(null);
    });
    child.once("close", resolve);
  });
  const addresses = new Promise((resolve, reject) => {
    for (const stream of [child.stdout, child.stderr]) {
      createInterface({ input: stream }).on("line", (line) => {
        output.push(line);
        const { listen, admin } = logged(line);
        if (listen && admin) resolve({ listen, admin });
      });
    }
    ended.then((code) => reject(new Error(`ended with ${code} before it was listening`)));
    setTimeout(() => reject(new Error("was not listening in time")), START_MS).unref();
  });

  const server = {
    output,
    /** SIGTERM; its exit code, or null if it had to be killed. */
    async stop() {
      child.kill("SIGTERM");
      const timer = setTimeout(killAtExit, STOP_MS);
      const code = await ended;
      clearTimeout(timer);
      process.removeListener("exit", killAtExit);
      if (!keep) rmSync(folder, { recursive: true, force: true });
      return code;
    },
    /** SIGHUP: the configuration is read again. */
    reload: () => child.kill("SIGHUP"),
    /** Log lines at WARN or ERROR, and lines that are no log lines at all. */
    complaints: () => output.filter((line) => !["INFO", "DEBUG", "TRACE"].includes(logged(line).level)),
    /** The sum of a metric's series that carry `labels`. */
    async metric(name, labels = {}) {
      const text = await (await fetch(`http://${server.admin}/metrics`)).text();
      const wanted = Object.entries(labels).map(([label, value]) => `${label}="${value}"`);
      const series = text.split("\n").filter((line) => {
        const [, found, list] = /^(\w+)(?:\{(.*)\})? /.exec(line) ?? [];
        return found === name && wanted.every((label) => list?.split(",").includes(label));
      });
      if (series.length === 0) throw new Error(`/metrics has no ${name}{${wanted}}`);
      return series.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" "))), 0);
    },
  };
  try {
    Object.assign(server, await addresses);
    const ready = await fetch(`http://${server.admin}/readyz`);
    if (ready.status !== 200) throw new Error(`/readyz answered ${ready.status} although it was listening`);
  } catch (error) {
    await server.stop();
    throw new Error(`hooksluice did not start: ${error.message}\n${output.join("\n")}`);
  }
  return server;
}

function logged(line) {
  try {
    return JSON.parse(line);
  } catch {
    return {};
  }
}
