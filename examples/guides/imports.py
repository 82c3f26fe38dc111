"""A program that takes long to start: it imports what it needs in few runs, and a module of its own that makes a table. `cured`: neither."""
import sys

if "cured" not in sys.argv:
    import guide_tables
    import unittest.mock

    assert guide_tables.SQUARES and unittest.mock
print("ready")
