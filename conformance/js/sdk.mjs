// Centrifugo's JavaScript SDK, unmodified, in both formats. In Protobuf its payloads are bytes; here they are translated, so
// that a test gives and gets values in both formats.

import { Centrifuge } from "centrifuge";
import { Centrifuge as Binary } from "centrifuge/build/protobuf";
import { EventSource } from "eventsource";
import WebSocket from "ws";

const encode = (value) => Buffer.from(JSON.stringify(value));
const decode = (bytes) => JSON.parse(Buffer.from(bytes).toString());

class ProtobufCentrifuge extends Binary {
  constructor(url, { data, ...options }) {
    super(url, data === undefined ? options : { ...options, data: encode(data) });
  }

  publish(channel, data) {
    return super.publish(channel, encode(data));
  }

  async rpc(method, data) {
    const answer = await super.rpc(method, encode(data));
    return { ...answer, data: decode(answer.data) };
  }

  async history(channel, options) {
    const found = await super.history(channel, options);
    return { ...found, publications: found.publications.map((publication) => plain(this, publication)) };
  }
}

/** The SDK by format. */
export const SDKS = { json: Centrifuge, protobuf: ProtobufCentrifuge };
export const FORMATS = Object.keys(SDKS);

/** Every way in which the SDK connects: a transport and a format. Server-sent events are JSON only. */
export const WEBSOCKETS = FORMATS.map((format) => ({ name: format, transport: "websocket", format }));
export const STREAMS = [
  { name: "json over sse", transport: "sse", format: "json" },
  ...FORMATS.map((format) => ({ name: `${format} over http_stream`, transport: "http_stream", format })),
];

/** The SDK, not yet connected, to the server at `port`. */
export function connector({ transport, format }, port, options) {
  if (transport === "websocket") {
    return new SDKS[format](`ws://127.0.0.1:${port}/connection/websocket`, { websocket: WebSocket, ...options });
  }
  const origin = `http://127.0.0.1:${port}`;
  const endpoints = [{ transport, endpoint: `${origin}/connection/${transport}` }];
  return new SDKS[format](endpoints, { eventsource: EventSource, emulationEndpoint: `${origin}/emulation`, ...options });
}

/** A publication that a client got, with its data as a value. */
export const plain = (client, publication) =>
  client instanceof ProtobufCentrifuge ? { ...publication, data: decode(publication.data) } : publication;

/** Whether a WebSocket message is a ping or a pong of the protocol: an empty object, or an empty message. */
export const isPing = (message) => ["{}", "\0"].includes(Buffer.from(message).toString());
