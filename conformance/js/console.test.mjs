// The console in Chromium: every page, in light and dark, wide and 320 pixels narrow, judged by axe-core and by the page's own
// policy; with the keyboard alone; without script. Pictures of every page are left in target/xtask/console.

import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";

import { API_KEY, LONG, SUITE, Server, configurationHead, until } from "../server.mjs";
import { Browser } from "./browser.mjs";
import { Console, SCREENS } from "./console.mjs";

/** Chromium and axe-core look at some twenty pages; on a busy machine each takes seconds. */
const options = { timeout: 400_000 };
const PICTURES = fileURLToPath(new URL("../../target/xtask/console", import.meta.url));

const configuration = (port, folder) => `${configurationHead(port, folder)}
[console]
enabled = true

[client]
allow_anonymous = true

[channel.namespaces.match]
durable = true
presence = true
history_size = 100
history_ttl = "10m"

[topics.goal]
title = "Goal for %{team}!"
body = "%{scorer} scores in minute %{minute}."

[feeds.news]
mapping = "news"
received = true
`;

/** What is on the pages: a device with wishes, events that went to it, one that is still to come, a pause. */
async function fill(server) {
  const accepted = async (method, route, body) => {
    const answer = await server.request(method, route, body);
    assert.ok(answer.ok, `${method} ${route}: ${answer.status} ${await answer.text()}`);
  };
  const device = { platform: "ios", app: "com.example.app", locale: "pl", token: "00000000000000a1", user: "u-1" };
  await accepted("PUT", "/v1/devices/phone-1", device);
  await accepted("POST", "/v1/devices/phone-1/subscriptions", { subscriptions: [{ subject: "match:1", topics: ["goal"] }] });
  await accepted("PUT", "/v1/devices/phone-1/mutes/team:7", { for: "1h" });
  const event = { topic: "goal", subjects: ["match:1"], params: { team: "Sweden", scorer: "Asllani", minute: 90 } };
  await accepted("POST", "/v1/events", [{ ...event, id: "goal-1" }, { ...event, id: "goal-2" }]);
  const at = new Date(Date.now() + 3_600_000).toISOString();
  await accepted("POST", "/v1/events", { ...event, id: "later-1", at });
  await until("the jobs are done", async () => {
    const { jobs } = await (await server.request("GET", "/v1/jobs")).json();
    return jobs.length === 2 && jobs.every(({ state }) => state === "finished");
  });
}

describe("the console", { ...SUITE, concurrency: 1 }, () => {
  let server, browser;
  const stops = [];
  before(async () => {
    const t = { after: (stop) => stops.push(stop) };
    mkdirSync(PICTURES, { recursive: true });
    server = await Server.start(configuration);
    stops.push(() => server.stop());
    await fill(server);
    browser = await Browser.start(t);
  });
  after(() => stops.reverse().reduce((done, stop) => done.then(stop), Promise.resolve()));

  async function loggedIn(t, eyes = {}) {
    const page = await Console.open(t, browser, server.origin);
    await page.see(eyes);
    await page.logIn(API_KEY);
    return page;
  }

  const MORE = [
    { name: "event", path: "/console/events/goal-1", heading: "goal-1" },
    { name: "scheduled", path: "/console/events/later-1", heading: "later-1" },
    { name: "device", path: "/console/why?device=phone-1&event=goal-1", heading: "phone-1" },
    { name: "user", path: "/console/why?user=u-1", heading: "Why" },
    { name: "counted", path: "/console/audience?selector=goal%20on%20match%3A1", heading: "Audience" },
    { name: "channel", path: "/console/channels/match%3A1", heading: "match:1" },
    { name: "unknown", path: "/console/events/nothing", heading: "nothing" },
  ];

  for (const dark of [false, true]) {
    // The short proof has each colour and each width once: dark and wide, light and narrow.
    for (const width of LONG ? [1280, 320] : [dark ? 1280 : 320]) {
      const eyes = `${dark ? "dark" : "light"}-${width}`;
      test(`every page can be read by everybody (${eyes})`, options, async (t) => {
        const page = await Console.open(t, browser, server.origin);
        await page.see({ dark, width });
        const look = async (name, heading) => {
          assert.equal(await page.heading(), heading, name);
          const { is, because } = await page.wide();
          assert.ok(!is, `${name} is wider than ${width} pixels: ${because.join("\n")}`);
          writeFileSync(path.join(PICTURES, `${name}-${eyes}.png`), await page.picture());
          assert.deepEqual(page.violations, [], `${name} breaks its policy`);
          assert.deepEqual(await page.axe(), [], name);
          page.violations.length = 0; // axe-core's own.
        };
        await look("login", "Log in");
        await page.logIn(API_KEY);
        for (const { name, path: at, heading } of [...SCREENS, ...MORE]) {
          await page.go(at);
          await look(name, heading);
        }
      });
    }
  }

  test("what is planted is noticed: against the policy, without words, too wide", options, async (t) => {
    const page = await loggedIn(t);
    assert.deepEqual(page.violations, []);
    await page.run(() => document.body.insertAdjacentHTML("beforeend", '<p style="color: red" onclick="alert()">planted</p>'));
    await until("the violation is told", () => page.violations.length > 0);
    assert.match(page.violations.join(), /Content Security Policy/);
    await page.run(() => document.body.insertAdjacentHTML("beforeend", '<img src="data:,"><p>wide</p>'));
    await page.run(() => (document.body.lastElementChild.style.width = "200vw"));
    assert.match((await page.axe()).join(), /image-alt/, "axe-core finds a picture without words");
    assert.ok((await page.wide()).is, "what is too wide is noticed");
  });

  test("a new event appears without a reload", options, async (t) => {
    const page = await loggedIn(t);
    await page.shows("goal-2");
    const loads = page.loads;
    const event = { id: "goal-3", topic: "goal", subjects: ["match:1"], params: { team: "Sweden", scorer: "Asllani", minute: 91 } };
    assert.equal((await server.request("POST", "/v1/events", event)).status, 202);
    await page.shows("goal-3");
    assert.equal(page.loads, loads, "the page was not loaded again");
    assert.ok(await page.run(() => document.querySelectorAll(".uplot canvas").length === 3), "the charts are drawn");
  });

  test("with the keyboard alone one logs in, pauses everything, and resumes", options, async (t) => {
    const page = await Console.open(t, browser, server.origin);
    await page.see({});
    assert.equal((await page.focus()).name, "API key", "the field has the focus");
    await page.type(API_KEY);
    await page.enter("the first page");
    assert.equal(await page.heading(), "Now");
    await page.tabTo("Skip to the content", 1);
    await page.press("Enter");
    const passed = await page.tabTo("Pause pushes of");
    assert.ok(!passed.some(({ name }) => name === "Providers"), "the menu is skipped");
    await page.type("everything");
    await page.enter("the pause");
    await page.shows("Paused. Pushes are held until you resume them.");
    const { brakes } = await (await server.request("GET", "/v1/brakes")).json();
    assert.deepEqual(brakes.map(({ scope }) => scope), ["everything"]);
    await page.tabTo("Resume everything");
    await page.enter("the resumption");
    await page.shows("Resumed.");
    assert.deepEqual((await (await server.request("GET", "/v1/brakes")).json()).brakes, []);
    const around = [];
    for (let count = 0; count < 60; count++) {
      await page.press("Tab");
      around.push((await page.focus()).name);
    }
    assert.ok(around.includes("Log out") && around.includes("This page as JSON"), `no trap: ${around}`);
  });

  test("without script one sees every page, and acts", options, async (t) => {
    const page = await loggedIn(t, { script: false });
    for (const { path: at, heading } of SCREENS) {
      await page.go(at);
      assert.equal(await page.heading(), heading);
    }
    await page.go("/console");
    assert.equal(await page.run(() => document.querySelectorAll(".uplot").length), 0);
    await page.submit("Pause", { scope: "topic:goal" });
    await page.shows("topic:goal");
    await page.submit("Resume topic:goal");
    await page.shows("Resumed.");
    await page.go("/console/events/later-1");
    await page.submit("Cancel this event");
    await page.shows("The event is cancelled.");
    await page.submit("Log out");
    assert.equal(await page.heading(), "Log in");
  });

  test("a device gets a test, first as a dry run", options, async (t) => {
    const page = await loggedIn(t);
    await page.go("/console/why?device=phone-1");
    await page.submit("Dry run", { body: "Is anybody there?" });
    await page.shows("The dry run is accepted");
    const dry = new URLSearchParams((await page.path()).split("?")[1]).get("event");
    await page.submit("Push it to this device");
    await page.shows("The test is on its way.");
    const answer = await server.request("GET", `/v1/events/${dry.replace("dry", "test")}`);
    assert.equal((await answer.json()).topic, "console-test");
  });

  test("a page that lost the server says so", options, async (t) => {
    const page = await loggedIn(t);
    await page.shows("goal-1");
    await server.kill("SIGKILL");
    await page.shows("The server does not answer.");
    await server.run();
    // Sessions are in memory: whoever comes back logs in.
    await until("the login is there", async () => (await page.heading()) === "Log in");
  });
});
