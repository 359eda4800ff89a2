#!/usr/bin/env python3
"""Publishes events to a prombus hub, and prints the events it receives: one per line, as JSON.

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
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

from websockets.asyncio.client import connect, process_exception
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

HUB = os.environ.get("PROMBUS_URL", "http://127.0.0.1:7070")
TOKEN = os.environ.get("PROMBUS_TOKEN")
AUTH = {"Authorization": f"Bearer {TOKEN}"} if TOKEN else {}
# PEM file; not needed if the system trusts the hub's certificate.
CA_CERT = os.environ.get("PROMBUS_CA_CERT")
# The hub sends at least a comment every 15 s; a stream that is silent for longer than this is dead.
SILENCE_S = 45
# Before reconnecting; doubled each time, and randomised, so that clients do not all return at once.
PAUSE_S, LONGEST_PAUSE_S = 0.5, 10


class Refused(Exception):
    """The hub refused, for this reason."""


def socket_url(args):
    return args.hub.replace("http", "ws", 1) + "/ws"


def tls(args):
    return ssl.create_default_context(cafile=CA_CERT) if args.hub.startswith("https:") else None


def reason(error):
    """What went wrong, with the hub's explanation if it refused the connection."""
    if isinstance(error, InvalidStatus):
        return f"{error}: {error.response.body.decode().strip()}"
    return str(error)


def again(error):
    """Decides whether to reconnect after an error, as the library would, and reports why."""
    fatal = process_exception(error)
    if not fatal:
        print(f"{reason(error)}; reconnecting", file=sys.stderr)
    return fatal


async def publish(args):
    async with connect(socket_url(args), additional_headers=AUTH, ssl=tls(args)) as socket:
        frame = {"op": "PUBLISH", "corr": "1", "topic": args.topic, "payload": json.loads(args.payload)}
        await socket.send(json.dumps(frame))
        answer = json.loads(await socket.recv())
    if answer["op"] == "ERR":
        raise Refused(answer["msg"])
    print(json.dumps(answer))


async def consume(args):
    about = {"topic": args.topic, "group": args.group}
    seen = 0
    # Reconnects with exponential backoff. Events that were not acked by then are redelivered.
    async for socket in connect(socket_url(args), additional_headers=AUTH, ssl=tls(args), process_exception=again):
        try:
            subscribe = {"op": "SUBSCRIBE", **about, "opts": {"from": args.start}}
            await socket.send(json.dumps(subscribe))
            refusal = None
            async for text in socket:
                frame = json.loads(text)
                if frame.get("corr") == "goodbye":  # the hub has taken back what was not acked
                    await socket.close()
                    if refusal:
                        raise refusal
                    return
                if refusal or (seen == args.max and frame.get("corr") != "last"):
                    continue
                if frame["op"] == "ERR" and frame["code"] != "lease_expired":
                    refusal = Refused(frame["msg"])
                if refusal or frame.get("corr") == "last":
                    # Closing with open leases would count as an attempt for the oldest event.
                    await socket.send(json.dumps({"op": "UNSUBSCRIBE", **about, "corr": "goodbye"}))
                if frame["op"] != "EVENT":
                    continue
                print(json.dumps(frame["event"]), flush=True)
                seen += 1
                last = {"corr": "last"} if seen == args.max else {}
                await socket.send(json.dumps({"op": "ACK", **about, "id": frame["event"]["id"], **last}))
            if seen == args.max:
                return
            print(f"{socket.close_reason}; reconnecting", file=sys.stderr)
        except ConnectionClosed as closed:
            if seen == args.max:
                return
            print(f"{closed}; reconnecting", file=sys.stderr)


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
            request = urllib.request.Request(url, headers=headers)
            with urllib.request.urlopen(request, timeout=SILENCE_S, context=tls(args)) as stream:
                for last_id, data in messages(stream):
                    print(data, flush=True)
                    seen, pause = seen + 1, PAUSE_S
                    if seen == args.max:
                        print(f"continue with: --after={last_id}", file=sys.stderr)
                        return
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise Refused(f"{error}: {error.read().decode().strip()}") from None
            print(f"{error}; reconnecting", file=sys.stderr)  # a hub that is still starting, say
        except (OSError, http.client.HTTPException) as error:
            print(f"{error}; reconnecting", file=sys.stderr)
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
        command.add_argument("--max", type=int, help="exit after this many events")
        if name == "ws":
            command.add_argument("--group", default="python")
        else:
            command.add_argument("--after", help="resume after this position, as printed by an earlier run")
    return parser.parse_args()


if __name__ == "__main__":
    args = arguments()
    try:
        if args.command == "sse":
            follow(args)
        else:
            asyncio.run({"publish": publish, "ws": consume}[args.command](args))
    except (Refused, WebSocketException, OSError) as error:
        sys.exit(reason(error))
    except KeyboardInterrupt:
        pass
