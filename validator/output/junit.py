"""JUnit XML: one test case per finding, for servers that show nothing else. Notes pass, the rest fail."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from validator.finding import Finding
from validator.output import Report

# What XML 1.0 cannot hold in any form, and lone surrogates of undecodable file names.
_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(report: Report) -> str:
    failures = [finding for finding in report.findings if finding.severity != "note"]
    count = {"tests": str(max(len(report.findings), 1)), "failures": str(len(failures)), "errors": "0"}
    root = ElementTree.Element("testsuites", {"name": "meshproof", **count})
    suite = ElementTree.SubElement(root, "testsuite", {"name": "meshproof", "time": "0", **count})
    for finding in report.findings:
        suite.append(_case(finding))
    if not report.findings:
        ElementTree.SubElement(suite, "testcase", {"name": "no findings", "classname": "meshproof", "time": "0"})
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(finding: Finding) -> ElementTree.Element:
    path, line = _text(finding.path), str(finding.span.line)
    name = f"{finding.code} {finding.name} at {line}:{finding.span.column}"
    case = ElementTree.Element("testcase", {"name": name, "classname": path, "file": path, "line": line, "time": "0"})
    body = "\n".join(text for text in (f"{path}:{line}:{finding.span.column}", finding.message, finding.help) if text)
    if finding.severity == "note":
        ElementTree.SubElement(case, "system-out").text = _text(body)
    else:
        failure = ElementTree.SubElement(case, "failure", {"message": _text(finding.message), "type": finding.severity})
        failure.text = _text(body)
    return case


def _text(text: str) -> str:
    return _FORBIDDEN.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
