// `promtool` and `amtool` read the files of `ops/`, and `promtool` runs the tests of the alerts.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";

import { temporaryFolder } from "../server.mjs";
import { OPS, shipped, swapped } from "./watch.mjs";

const run = (program, words, cwd) => {
  const { status, stdout, stderr } = spawnSync(program, words, { cwd, encoding: "utf8" });
  return { status, said: `${stdout}${stderr}` };
};

const passes = (program, words, cwd) => {
  const { status, said } = run(program, words, cwd);
  assert.equal(status, 0, `${program} ${words.join(" ")}: ${said}`);
};

test("promtool and amtool can read every file", (t) => {
  passes("promtool", ["check", "rules", "--lint-fatal", "alerts.yml"], path.join(OPS, "prometheus"));
  passes("amtool", ["check-config", "alertmanager.yml"], path.join(OPS, "alertmanager"));
  const { folder, stop } = temporaryFolder();
  t.after(stop);
  cpSync(path.join(OPS, "prometheus"), folder, { recursive: true });
  writeFileSync(path.join(folder, "api-key"), "a key that the example names");
  passes("promtool", ["check", "config", "prometheus.yml"], folder);
});

test("each alert fires when it should, and ends", () => {
  passes("promtool", ["test", "rules", "alerts.test.yml"], path.join(OPS, "prometheus"));
  const alerts = [...shipped("prometheus/alerts.yml").matchAll(/- alert: (\w+)/g)].map(([, name]) => name);
  const tested = [...shipped("prometheus/alerts.test.yml").matchAll(/- name: (\w+)/g)].map(([, name]) => name);
  assert.deepEqual(tested, alerts);
  assert.ok(alerts.length >= 10);
});

test("an alert that never fires fails its test", (t) => {
  const { folder, stop } = temporaryFolder();
  t.after(stop);
  cpSync(path.join(OPS, "prometheus"), folder, { recursive: true });
  const rules = swapped(shipped("prometheus/alerts.yml"), ["oldest_waiting_job_seconds > 60", "oldest_waiting_job_seconds > 6000"]);
  writeFileSync(path.join(folder, "alerts.yml"), rules);
  const { status, said } = run("promtool", ["test", "rules", "alerts.test.yml"], folder);
  assert.notEqual(status, 0);
  assert.match(said, /TidingsOldestJobWaits/);
});
