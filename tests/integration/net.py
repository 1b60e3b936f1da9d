"""Several nodes on loopback, as one test wants them. Names of routes: `all` takes every category."""
import json

import writers
from node import Node, Ports
from waiting import wait_until

# Files leave soon after they are delivered, so that tests see the whole of their life.
QUICK_AGENT = {"rotate_age": "1s", "delete_grace": "1s", "rescan_interval": "1s"}


class Net:
    def __init__(self, program, folder, random):
        self.program, self.folder, self.random = program, folder, random
        self.ports = Ports(random)
        self.nodes = []

    def node(self, name, *, agent=None, receiver=None, upstreams=None, routes=None, listener=False, user=None, **tables):
        """agent, receiver: their further keys (a dict), or None for none. receiver: "dir": None for spooling only.
        upstreams: name -> addresses, or name -> table. listener: True for a plain one, or the tables."""
        folder = self.folder / name
        given = dict(tables)
        if agent is not None:
            given["agent"] = {"dir": folder / "in", **agent}
        if receiver is not None:
            given["receiver"] = {"link": f"127.0.0.1:{self.ports.take()}", "dir": folder / "events", **receiver}
        if upstreams:
            given["upstream"] = [{"name": key, **(of if isinstance(of, dict) else {"addresses": of})}
                                 for key, of in upstreams.items()]
        if routes:
            given["route"] = routes
        if listener:
            given["listener"] = listener if isinstance(listener, list) else [
                {"name": "plain", "bind": f"127.0.0.1:{self.ports.take()}"}]
        made = Node(self.program, self.folder, name, given, user)
        self.nodes.append(made)
        return made

    def receiver(self, name="far", *, listener=False, routes=None, **keys):
        return self.node(name, receiver=keys, listener=listener,
                         routes=routes or [{"name": "all", "to": ["files"]}])

    def relay(self, name, receivers, *, routes=None, upstream=None, **more):
        return self.node(name, receiver={"dir": None},
                         upstreams={"far": {"addresses": [one.link for one in receivers], **(upstream or {})}},
                         routes=routes or [{"name": "all", "to": ["far"]}], **more)

    def edge(self, name, nexts, *, agent=None, routes=None, upstream=None, listener=False, user=None, **more):
        return self.node(name, agent=agent or {}, listener=listener, user=user,
                         upstreams={"next": {"addresses": [one.link for one in nexts], **(upstream or {})}},
                         routes=routes or [{"name": "all", "to": ["next"]}], **more)

    def start(self):
        """All of them, the last made first: receivers are made before their senders, yet any order must do."""
        for one in reversed(self.nodes):
            one.launch()
        for one in self.nodes:
            one.wait_ready()
        return self

    def wait_drained(self, seconds=60, written=None):
        """Nothing waits on any node, seen in the order in which data walks, twice. An edge may not have noticed the last
        lines yet, so wait until it has read as many as append_lines() wrote. `written`: lines by source, of others."""
        lines = sum((written or {}).values())

        def noticed(one):
            expected = sum(count for path, count in writers.appended.items() if one.source_dir in path.parents)
            read = {}
            for row in (one.status_or_none() or {}).get("routes", []) if expected else []:
                read[row["route"]] = max(read.get(row["route"], 0), row["in"])
            return sum(read.values()) >= expected

        def drained():
            if not all(noticed(one) for one in self.nodes if "agent" in one.tables):
                return False
            if lines and lines > max(row["in"] for one in self.nodes for row in (one.status_or_none() or {}).get("routes", [])):
                return False
            return all(one.idle() for one in reversed(self.nodes)) and all(one.idle() for one in reversed(self.nodes))
        wait_until(drained, seconds, lambda: "not drained:\n" + "\n".join(
            f"{one.name}: {json.dumps((one.status_or_none() or {}).get('routes'))}" for one in self.nodes))

    def stop(self):
        for one in self.nodes:
            if one.running():
                one.stop()

    def end(self):
        for one in self.nodes:
            one.end()
