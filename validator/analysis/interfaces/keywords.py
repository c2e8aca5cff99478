"""A keyword of a call under its new name: the fix that rules about calls share.

A finding tells of it at the end of its context, `…:old>new`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.finding import Finding

if TYPE_CHECKING:
    import libcst as cst


def renamed_keyword(node: cst.CSTNode, finding: Finding) -> cst.CSTNode | None:
    """The call with the keyword under its new name; None where there is none, or where it is passed already."""
    import libcst as cst

    old, _, new = finding.context.rpartition(":")[2].partition(">")
    if not new or not isinstance(node, cst.Call):
        return None
    if any(arg.keyword is not None and arg.keyword.value == new for arg in node.args):
        return None
    args = [
        arg.with_changes(keyword=cst.Name(new)) if arg.keyword is not None and arg.keyword.value == old else arg
        for arg in node.args
    ]
    return node.with_changes(args=args)
