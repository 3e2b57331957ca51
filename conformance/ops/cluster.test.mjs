// The example of a cluster (`ops/cluster`): the script starts what the compose file starts, from the same configuration files.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { BINARY, freePort, temporaryFolder, until } from "../server.mjs";

const NATS = fileURLToPath(new URL("../../target/conformance/go/bin/nats-server", import.meta.url));
const FOLDER = fileURLToPath(new URL("../../ops/cluster/", import.meta.url));
const KEY = "cluster-example-key-change-it";
const DEADLINE_MS = 60_000;

/** Ports next to each other that are free now, the last `more` above the first too. */
async function freePorts(offsets) {
  for (;;) {
    const first = await freePort();
    const others = await Promise.all(offsets.map((offset) => isFree(first + offset)));
    if (others.every(Boolean)) {
      return first;
    }
  }
}

async function isFree(port) {
  const { default: net } = await import("node:net");
  return new Promise((resolve) => {
    const server = net.createServer();
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}

const statusOf = (port) =>
  fetch(`http://127.0.0.1:${port}/ready`).then(async (answer) => (answer.ok ? (await answer.json()).status : null), () => null);

test("the example of a cluster serves, and ends", { timeout: 180_000 }, async (t) => {
  assert.ok(existsSync(NATS), `no nats-server at ${NATS}: cargo xtask conformance builds it`);
  const place = temporaryFolder();
  t.after(() => place.stop());
  const first = await freePorts([1, 2]);
  const nats = await freePorts([1, 2, 2000, 2001, 2002]);
  const environment = { ...process.env, NATS_SERVER: NATS, TIDINGS: BINARY, FIRST_PORT: `${first}`, NATS_PORT: `${nats}` };
  delete environment.TIDINGS_BIN; // Not a setting of the server.
  const script = spawn(`${FOLDER}run.sh`, [place.folder], { env: environment, stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((resolve) => script.once("exit", resolve));
  t.after(() => script.kill("SIGKILL"));

  const ports = [first, first + 1, first + 2];
  const statuses = () => Promise.all(ports.map(statusOf));
  await until("one leads and two stand by", async () => (await statuses()).sort().join() === "ready,standby,standby", DEADLINE_MS);
  for (const [index, port] of ports.entries()) {
    const answer = await fetch(`http://127.0.0.1:${port}/v1/events`, {
      method: "POST",
      headers: { "X-API-Key": KEY, "Content-Type": "application/json" },
      body: JSON.stringify({ id: `goal-${index}`, topic: "goal", subjects: ["match:1"], params: { team: "Sweden" } }),
    });
    assert.equal(answer.status, 202, `server ${index} takes an event: ${await answer.text()}`);
  }

  script.kill("SIGINT");
  await ended;
  assert.deepEqual(await statuses(), [null, null, null], "the servers have ended");
});

test("the compose file and the script name the same servers", () => {
  const compose = readFileSync(`${FOLDER}compose.yaml`, "utf8");
  const configuration = readFileSync(`${FOLDER}tidings.toml`, "utf8");
  const proxy = readFileSync(`${FOLDER}haproxy.cfg`, "utf8");
  for (const name of ["a", "b", "c"]) {
    assert.match(compose, new RegExp(`^  tidings-${name}:$`, "m"));
    assert.match(compose, new RegExp(`TIDINGS_CLUSTER__NODE: ${name}, TIDINGS_CLUSTER__ADDRESS: "http://tidings-${name}:8000"`));
    assert.match(proxy, new RegExp(`server ${name} tidings-${name}:8000 check`));
  }
  for (const number of [1, 2, 3]) {
    assert.match(compose, new RegExp(`^  nats-${number}:`, "m"));
    assert.match(configuration, new RegExp(`"nats://nats-${number}:4222"`));
  }
});
