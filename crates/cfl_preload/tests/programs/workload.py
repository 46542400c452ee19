# SPDX-License-Identifier: MIT OR Apache-2.0
"""Threads, queues, processes and a database; prints what came out.

usage: workload.py DATABASE
"""

import multiprocessing
import queue
import sqlite3
import sys
import threading

WRITERS = 6
ROWS = 60


def database(path):
    """Writers and readers of one SQLite file, each with its connection."""
    setup = sqlite3.connect(path)
    setup.execute("pragma journal_mode=wal")
    setup.execute("create table log (writer int, n int, primary key (writer, n))")
    setup.execute("create table total (id int primary key, sum int)")
    setup.execute("insert into total values (0, 0)")
    setup.commit()
    setup.close()
    seen = []

    def write(writer):
        connection = sqlite3.connect(path, timeout=60, isolation_level=None)
        connection.execute("pragma synchronous=off")
        for n in range(ROWS):
            connection.execute("begin immediate")
            connection.execute("insert into log values (?, ?)", (writer, n))
            connection.execute("update total set sum = sum + ?", (n,))
            connection.execute("commit")
        connection.close()

    def read():
        connection = sqlite3.connect(path, timeout=60)
        for _ in range(ROWS):
            # One snapshot: the sum and the rows it was made of.
            row = connection.execute(
                "select (select sum from total) = (select coalesce(sum(n), 0) from log)"
            ).fetchone()
            seen.append(row[0])
        connection.close()

    run([(write, (w,)) for w in range(WRITERS)] + [(read, ())] * 3)
    connection = sqlite3.connect(path)
    print("rows", connection.execute("select count(*), sum(n) from log").fetchone())
    print("total", connection.execute("select sum from total").fetchone())
    print("snapshots", sorted(set(seen)))
    print("integrity", connection.execute("pragma integrity_check").fetchall())
    connection.close()


def shared_connection():
    """One connection used by all threads: SQLite's own recursive mutexes."""
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.execute("create table t (n int)")
    lock = threading.RLock()

    def insert():
        for n in range(300):
            with lock:
                connection.execute("insert into t values (?)", (n,))

    run([(insert, ())] * 6)
    print("shared", connection.execute("select count(*), sum(n) from t").fetchone())


def pipeline():
    """Conditions: bounded queues, an event, a barrier."""
    first, second = queue.Queue(4), queue.Queue(4)
    barrier = threading.Barrier(4)
    sums = []

    def square():
        barrier.wait()
        while (item := first.get()) is not None:
            second.put(item * item)
        second.put(None)

    def add():
        total, ends = 0, 0
        while ends < 4:
            item = second.get()
            if item is None:
                ends += 1
            else:
                total += item
        sums.append(total)

    def feed():
        for item in range(1, 801):
            first.put(item)
        for _ in range(4):
            first.put(None)

    run([(square, ())] * 4 + [(add, ()), (feed, ())])
    print("pipeline", sums)


def forked():
    """Processes forked while threads contend."""
    stop = threading.Event()
    noise = [threading.Thread(target=lambda: stop.wait(60)) for _ in range(3)]
    for thread in noise:
        thread.start()
    with multiprocessing.get_context("fork").Pool(3) as pool:
        print("processes", sum(pool.map(cube, range(200))))
    stop.set()
    for thread in noise:
        thread.join()


def cube(n):
    return n**3


def run(calls):
    threads = [threading.Thread(target=f, args=arguments) for f, arguments in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


database(sys.argv[1])
shared_connection()
pipeline()
forked()
