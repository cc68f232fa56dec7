"""A file of requests as tables of text: what CSV, JSON, JSON lines and Parquet share.

Introduced in the chapter "Replay a real log", below `read_log`; the chapters "Read a real server"
and "Two numbers with one name" use it too. A file is read a piece at a time and told by what is
in it, not by its name. Numbers stay as they are written until somebody knows what they mean: a
float would cut a long clock short.
"""

import gzip
import json
import re
import warnings
import zlib
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from tinyserve.checks import a_path

CHUNK = 50_000  # rows held as text at once
LONG = 20_000_000  # bytes; reading more than this shows how far it is
PAST = "(past the last column)"
REPEAT = "(repeat)"  # a number that two rows share if they are alike in every column


def look(row, name):
    """What a record holds under a dotted name such as "metadata.turn", or None."""
    if name in row:
        return row[name]
    for part in name.split("."):
        row = row.get(part) if isinstance(row, dict) else None
    return row


def _names(row, prefix="", depth=3):
    """The dotted names of a record, in its order."""
    for name, value in row.items():
        yield prefix + name
        if isinstance(value, dict) and depth > 1:
            yield from _names(value, f"{prefix}{name}.", depth - 1)


class Log:
    """An open file of requests.

    name: the file's own name; names: its columns; word: what one row of it is called ("line"
    or "request"), for messages; blanks: lines with nothing in them. `frames` gives the rows,
    `records` those of a small file. Raises ValueError for a file that cannot be read.
    """

    def __init__(self, path, exact=True):
        """exact: keep the decimals of a JSON number as they are written."""
        self.path = Path(a_path("path", path))
        self.name = self.path.name
        self.decoder = json.JSONDecoder(parse_float=Decimal if exact else float, parse_constant=str)
        self.word, self.blanks = "line", 0
        try:
            with self.path.open("rb") as raw:
                head = raw.read(4)
        except OSError as error:
            raise ValueError(f"cannot read {path}: {error.strerror or error}") from None
        self.zipped = head[:2] == b"\x1f\x8b"
        if head == b"PAR1":
            self._open_parquet()
            return
        try:
            with self._bytes()[0] as stream:
                start = stream.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{self.name} is not a whole gzip file: {error}") from None
        if not start:
            raise ValueError(f"{self.name} is empty")
        (self._open_json if start[:1] in b"{[" else self._open_csv)()

    @property
    def found(self):
        """The names of its columns, to be read in a message."""
        names = [name for name in self.names if self.word == "line" or "." not in name]
        few = ", ".join(repr(name[:60]) for name in names[:20])
        return few + (", ..." if len(names) > 20 else "")

    def _bytes(self):
        """The file's bytes, and the file on the disk below them: closing one closes both."""
        stream = gzip.open(self.path) if self.zipped else self.path.open("rb")
        return stream, stream.fileobj if self.zipped else stream

    def _lines(self, stream):
        """(number, text) of each line that is not blank."""
        with stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
                else:
                    self.blanks += 1

    def frames(self, wanted, progress=None):
        """DataFrames of the wanted columns as text or None, a piece at a time.

        Their index is the number of the line (or request); a column REPEAT comes with them.
        progress: whether to show a bar; left out, for a file of more than 20 MB. Raises
        ValueError, naming the line, for a file that is broken.
        """
        size = self.path.stat().st_size
        off = not (size > LONG if progress is None else progress)
        with tqdm(total=size, unit="B", unit_scale=True, desc=self.name, disable=off) as bar:
            for frame, at in self._guard(self._pieces(wanted)):
                yield frame
                bar.update(at - bar.n)

    def records(self):
        """(number, record) of every row: what the file holds, the cells of a table as text."""
        if hasattr(self, "rows"):
            yield from ((number, row) for number, row, _ in self._guard(self.rows))
        else:
            for frame in self.frames(self.names, progress=False):
                for number, *cells in frame[list(self.names)].itertuples():
                    yield number, {n: None if c != c else c for n, c in zip(self.names, cells)}

    def _guard(self, pieces):
        """What an iterator gives, its errors told as ValueError."""
        try:
            yield from pieces
        except UnicodeDecodeError:
            raise self._not_utf8() from None
        except EOFError as error:
            raise ValueError(f"{self.name} is cut short: {error}") from None
        except (OSError, zlib.error, pd.errors.ParserError) as error:
            raise ValueError(f"{self.name} is broken: {str(error).strip()}") from None

    def _not_utf8(self):
        """The error for text that is not UTF-8, with the line where it stops to be."""
        number = 0
        with self._bytes()[0] as stream:
            for line in stream:
                number += 1
                try:
                    line.decode()
                except UnicodeDecodeError:
                    break
        return ValueError(f"{self.name}, line {number}: not UTF-8 text; save it as UTF-8")

    # CSV.

    def _open_csv(self):
        try:
            with self._bytes()[0] as stream:
                head = pd.read_csv(stream, nrows=1, header=None, dtype=str, encoding="utf-8-sig")
        except UnicodeDecodeError:
            raise self._not_utf8() from None
        except (EOFError, OSError, zlib.error, pd.errors.ParserError) as error:
            raise ValueError(f"{self.name}, line 1: {str(error).strip()}") from None
        self.names = tuple(head.iloc[0].fillna("").str.strip())
        self._pieces = self._csv

    def _csv(self, wanted):
        self.once(wanted)
        stream, raw = self._bytes()
        options = {"skiprows": 1, "header": None, "dtype": object, "skip_blank_lines": False}
        # One name more than there are columns, so that a row with too much is seen.
        names = [*range(len(self.names)), PAST]
        with stream:
            try:
                pieces = pd.read_csv(
                    stream, names=names, chunksize=CHUNK, index_col=False, encoding="utf-8-sig",
                    **options,
                )  # fmt: skip
            except pd.errors.EmptyDataError:
                return
            while (frame := self._next(pieces)) is not None:
                frame.index += 2  # line 1 has the names
                full = frame.notna().any(axis=1).to_numpy()
                for line in frame.index[frame[PAST].notna()][:1]:
                    raise self._too_long(line)
                self.blanks += int((~full).sum())
                frame = frame[full]
                found = {name: frame[self.names.index(name)] for name in wanted}
                found[REPEAT] = pd.util.hash_pandas_object(frame, index=False)
                yield pd.DataFrame(found, index=frame.index), raw.tell()

    def _next(self, pieces):
        """The next piece of a CSV file, or None. Raises ValueError for a row that is too long."""
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            try:
                return next(pieces, None)
            except pd.errors.ParserWarning:  # what pandas says of the first row
                raise self._too_long(2) from None
            except pd.errors.ParserError as error:  # and of others
                if told := re.search(r"in line (\d+), saw", str(error)):
                    raise self._too_long(told[1]) from None
                raise

    def _too_long(self, line):
        columns = len(self.names)
        return ValueError(f"{self.name}, line {line}: more cells than the {columns} columns")

    def once(self, wanted):
        """Raise ValueError for a wanted name that two columns have."""
        for name in wanted:
            if self.names.count(name) > 1:
                raise ValueError(f"{self.name} has {self.names.count(name)} columns named {name!r}")

    # Parquet.

    def _open_parquet(self):
        try:
            # Types that know what is missing: among floats a nanosecond would be lost.
            self.table = pd.read_parquet(self.path, dtype_backend="numpy_nullable")
        except ImportError:
            raise ValueError(
                f"{self.name} is Parquet, which needs pyarrow: pip install pyarrow"
            ) from None
        except Exception as error:  # pyarrow's errors have no common ancestor
            raise ValueError(f"{self.name} is a broken Parquet file: {error}") from None
        if self.table.index.names != [None]:  # a column that pandas had put aside
            self.table = self.table.reset_index()
        self.word, self.names, self._pieces = "row", tuple(map(str, self.table.columns)), self._rows

    def _rows(self, wanted):
        self.once(wanted)
        self.table.columns = self.names
        for start in range(0, len(self.table), CHUNK):
            piece = self.table.iloc[start : start + CHUNK]
            text = piece.astype(object).where(piece.notna(), None)
            text = text.map(lambda cell: None if cell is None else str(cell))
            text.index = range(start + 1, start + 1 + len(text))
            text[REPEAT] = pd.util.hash_pandas_object(text, index=False)
            yield text[[*wanted, REPEAT]], self.path.stat().st_size

    # JSON, one value for the whole file or one a line.

    def _parse(self, text, line=None):
        try:
            return self.decoder.decode(text)
        except (ValueError, ArithmeticError, RecursionError) as error:
            line = line or getattr(error, "lineno", 1)
            raise ValueError(f"{self.name}, line {line}: not JSON: {error}") from None

    def _open_json(self):
        stream, self.raw = self._bytes()
        try:
            lines = self._lines(stream)
            first = next(lines)
            try:
                records = self._records(chain([first], lines), self._parse(first[1], 1))
            except ValueError:
                self.blanks = 0
                with self._bytes()[0] as whole:
                    records = self._numbered(self._parse(whole.read().decode("utf-8-sig")))
            rows = self._requests(records)
            first = list(islice(rows, 1000))
        except UnicodeDecodeError:
            raise self._not_utf8() from None
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{self.name} is cut short: {error}") from None
        self.names = tuple(dict.fromkeys(chain.from_iterable(_names(row) for _, row, _ in first)))
        self.rows, self._pieces = chain(first, rows), self._json

    def _records(self, lines, first):
        """(line number, record, text) of a file with a JSON value on each line."""
        if isinstance(first, list):  # one line that is a whole file
            yield from self._numbered(first)
            lines = islice(lines, 1, None)
        for number, text in lines:
            record = self._parse(text, number)
            if not isinstance(record, dict) or isinstance(first, list):
                raise ValueError(f"{self.name}, line {number}: not a record: {text.strip()[:60]}")
            yield number, record, text

    def _numbered(self, value):
        """The same of a file that is one JSON value: a run, or a list of records."""
        self.word = "request"
        for number, record in enumerate(value if isinstance(value, list) else [value], 1):
            if not isinstance(record, dict):
                raise ValueError(f"{self.name}, request {number}: not a record")
            yield number, record, None

    def _requests(self, records):
        """(number, record, text) of each request: a benchmark's run holds many of them."""
        run = count = 0
        for number, record, text in records:
            rows = _requests_of(record, self.name)
            if rows is None:
                yield number, record, text
                continue
            self.word, run = "request", run + 1
            for row in rows:
                count += 1
                yield count, row if "run" in row else {**row, "run": run}, None

    def _json(self, wanted):
        while True:
            numbers, alike, cells = [], [], {name: [] for name in wanted}
            for number, row, text in islice(self.rows, CHUNK):  # a row is let go at once
                numbers.append(number)
                alike.append(hash(text.strip() if text else str(row)) % 2**64)
                for name, column in cells.items():
                    column.append(look(row, name))
            if not numbers:
                return
            frame = pd.DataFrame({n: pd.Series(c, numbers, dtype=object) for n, c in cells.items()})
            frame[REPEAT] = pd.Series(alike, numbers, dtype="uint64")
            yield frame, self.path.stat().st_size if self.raw.closed else self.raw.tell()


def _requests_of(record, name):
    """The requests of a benchmark's run, or None for a record that is not a run.

    vLLM and SGLang keep columns (`ttfts`, `output_lens`, ...) beside the run's summary,
    guidellm lists of requests by how they ended.
    """
    if isinstance(record.get("benchmarks"), list):
        rows = []
        for run, benchmark in enumerate(record["benchmarks"], 1):
            lists = look(benchmark, "requests")
            if not isinstance(lists, dict):
                raise ValueError(f"{name}: benchmark {run} has no lists of requests")
            for ended in ("successful", "incomplete", "errored"):
                for row in lists.get(ended) or []:
                    if not isinstance(row, dict):
                        raise ValueError(f"{name}: benchmark {run}: not a request: {str(row)[:60]}")
                    rows.append({**row, "ended": ended, "run": run})
        return rows
    if not isinstance(record.get("output_lens"), list):
        return None
    columns = {key: value for key, value in record.items() if isinstance(value, list)}
    lengths = {key: len(value) for key, value in columns.items()}
    columns = {key: v for key, v in columns.items() if len(v) == lengths["output_lens"]}
    run = {key: value for key, value in record.items() if key not in lengths}
    for key in {"input_lens", "ttfts", "itls", "start_times", "errors", "latencies"} & set(lengths):
        if key not in columns:
            raise ValueError(
                f"{name}: {key} has {lengths[key]} values, output_lens {lengths['output_lens']}"
            )
    return [{**dict(zip(columns, row)), "summary": run} for row in zip(*columns.values())]
