"""What was measured, and how it is written down: record.json, and record.md with a table of all and one for each."""
import dataclasses
import json
import traceback

# OK: as it should be. MEASURED: nothing says how it should be. The others make the exit status 1, but for NOT RUN.
OK, MEASURED, NOT_RUN, DIFFERS, NOT_MET, FAILED = "ok", "measured", "not run", "DIFFERS", "NOT MET", "FAILED"
BAD = {DIFFERS, NOT_MET, FAILED}


@dataclasses.dataclass
class Result:
    part: str
    name: str
    state: str
    said: str                                        # one line
    tables: list = dataclasses.field(default_factory=list)  # Table, for record.md
    data: object = None                              # for record.json: what the tables were made of
    error: str = ""                                  # all of it

    @property
    def is_bad(self):
        return self.state in BAD


@dataclasses.dataclass
class Table:
    title: str
    head: list
    rows: list
    text: str = ""  # above it

    def markdown(self):
        lines = ["| %s |" % " | ".join(cell(c) for c in row) for row in [self.head, *self.rows]]
        lines.insert(1, "|%s" % ("---|" * len(self.head)))
        return "\n".join(["### " + self.title, "", *([self.text, ""] if self.text else []), *lines, ""])


def cell(value):
    return str(value).replace("|", "\\|").replace("\n", " ")


def shortened(text, most=160):
    return text if len(text) <= most else text[:most - 3] + "..."


def failed(part, name, error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return Result(part, name, FAILED, shortened(lines[-1] if lines else type(error).__name__), error="%s\n%s" % (error, "".join(traceback.format_exception(error))))


def attempt(part, name, measure):
    """The Result of measure(), or one that says why there is none: no error of a measurement ends the others."""
    try:
        return measure()
    except Exception as error:
        return failed(part, name, error)


def markdown(about, results, note=""):
    parts = list(dict.fromkeys(result.part for result in results))
    text = ["# torchprof on a GPU", "", *([note, ""] if note else []),
            Table("The machine", ["", ""], [[name, ", ".join(map(str, value)) if isinstance(value, list) else value] for name, value in about.items()]).markdown(),
            Table("All of it", ["part", "measurement", "result", ""], [[r.part, r.name, r.state, shortened(r.said)] for r in results]).markdown()]
    for part in parts:
        of_part = [r for r in results if r.part == part]
        text += ["## " + part, ""] + [table.markdown() for r in of_part for table in r.tables]
        text += ["`%s %s` failed; all that was said is in record.json:\n\n    %s\n" % (part, r.name, "\n    ".join(r.error.splitlines()[:12])) for r in of_part if r.error]
    return "\n".join(text)


class Book:
    """The directory that is taken home. Written after each result: what was measured stays, come what may."""

    def __init__(self, out, about, note=""):
        self.out, self.about, self.note, self.results = out, about, note, []
        out.mkdir(parents=True, exist_ok=True)

    def add(self, result):
        self.results.append(result)
        print("%-6s %-28s %-9s %s" % (result.part, result.name, result.state, shortened(result.said)), flush=True)
        (self.out / "record.md").write_text(markdown(self.about, self.results, self.note))
        (self.out / "record.json").write_text(json.dumps({"machine": self.about, "note": self.note, "results": [
            {"part": r.part, "name": r.name, "state": r.state, "said": r.said, "data": r.data, **({"error": r.error} if r.error else {})} for r in self.results]}, indent=1))
