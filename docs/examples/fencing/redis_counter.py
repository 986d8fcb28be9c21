"""Adds one to a counter in Redis, under a lock and behind its fence.

    tollgate run --url redis://127.0.0.1/ total -- python3 redis_counter.py redis://127.0.0.1/

Needs redis-py, and the scripts beside this file. `tollgate run` passes the fencing token in TOLLGATE_TOKEN. A third
argument names another resource than `total`; the counter is a key of that name.
"""

import os
import sys
from pathlib import Path

import redis


class Stale(Exception):
    """A holder with a larger token was here already: this process has lost its lock."""


def mark_of(resource):
    """The key of a resource's mark, in the resource's cluster slot: the same as in Tollgate's own clients."""
    _, opened, after = resource.partition("{")
    tag, closed, _ = after.partition("}")
    if opened and closed and tag:
        return f"{{{tag}}}:mark:{resource}"
    if not resource or "}" in resource:
        raise ValueError(f"{resource!r} cannot be a resource: give it a {{tag}}")
    return f"{{{resource}}}:mark"


class Fence:
    """Refuses stale tokens for the keys of one resource, which is what one lock protects."""

    def __init__(self, client, resource):
        scripts = Path(__file__).parent
        self._mark = mark_of(resource)
        self._admit = client.register_script((scripts / "admit.lua").read_text())
        self._read = client.register_script((scripts / "read.lua").read_text())
        self._write = client.register_script((scripts / "write.lua").read_text())

    def admit(self, token):
        """Call it before the first read that does not go through the fence."""
        self._run(self._admit, [], [], token)

    def read(self, key, token):
        return self._run(self._read, [key], [], token)

    def write(self, key, value, token):
        self._run(self._write, [key], [value], token)

    def _run(self, script, keys, args, token):
        try:
            return script(keys=[*keys, self._mark], args=[*args, token, "exclusive"])
        except redis.ResponseError as error:
            if str(error).startswith("FENCED"):
                raise Stale(str(error)) from error
            raise


def main():
    client = redis.Redis.from_url(sys.argv[1], decode_responses=True)
    token = int(os.environ["TOLLGATE_TOKEN"])
    resource = sys.argv[2] if len(sys.argv) > 2 else "total"
    fence = Fence(client, resource)
    # Whatever is read elsewhere before the write is up to date from here on.
    fence.admit(token)
    count = int(fence.read(resource, token) or 0) + 1
    fence.write(resource, count, token)
    print(count)


if __name__ == "__main__":
    try:
        main()
    except Stale as stale:
        sys.exit(f"refused: {stale}")
