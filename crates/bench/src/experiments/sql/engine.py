"""Answers queries on DuckDB, a line each: the protocol is in protocol.rs."""

import json
import sys
import time

import duckdb

CELLS_MAX = 1000


def connect(setup):
    database = duckdb.connect(":memory:")
    database.execute(f"SET threads = {setup['threads']}")
    database.execute(f"SET memory_limit = '{setup['memory_bytes'] // 2**20}MiB'")
    for table, path in setup["tables"].items():
        files = path if path.endswith(".parquet") else f"{path}/*.parquet"
        files = files.replace("'", "''")
        database.execute(f'CREATE VIEW "{table}" AS SELECT * FROM read_parquet(\'{files}\')')
    return database


def text(value):
    return "" if value is None else str(value)


def answer(database, sql):
    begun = time.perf_counter()
    rows = database.execute(sql).fetchall()
    ms = (time.perf_counter() - begun) * 1e3
    cells = None
    if len(rows) <= CELLS_MAX:
        cells = [[text(value) for value in row] for row in rows]
    return {"ms": ms, "rows": len(rows), "cells": cells}


def say(reply):
    print(json.dumps(reply), flush=True)


def main():
    database = connect(json.loads(sys.stdin.readline()))
    say({"version": duckdb.__version__})
    for line in sys.stdin:
        try:
            say(answer(database, json.loads(line)["sql"]))
        except duckdb.Error as error:
            say({"error": str(error)})


main()
