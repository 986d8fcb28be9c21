"""redis-py's Lock as a process that does what it is told, a line each. `worker.rs` has the orders and the answers."""

import os
import sys
import threading
import time
from queue import Queue

from redis import Redis
from redis.exceptions import LockError
from redis.lock import Lock

ADDRESS, KEY, FOLDER = sys.argv[1:]
HOST, PORT = ADDRESS.rsplit(":", 1)
CLIENT = Redis(host=HOST, port=int(PORT))


def path(name):
    return os.path.join(FOLDER, name)


def new_lock(ttl):
    timeout = None if ttl == "none" else int(ttl) / 1000
    return Lock(CLIENT, KEY, timeout=timeout, sleep=0.005, thread_local=False)


def passage():
    """As `Ground::pass`: says whether it was alone in there."""
    alone = True
    try:
        os.close(os.open(path("inside"), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        alone = False
    with open(path("counter")) as counter:
        seen = counter.read().strip()
    time.sleep(0.001)
    with open(path("counter"), "w") as counter:
        counter.write(f"{int(seen or 0) + 1}\n")
    with open(path("passages"), "a") as passages:
        passages.write("redis-py\n")
    try:
        os.unlink(path("inside"))
    except FileNotFoundError:
        alone = False
    return alone


def count(times, ttl):
    disturbed = 0
    for _ in range(int(times)):
        with new_lock(ttl):
            disturbed += not passage()
        time.sleep(0.004)
    return verdict(disturbed)


def trespass(times):
    return verdict(sum(not passage() for _ in range(int(times))))


def verdict(disturbed):
    return f"violated {disturbed}" if disturbed else "done"


def attempt(what, answer):
    try:
        what()
    except LockError as error:
        return f"refused {type(error).__name__}"
    return answer


def main():
    orders = Queue()
    code = 0

    def read():
        for line in sys.stdin:
            orders.put(line.split())
        # Whoever gave the orders is gone.
        os._exit(code)

    CLIENT.ping()
    threading.Thread(target=read, daemon=True).start()
    lock = None
    answer = "ready"
    while True:
        if answer.startswith("violated"):
            code = 1
        print(answer, flush=True)
        order, *words = orders.get()
        if order in ("try", "acquire"):
            lock = new_lock(*words)
            answer = "granted" if lock.acquire(blocking=order == "acquire") else "busy"
        elif order == "release":
            answer = attempt(lock.release, "released")
        elif order == "extend":
            answer = attempt(lambda: lock.extend(int(words[0]) / 1000, replace_ttl=True), "extended")
        elif order == "count":
            answer = count(*words)
        elif order == "trespass":
            answer = trespass(*words)
        else:
            sys.exit(f"nobody knows the order {order!r}")


main()
