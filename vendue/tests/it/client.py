"""What any NATS client can do with a cluster, with no library of vendue's: used by python.rs.

Takes the server's address; prints one JSON object with what it saw.
"""
import asyncio
import json
import sys

import nats

WORK = {"memory_mb": 16, "disk_mb": 16, "run": {"command": ["sleep", "1000"]}}


async def until(what, look):
    """Waits until look() returns something, 30 s at most."""
    for _ in range(600):
        found = look()
        if found:
            return found
        await asyncio.sleep(0.05)
    raise TimeoutError(what)


async def many(client, subject, body=b""):
    """One question, every answer: until none has come for half a second."""
    answers = []
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    await client.publish(subject, body, reply=inbox)
    while True:
        try:
            message = await subscription.next_msg(timeout=5 if not answers else 0.5)
        except nats.errors.TimeoutError:
            return answers
        answers.append(json.loads(message.data))


async def main(url):
    client = await nats.connect(url)
    seen, events, outcomes = {}, [], []

    async def event(message):
        events.append(json.loads(message.data))

    async def outcome(message):
        outcomes.append((message.subject, json.loads(message.data)))

    await client.subscribe("vendue.event.>", cb=event)
    await client.subscribe("vendue.outcome.*", cb=outcome)
    await client.flush()

    # a request has its answer
    body = json.dumps({"app": "asked", "instances": 3, **WORK}).encode()
    seen["reply"] = json.loads((await client.request("vendue.start", body, timeout=5)).data)

    # a bad one as well: in the body, and in the headers that NATS services use
    bad = await client.request("vendue.start", b'{"app":"bad","memory_mb":-1,"disk_mb":1}', timeout=5)
    seen["bad"] = {"body": json.loads(bad.data), "headers": dict(bad.headers or {})}
    broken = await client.request("vendue.start", b"{", timeout=5)
    seen["broken"] = json.loads(broken.data)

    # what is published without a reply subject is answered by an event
    await client.publish("vendue.start", json.dumps({"app": "told", "id": "by-hand", **WORK}).encode())
    await client.publish("vendue.start", b'{"app":"wrong","id":"not-so","memory_mb":"x","disk_mb":1}')
    of = lambda app: lambda: [e for e in events if e.get("app") == app]
    kinds = lambda app, *all: lambda: set(all) <= {e["kind"] for e in of(app)()}
    await until("told runs", kinds("told", "placed", "running"))
    await until("wrong is rejected", kinds("wrong", "rejected"))
    await until("asked runs", kinds("asked", "asked", "placed", "running"))
    named = lambda id: lambda: [o for s, o in outcomes if s == "vendue.outcome." + id]
    seen["outcome"] = (await until("the outcome", named("by-hand")))[0]
    seen["events"] = events

    # what runs, and who serves
    answers = await many(client, "vendue.instances", b'{"app":"asked"}')
    seen["instances"] = [i for a in answers for i in a["instances"]]
    seen["cells"] = sorted(a["cell"] for a in answers)
    services = await many(client, "$SRV.PING")
    seen["services"] = sorted(s["name"] for s in services)
    auctioneers = await many(client, "$SRV.INFO.vendue-auctioneer")
    seen["auctioneer"] = auctioneers[0]
    stop = await client.request("vendue.stop", b'{"app":"asked"}', timeout=5)
    seen["stop"] = json.loads(stop.data)
    none = await client.request("vendue.stop", b'{"app":"never-was"}', timeout=5)
    seen["none"] = json.loads(none.data)
    await client.close()
    print(json.dumps(seen))


asyncio.run(main(sys.argv[1]))
