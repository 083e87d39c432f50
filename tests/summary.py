#!/usr/bin/env python3
"""Adds up what ctest said of each build: names what failed and what was skipped, closes with one line.

    summary.py FOLDER [what failed without a ctest file]...
"""
import pathlib
import sys
import xml.etree.ElementTree as xml


def reason(case):
    """What the test itself printed of why it could not run."""
    for line in (case.findtext("system-out") or "").splitlines():
        if "skip" in line.lower():
            return line.strip()[:200]
    return case.find("skipped").get("message") or ""


folder, failed_builds = pathlib.Path(sys.argv[1]), sys.argv[2:]
passed, failed, skipped = 0, [], []
for file in sorted(folder.glob("*.xml")):
    for case in xml.parse(file).getroot().iter("testcase"):
        name = "%s: %s" % (file.stem, case.get("name"))
        if case.get("status") == "run" and case.find("failure") is None:
            passed += 1
        elif case.find("skipped") is not None and case.get("status") != "fail":
            skipped.append("%s: %s" % (name, reason(case)))
        else:
            failed.append(name)
for name in skipped:
    print("skipped:", name)
for name in failed:
    print("FAILED:", name)
for name in failed_builds:
    print("FAILED:", name)
bad = len(failed) + len(failed_builds)
print("%d passed, %d failed%s" % (passed, bad, ", %d skipped" % len(skipped) if skipped else ""))
sys.exit(1 if bad or not passed else 0)
