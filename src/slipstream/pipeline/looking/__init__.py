"""Looking at the tables: what is there, how fresh it is, and answers to SQL, from DuckDB and without a JVM.

Reads a folder of Delta tables and writes nothing, so it may be called beside a pipeline that runs; every answer is of
one version of each table. The command line and the report call it.
"""

from slipstream.pipeline.looking.answer import Answer, QueryRefused
from slipstream.pipeline.looking.folder import ColumnInfo, NoSuchTable, TableInfo, Tables, UnreadableTable
from slipstream.pipeline.looking.meaning import meaning

__all__ = ["Answer", "ColumnInfo", "NoSuchTable", "QueryRefused", "TableInfo", "Tables", "UnreadableTable", "meaning"]
