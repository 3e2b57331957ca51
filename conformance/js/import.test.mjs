// A back end and an app that were made for Centrifugo 5.4.9 move to our server with the configuration that
// `tidings config import` makes of Centrifugo's.

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { API_KEY, BINARY, temporaryFolder } from "../server.mjs";
import { Server, TOKEN_SECRET, next, seconds, subscribed, token } from "./harness.mjs";

const here = (relative) => fileURLToPath(new URL(relative, import.meta.url));
const CENTRIFUGO = process.env.CENTRIFUGO_BIN ?? here("../../target/conformance/go/bin/centrifugo");
const FIXTURE = here("../../crates/config/src/import/v5.json");

const accepted = (file) => {
  const checked = spawnSync(CENTRIFUGO, ["checkconfig", "-c", file], { encoding: "utf8" });
  assert.equal(checked.status, 0, checked.stdout);
};

test("a configuration with every key that Centrifugo takes is imported, and ours takes the result", (t) => {
  const { folder, stop } = temporaryFolder();
  t.after(stop);
  accepted(FIXTURE);
  const words = ["config", "import", FIXTURE, "--secrets", path.join(folder, "secrets"), "--json"];
  const { toml, files, entries, mistakes } = JSON.parse(execFileSync(BINARY, words, { encoding: "utf8" }));
  assert.deepEqual(mistakes, []);
  assert.deepEqual(entries.filter(({ outcome }) => outcome === "unknown"), [], "Centrifugo takes these keys");
  const keys = JSON.parse(readFileSync(FIXTURE, "utf8"));
  assert.deepEqual(Object.keys(keys).filter((key) => !entries.some((entry) => entry.key.startsWith(key))), []);
  for (const file of files) {
    assert.equal(statSync(file.path).mode & 0o777, 0o600, file.path);
  }
  assert.ok(!toml.includes(keys.token_hmac_secret_key) && !toml.includes(keys.api_key));
});

test("an app and a back end of Centrifugo go on with the imported configuration", async (t) => {
  const server = await Server.start((port, folder) => {
    const file = path.join(folder, "centrifugo.json");
    writeFileSync(file, JSON.stringify({
      address: "127.0.0.1",
      port: String(port),
      api_key: API_KEY,
      token_hmac_secret_key: TOKEN_SECRET,
      namespaces: [{ name: "chat", history_size: 10, history_ttl: "60s", force_recovery: true, allow_subscribe_for_client: true }],
    }));
    accepted(file);
    const words = ["config", "import", file, "--secrets", path.join(folder, "secrets")];
    const toml = execFileSync(BINARY, words, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
    return `data_dir = ${JSON.stringify(path.join(folder, "data"))}\n${toml}`;
  });
  t.after(() => server.stop());
  const client = server.client(t, { token: token({ sub: "42", exp: seconds(60) }) });
  client.connect();
  const subscription = await subscribed(client, "chat:1");
  const got = next(subscription, "publication");
  await server.publish("chat:1", { text: "moved" });
  assert.deepEqual((await got).data, { text: "moved" });
});
