// Traces, judged by a real OpenTelemetry collector (`otel/` pins it), which prints what it has understood: an event that is
// posted with a `traceparent` is one tree of spans, and hooks and the receiver of reports are told their place in it.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import { test } from "node:test";

import { Centrifuge } from "centrifuge";
import WebSocket from "ws";

import { configurationHead, freePort, Server, temporaryFolder, until } from "../server.mjs";
import { go } from "../tool.mjs";
import { Gateway } from "../apns/harness.mjs";
import { Firebase, freshToken, phone } from "./firebase.mjs";
import { follow } from "./provider.mjs";

const TRACE = "0af7651916cd43dd8448eb211c80319c";
const CALLER = "b7ad6b7169203331";
/** The metrics whose values of an event's way are examples. */
const LEADING = [
  "tidings_api_accept_seconds", "tidings_sender_latency_seconds", "tidings_sender_selection_seconds",
  "tidings_webhook_attempt_seconds", "tidings_webhook_delay_seconds",
];

/** The collector. `spans()` are those that it has printed: `{trace, parent, id, name, kind, failed, attributes}`. */
class Collector {
  static async start(t) {
    const collector = Object.assign(new Collector(), { port: await freePort(), text: "" });
    const { folder, stop } = temporaryFolder();
    t.after(stop);
    const file = path.join(folder, "collector.yaml");
    writeFileSync(file, `
receivers: {otlp: {protocols: {http: {endpoint: "127.0.0.1:${collector.port}"}}}}
exporters: {debug: {verbosity: detailed, use_internal_logger: false, output_paths: [stdout]}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {traces: {receivers: [otlp], exporters: [debug]}}
`);
    const [program, words] = go("otel", ["--config", file]);
    const child = spawn(program, words, { stdio: ["ignore", "pipe", "pipe"] });
    t.after(() => child.kill("SIGKILL"));
    child.stdout.on("data", (text) => (collector.text += text));
    child.stderr.on("data", (text) => (collector.log = `${collector.log ?? ""}${text}`));
    await until("the collector is ready", () => collector.log?.includes("Everything is ready"));
    return collector;
  }

  get endpoint() {
    return `http://127.0.0.1:${this.port}/v1/traces`;
  }

  spans() {
    return this.text.split(/^Span #\d+$/m).slice(1).map((text) => {
      const [, ...rest] = [...text.matchAll(/^ {4}([A-Za-z ]+?) *: ?(.*)$/gm)].reduce(
        (all, [, name, value]) => [...all, [name, value]], [[]],
      );
      const fields = Object.fromEntries(rest);
      const attributes = [...text.matchAll(/^ {5}-> ([^:]+): (?:Str|Int)\((.*)\)$/gm)].map(([, name, value]) => [name, value]);
      return {
        trace: fields["Trace ID"], parent: fields["Parent ID"], id: fields.ID, name: fields.Name, kind: fields.Kind,
        state: fields.TraceState, failed: fields["Status code"] === "Error", attributes: Object.fromEntries(attributes),
      };
    });
  }
}

/** A back end: keeps the headers of all requests by their path, and answers hooks with `{}`. */
async function backEnd(t) {
  const calls = [];
  const server = http.createServer((request, response) => {
    request.resume().on("end", () => {
      calls.push({ path: request.url, headers: request.headers });
      response.writeHead(200, { "content-type": "application/json" }).end('{"result":{"user":"ada"}}');
    });
  });
  server.listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { calls, origin: `http://127.0.0.1:${server.address().port}` };
}

async function start(t, collector, { origin, section, ratio }) {
  const server = await Server.start.call(Gateway, (port, folder) => `${configurationHead(port, folder)}
[traces]
endpoint = "${collector.endpoint}"
ratio = "${ratio}"
[client]
connect_hook = "connect"
[hooks.connect]
url = "${origin}/connect"
allow_http = true
[webhook]
url = "${origin}/report"
allow_http = true
secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
[channel.namespaces.match]
durable = true
history_size = 100
history_ttl = "10m"
[topics.goal]
title = "Goal"
body = "Goal"
${section}`);
  t.after(() => server.stop());
  return server;
}

test("an event is one tree of spans in the trace of its producer", { timeout: 60_000 }, async (t) => {
  const [collector, backend, firebase] = [await Collector.start(t), await backEnd(t), await Firebase.start(t)];
  const server = await start(t, collector, { origin: backend.origin, section: firebase.section, ratio: "0%" });
  for (const id of ["phone-1", "phone-2"]) {
    await follow(server, "match:1", id, phone(freshToken()));
  }
  const event = { id: "goal-1", topic: "goal", subjects: ["match:1"], push: "always" };
  const headers = { traceparent: `00-${TRACE}-${CALLER}-01`, tracestate: "congo=t61rcWkgMzE" };
  const answer = await server.request("POST", "/v1/events", event, headers);
  assert.equal(answer.status, 202, await answer.text());
  await until("the report was taken and told", () => collector.spans().some(({ name }) => name === "report"));
  await until("all spans are there", () => collector.spans().length >= 7);
  const spans = collector.spans();
  const names = spans.map(({ name }) => name).sort();
  assert.deepEqual(names, ["accept", "commit", "job", "lane", "publish", "report", "walk"], "each once, and none per device");
  assert.deepEqual([...new Set(spans.map(({ trace }) => trace))], [TRACE]);
  const span = Object.fromEntries(spans.map((span) => [span.name, span]));
  const parents = {
    accept: CALLER, commit: span.accept.id, publish: span.commit.id, job: span.accept.id,
    walk: span.job.id, lane: span.job.id, report: span.job.id,
  };
  assert.deepEqual(Object.fromEntries(spans.map(({ name, parent }) => [name, parent])), parents);
  assert.ok(spans.every(({ failed }) => !failed));
  assert.deepEqual([span.accept.kind, span.report.kind, span.job.kind], ["Server", "Client", "Internal"]);
  assert.equal(span.accept.attributes["event.id"], "goal-1");
  assert.deepEqual(span.job.attributes, { "event.id": "goal-1", topic: "goal", audience: "2", accepted: "2" });
  assert.deepEqual([span.lane.attributes.provider, span.lane.attributes.accepted], ["fcm", "2"]);
  assert.equal(span.walk.attributes.devices, "2");
  assert.equal(span.publish.attributes.channel, "match:1");

  const [report] = backend.calls.filter((call) => call.path === "/report");
  assert.equal(report.headers.traceparent, `00-${TRACE}-${span.report.id}-01`);
  assert.equal(report.headers.tracestate, "congo=t61rcWkgMzE");
  const shown = await (await server.request("GET", "/v1/events/goal-1")).json();
  assert.equal(shown.trace_id, TRACE);
  const open = { accept: "application/openmetrics-text" };
  const metrics = await (await server.request("GET", "/metrics", undefined, open)).text();
  const led = [...metrics.matchAll(/^(\w+)_bucket\{.* # \{trace_id="(\w+)"\}/gm)].filter(([, , trace]) => trace === TRACE);
  assert.deepEqual([...new Set(led.map(([, metric]) => metric))].sort(), LEADING, "which slow values lead to the trace");
});

test("what nobody records is handed on and sends nothing; by chance all is recorded", { timeout: 60_000 }, async (t) => {
  const [collector, backend] = [await Collector.start(t), await backEnd(t)];
  const server = await start(t, collector, { origin: backend.origin, section: "", ratio: "100%" });
  const given = `00-${TRACE}-${CALLER}-00`;
  const event = (id, more = {}) => ({ id, topic: "goal", subjects: ["match:1"], push: "never", ...more });
  const posted = await server.request("POST", "/v1/events", [event("quiet", { traceparent: given }), event("chance")]);
  assert.equal(posted.status, 202, await posted.text());
  await until("both reports have come", () => backend.calls.filter((call) => call.path === "/report").length === 2);
  assert.ok(backend.calls.some(({ headers }) => headers.traceparent === given), "as its producer sent it");
  const client = new Centrifuge(`ws://127.0.0.1:${server.port}/connection/websocket`, { websocket: WebSocket });
  t.after(() => client.disconnect());
  client.connect();
  await client.ready();
  await until("the hook's span is there", () => collector.spans().some(({ name }) => name === "hook"));
  const [hook] = collector.spans().filter(({ name }) => name === "hook");
  const [call] = backend.calls.filter((call) => call.path === "/connect");
  assert.equal(call.headers.traceparent, `00-${hook.trace}-${hook.id}-01`);
  await until("the event's report is there", () => collector.spans().some(({ name }) => name === "report"));
  const spans = collector.spans();
  assert.ok(spans.every(({ trace }) => trace !== TRACE));
  const accept = spans.filter(({ name }) => name === "accept");
  assert.deepEqual(accept.map((span) => [span.attributes["event.id"], span.parent]), [["chance", ""]]);
});
