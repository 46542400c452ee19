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


# Ranks from 1 to n, of which low ones are frequent; whole numbers; parts of one.
MACROS = """
CREATE MACRO word(salt) AS hash(i, salt) >> 1;
CREATE MACRO part(salt) AS (hash(i, salt) % 1000003) / 1000003.0;
CREATE MACRO ranked(n, salt) AS CAST(floor(pow(n, part(salt))) AS BIGINT);
CREATE MACRO page(salt) AS 'http://site' || ranked(20000, salt || 'd') || '.example/'
    || CASE WHEN part(salt || 'g') < 0.001 THEN 'google/' ELSE '' END
    || 'section' || ranked(200, salt || 's') || '/page' || ranked(400000, salt || 'p') || '.html';
"""

# What queries select by, or group by, is not like other columns of the type.
COLUMNS = {
    "WatchID": "CAST(word('watch') AS BIGINT)",
    "CounterID": "CASE WHEN part('62') < 0.03 THEN 62 ELSE ranked(10000, 'counter') END",
    "UserID": "CAST(hash(ranked(300000, 'user')) >> 1 AS BIGINT)",
    "URL": "page('url')",
    "Referer": "CASE WHEN part('referred') < 0.2 THEN '' ELSE page('referer') END",
    "Title": "'Title ' || ranked(100000, 'title') || CASE WHEN part('Google') < 0.002 "
    "THEN ' Google' ELSE '' END",
    "SearchPhrase": "CASE WHEN part('searched') < 0.87 THEN '' ELSE 'words ' "
    "|| ranked(150000, 'phrase') || ' ' || ranked(300, 'more') END",
    "MobilePhoneModel": "CASE WHEN part('mobile') < 0.94 THEN '' ELSE 'model' "
    "|| ranked(160, 'model') END",
    "MobilePhone": "CASE WHEN part('mobile') < 0.94 THEN 0 ELSE ranked(80, 'phone') END",
    "AdvEngineID": "CASE WHEN part('adv') < 0.994 THEN 0 ELSE ranked(60, 'engine') END",
    "SearchEngineID": "CASE WHEN part('searched') < 0.87 THEN 0 ELSE ranked(90, 'search') END",
    "RegionID": "ranked(9000, 'region')",
    "ClientIP": "CAST(hash(ranked(250000, 'user')) % 4294967296 - 2147483648 AS INTEGER)",
    "TraficSourceID": "ranked(12, 'source') - 2",
    "ResolutionWidth": "[1024, 1280, 1366, 1440, 1600, 1920][1 + word('width') % 6]",
    "IsRefresh": "CAST(part('refresh') < 0.1 AS INTEGER)",
    "DontCountHits": "CAST(part('count') < 0.03 AS INTEGER)",
    "IsLink": "CAST(part('link') < 0.3 AS INTEGER)",
    "IsDownload": "CAST(part('download') < 0.001 AS INTEGER)",
    "EventTime": "moment",
    "EventDate": "CAST(moment AS DATE)",
    "URLHash": "CAST(hash(page('url')) >> 1 AS BIGINT)",
    "RefererHash": "CAST(hash(page('referer')) >> 1 AS BIGINT)",
}


def value(name, kind):
    if name in COLUMNS:
        return COLUMNS[name]
    salt = quoted(name)
    if kind.startswith("SMALLINT"):
        return f"ranked(100, {salt}) - 1"
    if kind.startswith("INTEGER"):
        return f"ranked(1000000, {salt}) - 1"
    if kind.startswith("BIGINT"):
        return f"word({salt})"
    if kind.startswith("TIMESTAMP"):
        return "moment"
    if kind.startswith("CHAR"):
        return f"['R', 'G', 'B', '5'][1 + word({salt}) % 4]"
    return f"CASE WHEN part({salt}) < 0.8 THEN '' ELSE 'value' || ranked(1000, {salt} || 'v') END"


def clickbench(database, job):
    columns = re.findall(r"^\s+(\w+)\s+(\w+(?:\(\d+\))?)", job["create"], re.MULTILINE)
    # Values that a query looks for are there, once in a thousand rows.
    sought = dict(re.findall(r"\b(\w+) = (\d{10,})", job["queries"]))
    database.execute(MACROS)
    values = []
    for name, kind in columns:
        text = value(name, kind.upper())
        if name in sought:
            text = f"CASE WHEN word('{name}?') % 1000 = 0 THEN {sought[name]} ELSE {text} END"
        values.append(f'CAST({text} AS {kind}) AS "{name}"')
    file = os.path.join(job["to"], "hits.parquet")
    rows = int(job["scale"] * 1000)
    moment = "TIMESTAMP '2013-07-01' + to_seconds(CAST(word('moment') % (31 * 86400) AS BIGINT))"
    database.execute(
        f"COPY (SELECT {', '.join(values)} FROM (SELECT i, {moment} AS moment "
        f"FROM range({rows}) AS numbers(i)) ORDER BY \"CounterID\", \"EventDate\") "
        f"TO {quoted(file)} (FORMAT parquet)"
    )


def main():
    job = json.load(sys.stdin)
    database = duckdb.connect(":memory:")
    {"tpcds": tpcds, "clickbench": clickbench}[job["suite"]](database, job)


main()
