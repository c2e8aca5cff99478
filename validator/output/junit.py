"""JUnit XML: one test case per finding, for servers that show nothing else. Notes pass, the rest fail."""

from __future__ import annotations

from xml.etree import ElementTree

from validator.finding import Finding
from validator.output import Report, clean


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
    body: bytes = ElementTree.tostring(root, encoding="us-ascii", xml_declaration=False)  # right in every encoding
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + body.decode("ascii") + "\n"


def _case(finding: Finding) -> ElementTree.Element:
    # `clean` also takes out what XML 1.0 cannot hold in any form
    path, line = clean(finding.path), str(finding.span.line)
    message, explained = clean(finding.message), clean(finding.help)
    name = f"{finding.code} {finding.name} at {line}:{finding.span.column}"
    case = ElementTree.Element("testcase", {"name": name, "classname": path, "file": path, "line": line, "time": "0"})
    body = "\n".join(text for text in (f"{path}:{line}:{finding.span.column}", message, explained) if text)
    if finding.severity == "note":
        ElementTree.SubElement(case, "system-out").text = body
    else:
        failure = ElementTree.SubElement(case, "failure", {"message": message, "type": finding.severity})
        failure.text = body
    return case
