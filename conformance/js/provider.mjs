// What the judges of FCM and Web Push stand on: the server with a provider's section, devices of any kind, and our
// simulators as programs.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import https from "node:https";
import path from "node:path";

import { Gateway } from "../apns/harness.mjs";
import { Program, Server, configurationHead, temporaryFolder } from "../server.mjs";

/** The server with `section`, what its configuration says of the provider. Stopped when the test ends. */
export async function start(t, section) {
  const configuration = (port, folder) => `${configurationHead(port, folder)}
[channel.namespaces.match]
durable = true
history_size = 100
history_ttl = "10m"

[topics.goal]
title = "Goal for %{team}!"
body = "%{text}"

${section}`;
  const gateway = await Server.start.call(Gateway, configuration);
  t.after(() => gateway.stop());
  return gateway;
}

/** Registers a device, which follows `subject`. */
export async function follow(gateway, subject, id, device) {
  await gateway.ok("PUT", `/v1/devices/${id}`, { locale: "en", ...device });
  const subscriptions = [{ subject, topics: ["goal"] }];
  await gateway.ok("PUT", `/v1/devices/${id}/subscriptions`, { subscriptions });
}

/** `tidings simulate KIND`, with its control requests; ended with the test. */
export class Simulator {
  static async start(t, kind, ...words) {
    const simulator = new Simulator();
    const { folder, stop } = temporaryFolder();
    t.after(stop);
    simulator.program = new Program(["simulate", kind, "--listen", "127.0.0.1:0", "--dir", folder, ...words], folder);
    t.after(() => simulator.program.kill("SIGKILL"));
    const port = () => /^(?:port = |allowed_ports = \[)(\d+)/m.exec(simulator.program.log)?.[1];
    await simulator.program.ready("the simulator listens", () => port() !== undefined);
    Object.assign(simulator, { port: Number(port()), folder });
    simulator.ca = simulator.file(`${kind}-ca.pem`);
    return simulator;
  }

  /** A file that it has written. */
  file(name) {
    return readFileSync(path.join(this.folder, name), "utf8");
  }

  get origin() {
    return `https://localhost:${this.port}`;
  }

  /** Connections that trust it. */
  agent() {
    return new https.Agent({ ca: this.ca, keepAlive: true });
  }

  /** One request, and its answer: `{status, headers, text}`. */
  request(method, route, { headers = {}, body = "" } = {}) {
    return new Promise((resolve, reject) => {
      const all = { ...headers, "content-length": Buffer.byteLength(body) };
      const options = { method, headers: all, ca: this.ca };
      const request = https.request(`${this.origin}${route}`, options, async (answer) => {
        let text = "";
        for await (const piece of answer.setEncoding("utf8")) {
          text += piece;
        }
        resolve({ status: answer.statusCode, headers: answer.headers, text });
      });
      request.on("error", reject);
      request.end(body);
    });
  }

  async control(method, route, body) {
    const answer = await this.request(method, `/simulator/${route}`, { body: body && JSON.stringify(body) });
    return JSON.parse(answer.text);
  }

  /** Misbehaves like this from now on, and else not. */
  async faults(faults) {
    const inForce = await this.control("PUT", "faults", faults);
    assert.equal(inForce.error, undefined);
  }
}
