"""Makes the data of a suite with DuckDB, as Parquet files (data.rs).

Reads a job as JSON. TPC-DS comes from DuckDB's extension, with its queries. The rows of
ClickBench are made up: the columns are those of the copy's statement, and their values
are skewed as those of a web site are. A row depends on its number only.
"""

import json
import os
import re
import sys

import duckdb


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def tpcds(database, job):
    extension = None
    try:
        import duckdb_extension_tpcds  # noqa: F401  The extension's file is in this package.

        package = os.path.dirname(duckdb_extension_tpcds.__file__)
        for directory, _, names in os.walk(package):
            for name in names:
                if name.startswith("tpcds.duckdb_extension"):
                    extension = os.path.join(directory, name)
    except ImportError:
        pass
    database.execute(f"LOAD {quoted(extension)}" if extension else "LOAD tpcds")
    database.execute(f"CALL dsdgen(sf = {job['scale']})")
    for (table,) in database.execute("SELECT table_name FROM duckdb_tables()").fetchall():
        file = os.path.join(job["to"], f"{table}.parquet")
        database.execute(f"COPY {table} TO {quoted(file)} (FORMAT parquet)")
    os.mkdir(os.path.join(job["to"], "queries"))
    for number, text in database.execute("SELECT query_nr, query FROM tpcds_queries()").fetchall():
        with open(os.path.join(job["to"], "queries", f"{number:02}.sql"), "w") as file:
            file.write(text.strip().rstrip(";") + "\n")


def word(salt):
    """A whole number of a row; another one for each salt."""
    return f"CAST(hash(i, {quoted(salt)}) >> 1 AS BIGINT)"


def part(salt):
    """At least 0 and less than 1."""
    return f"({word(salt)} % 1000003 / 1000003.0)"


def ranked(count, salt):
    """From 1 to count; each power of ten as often as the next."""
    return f"CAST(floor(pow({count}, {part(salt)})) AS BIGINT)"


def seldom(share, salt, then, otherwise="0"):
    return f"CASE WHEN {part(salt)} < {share} THEN {then} ELSE {otherwise} END"


def one_of(values, salt):
    return f"[{', '.join(values)}][CAST(1 + {word(salt)} % {len(values)} AS BIGINT)]"


def address(salt):
    google = seldom(0.001, salt + " google", "'google/'", "''")
    return (
        f"'http://site' || {ranked(20000, salt + ' site')} || '.example/' || {google} "
        f"|| 'section' || {ranked(200, salt + ' section')} "
        f"|| '/page' || {ranked(400000, salt + ' page')} || '.html'"
    )


MOMENT = f"TIMESTAMP '2013-07-01' + to_seconds(CAST({word('moment')} % (31 * 86400) AS BIGINT))"
REFERER = seldom(0.8, "referred", address("referer"), "''")
PHRASE = f"'words ' || {ranked(150000, 'phrase')} || ' ' || {ranked(300, 'more')}"
MODEL = f"'model' || {ranked(160, 'model')}"
TITLE = seldom(0.002, "Google", "' Google'", "''")

# What queries select by, or group by, is not like other columns of the type.
COLUMNS = {
    "WatchID": word("watch"),
    "CounterID": seldom(0.03, "62", "62", ranked(10000, "counter")),
    "UserID": f"hash({ranked(300000, 'user')}) >> 1",
    "ClientIP": f"CAST(hash({ranked(250000, 'user')}) >> 32 AS BIGINT) - 2147483648",
    "URL": address("url"),
    "URLHash": f"hash({address('url')}) >> 1",
    "Referer": REFERER,
    "RefererHash": f"hash({REFERER}) >> 1",
    "Title": f"'Title ' || {ranked(100000, 'title')} || {TITLE}",
    "SearchPhrase": seldom(0.13, "searched", PHRASE, "''"),
    "SearchEngineID": seldom(0.13, "searched", ranked(90, "search")),
    "MobilePhoneModel": seldom(0.06, "mobile", MODEL, "''"),
    "MobilePhone": seldom(0.06, "mobile", ranked(80, "phone")),
    "AdvEngineID": seldom(0.006, "adv", ranked(60, "engine")),
    "RegionID": ranked(9000, "region"),
    "TraficSourceID": f"{ranked(12, 'source')} - 2",
    "ResolutionWidth": one_of(["1024", "1280", "1366", "1440", "1600", "1920"], "width"),
    "IsRefresh": seldom(0.1, "refresh", "1"),
    "DontCountHits": seldom(0.03, "count", "1"),
    "IsLink": seldom(0.3, "link", "1"),
    "IsDownload": seldom(0.001, "download", "1"),
}


def value(name, kind):
    if name in COLUMNS:
        return COLUMNS[name]
    if kind.startswith(("TIMESTAMP", "DATE")):
        return MOMENT
    if kind.startswith("SMALLINT"):
        return f"{ranked(100, name)} - 1"
    if kind.startswith("INTEGER"):
        return f"{ranked(1000000, name)} - 1"
    if kind.startswith("BIGINT"):
        return word(name)
    if kind.startswith("CHAR"):
        return one_of(["'R'", "'G'", "'B'", "'5'"], name)
    return seldom(0.2, name, f"'value' || {ranked(1000, name + ' value')}", "''")


def clickbench(database, job):
    columns = re.findall(r"^\s+(\w+)\s+(\w+(?:\(\d+\))?)", job["create"], re.MULTILINE)
    # Values that a query looks for are there, once in a thousand rows.
    sought = dict(re.findall(r"\b(\w+) = (\d{10,})", job["queries"]))
    values = []
    for name, kind in columns:
        text = value(name, kind.upper())
        if name in sought:
            text = seldom(0.001, name + " sought", sought[name], text)
        values.append(f'CAST({text} AS {kind}) AS "{name}"')
    file = os.path.join(job["to"], "hits.parquet")
    rows = int(job["scale"] * 1000)
    database.execute(
        f"COPY (SELECT {', '.join(values)} FROM range({rows}) AS numbers(i) "
        f'ORDER BY "CounterID", "EventDate") TO {quoted(file)} (FORMAT parquet)'
    )


def main():
    job = json.load(sys.stdin)
    database = duckdb.connect(":memory:")
    {"tpcds": tpcds, "clickbench": clickbench}[job["suite"]](database, job)


main()
