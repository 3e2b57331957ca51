// Centrifugo's JavaScript SDK, unmodified, in both formats. In Protobuf its payloads are bytes; here they are translated, so
// that a test gives and gets values in both formats.

import { Centrifuge } from "centrifuge";
import { Centrifuge as Binary } from "centrifuge/build/protobuf";

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

/** A publication that a client got, with its data as a value. */
export const plain = (client, publication) =>
  client instanceof ProtobufCentrifuge ? { ...publication, data: decode(publication.data) } : publication;

/** Whether a WebSocket message is a ping or a pong of the protocol: an empty object, or an empty message. */
export const isPing = (message) => ["{}", "\0"].includes(Buffer.from(message).toString());
