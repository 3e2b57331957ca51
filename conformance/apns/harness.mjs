// What the judges of our APNs side stand on: certificates and keys made for the run, a server that pushes to a given
// provider, devices, events, and the server's own counters.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

import { Server, configurationHead, temporaryFolder, until } from "../server.mjs";

export const APP = "com.example.app";
export const KEY_ID = "KEYID12345";
export const TEAM_ID = "TEAMID1234";
const REQUESTS_AT_ONCE = 64;

const EXTENSIONS = {
  authority: "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n",
  server: "basicConstraints=critical,CA:FALSE\nsubjectAltName=DNS:localhost,IP:127.0.0.1\n",
  client: "basicConstraints=critical,CA:FALSE\nextendedKeyUsage=clientAuth\n",
};

/** A certificate authority with server certificates for `localhost`, and a developer's signing key; gone with the test. */
export class Credentials {
  static make(t, name = "authority") {
    const credentials = new Credentials();
    const { folder, stop } = temporaryFolder();
    t.after(stop);
    const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    Object.assign(credentials, { folder, caFile: path.join(folder, "authority.pem"), keyFile: path.join(folder, "key.p8") });
    credentials.publicKeyFile = path.join(folder, "key.pub.pem");
    writeFileSync(credentials.keyFile, privateKey.export({ type: "pkcs8", format: "pem" }));
    writeFileSync(credentials.publicKeyFile, publicKey.export({ type: "spki", format: "pem" }));
    credentials.certify("authority", `CN=${name}`);
    return credentials;
  }

  /** A certificate and its key; all but the authority's own are signed by the authority. */
  certify(kind, subject) {
    const [certFile, keyFile] = ["pem", "key"].map((end) => path.join(this.folder, `${kind}.${end}`));
    const config = path.join(this.folder, "openssl.conf");
    writeFileSync(config, `[req]\ndistinguished_name=name\nx509_extensions=extensions\n[name]\n[extensions]\n${EXTENSIONS[kind]}`);
    const issuer = kind !== "authority" ? ["-CA", this.caFile, "-CAkey", path.join(this.folder, "authority.key")] : [];
    const words = ["req", "-x509", "-nodes", "-days", "2", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];
    words.push("-config", config, "-subj", `/${subject}`, "-keyout", keyFile, "-out", certFile, ...issuer);
    execFileSync("openssl", words, { stdio: "pipe" });
    return { certFile, keyFile, cert: readFileSync(certFile), key: readFileSync(keyFile) };
  }

  /** The authority's own certificate, for a client of Node's. */
  get authority() {
    return readFileSync(this.caFile);
  }

  /** A fresh certificate for `localhost`, and its key. */
  server() {
    return this.certify("server", "CN=localhost");
  }

  /** A fresh certificate that Apple would have given out for the app, and its key; the one before is overwritten. */
  client(app = APP) {
    return this.certify("client", `UID=${app}/CN=Apple Push Services: ${app}`);
  }
}

/** What proves us to the provider. */
const proof = (credentials, { certificate, keyId = KEY_ID, keyFile = credentials.keyFile }) =>
  certificate
    ? `certificate_file = ${JSON.stringify(certificate.certFile)}
certificate_key_file = ${JSON.stringify(certificate.keyFile)}`
    : `key_id = "${keyId}"
team_id = "${TEAM_ID}"
key_file = ${JSON.stringify(keyFile)}`;

const configuration = (credentials, providerPort, apns) => (port, folder) => `${configurationHead(port, folder)}
[channel.namespaces.match]
durable = true
history_size = 100
history_ttl = "10m"
${apns.channel ?? ""}
[topics.goal]
title = "Goal for %{team}!"
body = "%{text}"

[apns.judge]
host = "localhost"
port = ${providerPort}
${proof(credentials, apns)}
ca_file = ${JSON.stringify(credentials.caFile)}
apps = ["${apns.app ?? APP}"]
connection_count = ${apns.connections ?? 1}
connection_count_max = ${apns.connections ?? 1}
quarantine_connection_count = 0
stream_count_max = 1000
lake_capacity = ${apns.lakeCapacity ?? 1000}
stall_timeout = "${apns.stallTimeout ?? "10s"}"
answer_timeout = "${apns.answerTimeout ?? "30s"}"
${apns.more ?? ""}`;

/** A device token that nobody else has, in hexadecimal digits. */
export const freshToken = (bytes = 32) => randomBytes(bytes).toString("hex");

/** The server, pushing to a provider on `port` of this machine. Stopped when the test ends. */
export class Gateway extends Server {
  static async start(t, credentials, port, apns = {}) {
    const gateway = await super.start(configuration(credentials, port, apns));
    t.after(() => gateway.stop());
    return gateway;
  }

  /** Another configuration for its next life. */
  configure(credentials, port, apns = {}) {
    writeFileSync(this.configurationFile, configuration(credentials, port, apns)(this.port, this.folder));
  }

  /** Writes files, each with its name, and tells the server that its credential may be another. */
  replace(...files) {
    files.forEach(([name, content]) => writeFileSync(name, content));
    this.child.kill("SIGHUP");
  }

  async ok(method, route, body) {
    const answer = await this.request(method, route, body);
    assert.ok(answer.ok, `${method} ${route}: HTTP ${answer.status} ${await answer.clone().text()}`);
    return answer.status === 204 ? undefined : answer.json();
  }

  /** Registers a device per token, which follow `subject`; a device is named like its token. */
  async follow(subject, tokens, { locale = "en", app = APP } = {}) {
    const waiting = [...tokens];
    const register = async () => {
      for (let token = waiting.pop(); token !== undefined; token = waiting.pop()) {
        await this.ok("PUT", `/v1/devices/${token}`, { platform: "ios", token, app, locale });
        const subscriptions = [{ subject, topics: ["goal"] }];
        await this.ok("PUT", `/v1/devices/${token}/subscriptions`, { subscriptions });
      }
    };
    await Promise.all(Array.from({ length: REQUESTS_AT_ONCE }, register));
  }

  /** Publishes events about `subject`, to be pushed to everybody; returns their ids. */
  async push(subject, count = 1, more = {}) {
    const params = { team: "Sweden", text: "1 : 0" };
    const event = () => ({ id: freshToken(8), topic: "goal", subjects: [subject], params, push: "always", ...more });
    const events = Array.from({ length: count }, event);
    await this.ok("POST", "/v1/events", events);
    return events.map(({ id }) => id);
  }

  /** What is known of an event. */
  report(id) {
    return this.ok("GET", `/v1/events/${id}`);
  }

  /** What became of an event's notifications once all are done, without what happened to none: `{accepted: 1}`. */
  async outcomes(id) {
    let report;
    const finished = async () => (report = await this.report(id)).state === "finished";
    await until("the event is finished", finished);
    const some = ([, count]) => (typeof count === "number" ? count > 0 : Object.keys(count).length > 0);
    return Object.fromEntries(Object.entries(report.outcomes).filter(some));
  }

  /** The sum of the gateway's counters called `tidings_gateway_NAME` whose labels contain `labels`. */
  async count(name, labels = "") {
    const text = await (await this.request("GET", "/metrics")).text();
    const lines = text.split("\n").filter((line) => /^tidings_gateway_(\w+)/.exec(line)?.[1] === name);
    assert.ok(lines.length > 0, `no counter tidings_gateway_${name}`);
    return lines.filter((line) => line.includes(labels)).reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
  }

  /** Waits until so many notifications are done, whatever became of them. */
  settled(count) {
    return until(`${count} notifications are done`, async () => (await this.count("settled_total")) >= count);
  }

  /** How many notifications ended so: `accepted`, `rejected`, `expired`, `cancelled`, `unknown`. */
  outcome(name) {
    return this.count("settled_total", `outcome="${name}"`);
  }

  /** Whether the device still has a token to push to. */
  async hasToken(device) {
    return (await this.ok("GET", `/v1/devices/${device}`)).token !== undefined;
  }
}
