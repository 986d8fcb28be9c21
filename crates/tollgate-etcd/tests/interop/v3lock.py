"""A client of etcd's own lock service, v3lock, through its JSON gateway: Python's standard library and nothing of ours.

    v3lock.py ADDRESS LOCK TIMES COMMAND...     runs the command so many times, each time with the lock held
    v3lock.py ADDRESS LOCK hold FILE            takes the lock, says "granted", and gives it back when the file is gone
"""

import base64
import json
import os
import subprocess
import sys
import time
import urllib.request

address, lock, times, command = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]


def call(path, **message):
    body = json.dumps(message).encode()
    request = urllib.request.Request(f"http://{address}/v3/{path}", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


lease = call("lease/grant", TTL=60)["ID"]
name = base64.b64encode(lock.encode()).decode()


def take():
    return call("lock/lock", name=name, lease=lease)["key"]


if times == "hold":
    key = take()
    print("granted", flush=True)
    while os.path.exists(command[0]):
        time.sleep(0.02)
    call("lock/unlock", key=key)
else:
    for _ in range(int(times)):
        key = take()
        subprocess.run(command, check=True)
        call("lock/unlock", key=key)
call("lease/revoke", ID=lease)
