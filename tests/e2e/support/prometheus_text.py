"""Reads a text of numbers for Prometheus, and is as strict as the strictest of its two forms: the text format 0.0.4 and OpenMetrics 1.0.

samples(TEXT) -> {(name, ((label, value), ...)): number}, labels sorted. What breaks a rule of either form is an AssertionError.
"""
import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
SAMPLE = re.compile(r"(%s)(?:\{(.*)\})? (\S+)" % NAME)
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?([eE][+-]?\d+)?|Inf)|NaN")
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "gauge": ("",), "counter": ("_total",), "unknown": ("",)}


def labels_of(text):
    labels, at = [], 0
    while at < len(text):
        match = LABEL.match(text, at)
        assert match, text
        labels.append((match[1], re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), match[2])))
        at = match.end()
    assert len(dict(labels)) == len(labels), text
    return tuple(sorted(labels))


def samples(text):
    assert text.endswith("\n# EOF\n") and "\r" not in text and "\n\n" not in text
    found, families, family, kind, has_samples = {}, set(), None, "unknown", True
    for line in text.splitlines()[:-1]:
        if match := re.fullmatch(r"# (TYPE|HELP) (%s) (.*)" % NAME, line):
            if match[2] != family:
                assert has_samples and match[2] not in families, line  # all of a name lie together
                family, kind, has_samples = match[2], "unknown", False
                families.add(family)
            assert not has_samples, line
            if match[1] == "TYPE":
                kind = match[3]
                assert kind in SUFFIXES, line
            continue
        assert not line.startswith("#"), line
        match = SAMPLE.fullmatch(line)
        assert match and NUMBER.fullmatch(match[3]), line
        assert family and match[1] in [family + suffix for suffix in SUFFIXES[kind]], line
        key = match[1], labels_of(match[2] or "")
        assert key not in found, line
        found[key] = float(match[3])
        has_samples = True
        if kind == "histogram":
            assert ("le" in dict(key[1])) == match[1].endswith("_bucket"), line
    assert has_samples
    buckets = {}
    for (name, labels), value in found.items():
        if name.endswith("_bucket"):
            bound = dict(labels)["le"]
            assert bound == "+Inf" or "." in bound or "e" in bound, bound  # as OpenMetrics writes numbers there
            buckets.setdefault((name.removesuffix("_bucket"), tuple(label for label in labels if label[0] != "le")), []).append((float(bound), value))
    for (name, labels), of in buckets.items():
        assert of == sorted(of) and [count for _, count in of] == sorted(count for _, count in of), of
        assert of[-1] == (float("inf"), found[name + "_count", labels])
        assert found[name + "_sum", labels] >= 0
    return found


def values(text, name):
    """{labels as a dict's items: number} of one name."""
    return {labels: number for (each, labels), number in samples(text).items() if each == name}
