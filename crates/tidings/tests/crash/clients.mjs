// Many clients of the unmodified JavaScript SDK in one process; what they see goes to standard output, one JSON object a line.
//
//   node clients.mjs FOLDER       FOLDER/node_modules has the SDK and `ws`
//
// The first line of standard input is {"url", "clients": [[channel, ...], ...]}. When standard input ends, all
// disconnect and the process ends. What it says, with the number of the client and the channel:
//
//   {"kind": "subscribed", wasRecovering, recovered, epoch, offset}
//   {"kind": "publication", offset, event}     event: the publication's tag, null without one
//   {"kind": "ended", code, reason}            for good, while it should not; without channel: the connection

import { createRequire } from "node:module";
import path from "node:path";
import { createInterface } from "node:readline";

const require = createRequire(path.join(path.resolve(process.argv[2]), "from-here.js"));
const { Centrifuge } = require("centrifuge");
const WebSocket = require("ws");

let ending = false;
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

function start(url, client, channels) {
  const connection = new Centrifuge(url, { websocket: WebSocket, minReconnectDelay: 20, maxReconnectDelay: 250 });
  const ended = (channel) => ({ code, reason }) => ending || say({ kind: "ended", client, channel, code, reason });
  connection.on("disconnected", ended(null));
  for (const channel of channels) {
    const sub = connection.newSubscription(channel, { minResubscribeDelay: 20, maxResubscribeDelay: 250 });
    sub.on("subscribed", ({ wasRecovering, recovered, streamPosition }) => {
      const { epoch, offset } = streamPosition ?? { epoch: "", offset: 0 };
      say({ kind: "subscribed", client, channel, wasRecovering, recovered, epoch, offset });
    });
    sub.on("publication", ({ offset, tags }) => {
      say({ kind: "publication", client, channel, offset: offset ?? 0, event: tags?.event ?? null });
    });
    sub.on("unsubscribed", ended(channel));
    sub.subscribe();
  }
  connection.connect();
  return connection;
}

let connections = [];
const input = createInterface({ input: process.stdin });
input.once("line", (line) => {
  const { url, clients } = JSON.parse(line);
  connections = clients.map((channels, client) => start(url, client, channels));
});
input.once("close", () => {
  ending = true;
  connections.forEach((connection) => connection.disconnect());
});
