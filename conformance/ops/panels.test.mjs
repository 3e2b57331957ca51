// Every query of the dashboard returns series from a real Prometheus that scrapes the running demo. A metric that exists only
// if something is configured may be absent; the description of its panel says so ("Only if …").

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Program, temporaryFolder, until } from "../server.mjs";
import { Prometheus, shipped, swapped } from "./watch.mjs";

const DEADLINE_MS = 100_000;
const TYPES = ["row", "stat", "table", "timeseries"];
const DEMO = ["demo", "--devices", "2000", "--clients", "20", "--speed", "2000"];

const board = JSON.parse(shipped("grafana/tidings.json"));
const panels = board.panels.flatMap((panel) => [panel, ...(panel.panels ?? [])]);

/** Each query of the dashboard: where it is, what it asks, and whether its metric may be absent. */
function queries() {
  return panels.filter(({ type }) => type !== "row").flatMap(({ title, description, targets }) =>
    targets.map(({ expr }) => {
      const [name] = /\b(tidings|process)_\w+(?=\{)/.exec(expr);
      const about = description.split("\n").find((line) => line.startsWith(`${name.replace(/_bucket$/, "")}: `));
      assert.ok(about, `the description of ${title} says nothing about ${name}`);
      const variables = [["$job", ".+"], ["$instance", ".+"]];
      const query = swapped(expr, ...variables).replaceAll("$__rate_interval", "30s");
      return { title, name, query, mayBeAbsent: / Only if .+\.$/.test(about) };
    }),
  );
}

/** An event that the demo's topics know. */
const goal = (minute) => ({
  id: `goal-${minute}`,
  topic: "goal",
  subjects: ["match:2022-final", "team:argentina"],
  params: {
    team: "Argentina", scorer: "Lionel Messi", minute, home: "Argentina", home_goals: 4, away: "France", away_goals: 3,
  },
});

test("the dashboard has what Grafana 10 needs", () => {
  const ids = panels.map(({ id }) => id);
  assert.equal(new Set(ids).size, ids.length);
  for (const { title, type, description, datasource, gridPos, targets } of panels) {
    assert.ok(TYPES.includes(type), title);
    assert.ok(gridPos.x + gridPos.w <= 24, title);
    if (type !== "row") {
      assert.ok(description && targets.length > 0 && datasource.uid === "${datasource}", title);
    }
  }
  for (const { query } of queries()) {
    assert.ok(!query.includes("$"), query);
  }
  assert.deepEqual(board.templating.list.map(({ name }) => name), ["datasource", "job", "instance"]);
});

test("every panel has series", { timeout: 150_000 }, async (t) => {
  const { folder, stop } = temporaryFolder();
  const demo = new Program(DEMO, folder);
  t.after(async () => {
    await demo.kill("SIGINT");
    stop();
  });
  let invitation;
  const invited = () => (invitation = /X-API-Key: \$\(cat ([^)]+)\)" http:\/\/([^/\s]+)\/metrics/.exec(demo.log));
  await until("the demo has played its match", () => {
    assert.equal(demo.child.exitCode, null, demo.log);
    return invited();
  }, DEADLINE_MS);
  const [, keyFile, target] = invitation;
  const key = readFileSync(keyFile, "utf8").trim();
  const prometheus = await Prometheus.start(t, { target, key, interval: "1s" });

  const headers = { "X-API-Key": key, "Content-Type": "application/json" };
  const score = async (minute) => {
    const answer = await fetch(`http://${target}/v1/events`, { method: "POST", headers, body: JSON.stringify(goal(minute)) });
    assert.equal(answer.status, 202, await answer.text());
  };
  let goals = 0;
  let waiting = queries();
  const total = waiting.length;
  await until("every panel has series", async () => {
    await score(++goals);
    const answers = await Promise.all(waiting.map(({ query }) => prometheus.query(query)));
    waiting = waiting.filter((_, index) => answers[index].length === 0);
    return waiting.every(({ mayBeAbsent }) => mayBeAbsent);
  }, DEADLINE_MS).catch((error) => {
    const empty = waiting.filter(({ mayBeAbsent }) => !mayBeAbsent).map(({ title, query }) => `\n  ${title}: ${query}`);
    throw new Error(`${error.message}; without series:${empty.join("")}`);
  });
  const absent = waiting.map(({ name }) => name);
  t.diagnostic(`${total - waiting.length} queries have series; absent in the demo: ${absent.join(", ")}`);
  assert.ok(total - waiting.length >= 100, `only ${total - waiting.length} queries have series`);

  const [first] = board.panels.filter(({ type }) => type === "stat").map(({ gridPos }) => gridPos.y);
  const numbers = queries().slice(0, board.panels.filter(({ gridPos, type }) => type === "stat" && gridPos.y === first).length);
  assert.equal(numbers.length, 6);
  for (const { title, query } of numbers) {
    await until(`${title} is a number`, async () => (await prometheus.query(query)).some(({ value }) => value >= 0));
  }
});
