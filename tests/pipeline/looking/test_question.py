"""What is answered, and whatever else SQL can do, which is refused before anything happens."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest

from slipstream.pipeline.looking import QueryRefused, Tables
from tests.pipeline.sample_tables import END, make_table, place

SERIALIZED = "json_serialize_sql('with x as (copy (select 1) to ''{root}/x.csv'') select * from x')"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With tables inside, and something to be kept from beside them."""
    folder = tmp_path_factory.mktemp("folder")
    make_table(folder / "tables", "messages", [place("orders", 1, END)])
    (folder / "secret.txt").write_text("secret")
    (folder / "tables-of-others").mkdir()
    (folder / "tables-of-others" / "secret.txt").write_text("secret")
    (folder / "tables" / "link.txt").symlink_to(folder / "secret.txt")
    (folder / "tables" / "linked").symlink_to(folder)
    return folder


@pytest.fixture(scope="module")
def tables(folder: Path) -> Tables:
    return Tables(folder / "tables")


def everything_in(folder: Path) -> dict[str, tuple[int, int]]:
    """Each file with its size and when it was written."""
    paths = [Path(parent, name) for parent, _, names in os.walk(folder) for name in names]
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in paths}


@pytest.mark.parametrize(
    "sql",
    [
        "select 'copy', $$ insert $$, 1 as \"copy\" -- copy",
        "/* copy */ with x as (select 1 as query) select query from x",
        "explain select 1",
        "explain analyze select topic from messages",
        "explain (analyze, format json) select 1;",
        "EXPLAIN /* copy */ (FORMAT 'json') from messages",
        "explain (select 1)",
        "explain analyze(select 1)",
        "explain with x as (select 'é') select * from x",
        "explain describe messages",
        "pivot messages on topic using count(*)",
        "explain pivot messages on topic using count(*)",
        "with x as (pivot messages on topic using count(*)) from x",
        "select * from query_table('messages')",
        "select json_serialize_sql('copy (select 1) to ''x''')",
    ],
)
def test_what_reads_is_answered(tables: Tables, sql: str) -> None:
    assert list(tables.query(sql))


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("copy messages to '{root}/x.csv'", "this is COPY"),
        ("copy (pivot messages on topic using count(*)) to '{root}/x.csv'", "COPY writes"),
        ("with x as (copy (select 1) to '{root}/x.csv') select * from x", "COPY writes"),
        ("with x as (select 1 as `'`), y as (copy (select 1) to '{root}/x.csv') from y --'", "COPY writes"),
        ("with x as (select e'\\''), y as (copy (select 1) to '{root}/x.csv') from y --'", "COPY writes"),
        ("with x as (select $a$'$a$), y as (copy (select 1) to '{root}/x.csv') from y --'", "COPY writes"),
        ("explain copy (select 1) to '{root}/x.csv'", "this is EXPLAIN of COPY"),
        ("explain analyze copy (select 1) to '{root}/x.csv'", "this is EXPLAIN of COPY"),
        ("explain (analyze) copy (select 1) to '{root}/x.csv'", "this is EXPLAIN of COPY"),
        ("explain (format json, \"analyze\") copy (select 1) to '{root}/x.csv'", "this is EXPLAIN of COPY"),
        ("/* a */ explain -- b\n analyze /* c */ copy (select 1) to '{root}/x.csv'", "this is EXPLAIN of COPY"),
        ("explain analyze with x as (copy (select 1) to '{root}/x.csv') from x", "COPY writes"),
        ("explain analyze copy (pivot messages on topic using count(*)) to '{root}/x.csv'", "COPY writes"),
        ("explain analyze create table x as select 1", "this is EXPLAIN of CREATE"),
        ("explain analyze set threads = 1", "this is EXPLAIN of SET"),
        ("explain analyze call pragma_version()", "this is EXPLAIN of CALL"),
        ("explain analyze vacuum", "this is EXPLAIN of VACUUM"),
        ("explain analyze attach '{root}/x.db'", "syntax error"),
        ("create table x as select 1", "this is CREATE"),
        ("create table x as pivot messages on topic using count(*)", "CREATE writes"),
        ("create secret (type s3)", "this is CREATE"),
        ("insert into messages pivot messages on topic using count(*)", "INSERT writes"),
        ("with x as (insert into messages select 1) select 1", "INSERT writes"),
        ("with x as (delete from messages returning *) select * from x", "delete from"),
        ("update messages set topic = 'x'", "this is UPDATE"),
        ("drop view messages", "this is DROP"),
        ("export database '{root}/x'", "this is EXPORT"),
        ("import database '{root}'", "this is PRAGMA"),
        ("attach '{root}/x.db'", "this is ATTACH"),
        ("install httpfs", "this is LOAD"),
        ("load httpfs", "this is LOAD"),
        ("set threads = 1", "this is SET"),
        ("reset threads", "this is SET"),
        ("pragma threads = 1", "this is SET"),
        ("pragma database_list", "this is PRAGMA"),
        ("call enable_logging()", "this is CALL"),
        ("prepare x as select 1", "this is PREPARE"),
        ("begin", "this is TRANSACTION"),
        ("select 1; copy (select 1) to '{root}/x.csv'", "one statement at a time"),
        ("pivot messages on topic using count(*); select 1", "one statement at a time"),
        ("select * from query('select 1')", "query runs what nobody has seen"),
        ("select * from system.main.\"QUERY\" /* x */ ('select 1')", "runs what nobody has seen"),
        (f"select * from json_execute_serialized_sql({SERIALIZED})", "runs what nobody has seen"),
        ("select * from create_external_resource('x')", "runs what nobody has seen"),
        ("select * from enable_profiling(save_location = '{root}/x.json')", "has been locked"),
        ("select * from enable_logging(storage = 'file', storage_path = '{root}/x')", "has been locked"),
        ("select * from read_text('{root}/../secret.txt')", "disabled by configuration"),
        ("select * from read_text('{root}/messages/../../secret.txt')", "disabled by configuration"),
        ("select * from read_text('file://{root}/../secret.txt')", "disabled by configuration"),
        ("select * from read_text('{root}-of-others/secret.txt')", "disabled by configuration"),
        ("select * from read_text('{root}/link.txt')", "disabled by configuration"),
        ("select * from read_text('{root}/linked/secret.txt')", "disabled by configuration"),
        ("select * from glob('{root}/../*')", "disabled by configuration"),
        ("select * from read_csv('/etc/hostname')", "disabled by configuration"),
        ("select * from read_parquet('http://127.0.0.1:9/x')", "disabled by configuration"),
        ("select * from read_parquet('s3://bucket/x')", "disabled by configuration"),
    ],
)
def test_what_writes_or_looks_elsewhere_is_refused(tables: Tables, folder: Path, sql: str, said: str) -> None:
    before = everything_in(folder)
    with pytest.raises(QueryRefused) as refused:
        list(tables.query(sql.replace("{root}", str(tables.root))))
    assert said in str(refused.value)
    assert everything_in(folder) == before


SPACES = [each for each in map(chr, range(0x10000)) if each.isspace() or unicodedata.category(each) == "Cf"]


@pytest.mark.parametrize(
    "sql",
    [
        "with x as ({}copy (select 1) to '{root}/x.csv') select * from x",
        "with{}x{}as{}({}copy{}(select 1){}to '{root}/x.csv') select * from x",
        "explain{}analyze{}copy{}(select 1) to '{root}/x.csv'",
        "{}{}copy{}(pivot messages on topic using count(*)) to '{root}/x.csv'",
        "select 1 --{}\n;copy (select 1) to '{root}/x.csv'",
        "select * from {}query{}('select 1')",
        "select * from query {} ('select 1')",
    ],
)
def test_no_kind_of_space_hides_a_word(tables: Tables, folder: Path, sql: str) -> None:
    before = everything_in(folder)
    for space in SPACES:
        with pytest.raises(QueryRefused):
            list(tables.query(sql.replace("{root}", str(tables.root)).replace("{}", space)))
    assert everything_in(folder) == before


def test_spaces_of_unicode_are_spaces(tables: Tables) -> None:
    assert list(tables.query("select\u00a0'a\u00a0b'")) == [("a\u00a0b",)]


def test_what_is_no_text_is_refused(tables: Tables) -> None:
    with pytest.raises(QueryRefused, match="is no text"):
        tables.query("select '\udcff'")


def test_a_condition_cannot_write_either(tables: Tables, folder: Path) -> None:
    before = everything_in(folder)
    where = f"true) ; copy (select 1) to '{tables.root}/x.csv' ; select (1"
    with pytest.raises(QueryRefused, match="one statement at a time"):
        tables.sample("messages", 1, where)
    assert everything_in(folder) == before
