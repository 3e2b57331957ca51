"""Centrifugo's Python SDK, doing what the test asks for.

What it is told and tells stands in go/centrifuge, which is the same with the Go SDK.
"""

import asyncio
import json
import sys

import centrifuge

DELAYS = {"min_reconnect_delay": 0.01, "max_reconnect_delay": 0.1, "timeout": 20.0}
RESUBSCRIBE = {"min_resubscribe_delay": 0.01, "max_resubscribe_delay": 0.1}


def write(**line):
    print(json.dumps(line), flush=True)


class App:
    def __init__(self, wanted):
        self.wanted = wanted
        self.is_binary = wanted["format"] == "protobuf"
        self.tokens = wanted.get("tokens", [])
        more = {"get_token": self.next_token} if self.tokens else {}
        if "ping_delay_ms" in wanted:
            more["max_server_ping_delay"] = wanted["ping_delay_ms"] / 1000
        if "data" in wanted:
            more["data"] = self.encoded(wanted["data"])
        self.client = centrifuge.Client(
            wanted["url"],
            events=Connection(self),
            token=wanted.get("token", ""),
            use_protobuf=self.is_binary,
            **DELAYS,
            **more,
        )

    def encoded(self, value):
        """In Protobuf, data are bytes."""
        return json.dumps(value).encode() if self.is_binary else value

    def decoded(self, data):
        return json.loads(data) if self.is_binary else data

    async def next_token(self):
        write(on="token")
        return self.tokens.pop(0) if len(self.tokens) > 1 else self.tokens[0]

    async def run(self):
        if self.wanted.get("channel"):
            self.subscription = self.client.new_subscription(
                self.wanted["channel"],
                events=Subscription(self),
                token=self.wanted.get("channel_token", ""),
                join_leave=self.wanted.get("join_leave", False),
                delta=centrifuge.DeltaType.FOSSIL if "delta" in self.wanted else None,
                **RESUBSCRIBE,
            )
            await self.subscription.subscribe()
        await self.client.connect()
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            wanted = json.loads(line)
            try:
                write(seq=wanted["seq"], **await self.obey(wanted))
            except centrifuge.ReplyError as refusal:
                write(seq=wanted["seq"], error=refusal.code)

    async def obey(self, wanted):
        if "method" in wanted:
            result = await self.client.rpc(wanted["method"], self.encoded(wanted["data"]))
            return {"data": self.decoded(result.data)}
        match wanted.get("do"):
            case "publish":
                await self.subscription.publish(self.encoded(wanted["data"]))
                return {"result": {}}
            case "history":
                found = await self.subscription.history(limit=wanted["limit"], reverse=wanted.get("reverse", False))
                publications = [{"offset": one.offset, "data": self.decoded(one.data)} for one in found.publications]
                return {"result": {"publications": publications, "offset": found.offset}}
            case "presence":
                found = await self.subscription.presence()
                return {"result": {"users": [info.user for info in found.clients.values()]}}
            case "presence_stats":
                found = await self.subscription.presence_stats()
                return {"result": {"clients": found.num_clients, "users": found.num_users}}
        await self.client.disconnect()
        return {}


class Connection(centrifuge.ClientEventHandler):
    def __init__(self, app):
        self.app = app

    async def on_connecting(self, ctx):
        write(on="connecting", code=ctx.code)

    async def on_connected(self, ctx):
        write(on="connected")

    async def on_disconnected(self, ctx):
        write(on="disconnected", code=ctx.code)

    async def on_subscribed(self, ctx):
        write(on="server_subscribed", channel=ctx.channel, recovered=ctx.recovered)

    async def on_unsubscribed(self, ctx):
        write(on="server_unsubscribed", channel=ctx.channel)

    async def on_publication(self, ctx):
        write(on="server_publication", channel=ctx.channel, offset=ctx.pub.offset, data=self.app.decoded(ctx.pub.data))


class Subscription(centrifuge.SubscriptionEventHandler):
    def __init__(self, app):
        self.app = app

    async def on_subscribed(self, ctx):
        write(on="subscribed", recovered=ctx.recovered)

    async def on_unsubscribed(self, ctx):
        write(on="unsubscribed", code=ctx.code)

    async def on_publication(self, ctx):
        write(on="publication", offset=ctx.pub.offset, data=self.app.decoded(ctx.pub.data))

    async def on_join(self, ctx):
        write(on="join", user=ctx.info.user)

    async def on_leave(self, ctx):
        write(on="leave", user=ctx.info.user)


async def main():
    app = App(json.loads(sys.argv[1]))
    write(client="centrifuge-python")
    await app.run()


asyncio.run(main())
