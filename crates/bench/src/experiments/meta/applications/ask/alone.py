"""The back end's own benchmark: its calls, one after the other, with one question.

    python alone.py serve DIR SOCKET    loads the back end; each connection is a run
    python alone.py run SOCKET SECONDS  asks for a run, and prints what came of it:
                                        {"throughput_per_s": ..., "p99_s": ...}

The two are apart because loading takes longer than a run. A run whose asker has gone
ends: what comes next is not to be disturbed.
"""

import json
import pathlib
import socket
import sys
import time

QUESTION = "Why does the index of a table grow after a long transaction?"
# How long nobody looks whether the asker is still there, in seconds.
LOOK = 0.1


def is_gone(connection):
    try:
        return connection.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def run(backend, connection, seconds):
    """What came of calls for so long; nothing once the asker has gone."""
    took = []
    began = last = looked = time.perf_counter()
    while last - began < seconds:
        backend.ask(QUESTION)
        now = time.perf_counter()
        took.append(now - last)
        last = now
        if now - looked > LOOK:
            looked = now
            if is_gone(connection):
                return None
    took.sort()
    return {
        "throughput_per_s": len(took) / (last - began),
        "p99_s": took[(len(took) * 99 - 1) // 100],
    }


def serve(directory, path):
    # The asker has no need of the model.
    from retrieval import Retrieval

    backend = Retrieval(pathlib.Path(directory))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        while True:
            connection, _ = listener.accept()
            with connection, connection.makefile() as lines:
                wanted = lines.readline()
                # A connection that wants nothing only looks whether anybody is here.
                found = run(backend, connection, float(wanted)) if wanted else None
                if found:
                    try:
                        connection.sendall(json.dumps(found).encode())
                    except ConnectionError:
                        pass


def ask(path, seconds):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(f"{seconds}\n".encode())
        with connection.makefile() as answer:
            found = answer.read()
    if not found:
        sys.exit("the back end ended during the run")
    print(found)


if __name__ == "__main__":
    {"serve": serve, "run": ask}[sys.argv[1]](*sys.argv[2:])
