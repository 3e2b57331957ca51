// The console as somebody uses it, page by page. A test says what is done; only this file knows where it is on a page.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import { until } from "../server.mjs";
import { Page } from "./browser.mjs";

const AXE = readFileSync(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const KEYS = { Tab: 9, Enter: 13, Escape: 27 };

/** Each page of the menu: its address and its heading. */
export const SCREENS = [
  { name: "now", path: "/console", heading: "Now" },
  { name: "events", path: "/console/events", heading: "Events" },
  { name: "why", path: "/console/why", heading: "Why" },
  { name: "providers", path: "/console/providers", heading: "Providers" },
  { name: "audience", path: "/console/audience", heading: "Audience" },
  { name: "channels", path: "/console/channels", heading: "Channels" },
  { name: "texts", path: "/console/texts", heading: "Translations" },
  { name: "feeds", path: "/console/feeds", heading: "Feeds" },
  { name: "system", path: "/console/system", heading: "System" },
];

/** A tab of a browser that shows the console. `violations` has what the policy of a page forbade, and errors of scripts. */
export class Console extends Page {
  violations = [];

  /** Opens the login, as somebody who was never here. */
  static async open(t, browser, origin) {
    const page = await browser.tab(t, "about:blank", Console, true);
    page.origin = origin;
    for (const domain of ["Page", "Runtime", "Log"]) {
      await page.ask(`${domain}.enable`);
    }
    await page.go("/console/login");
    return page;
  }

  hear(method, params) {
    if (method === "Log.entryAdded" && ["security", "javascript"].includes(params.entry.source)) {
      this.violations.push(params.entry.text);
    }
    if (method === "Runtime.exceptionThrown") {
      this.violations.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    }
    if (method === "Page.loadEventFired") {
      this.loads = (this.loads ?? 0) + 1;
    }
  }

  ask(method, params = {}) {
    return this.browser.ask(method, params, this.sessionId);
  }

  /** Does something that loads a page, and waits for the page. */
  async #loading(what, work) {
    const before = this.loads ?? 0;
    await work();
    await until(`${what} is loaded`, () => (this.loads ?? 0) > before);
  }

  go(path) {
    return this.#loading(path, () => this.ask("Page.navigate", { url: this.origin + path }));
  }

  /** Looks through other eyes. */
  async see({ dark = false, width = 1280, script = true }) {
    await this.ask("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: dark ? "dark" : "light" }] });
    const height = width < 600 ? 800 : 900;
    await this.ask("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
    await this.ask("Emulation.setScriptExecutionDisabled", { value: !script });
  }

  async press(key) {
    const text = key === "Enter" ? "\r" : undefined;
    const named = { key, code: key, windowsVirtualKeyCode: KEYS[key], text };
    await this.ask("Input.dispatchKeyEvent", { type: text ? "keyDown" : "rawKeyDown", ...named });
    await this.ask("Input.dispatchKeyEvent", { type: "keyUp", ...named });
  }

  type(text) {
    return this.ask("Input.insertText", { text });
  }

  /** Presses Tab until the focus is on something with this name; what was passed on the way. */
  async tabTo(name, countMax = 60) {
    const passed = [];
    for (let count = 0; count < countMax; count++) {
      await this.press("Tab");
      const focus = await this.focus();
      passed.push(focus);
      if (focus.name === name) {
        assert.ok(focus.isVisible, `${name} has the focus, and nobody sees it`);
        return passed;
      }
    }
    assert.fail(`Tab does not lead to ${name}, but to ${JSON.stringify(passed.map((focus) => focus.name))}`);
  }

  /** What has the focus: its name, and whether that can be seen. */
  focus() {
    return this.run(() => {
      const it = document.activeElement;
      const style = getComputedStyle(it);
      const label = it.labels?.[0]?.querySelector("span")?.textContent;
      return {
        name: (label ?? it.textContent).trim(),
        isVisible: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 && it.getBoundingClientRect().width > 0,
      };
    });
  }

  /** Does it by the keyboard, and waits for the page that it leads to. */
  enter(what) {
    return this.#loading(what, () => this.press("Enter"));
  }

  /** Fills a form by the names of its fields, and sends it with the button of this name. Works without scripts of the page. */
  async submit(button, fields = {}) {
    await this.#loading(button, () =>
      this.run(
        (button, fields) => {
          const found = [...document.querySelectorAll("button")].find((it) => it.textContent.trim() === button);
          if (!found) {
            throw new Error(`there is no button ${button}: ${document.body.innerText}`);
          }
          for (const [name, value] of Object.entries(fields)) {
            found.form.elements[name].value = value;
          }
          found.click();
        },
        button,
        fields,
      ),
    );
  }

  logIn(key) {
    return this.submit("Log in", { key });
  }

  heading() {
    return this.run(() => document.querySelector("h1")?.textContent); // None, while the next page is on its way.
  }

  text() {
    return this.run(() => document.body.innerText);
  }

  async shows(words) {
    let text;
    await until(`the page shows ${words}`, async () => (text = await this.text()).includes(words)).catch((error) => {
      throw new Error(`${error.message}\n${text}`);
    });
  }

  /** Whether somebody has to scroll sideways, and because of what. */
  wide() {
    return this.run(() => {
      const width = document.documentElement.clientWidth;
      const all = [...document.querySelectorAll("body *")];
      const beyond = all.filter((it) => it.getBoundingClientRect().right > width + 1 && it.checkVisibility() && !it.closest(".skip, .unseen, thead, .uplot"));
      return { is: document.documentElement.scrollWidth > width, because: beyond.slice(0, 5).map((it) => it.outerHTML.slice(0, 120)) };
    });
  }

  /** What axe-core finds wrong. Its script is put into the page by the browser, which no policy forbids. */
  async axe() {
    await this.ask("Runtime.evaluate", { expression: AXE });
    const found = await this.run(async () => {
      const { violations } = await axe.run(document, { resultTypes: ["violations"] });
      return violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((node) => node.html.slice(0, 160)).join(" | ")}`);
    });
    return found;
  }

  /** A picture of the whole page, as PNG. */
  async picture() {
    const { data } = await this.ask("Page.captureScreenshot", { format: "png", captureBeyondViewport: true });
    return Buffer.from(data, "base64");
  }

  /** The address, without the origin. */
  async path() {
    return (await this.run(() => location.href)).slice(this.origin.length);
  }
}

