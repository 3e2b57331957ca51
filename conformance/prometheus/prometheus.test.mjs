// Prometheus as Debian ships it judges `/metrics`: `promtool` finds nothing to complain about, and a Prometheus that scrapes
// gets every sample in OpenMetrics, computes quantiles from the buckets, and knows the trace of a request that took so long.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";

import { API_KEY, Server, configurationHead, freePort, temporaryFolder, until } from "../server.mjs";

const options = { timeout: 90_000 };
const PUBLISHED = 50;
const TRACE = "0af7651916cd43dd8448eb211c80319c";

const configuration = (port, folder) => `${configurationHead(port, folder)}
[channel.namespaces.match]
durable = true
history_size = 100
history_ttl = "10m"
`;

async function work(server) {
  for (let step = 0; step < PUBLISHED; step++) {
    const answer = await server.request("POST", "/api/publish", { channel: "match:1", data: { step } });
    assert.equal(answer.status, 200);
  }
}

test("promtool has no complaint about names, units and help", options, async (t) => {
  const server = await Server.start(configuration);
  t.after(() => server.stop());
  await work(server);
  const page = await (await server.request("GET", "/metrics")).text();
  const judged = spawnSync("promtool", ["check", "metrics"], { input: page, encoding: "utf8" });
  const complaints = `${judged.stdout}${judged.stderr}`.split("\n").filter((line) => line.trim() !== "");
  assert.deepEqual(complaints, []);
});

test("a Prometheus that scrapes gets all samples and computes quantiles", options, async (t) => {
  const server = await Server.start(configuration);
  t.after(() => server.stop());
  const { folder, stop } = temporaryFolder();
  const [port, file] = [await freePort(), path.join(folder, "prometheus.yml")];
  writeFileSync(
    file,
    `global: { scrape_interval: 500ms }
scrape_configs:
  - job_name: tidings
    authorization: { credentials: "${API_KEY}" }
    static_configs: [{ targets: ["127.0.0.1:${server.port}"] }]
`,
  );
  const words = [`--config.file=${file}`, `--storage.tsdb.path=${path.join(folder, "data")}`, `--web.listen-address=127.0.0.1:${port}`, "--enable-feature=exemplar-storage"];
  const prometheus = spawn("prometheus", words, { stdio: "ignore" });
  t.after(async () => {
    prometheus.kill("SIGKILL");
    await (prometheus.exitCode ?? prometheus.signalCode ?? once(prometheus, "exit"));
    stop();
  });
  const get = async (route, parameters = {}) => {
    const answer = await fetch(`http://127.0.0.1:${port}/api/v1/${route}?${new URLSearchParams(parameters)}`);
    return (await answer.json()).data;
  };
  const value = async (query) => Number((await get("query", { query }).catch(() => undefined))?.result[0]?.value[1] ?? NaN);
  await until("it scrapes", async () => (await value("up")) === 1);
  await work(server);

  await until("it has the count", async () => (await value('tidings_api_requests_total{route="POST /api/publish"}')) === PUBLISHED);
  const commits = 'tidings_store_commit_seconds_count{durability="synced"}';
  await until("it has the commits", async () => (await value(commits)) > 0);
  const buckets = 'tidings_store_commit_seconds_bucket{durability="synced"}';
  assert.equal(await value(`${buckets.replace("}", ',le="+Inf"}')}`), await value(commits));
  const quantile = `histogram_quantile(0.99, sum by (le) (rate(${buckets}[1m])))`;
  await until("it computes a quantile", async () => (await value(quantile)) > 0);

  const now = Date.now() / 1000;
  const window = { start: now - 600, end: now + 600 };
  const exemplars = async (metric) => (await get("query_exemplars", { query: `${metric}_bucket`, ...window })).flatMap(
    ({ exemplars }) => exemplars.map(({ labels }) => labels.trace_id),
  );
  assert.deepEqual(await exemplars("tidings_api_accept_seconds"), [], "no event was in a trace");
  const event = { id: "goal-1", topic: "goal", text: { und: { title: "Goal", body: "." } }, subjects: ["match:1"] };
  const answer = await server.request("POST", "/v1/events", event, { traceparent: `00-${TRACE}-b7ad6b7169203331-01` });
  assert.equal(answer.status, 202, await answer.text());
  for (const metric of ["tidings_api_accept_seconds", "tidings_sender_selection_seconds"]) {
    await until(`${metric} leads to the trace`, async () => (await exemplars(metric)).includes(TRACE));
  }

  const [target] = (await get("targets")).activeTargets;
  assert.equal(target.lastError, "");
  const metadata = await get("metadata", { metric: "tidings_store_commit_seconds" });
  const [{ type, unit }] = metadata.tidings_store_commit_seconds;
  assert.deepEqual({ type, unit }, { type: "histogram", unit: "seconds" }, "units come with OpenMetrics only");
});
