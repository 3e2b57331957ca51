// Events that the server takes by itself: from a table of the real PostgreSQL, and from a stream of the real NATS.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { chownSync, existsSync, mkdirSync, readFileSync, readdirSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";

import { Server, configurationHead, freePort, temporaryFolder, until } from "../server.mjs";

const options = { timeout: 120_000 };
const run = promisify(execFile);
const TABLE = "CREATE TABLE tidings_outbox (id bigserial PRIMARY KEY, event jsonb NOT NULL, error text)";
const TOPIC = `
[topics.goal]
title = "Goal for %{team}!"
body = "Look."
`;

/** Somebody whom PostgreSQL accepts: it refuses to run as root. */
function unprivileged() {
  if (process.getuid() !== 0) {
    return {};
  }
  const users = readFileSync("/etc/passwd", "utf8").split("\n").map((line) => line.split(":"));
  const [, , uid, gid] = users.find(([name]) => name === "postgres") ?? users.find(([name]) => name === "nobody");
  return { uid: Number(uid), gid: Number(gid) };
}

/** A program of PostgreSQL, in the newest version of Debian's folder. */
function program(name) {
  const root = "/usr/lib/postgresql";
  assert.ok(existsSync(root), "PostgreSQL is needed: apt-get install postgresql");
  const version = readdirSync(root).sort((a, b) => a - b).at(-1);
  return path.join(root, version, "bin", name);
}

/** A real PostgreSQL of the test's own. */
class Database {
  static async start(t) {
    const place = temporaryFolder();
    const it = Object.assign(new Database(), { folder: place.folder, user: unprivileged(), port: await freePort() });
    t.after(async () => {
      await it.stop();
      place.stop();
    });
    it.home = path.join(it.folder, "data");
    mkdirSync(it.home, { mode: 0o700 });
    for (const folder of [it.folder, it.home]) {
      chownSync(folder, it.user.uid ?? process.getuid(), it.user.gid ?? process.getgid());
    }
    const words = ["-D", it.home, "--no-locale", "-E", "UTF8", "-A", "trust", "-U", "shop"];
    await run(program("initdb"), words, { cwd: it.folder, ...it.user });
    it.begin();
    await until("PostgreSQL takes questions", () => it.query("SELECT 1").then(() => true, () => false));
    return it;
  }

  begin() {
    const words = ["-D", this.home, "-k", this.folder, "-h", "127.0.0.1", "-p", `${this.port}`, "-c", "fsync=off"];
    this.child = spawn(program("postgres"), words, { cwd: this.folder, stdio: "ignore", ...this.user });
  }

  async stop() {
    const ended = new Promise((resolve) => this.child.once("exit", resolve));
    this.child.kill("SIGINT");
    await ended;
  }

  get url() {
    return `postgres://shop@127.0.0.1:${this.port}/postgres`;
  }

  async query(sql) {
    const { stdout } = await run(program("psql"), [this.url, "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", sql]);
    return stdout.trim();
  }
}

const goal = (number, more = {}) => ({
  topic: "goal",
  subjects: [`match:${number}`],
  params: { team: "Sweden" },
  push: "never",
  ...more,
});
const row = (event) => `INSERT INTO tidings_outbox (event) VALUES ('${JSON.stringify(event)}')`;

/** The ids of all events that the server has accepted, in order. */
async function accepted(server) {
  const { jobs } = await (await server.request("GET", "/v1/jobs?limit=1000")).json();
  return jobs.map((job) => job.id).reverse();
}

/** What the server says of its source. */
async function source(server) {
  const { feeds } = await (await server.request("GET", "/v1/feeds")).json();
  return feeds[0];
}

const configuration = (database, interval) => (port, folder) => `${configurationHead(port, folder)}
[outbox.shop]
database = "${database.url}"
interval = "${interval}"
${TOPIC}`;

test("rows of a transaction become events, once, also over kill -9 of the server", options, async (t) => {
  const database = await Database.start(t);
  await database.query(TABLE);
  const server = await Server.start(configuration(database, "50ms"));
  t.after(() => server.stop());
  await database.query(`BEGIN; ${row(goal(1))}; ROLLBACK`);
  const ids = [];
  for (let round = 0; round < 10; round++) {
    const inserts = Array.from({ length: 30 }, (_, index) => row(goal(`${round}-${index}`)));
    await database.query(`BEGIN; ${inserts.join("; ")}; COMMIT`);
    if (round % 3 === 2) {
      await server.kill("SIGKILL");
      await server.run();
    }
  }
  await until("all rows are taken", async () => (await database.query("SELECT count(*) FROM tidings_outbox")) === "0");
  const found = await accepted(server);
  ids.push(...Array.from({ length: 300 }, (_, index) => `shop-${index + 2}`)); // The first number was rolled back.
  assert.deepEqual(found, ids);
});

test("a row that is no event says why, and the others go on", options, async (t) => {
  const database = await Database.start(t);
  await database.query(TABLE);
  const server = await Server.start(configuration(database, "50ms"));
  t.after(() => server.stop());
  const wrong = [{ ...goal(1), topic: "Goal" }, { ...goal(2), params: {}, push: "always" }, []];
  await database.query([...wrong.map(row), row(goal(3, { id: "own-id" })), row(goal(4))].join("; "));
  const left = () => database.query("SELECT id, error FROM tidings_outbox WHERE error IS NOT NULL ORDER BY id");
  await until("all rows are looked at", async () => (await left()).split("\n").length === 3);
  const [topic, param, shape] = (await left()).split("\n");
  assert.match(topic, /^1\|topic/);
  assert.match(param, /^2\|params.*team is missing/);
  assert.match(shape, /^3\|it is not a JSON object/);
  await until("the good ones are there", async () => (await accepted(server)).length === 2);
  assert.deepEqual(await accepted(server), ["own-id", "shop-5"]);
  const { name, total, errors } = await source(server);
  assert.deepEqual([name, total.sent, total.wrong, errors.length], ["shop", 2, 3, 3]);
});

test("a notification wakes the source, and it comes back after the database", options, async (t) => {
  const database = await Database.start(t);
  await database.query(TABLE);
  const server = await Server.start(configuration(database, "1h"));
  t.after(() => server.stop());
  await until("it has looked", async () => (await source(server)).worked_at);
  await database.query(`BEGIN; ${row(goal(1))}; NOTIFY tidings_outbox; COMMIT`);
  await until("the event is there", async () => (await accepted(server)).length === 1);
  await database.stop();
  await until("the failure shows", async () => (await source(server)).error);
  database.begin();
  // The source may have come back before the row is there, so this row is told of as well.
  const late = `BEGIN; ${row(goal(2))}; NOTIFY tidings_outbox; COMMIT`;
  await until("PostgreSQL is back", () => database.query(late).then(() => true, () => false));
  await until("it is taken after the break", async () => (await accepted(server)).length >= 2, 60_000);
  await until("no failure is left", async () => (await source(server)).error === undefined);
});

const NATS = fileURLToPath(new URL("../../target/conformance/go/bin/nats-server", import.meta.url));

/** A real NATS server with JetStream. */
class Nats {
  static async start(t) {
    const place = temporaryFolder();
    const it = Object.assign(new Nats(), { folder: place.folder, port: await freePort() });
    it.begin();
    t.after(async () => {
      const ended = new Promise((resolve) => it.child.once("exit", resolve));
      it.child.kill("SIGKILL");
      await ended;
      place.stop();
    });
    await until("NATS takes connections", async () => (it.client = await connect({ port: it.port }).catch(() => undefined)));
    t.after(() => it.client.close());
    const manager = await jetstreamManager(it.client);
    await manager.streams.add({ name: "EVENTS", subjects: ["events.>"] });
    it.stream = manager.jetstream();
    it.left = async () => (await manager.consumers.info("EVENTS", "tidings")).num_pending;
    it.unacknowledged = async () => (await manager.consumers.info("EVENTS", "tidings")).num_ack_pending;
    return it;
  }

  begin() {
    const words = ["-a", "127.0.0.1", "-p", `${this.port}`, "-js", "-sd", this.folder];
    this.child = spawn(process.env.NATS_SERVER ?? NATS, words, { stdio: "ignore" });
  }
}

test("messages of a stream become events, once, also over kill -9 of the server", options, async (t) => {
  const nats = await Nats.start(t);
  const server = await Server.start((port, folder) => `${configurationHead(port, folder)}
[jetstream.shop]
servers = ["nats://127.0.0.1:${nats.port}"]
stream = "EVENTS"
${TOPIC}`);
  t.after(() => server.stop());
  await nats.stream.publish("events.goal", "nonsense");
  for (let round = 0; round < 10; round++) {
    for (let index = 0; index < 30; index++) {
      await nats.stream.publish("events.goal", JSON.stringify(goal(`${round}-${index}`)));
    }
    if (round % 3 === 2) {
      await server.kill("SIGKILL");
      await server.run();
    }
  }
  await until("all messages are taken", async () => (await nats.left().catch(() => 1)) === 0 && (await nats.unacknowledged()) === 0, 90_000);
  const found = await accepted(server);
  const ids = Array.from({ length: 300 }, (_, index) => `shop-${index + 2}`);
  assert.deepEqual([...found].sort(), ids.sort(), "each once");
});
