"""kazoo's own locks, for tests beside ours.

kazoo_locks.py HOSTS PATH KIND hold FILE            holds it as long as FILE is there, and says so
kazoo_locks.py HOSTS PATH KIND TIMES COMMAND...     runs a command so many times, with the lock each time

KIND is Lock, ReadLock or WriteLock.
"""

import os
import subprocess
import sys
import time

from kazoo.client import KazooClient

hosts, path, kind, what = sys.argv[1:5]
client = KazooClient(hosts)
client.start()
lock = getattr(client, kind)(path, "kazoo")
if what == "hold":
    with lock:
        print("granted", flush=True)
        while os.path.exists(sys.argv[5]):
            time.sleep(0.02)
else:
    for _ in range(int(what)):
        with lock:
            subprocess.run(sys.argv[5:], check=True)
client.stop()
