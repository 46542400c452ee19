# SPDX-License-Identifier: MIT OR Apache-2.0
"""Loads a memcached from many threads and prints what it then holds.

usage: memcached_client.py SOCKET
"""

import socket
import sys
import threading
import time

CLIENTS = 8
ROUNDS = 400
COUNTERS = 5


class Client:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        for _ in range(500):
            try:
                self.socket.connect(path)
                break
            except OSError:
                time.sleep(0.02)
        self.file = self.socket.makefile("rwb")

    def ask(self, line):
        self.file.write(line.encode() + b"\r\n")
        self.file.flush()
        return self.file.readline().decode().strip()

    def get(self, key):
        self.file.write(f"get {key}\r\n".encode())
        self.file.flush()
        header = self.file.readline().decode().split()
        if header[0] == "END":
            return None
        value = self.file.read(int(header[3]) + 2)[:-2].decode()
        self.file.readline()
        return value


def load(path, number, wrong):
    client = Client(path)
    for round in range(ROUNDS):
        client.ask(f"incr counter{round % COUNTERS} {number + 1}")
        key, value = f"key{number}:{round}", "v" * (round % 900) + str(number)
        if client.ask(f"set {key} 0 0 {len(value)}\r\n{value}") != "STORED":
            wrong.append(f"{key} not stored")
        if client.get(key) != value:
            wrong.append(f"{key} came back changed")
        # One key that all append to.
        client.ask("append all 0 0 1\r\nx")


path = sys.argv[1]
first = Client(path)
for counter in range(COUNTERS):
    first.ask(f"set counter{counter} 0 0 1\r\n0")
first.ask("set all 0 0 0\r\n")
wrong = []
threads = [threading.Thread(target=load, args=(path, n, wrong)) for n in range(CLIENTS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("wrong", wrong)
print("counters", [first.get(f"counter{n}") for n in range(COUNTERS)])
print("appended", len(first.get("all")))
print("kept", sum(first.get(f"key{n}:{r}") is not None for n in range(CLIENTS) for r in range(ROUNDS)))
