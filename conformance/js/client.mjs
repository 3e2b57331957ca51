// Centrifugo's JavaScript SDK as a program, doing what the test asks for. What it is told and tells stands in
// go/centrifuge, which is the same with the Go SDK.

import { createInterface } from "node:readline";

import WebSocket from "ws";

import { SDKS, plain } from "./sdk.mjs";

const { url, channel, format, ping_delay_ms: maxServerPingDelay = 10_000, ...identity } = JSON.parse(process.argv[2]);
const write = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

const delays = { minReconnectDelay: 10, maxReconnectDelay: 100, maxServerPingDelay, timeout: 20_000 };
const client = new SDKS[format](url, { websocket: WebSocket, ...delays, ...identity });
const subscription = client.newSubscription(channel, { minResubscribeDelay: 10, maxResubscribeDelay: 100 });
write({ client: "centrifuge" });

for (const on of ["connecting", "connected", "disconnected"]) {
  client.on(on, ({ code }) => write({ on, code }));
}
subscription.on("subscribed", ({ recovered }) => write({ on: "subscribed", recovered }));
subscription.on("publication", (publication) => {
  const { offset, data } = plain(client, publication);
  write({ on: "publication", offset, data });
});
subscription.subscribe();
client.connect();

createInterface({ input: process.stdin }).on("line", async (line) => {
  const { seq, method, data } = JSON.parse(line);
  if (method === undefined) {
    client.disconnect();
    write({ seq });
    return;
  }
  const answer = await client.rpc(method, data).catch(({ code }) => ({ error: code }));
  write({ seq, ...answer });
});
