#!/usr/bin/env python3
"""Publishes events to a prombus hub, and prints those that come: one line each, as JSON.

    live.py publish demo '{"n": 1}'          publish over the WebSocket
    live.py ws demo --group python           consume as a member of a group, and ack
    live.py sse demo                         follow the topic, without a group
"""

import argparse
import asyncio
import http.client
import json
import os
import random
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

from websockets.asyncio.client import connect, process_exception
from websockets.exceptions import ConnectionClosed, WebSocketException

HUB = os.environ.get("PROMBUS_URL", "http://127.0.0.1:7070")
TOKEN = os.environ.get("PROMBUS_TOKEN")
AUTH = {"Authorization": f"Bearer {TOKEN}"} if TOKEN else {}
# The hub writes at least a comment every 15 s; a stream that is silent for longer than this is dead.
SILENCE_S = 45
# Before it connects again; doubled each time, and random, so that not all clients come back at once.
PAUSE_S, LONGEST_PAUSE_S = 0.5, 10


class Refused(Exception):
    """The hub said no, and why."""


def socket_url(args):
    return args.hub.replace("http", "ws", 1) + "/ws"


def again(error):
    """Tells why there is no connection; the library knows after which errors it is worth trying again."""
    print(f"{error}; connecting again", file=sys.stderr)
    return process_exception(error)


async def publish(args):
    async with connect(socket_url(args), additional_headers=AUTH) as socket:
        frame = {"op": "PUBLISH", "corr": "1", "topic": args.topic, "payload": json.loads(args.payload)}
        await socket.send(json.dumps(frame))
        answer = json.loads(await socket.recv())
    if answer["op"] == "ERR":
        raise Refused(answer["msg"])
    print(json.dumps(answer))


async def consume(args):
    about = {"topic": args.topic, "group": args.group}
    seen = 0
    # Connects again, after a growing pause, when the connection is lost. What was not acked by then comes again.
    async for socket in connect(socket_url(args), additional_headers=AUTH, process_exception=again):
        try:
            subscribe = {"op": "SUBSCRIBE", **about, "opts": {"from": args.start}}
            await socket.send(json.dumps(subscribe))
            async for text in socket:
                frame = json.loads(text)
                if frame["op"] == "ERR" and frame["code"] != "lease_expired":
                    raise Refused(frame["msg"])
                if frame["op"] != "EVENT":
                    continue
                print(json.dumps(frame["event"]), flush=True)
                await socket.send(json.dumps({"op": "ACK", **about, "id": frame["event"]["id"]}))
                seen += 1
                if seen == args.max:
                    # What was sent before a close still happens.
                    await socket.close()
                    return
        except ConnectionClosed as closed:
            print(f"{closed}; connecting again", file=sys.stderr)


def messages(stream):
    """The (id, data) pairs of a stream of server-sent events."""
    last_id, data = None, []
    for line in stream:
        field, _, value = line.decode().rstrip("\r\n").partition(":")
        value = value.removeprefix(" ")
        if field == "id":
            last_id = value
        elif field == "data":
            data.append(value)
        elif not field and not value and data:  # an empty line ends a message; a comment starts with a colon
            yield last_id, "\n".join(data)
            data = []


def follow(args):
    last_id, seen, pause = args.after, 0, PAUSE_S
    url = f"{args.hub}/v1/topics/{urllib.parse.quote(args.topic)}/events?from={args.start}"
    while True:
        headers = {"Accept": "text/event-stream", **AUTH}
        if last_id:
            headers["Last-Event-ID"] = last_id
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=SILENCE_S) as stream:
                for last_id, data in messages(stream):
                    print(data, flush=True)
                    seen, pause = seen + 1, PAUSE_S
                    if seen == args.max:
                        print(f"go on with: --after={last_id}", file=sys.stderr)
                        return
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise Refused(f"{error}: {error.read().decode().strip()}") from None
            print(f"{error}; connecting again", file=sys.stderr)  # a hub that is still starting, say
        except (OSError, http.client.HTTPException) as error:
            print(f"{error}; connecting again", file=sys.stderr)
        time.sleep(pause * random.uniform(0.5, 1.5))
        pause = min(2 * pause, LONGEST_PAUSE_S)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("publish", "ws", "sse"):
        command = commands.add_parser(name)
        command.add_argument("topic")
        command.add_argument("--hub", default=HUB)
        if name == "publish":
            command.add_argument("payload", help="any JSON")
            continue
        command.add_argument("--from", dest="start", default="latest", choices=["earliest", "latest"])
        command.add_argument("--max", type=int, help="end after so many events")
        if name == "ws":
            command.add_argument("--group", default="python")
        else:
            command.add_argument("--after", help="go on after this place, as an earlier run told it")
    return parser.parse_args()


if __name__ == "__main__":
    args = arguments()
    try:
        if args.command == "sse":
            follow(args)
        else:
            asyncio.run({"publish": publish, "ws": consume}[args.command](args))
    except (Refused, WebSocketException, OSError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        pass
