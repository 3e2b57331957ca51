// The databases that judge our metrics: InfluxDB and VictoriaMetrics as Debian ships them, each with a folder of its own
// on ports of its own. They are fed over UDP, or (InfluxDB) by whoever writes to its HTTP API.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import path from "node:path";

import { freePort, temporaryFolder, until } from "../server.mjs";

const LOG_CHARACTERS_MAX = 16 * 1024;

class Database {
  /** Starts it; `udpPort` is where it takes lines, if it does. Ended with the test. */
  static async start(t, udpPort) {
    const database = new this();
    const { folder, stop } = temporaryFolder();
    Object.assign(database, { udpPort, folder, log: "", port: await freePort(), rpcPort: await freePort() });
    const [program, ...words] = database.command();
    const child = spawn(program, words, { stdio: ["ignore", "pipe", "pipe"] });
    const keep = (text) => (database.log = (database.log + text).slice(-LOG_CHARACTERS_MAX));
    child.on("error", (error) => keep(error.message));
    child.stdout.on("data", keep);
    child.stderr.on("data", keep);
    t.after(async () => {
      child.kill("SIGKILL");
      await (child.exitCode ?? child.signalCode ?? once(child, "exit"));
      stop();
    });
    const listens = () => fetch(`${database.origin}${database.health}`).then((answer) => answer.ok, () => false);
    await until(`${program} listens`, () => child.exitCode !== null || listens());
    assert.equal(child.exitCode, null, `${program} ended\n${database.log}`);
    return database;
  }

  get origin() {
    return `http://127.0.0.1:${this.port}`;
  }

  async get(route, parameters) {
    const answer = await fetch(`${this.origin}${route}?${new URLSearchParams(parameters)}`);
    assert.ok(answer.ok, `${route}: HTTP ${answer.status}\n${this.log}`);
    return answer.text();
  }
}

/** Under which `series` keeps what is known of a series. A label without a value is none: the lines have no empty tags. */
export const seriesKey = (name, labels) => {
  const some = Object.entries(labels).filter(([, value]) => value !== "");
  return JSON.stringify([name, some.sort()]);
};

/** The database in which InfluxDB has our metrics. */
const METRICS = "tidings";

export class InfluxDb extends Database {
  health = "/ping";

  command() {
    const file = path.join(this.folder, "influxdb.conf");
    const folder = (name) => JSON.stringify(path.join(this.folder, name));
    writeFileSync(
      file,
      `reporting-disabled = true
bind-address = "127.0.0.1:${this.rpcPort}"
[meta]
dir = ${folder("meta")}
[data]
dir = ${folder("data")}
wal-dir = ${folder("wal")}
query-log-enabled = false
[monitor]
store-enabled = false
[http]
bind-address = "127.0.0.1:${this.port}"
log-enabled = false
${this.udpPort === undefined ? "" : this.#udp()}`,
    );
    return ["influxd", "run", "-config", file];
  }

  #udp() {
    return `[[udp]]
enabled = true
bind-address = "127.0.0.1:${this.udpPort}"
database = "${METRICS}"
batch-timeout = "50ms"
`;
  }

  /** The answer to a query; undefined while the database is not there. */
  async query(q) {
    const { results } = JSON.parse(await this.get("/query", { db: METRICS, q }));
    assert.match(results[0].error ?? "database not found", /^database not found/, q);
    return results[0].series;
  }

  async #select(what, since) {
    const rows = new Map();
    const series = await this.query(`SELECT ${what} FROM /.*/ WHERE time >= ${since}ms GROUP BY *`);
    for (const { name, tags, columns, values } of series ?? []) {
      for (const [index, column] of columns.entries()) {
        if (column !== "time" && values[0][index] !== null) {
          rows.set(seriesKey(`${name}_${column.slice(column.indexOf("_") + 1)}`, tags ?? {}), values[0][index]);
        }
      }
    }
    return rows;
  }

  /** By series: the sum, the last and the largest of its values, from `since` on (milliseconds since 1970). */
  async series(since = 0) {
    const [sums, lasts, maxima] = await Promise.all(["sum", "last", "max"].map((of) => this.#select(`${of}(*)`, since)));
    return new Map([...sums].map(([key, sum]) => [key, { sum, last: lasts.get(key), max: maxima.get(key) }]));
  }
}

export class VictoriaMetrics extends Database {
  health = "/health";

  command() {
    const words = [
      `-storageDataPath=${path.join(this.folder, "data")}`,
      `-httpListenAddr=127.0.0.1:${this.port}`,
      `-influxListenAddr=127.0.0.1:${this.udpPort}`,
    ];
    return ["victoria-metrics", ...words];
  }

  async series() {
    await this.get("/internal/force_flush", {});
    const text = await this.get("/api/v1/export", { "match[]": '{__name__!=""}' });
    const rows = text.split("\n").filter((line) => line !== "").map(JSON.parse);
    return new Map(
      rows.map(({ metric: { __name__: name, ...labels }, values, timestamps }) => {
        const last = values[timestamps.indexOf(Math.max(...timestamps))];
        const sum = values.reduce((sum, value) => sum + value, 0);
        return [seriesKey(name, labels), { sum, last, max: Math.max(...values) }];
      }),
    );
  }
}
