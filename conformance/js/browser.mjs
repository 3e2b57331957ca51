// Chromium without a window, over its DevTools protocol, and web pages with Centrifugo's SDK for browsers, unmodified.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import http from "node:http";
import { createInterface } from "node:readline";

import WebSocket from "ws";

import { temporaryFolder, until } from "../server.mjs";

/** Its profile is empty and nothing goes out. Only root needs to do without the sandbox. */
const WORDS = ["--headless", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--no-proxy-server"];
const SANDBOX = process.getuid() === 0 ? ["--no-sandbox"] : [];

const script = (name) => readFileSync(new URL(`node_modules/centrifuge/dist/${name}.js`, import.meta.url));
const PAGES = {
  "/json": { type: "text/html", body: '<!doctype html><script src="/centrifuge.js"></script>' },
  "/protobuf": { type: "text/html", body: '<!doctype html><script src="/centrifuge.protobuf.js"></script>' },
  "/centrifuge.js": { type: "text/javascript", body: script("centrifuge") },
  "/centrifuge.protobuf.js": { type: "text/javascript", body: script("centrifuge.protobuf") },
};

/** Serves the pages; its port. There is no WebSocket behind it. */
export async function site(t) {
  const server = http.createServer((request, response) => {
    const page = PAGES[request.url];
    response.writeHead(page ? 200 : 404, { "Content-Type": page?.type ?? "text/plain" });
    response.end(page?.body);
  });
  server.listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return server.address().port;
}

export class Browser {
  /** Starts it; ended when the test ends. */
  static async start(t) {
    const browser = Object.assign(new Browser(), { seq: 0, waiting: new Map(), pages: new Map(), log: "" });
    const place = temporaryFolder();
    const words = [...WORDS, ...SANDBOX, "--remote-debugging-port=0", `--user-data-dir=${place.folder}`, "about:blank"];
    const child = spawn("chromium", words, { stdio: ["ignore", "ignore", "pipe"], detached: true });
    const gone = new Promise((resolve) => ["exit", "error"].forEach((event) => child.once(event, resolve)));
    gone.then((why) => (browser.ended = why?.code === "ENOENT" ? "it is not installed" : `it ended: ${why}`));
    createInterface({ input: child.stderr }).on("line", (line) => {
      browser.log = `${browser.log}${line}\n`.slice(-16_384);
      browser.address ??= line.match(/^DevTools listening on (ws:.*)$/)?.[1];
    });
    t.after(async () => {
      if (child.pid !== undefined) {
        process.kill(-child.pid, "SIGKILL"); // Its other processes too: they are in one group.
      }
      await gone;
      place.stop();
    });
    await until("Chromium is there", () => browser.address ?? browser.ended);
    assert.ok(browser.address, `Chromium is needed (Debian: apt-get install chromium): ${browser.ended}\n${browser.log}`);
    browser.socket = new WebSocket(browser.address);
    browser.socket.on("message", (text) => browser.#take(JSON.parse(text)));
    await new Promise((resolve) => browser.socket.once("open", resolve));
    return browser;
  }

  #take({ id, result, error, method, params, sessionId }) {
    if (method !== undefined) {
      this.pages.get(sessionId)?.hear(method, params);
      return;
    }
    const waiting = this.waiting.get(id);
    this.waiting.delete(id);
    error ? waiting?.reject(new Error(error.message)) : waiting?.resolve(result);
  }

  ask(method, params, sessionId) {
    const id = ++this.seq;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.socket.send(JSON.stringify({ id, method, params, sessionId }));
    });
  }

  /** A page with the SDK, loaded; closed when the test ends. */
  async page(t, url) {
    const page = await this.tab(t, url);
    await until(`${url} is loaded`, () => page.run(() => typeof Centrifuge === "function"));
    return page;
  }

  /** A page of a kind, perhaps not loaded yet; closed when the test ends. With cookies of its own, if `isApart`. */
  async tab(t, url, Kind = Page, isApart = false) {
    const { browserContextId } = isApart ? await this.ask("Target.createBrowserContext") : {};
    const { targetId } = await this.ask("Target.createTarget", { url, browserContextId });
    t.after(() => this.ask("Target.closeTarget", { targetId }));
    const { sessionId } = await this.ask("Target.attachToTarget", { targetId, flatten: true });
    const page = Object.assign(new Kind(), { browser: this, sessionId });
    this.pages.set(sessionId, page);
    return page;
  }
}

export class Page {
  /** An event of the protocol; only kinds of pages that ask for events get them. */
  hear() {}

  /** Calls `work` in the page, with values as arguments; what it returns or resolves to. */
  async run(work, ...words) {
    const expression = `(${work})(${words.map((word) => JSON.stringify(word)).join(",")})`;
    const params = { expression, awaitPromise: true, returnByValue: true };
    const { result, exceptionDetails } = await this.browser.ask("Runtime.evaluate", params, this.sessionId);
    assert.equal(exceptionDetails, undefined, exceptionDetails?.exception?.description);
    return result.value;
  }
}
