"""Reads the databases of many ranks at once, with Python's own sqlite3: who is slow, and in which operators.

    torchprof run --format sqlite torchrun --nproc-per-node 8 train.py      # on each node; one file for all ranks of the node
    python3 examples/sql/ranks.py node0/trace.sqlite node1/trace.sqlite

Prints the steps of each rank, then the operators whose self time differs most between the ranks. SQLite attaches ten files at a time by default,
so each is attached in turn and only its totals are kept. The schema, its tables and views: `sqlite3 trace.sqlite .schema`.
"""
import sqlite3
import sys

STEPS = """
    SELECT file, rank, pid, count(*) AS steps, avg(duration_ns) / 1e6 AS average_ms, max(duration_ns) / 1e6 AS longest_ms
    FROM steps GROUP BY file, rank, pid ORDER BY rank, file, pid"""
# What a rank has more of than the one that has the least. A rank that waits in a collective is not the slow one: the others are.
SPREAD = """
    SELECT count(*) AS ranks, min(self_ns) / 1e6 AS least_ms, max(self_ns) / 1e6 AS most_ms, max(rank) FILTER (WHERE is_most) AS most_in, name
    FROM (SELECT name, rank, self_ns, self_ns = max(self_ns) OVER (PARTITION BY name) AS is_most FROM ops)
    GROUP BY name ORDER BY most_ms - least_ms DESC, name LIMIT 10"""


def gather(paths):
    """A database in memory with the steps and operators of all files."""
    db = sqlite3.connect(":memory:", uri=True)
    db.execute("CREATE TABLE steps(file, rank, pid, number, duration_ns)")
    db.execute("CREATE TABLE ops(file, rank, pid, name, calls, self_ns)")
    for path in paths:
        db.execute("ATTACH ? AS run", ("file:%s?mode=ro" % path,))
        # A program that is not distributed is a rank of its own.
        db.execute("INSERT INTO steps SELECT ?, coalesce(rank, pid), pid, number, duration_ns FROM run.step_times", (path,))
        db.execute("INSERT INTO ops SELECT ?, coalesce(rank, pid), pid, name, calls, self_ns FROM run.op_totals", (path,))
        db.commit()
        db.execute("DETACH run")
    return db


def show(cursor):
    print("  ".join("%14s" % column[0] for column in cursor.description))
    for row in cursor:
        print("  ".join("%14.3f" % value if isinstance(value, float) else "%14s" % value for value in row))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    database = gather(sys.argv[1:])
    show(database.execute(STEPS))
    print()
    show(database.execute(SPREAD))
