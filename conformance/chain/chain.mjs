// The whole chain of metrics: our server sends lines over UDP to Telegraf, Telegraf writes to InfluxDB, and InfluxDB tells
// Kapacitor, which has the scripts of `ops/`. All are real; `cargo xtask chain` builds what Debian does not have.
//
// The files of `ops/` are taken as they are, except for addresses and times.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import path from "node:path";

import { Credentials, Gateway, freshToken } from "../apns/harness.mjs";
import { Peer } from "../apns/peer.mjs";
import { InfluxDb } from "../influx/databases.mjs";
import { Listener } from "../js/listener.mjs";
import { Receiver, ready, shipped, start, swapped } from "../ops/watch.mjs";
import { freePort, temporaryFolder, until } from "../server.mjs";
import { go } from "../tool.mjs";

/** The builds take minutes, so these tests run on request only. */
export const SKIP = process.env.JUDGE_CHAIN ? false : "only with cargo xtask chain";
export const HOST = "web-1";

const clients = `
[client]
allow_anonymous = true
uni_http_stream = true
`;
const CHANNEL = `
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true
`;
const SUBJECT = "match:1";
const DEVICES = 50;
/** Less than the devices of an event, so that a job has a part that waits. */
const LAKE_CAPACITY = 20;

/** Writes a file of `ops/` with each `[from, to]` replaced. */
function adapted(folder, name, ...pairs) {
  const file = path.join(folder, path.basename(name));
  writeFileSync(file, swapped(shipped(name), ...pairs));
  return file;
}

/** A Telegraf that writes to `database`. Returns its UDP port. */
async function telegraf(t, database) {
  const { folder, stop } = temporaryFolder();
  const port = await freePort();
  const addresses = [["127.0.0.1:8089", `127.0.0.1:${port}`], ["http://127.0.0.1:8086", database.origin]];
  const file = adapted(folder, "telegraf.conf", ...addresses, ['flush_interval = "10s"', 'flush_interval = "200ms"']);
  const { ended, log } = start(t, ...go("telegraf", ["--config", file]));
  t.after(stop);
  await until("Telegraf listens", () => {
    assert.ok(!ended(), ended());
    return log().includes("Listening on udp://");
  });
  return port;
}

/** The server, a provider that answers by `peer.script`, and `database`, in which its metrics arrive. */
export class Chain extends Gateway {
  static async start(t) {
    const database = await InfluxDb.start(t);
    const udpPort = await telegraf(t, database);
    const credentials = Credentials.make(t);
    const peer = await Peer.start(t, credentials.server(), { script: (request) => request.accept() });
    const influx = `[influx]\naddress = "127.0.0.1:${udpPort}"\ninterval = "1s"\ntags = ["host=${HOST}"]\n`;
    const apns = { channel: CHANNEL, more: `${clients}\n${influx}`, lakeCapacity: LAKE_CAPACITY };
    const chain = await super.start(t, credentials, peer.port, apns);
    await chain.follow(SUBJECT, Array.from({ length: DEVICES }, () => freshToken()));
    return Object.assign(chain, { database, peer });
  }

  /** Publishes events, which all devices are pushed; waits until all is done. */
  async tell(count) {
    for (const id of await this.push(SUBJECT, count)) {
      await this.outcomes(id);
    }
  }

  /** The same while an app listens, which gets each event. */
  async tellLive(count) {
    const app = new Listener("uni_http_stream", this.port, { subs: { [SUBJECT]: {} } });
    await until("the app has connected", () => app.pushes.length > 0);
    await this.tell(count);
    await until("the app has all events", () => app.pushes.filter(({ pub }) => pub).length === count);
    app.stop();
    await until("the app is gone", () => app.isOver);
  }
}

/** A Kapacitor that reads a database and posts alerts to a receiver, as `ops/README.md` says. */
export class Kapacitor extends Receiver {
  static async start(t, database) {
    const kapacitor = await super.start(t);
    const { folder, stop } = temporaryFolder();
    const port = await freePort();
    Object.assign(kapacitor, { folder, origin: `http://127.0.0.1:${port}` });
    const program = start(t, ...go("kapacitord", ["-config", kapacitor.#configuration(port, database)]));
    t.after(stop);
    await ready(`${kapacitor.origin}/kapacitor/v1/ping`, program);
    const handler = adapted(folder, "kapacitor/webhook.yaml", ["https://example.com/alerts", kapacitor.url]);
    kapacitor.#command("define-topic-handler", handler);
    return kapacitor;
  }

  #configuration(port, database) {
    const file = path.join(this.folder, "kapacitor.conf");
    const folder = (name) => JSON.stringify(path.join(this.folder, name));
    writeFileSync(
      file,
      `hostname = "127.0.0.1"
data_dir = ${folder("data")}
[http]
bind-address = "127.0.0.1:${port}"
log-enabled = false
[logging]
file = "STDERR"
[replay]
dir = ${folder("replay")}
[storage]
boltdb = ${folder("kapacitor.db")}
[task]
dir = ${folder("tasks")}
[[influxdb]]
enabled = true
default = true
name = "default"
urls = ["${database.origin}"]
subscription-protocol = "http"
[reporting]
enabled = false
`,
    );
    return file;
  }

  /** One command of Kapacitor's own client; what it says. */
  #command(...words) {
    const [program, all] = go("kapacitor", ["-url", this.origin, ...words]);
    const { status, stdout, stderr } = spawnSync(program, all, { encoding: "utf8" });
    assert.equal(status, 0, `kapacitor ${words.join(" ")}: ${stdout}${stderr}`);
    return stdout;
  }

  /** Loads a script of `ops/` with each `[from, to]` replaced. */
  load(name, ...pairs) {
    this.#command("define", name, "-tick", adapted(this.folder, `kapacitor/${name}.tick`, ...pairs));
    this.#command("enable", name);
  }

  /** What it says of a task, with the counts of each node. */
  show(name) {
    return this.#command("show", name);
  }

  /** Waits until the alert of a task has looked once more. */
  async looksAgain(name, deadlineMs) {
    const looked = () => Number(/-> alert\d+ \[processed="(\d+)"\]/.exec(this.show(name))[1]);
    const before = looked();
    await until(`${name} looks again`, () => looked() > before, deadlineMs);
  }

  read({ id, level, message }) {
    return { id, level, message };
  }

  /** Waits until an alert has come to `level`, `CRITICAL` or `OK`; its message. */
  async told(level, id, deadlineMs) {
    const wanted = (told) => told.level === level && told.id === id;
    return (await this.take(`the receiver is told ${level}: ${id}`, wanted, deadlineMs)).message;
  }
}
