// The SDKs on PyPI, asked through py/oracle.py: one process, one question after the other.

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const ORACLE = fileURLToPath(new URL("py/oracle.py", import.meta.url));
const PYTHON = process.env.SDK_TEST_PYTHON ?? "python3";

let oracle;
let known = {};

function start() {
  const child = spawn(PYTHON, ["-I", "-W", "ignore", ORACLE], { stdio: ["pipe", "pipe", "inherit"] });
  process.once("exit", () => child.kill("SIGKILL"));
  const waiting = [];
  const fail = (error) => waiting.splice(0).forEach(({ reject }) => reject(error));
  createInterface({ input: child.stdout }).on("line", (line) => waiting.shift()?.resolve(JSON.parse(line)));
  child.once("error", fail);
  child.once("close", (code) => fail(new Error(`the Python SDKs' process ended with ${code}`)));
  return (question) =>
    new Promise((resolve, reject) => {
      waiting.push({ resolve, reject });
      child.stdin.write(`${JSON.stringify(question)}\n`);
    });
}

const ask = (question) => (oracle ??= start())(question);

/** Reads the versions of the packages `names`, so that `version` knows them. */
export async function loadVersions(names) {
  known = await ask({ versions: names });
}

/** The version of an installed package. */
export const version = (name) => known[name];

/** A `verify` of the table that asks the SDK which py/oracle.py calls `provider`. */
export const python = (provider) => async ({ method, url, headers, body, params }, secret) => {
  const question = { provider, secret, method, url, headers, params, body_base64: body.toString("base64") };
  const { ok, error } = await ask(question);
  if (error) throw new Error(error);
  return ok;
};
