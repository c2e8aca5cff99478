"""Broken files, made from code that the rules do report: always findings, never an exception."""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import tokenize
import warnings
from functools import cache

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from validator import registry
from validator.output import Report, render
from validator.run import config
from validator.run.checker import Check, Result, check_sources
from validator.run.reporting import summarise
from validator.run.running import Checked
from validator.source import SourceFile

NEWER_SYNTAX = "MP205"  # what only a newer Python than this one can read is no broken file
TOO_DEEP = "MP006"  # deeper than our own walk goes, though this Python might read it
CODINGS = (
    b"utf-8", b"latin-1", b"ascii", b"utf-16", b"utf-7", b"utf-8-sig", b"cp037", b"shift_jis", b"gb18030",
    b"idna", b"punycode", b"rot13", b"hex", b"undefined", b"unicode_escape", b"no-such-codec", b"-", b"." * 300,
)  # fmt: skip
NESTS = (
    (b"(", b")"), (b"[", b"]"), (b"{1:", b"}"), (b"f(", b")"), (b"-", b""), (b"not ", b""), (b"lambda: ", b""),
)  # fmt: skip
CONFLICTS = (b"<<<<<<< ours\n", b"=======\n", b">>>>>>> theirs\n", b"||||||| base\n")
ODD = (
    b"\0", b"\r", b"\r\n", b"\f", b"\v", b"\x1a", b"\x1b[31m", b"\\", b"\\\n", b"\t", b"\xef\xbb\xbf",
    b"\xff\xfe", b"\xed\xa0\x80", "\u2028\u202e\u0085".encode(), b'"""', b"'", b"#", b"f'{", b"}", b"(", b":",
    b"*", b"async ", b"match x:\n", b"type X = int\n", b"# validator: ignore[", b"# noqa: MP1\n",
    b"# validator: ignore-file[ALL] \n",
)  # fmt: skip


@cache
def rules() -> Check:
    known = registry.load_rules()
    return Check(config.Config(root="/"), known, known)


@cache
def seeds() -> tuple[bytes, ...]:
    """What the rules report and what they leave alone, each a file that reaches deep into some rule."""
    return tuple(
        text.encode() for each in rules().known for text in (*each.incorrect, *each.correct) if len(text) < 20_000
    )


def place(draw: st.DrawFn, data: bytes) -> int:
    return draw(st.integers(0, len(data)))


def truncated(draw: st.DrawFn, data: bytes) -> bytes:
    return data[: place(draw, data)]


def shortened(draw: st.DrawFn, data: bytes) -> bytes:
    start, end = sorted((place(draw, data), place(draw, data)))
    return data[:start] + data[end:]


def noisy(draw: st.DrawFn, data: bytes) -> bytes:
    changed = bytearray(data)
    for at, value in draw(st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=12)):
        if changed:
            changed[at % len(changed)] = value
    return bytes(changed)


def odd(draw: st.DrawFn, data: bytes) -> bytes:
    for piece in draw(st.lists(st.sampled_from(ODD), min_size=1, max_size=4)):
        at = place(draw, data)
        data = data[:at] + piece + data[at:]
    return data


def conflicting(draw: st.DrawFn, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    for piece in draw(st.lists(st.sampled_from(CONFLICTS), min_size=1, max_size=4)):
        lines.insert(draw(st.integers(0, len(lines))), piece)
    return b"".join(lines)


def nested(draw: st.DrawFn, data: bytes) -> bytes:
    depth = draw(st.sampled_from((20, 90, 150, 250, 600, 20_000)))
    left, right = draw(st.sampled_from(NESTS))
    inner = b"x = " + left * depth + b"1" + right * depth + b"\n"
    blocks = b"".join(b" " * level + b"if x:\n" for level in range(min(depth, 150)))
    chain = b"y = " + b" + ".join([b"x"] * depth) + b"\n"
    return data + draw(st.sampled_from((inner, blocks, chain, b"z = a" + b".b()" * depth + b"\n")))


def huge_line(draw: st.DrawFn, data: bytes) -> bytes:
    size = draw(st.sampled_from((3_000, 30_000)))
    piece = draw(st.sampled_from((b"'" + b"a" * size + b"'", b"[" + b"1," * size + b"]", b"9" * size, b" " * size)))
    at = place(draw, data)
    return data[:at] + piece + data[at:]


def declared(draw: st.DrawFn, data: bytes) -> bytes:
    return b"# -*- coding: " + draw(st.sampled_from(CODINGS)) + b" -*-\n" + data


def recoded(draw: st.DrawFn, data: bytes) -> bytes:
    text = data.decode("utf-8", "replace")
    return text.encode(draw(st.sampled_from(("utf-16", "utf-32", "utf-8-sig", "cp500", "utf-7"))), "replace")


def indented(draw: st.DrawFn, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    prefixes = draw(st.lists(st.sampled_from((b" ", b"\t", b"        ", b"\f")), max_size=6))
    for prefix in prefixes:
        at = draw(st.integers(0, max(len(lines) - 1, 0)))
        lines[at : at + 1] = [prefix + line for line in lines[at : at + 1]]
    return b"".join(lines)


MUTATIONS = (
    truncated, shortened, noisy, odd, conflicting, nested, huge_line, declared, recoded, indented,
)  # fmt: skip


class Broken(bytes):
    """The bytes of a file; a failure shows no more of them than a person reads."""

    def __repr__(self) -> str:
        whole = super().__repr__()
        return whole if len(whole) < 2_000 else f"{whole[:1_000]} …{len(self)} bytes… {whole[-1_000:]}"


@st.composite
def broken_files(draw: st.DrawFn) -> bytes:
    data = draw(st.sampled_from(seeds()))
    for mutate in draw(st.lists(st.sampled_from(MUTATIONS), min_size=1, max_size=3)):
        data = mutate(draw, data)
    return Broken(data)


def checked(data: bytes) -> tuple[SourceFile, Result]:
    source = SourceFile("pkg/broken.py", "/nowhere/pkg/broken.py", data)
    return source, check_sources([source], rules())


def encoding_of(data: bytes) -> str:
    """The encoding of a source file. `tokenize` wants UTF-8 even on the line that declares another; Python does not."""
    try:
        return tokenize.detect_encoding(io.BytesIO(data).readline)[0]
    except SyntaxError:
        declared = tokenize.cookie_re.match(data.partition(b"\n")[0].decode("latin-1"))
        if declared is None:
            raise
        return declared[1]


def python_reads(data: bytes) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            data.decode(encoding_of(data))  # `ast.parse` does not look into comments, the interpreter does
            ast.parse(data)
        except (SyntaxError, ValueError, LookupError, RecursionError, MemoryError):
            return False
    return True


FORM_FEED = b"""class DeepspeedStrategy:
    def rank(self): return 0

class FsdpStrategy:
    async def rank(self): return 0

\x0cdef get_strategy(args):
    if args.backend == "fsdp":
        return FsdpStrategy()
    return DeepspeedStrategy()

def train(args, model):
    strategy = get_strategy(args)
    print(strategy.rank())
"""  # it starts the count of an indentation anew


@settings(max_examples=500, suppress_health_check=list(HealthCheck))
@example(FORM_FEED)
@given(broken_files())
def test_a_broken_file_gives_findings_and_never_an_exception(data):
    is_read_or_reported(data)


@pytest.mark.slow
@settings(max_examples=2_000, suppress_health_check=list(HealthCheck))
@given(broken_files())
def test_many_broken_files_give_findings_and_never_an_exception(data):
    is_read_or_reported(data)


def is_read_or_reported(data):
    source, result = checked(data)

    assert not result.errors
    codes = {finding.code for finding in result.findings}
    if python_reads(data):
        assert not any(code.startswith("MP00") for code in codes - {TOO_DEEP})
    else:
        told = any(code.startswith("MP00") or code == NEWER_SYNTAX for code in codes)
        assert told or result.suppressed
    lines = source.lines
    for finding in result.findings:
        assert 1 <= finding.span.line <= len(lines) + 1
        assert finding.span.column >= 1
        assert finding.span[:2] <= finding.span[2:]
    run = Checked(files=[source], suppressed=0, errors=[])
    report = Report(result.findings, summarise(result.findings, run, 0), lambda path: lines, lambda: rules().known)
    for style in config.FORMATS:
        render(style, report).encode("utf-8", "strict")


EXTREMES = {
    "list.py": b"x = [" + b"1," * 400_000 + b"]\n",
    "text.py": b"x = '" + b"a" * 4_000_000 + b"'\n",
    "number.py": b"x = " + b"9" * 100_000 + b"\n",
    "blank.py": b"\n" * 500_000,
    "lines.py": b"x = 1\n" * 100_000,
    "calls.py": b"args = parse()\nargs" + b".b()" * 2_500 + b"\n",
    "attributes.py": b"args = parse()\nargs" + b".b" * 2_500 + b"\n",
    "sum.py": b"y = " + b" + ".join([b"dist.get_rank()"] * 2_500) + b"\n",
    "newer_brackets.py": b"type X = int\nx = " + b"(" * 5_000 + b"\n",
    "newer_chain.py": b"type X = int\nx = a" + b".b" * 20_000 + b"\n",
    "fixable.py": b"import torch\nx = torch.load(path)" + b".b" * 20_000 + b"\n",
    "brackets.py": b"x = " + b"(" * 100_000 + b"\n",
    "minus.py": b"x = " + b"-" * 100_000 + b"1\n",
    "blocks.py": b"".join(b" " * level + b"if rank == 0:\n" for level in range(99)) + b" " * 99 + b"dist.barrier()\n",
    "elif.py": b"if rank == 0:\n    dist.barrier()\n" + b"elif rank == 1:\n    dist.barrier()\n" * 1_000,
    "functions.py": b"".join(b"def f%d(): f%d()\n" % (n, n + 1) for n in range(3_000)),
    "classes.py": b"class C0: pass\n" + b"".join(b"class C%d(C%d): pass\n" % (n, n - 1) for n in range(1, 1_500)),
}


def test_extreme_files_are_read_or_reported_in_bearable_time(tmp_path):
    for name, data in EXTREMES.items():
        (tmp_path / name).write_bytes(b"import torch.distributed as dist\n" + data)
    command = [sys.executable, "-m", "validator", "--isolated", "--no-cache", "--format", "json", "."]

    # no figure of speed: a rule that is quadratic in such a file takes hours
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)

    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert document["summary"]["files"] == len(EXTREMES)
    about_the_file = {finding["path"] for finding in document["findings"] if finding["code"].startswith("MP00")}
    assert {"brackets.py"} <= about_the_file
