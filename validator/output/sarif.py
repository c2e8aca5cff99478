"""SARIF 2.1.0, as code-scanning services read it.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any
from urllib.parse import quote

from validator import __version__
from validator.explain import read
from validator.finding import Finding, Span
from validator.output import Report, clean, whole
from validator.rule import LoadedRule
from validator.run.baseline import context_hash

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def render(report: Report) -> str:
    rules = report.rules()
    index = {each.rule.code: number for number, each in enumerate(rules)}
    seen: Counter[str] = Counter()
    run = {
        "tool": {
            "driver": {
                "name": "meshproof",
                "semanticVersion": __version__,
                "rules": [_rule(each) for each in rules],
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"SRCROOT": {"description": {"text": "the working directory of the run"}}},
        "invocations": [{"executionSuccessful": not report.summary["internal_errors"]}],
        "results": [_result(finding, report, index, seen) for finding in report.findings],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def fingerprint(finding: Finding, report: Report, seen: Counter[str]) -> str:
    """A hash that stays while lines move; `seen` tells equal findings of one file apart by their order."""
    base = f"{finding.path}\0{finding.code}\0{context_hash(finding, report.lines)}"
    seen[base] += 1
    text = f"{base}\0{seen[base]}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def _rule(each: LoadedRule) -> dict[str, Any]:
    rule, doc = each.rule, read(each.doc)
    text = "\n\n".join([doc.summary, *(f"{title}\n{body}" for title, body in doc.sections)])
    markdown = "\n\n".join([doc.summary, *(f"**{title}**\n\n{body}" for title, body in doc.sections)])
    return {
        "id": rule.code,
        "name": "".join(part.capitalize() for part in rule.name.split("-")),
        "shortDescription": {"text": doc.summary or rule.name},
        "fullDescription": {"text": dict(doc.sections).get("What it does", doc.summary) or rule.name},
        "help": {"text": text or rule.name, "markdown": markdown or rule.name},
        "defaultConfiguration": {"level": rule.severity},
        "properties": {"tags": [each.family]},
    }


def _result(finding: Finding, report: Report, index: dict[str, int], seen: Counter[str]) -> dict[str, Any]:
    message, explained = clean(finding.message), clean(finding.help)
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "level": finding.severity,
        "message": {"text": f"{message}\n{explained}" if explained else message},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": _artifact(finding.path),
                    "region": _region(finding.span),
                }
            }
        ],
        "partialFingerprints": {"meshproofContext/v1": fingerprint(finding, report, seen)},
    }
    if finding.code in index:
        result["ruleIndex"] = index[finding.code]
    if finding.related:
        result["relatedLocations"] = [
            {
                "id": number,
                "physicalLocation": {
                    "artifactLocation": _artifact(each.path),
                    "region": {"startLine": max(each.line, 1)},
                },
                "message": {"text": clean(each.message)},
            }
            for number, each in enumerate(finding.related, 1)
        ]
    if finding.fix is not None:
        replacements = [
            {"deletedRegion": _region(edit.span), "insertedContent": {"text": whole(edit.text)}}
            for edit in finding.fix.edits
        ]
        change = {"artifactLocation": _artifact(finding.path), "replacements": replacements}
        result["fixes"] = [{"description": {"text": clean(finding.fix.message)}, "artifactChanges": [change]}]
    return result


def _artifact(path: str) -> dict[str, str]:
    """A path of the report as a URI; one outside the working directory cannot be relative to it."""
    uri = quote(path.encode("utf-8", "surrogateescape"), safe="/~")
    if path.startswith(("/", "../")):
        return {"uri": uri}
    return {"uri": uri, "uriBaseId": "SRCROOT"}


def _region(span: Span) -> dict[str, int]:
    return {
        "startLine": span.line,
        "startColumn": span.column,
        "endLine": span.end_line,
        "endColumn": max(span.end_column, 1),
    }
