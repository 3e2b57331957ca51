// Programs that only listen: what they get, and that they are not missed when they do not answer.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { Server, fresh, numbers, seconds, token, until } from "./harness.mjs";
import { LISTENING, Listener } from "./listener.mjs";

let server;
before(async () => (server = await Server.start()));
after(() => server?.stop());

const options = { timeout: 60_000 };

/** A listener that was let in, and its `connect`. */
async function listening(t, transport, request, headers) {
  const listener = new Listener(transport, server.port, request, headers);
  t.after(() => listener.stop());
  await until("it is let in", () => listener.pushes.length > 0);
  return [listener, listener.pushes[0].connect];
}

const publications = (listener, channel) =>
  listener.pushes.filter((push) => push.channel === channel && push.pub).map(({ pub }) => pub);

for (const transport of LISTENING) {
  test(`a program listens to what its token and the back end say (${transport})`, options, async (t) => {
    const [user, granted, later] = [fresh("user").slice(5), fresh("chat"), fresh("plain")];
    const [listener, connect] = await listening(t, transport, { token: token({ sub: user, channels: [granted] }) });
    assert.deepEqual(Object.keys(connect.subs), [granted]);
    assert.equal(connect.pong, undefined);
    const presence = Object.values((await server.api("presence", { channel: granted })).presence);
    assert.deepEqual(presence.map(({ client }) => client), [connect.client]);

    await server.api("subscribe", { user, channel: later, session: connect.session });
    for (const number of numbers(50)) {
      await server.publish(granted, { number, text: "Größe 🎉" });
    }
    await server.publish(later, "later");
    await until("all has come", () => publications(listener, later).length === 1 && publications(listener, granted).length === 50);
    assert.deepEqual(publications(listener, granted).map(({ data }) => data.number), numbers(50));
    assert.equal(publications(listener, granted)[0].data.text, "Größe 🎉");
    assert.ok(listener.pushes.some((push) => push.channel === later && push.subscribe));

    await until("pings have come that nobody answers", () => listener.pings.length >= 2);
    await server.publish(granted, "still here");
    await until("it is still there", () => publications(listener, granted).at(-1).data === "still here");

    await server.api("disconnect", { user, disconnect: { code: 4501, reason: "enough" } });
    await until("it is over", () => listener.isOver);
    assert.deepEqual(listener.pushes.at(-1), { disconnect: { code: 4501, reason: "enough" } });
    assert.deepEqual(listener.close, transport === "uni_websocket" ? { code: 4501, reason: "enough" } : undefined);
  });

  test(`a program gets the texts of events in the language of its header (${transport})`, options, async (t) => {
    const channel = fresh("told");
    const title = { pl: "Gol!", sv: "Mål!", und: "Goal!" };
    const titleFor = async (language, data) => {
      const request = { token: token({ sub: "42", channels: [channel] }), data };
      const [listener] = await listening(t, transport, request, { "accept-language": language });
      return async () => {
        await until("it has come", () => publications(listener, channel).length === 1);
        return publications(listener, channel)[0].tags.title;
      };
    };
    const swedish = await titleFor("tlh, sv-FI;q=0.9, pl;q=0.8");
    const unknown = await titleFor("*");
    const polish = await titleFor("sv", { tidings: { locale: "pl" } });
    const text = Object.fromEntries(Object.entries(title).map(([locale, title]) => [locale, { title, body: "." }]));
    const event = { id: fresh("event"), topic: "goal", subjects: [channel], push: "never", text };
    assert.equal((await server.request("POST", "/v1/events", event)).status, 202);
    assert.deepEqual([await swedish(), await unknown(), await polish()], ["Mål!", "Goal!", "Gol!"]);
  });

  test(`a program comes back for what it missed (${transport})`, options, async (t) => {
    const channel = fresh("chat");
    const request = (more) => ({ token: token({ sub: "42", subs: { [channel]: {} } }), ...more });
    const [listener, connect] = await listening(t, transport, request());
    await server.publish(channel, 1);
    await until("it has come", () => publications(listener, channel).length === 1);
    listener.stop();
    await server.publish(channel, 2);
    await server.publish(channel, 3);
    const { epoch } = connect.subs[channel];
    const subs = { [channel]: { recover: true, offset: publications(listener, channel)[0].offset, epoch } };
    const [, again] = await listening(t, transport, request({ subs }));
    assert.equal(again.subs[channel].recovered, true);
    assert.deepEqual(again.subs[channel].publications.map(({ data }) => data), [2, 3]);
  });

  test(`a program that may not listen is told so (${transport})`, options, async () => {
    for (const [claims, code] of [[{ sub: "42", exp: seconds(-60) }, 3005], [{ sub: "42", channels: ["nowhere:1"] }, 3004]]) {
      const listener = new Listener(transport, server.port, { token: token(claims) });
      await until("it is over", () => listener.isOver);
      assert.equal(listener.pushes[0].disconnect.code, code);
    }
  });
}
