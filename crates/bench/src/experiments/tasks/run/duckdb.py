"""Runs TPC-H queries on DuckDB, alone or as a trace says.

Reads one job from standard input and writes one answer to standard output, both
as JSON. A trace is played as an open loop: a latency runs from when a query was
due. Each client has a connection of its own and waits for its results; the queries
of clients share DuckDB's threads, and all threads share the CPUs of the job.
"""

import json
import os
import statistics
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import duckdb

# As many queries at a time as our scheduler has slots; others wait in line.
CLIENTS = 128
REPEATS = 3


def connect(job):
    os.sched_setaffinity(0, job["cpus"])
    database = duckdb.connect(":memory:")
    database.execute(f"SET threads = {job['threads']}")
    database.execute(f"SET memory_limit = '{job['memory_bytes'] // 2**20}MiB'")
    database.execute(f"SET scheduler_process_partial = {str(job['partial']).lower()}")
    for size, directory in job["data"].items():
        database.execute(f"CREATE SCHEMA {size}")
        for table in job["tables"]:
            files = os.path.join(directory, table, "*.parquet").replace("'", "''")
            database.execute(
                f"CREATE TABLE {size}.{table} AS SELECT * FROM read_parquet('{files}')"
            )
    return database


class Client(threading.local):
    """A connection for each thread and size of data."""

    def __init__(self, database):
        self.of = {}
        for size in ("small", "large"):
            self.of[size] = database.cursor()
            self.of[size].execute(f"SET schema = '{size}'")


def run(client, query):
    size, text = query
    client.of[size].execute(text).fetchall()


def alone(client, queries):
    """Medians, of rounds in which queries take turns; the first does not count."""
    rounds = []
    for _ in range(1 + REPEATS):
        times_ms = []
        for query in queries:
            begun = time.perf_counter()
            run(client, query)
            times_ms.append((time.perf_counter() - begun) * 1e3)
        rounds.append(times_ms)
    return [statistics.median(times_ms) for times_ms in zip(*rounds[1:])]


def play(client, job):
    ends = [None] * len(job["trace"])
    clients = ThreadPoolExecutor(CLIENTS)
    # All clients connect before the first query is due.
    together = threading.Barrier(CLIENTS)
    list(clients.map(lambda _: (client.of, together.wait()), range(CLIENTS)))
    begun = time.perf_counter()
    cpu_s = time.process_time()

    def one(index, query):
        try:
            run(client, query)
            ends[index] = [time.perf_counter() - begun, None]
        except Exception as error:  # Its end, and that of nobody else.
            ends[index] = [None, str(error)]

    def until(at):
        time.sleep(max(0.0, at - (time.perf_counter() - begun)))

    for index, (due, query) in enumerate(job["trace"]):
        until(due)
        clients.submit(one, index, job["queries"][query])
    until(job["seconds"])
    busy = (time.process_time() - cpu_s) / (time.perf_counter() - begun) / job["threads"]
    while any(end is None for end in ends):
        if time.perf_counter() - begun > job["seconds"] + job["patience_s"]:
            break
        time.sleep(0.05)
    return {"ends": ends, "busy": busy}


def main():
    job = json.load(sys.stdin)
    client = Client(connect(job))
    if job["trace"]:
        answer = play(client, job)
    else:
        answer = {"alone_ms": alone(client, job["queries"])}
    answer["version"] = duckdb.__version__
    print(json.dumps(answer), flush=True)
    # Queries that are still running are given up.
    os._exit(0)


main()
