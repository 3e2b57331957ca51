// A real Prometheus and Alertmanager with the files of `ops/`, and a receiver of Slack's webhooks.
//
// The files are taken as they are, except for addresses and times: `swapped` fails if a file has not the text that it is to
// replace.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import { fileURLToPath } from "node:url";

import { freePort, temporaryFolder, until } from "../server.mjs";

const BODY_CHARACTERS_MAX = 64 * 1024;

export const OPS = fileURLToPath(new URL("../../ops/", import.meta.url));

/** A file of `ops/`. */
export const shipped = (name) => readFileSync(path.join(OPS, name), "utf8");

/** `text` with each `[from, to]` replaced, everywhere. */
export function swapped(text, ...pairs) {
  for (const [from, to] of pairs) {
    assert.ok(from instanceof RegExp ? from.test(text) : text.includes(from), `the file has no ${from}`);
    text = text.replaceAll(from, to);
  }
  return text;
}

/** Starts a program, which ends with the test; `log` has the end of what it writes to standard error. */
export function start(t, program, words) {
  const child = spawn(program, words, { stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  child.stderr.on("data", (text) => (log = (log + text).slice(-BODY_CHARACTERS_MAX)));
  t.after(async () => {
    child.kill("SIGKILL");
    await (child.exitCode ?? child.signalCode ?? once(child, "exit"));
  });
  return { ended: () => child.exitCode !== null && `${program} ended\n${log}`, log: () => log };
}

/** Waits until a program answers at `url`. */
export async function ready(url, { ended }) {
  await until(`${url} answers`, async () => {
    assert.ok(!ended(), ended());
    return fetch(url).then((answer) => answer.ok, () => false);
  });
}

/** An HTTP server that alerts are posted to. `messages` has what `read` made of the bodies that came, the newest last. */
export class Receiver {
  static async start(t) {
    const receiver = new this();
    receiver.messages = [];
    receiver.server = http.createServer((request, answer) => {
      let body = "";
      request.on("data", (piece) => (body += piece).length > BODY_CHARACTERS_MAX && request.destroy());
      request.on("end", () => {
        receiver.messages.push(receiver.read(JSON.parse(body)));
        answer.end("ok");
      });
    });
    receiver.server.listen(0, "127.0.0.1");
    await once(receiver.server, "listening");
    t.after(() => receiver.server.close());
    receiver.url = `http://127.0.0.1:${receiver.server.address().port}/hook`;
    return receiver;
  }

  /** Waits for a message that is `wanted`, and takes it. */
  async take(what, wanted, deadlineMs) {
    await until(what, () => this.messages.some(wanted), deadlineMs).catch((error) => {
      throw new Error(`${error.message}; it was told ${JSON.stringify(this.messages)}`);
    });
    const index = this.messages.findIndex(wanted);
    return this.messages.splice(index, 1)[0];
  }
}

/** A receiver of Slack's webhooks. */
export class Slack extends Receiver {
  read({ attachments: [{ title, text }] }) {
    return { title, text };
  }

  /** Waits for the message that an alert about a server is `firing` or `resolved`, and takes it. */
  told(status, alert, target, deadlineMs) {
    const wanted = ({ title, text }) => title.startsWith(`${status}: ${alert} (`) && text.includes(target);
    return this.take(`Slack is told ${status}: ${alert}`, wanted, deadlineMs);
  }
}

/** An Alertmanager that tells `slack` at once. Returns its address. */
export async function alertmanager(t, slack) {
  const { folder, stop } = temporaryFolder();
  const [file, address] = [path.join(folder, "alertmanager.yml"), `127.0.0.1:${await freePort()}`];
  const times = [["group_wait: 30s", "group_wait: 10ms"], ["group_interval: 5m", "group_interval: 500ms"]];
  const url = [/https:\/\/hooks\.slack[^"]*/g, slack.url];
  writeFileSync(file, swapped(shipped("alertmanager/alertmanager.yml"), ...times, url));
  const words = [`--config.file=${file}`, `--storage.path=${folder}/data`, `--web.listen-address=${address}`];
  const program = start(t, "prometheus-alertmanager", [...words, "--cluster.listen-address="]);
  t.after(stop);
  await ready(`http://${address}/-/ready`, program);
  return address;
}

export class Prometheus {
  /** One that scrapes the server at `target` with an API key every `interval`. `rules` are a file's text. */
  static async start(t, { target, key, interval, rules = "groups: []\n", alertmanager = "127.0.0.1:9" }) {
    const { folder, stop } = temporaryFolder();
    const of = (name) => path.join(folder, name);
    const times = ["scrape_interval", "evaluation_interval"].map((name) => [`${name}: 15s`, `${name}: ${interval}`]);
    const addresses = [["127.0.0.1:8000", target], ["127.0.0.1:9093", alertmanager]];
    writeFileSync(of("prometheus.yml"), swapped(shipped("prometheus/prometheus.yml"), ...times, ...addresses));
    writeFileSync(of("alerts.yml"), rules);
    writeFileSync(of("api-key"), key);
    const prometheus = new Prometheus();
    prometheus.origin = `http://127.0.0.1:${await freePort()}`;
    const listen = `--web.listen-address=${prometheus.origin.slice("http://".length)}`;
    const program = start(t, "prometheus", [`--config.file=${of("prometheus.yml")}`, `--storage.tsdb.path=${of("data")}`, listen]);
    t.after(stop);
    await ready(`${prometheus.origin}/-/ready`, program);
    return prometheus;
  }

  /** The series of a query, each with its labels and its value. Fails if Prometheus cannot read the query. */
  async query(query) {
    const answer = await fetch(`${this.origin}/api/v1/query?${new URLSearchParams({ query })}`);
    const { status, error, data } = await answer.json();
    assert.equal(status, "success", `${query}: ${error}`);
    return data.result.map(({ metric, value }) => ({ labels: metric, value: Number(value[1]) }));
  }
}
