"""DeepCompile asked for where ZeRO is off.

What it does
    Reports a DeepSpeed configuration, written as a dictionary, with `"compile": {"deepcompile": True}` and a ZeRO stage
    of 0, or no `zero_optimization` at all.

Why is this bad
    DeepCompile schedules the communication of ZeRO 1 to 3. At stage 0 the engine falls back to plain `torch.compile`
    without a word: what is then measured or tuned is something else.

References
    https://github.com/deepspeedai/DeepSpeed/blob/master/blogs/deepcompile/README.md
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from validator.finding import Finding
from validator.rule import Rule
from validator.source import SourceFile

RULE = Rule("MP606", "deepcompile-without-zero", "warning", "0.1.0", tokens=("deepcompile",))


def check_file(source: SourceFile) -> Iterator[Finding]:
    from validator.facts.text import Text

    if source.facts.problem is not None:
        return
    text = Text(source.text)
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Dict):
            continue
        config = _entries(node)
        compiling = config.get("compile")
        if not isinstance(compiling, ast.Dict) or not _is(_entries(compiling).get("deepcompile"), True):
            continue
        zero = config.get("zero_optimization")
        if None in node.keys or (zero is not None and not isinstance(zero, ast.Dict)):
            continue  # what is unpacked or computed may hold a stage
        stage = _entries(zero).get("stage") if isinstance(zero, ast.Dict) else None
        if zero is None or _is(stage, 0):
            yield RULE.finding(
                source.path,
                text.at(compiling),
                "DeepCompile is on while ZeRO is "
                + ("at stage 0" if zero is not None else "not configured")
                + ": DeepSpeed compiles plainly",
                help="use ZeRO stage 1, 2 or 3, or switch `deepcompile` off",
                context="deepcompile",
            )


def _entries(node: ast.Dict) -> dict[str, ast.expr]:
    pairs = zip(node.keys, node.values, strict=True)
    return {key.value: value for key, value in pairs if isinstance(key, ast.Constant) and isinstance(key.value, str)}


def _is(node: ast.expr | None, value: object) -> bool:
    return (
        isinstance(node, ast.Constant)
        and node.value is not None
        and type(node.value) is type(value)
        and node.value == value
    )


INCORRECT = [
    """
CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "zero_optimization": {"stage": 0},
    "compile": {"deepcompile": True},  # error: MP606
}
""",
]

CORRECT = [
    """
CONFIG = {"zero_optimization": {"stage": 3}, "compile": {"deepcompile": True}}
""",
    """
def config(stage, deepcompile):
    return {"zero_optimization": {"stage": stage}, "compile": {"deepcompile": deepcompile}}
""",
    """
CONFIG = {"zero_optimization": {"stage": 0}, "compile": {"deepcompile": False}}
""",
]
