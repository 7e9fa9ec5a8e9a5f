#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nonfree.py CODENAME OUT: this machine's Debian sources with contrib and non-free added.

Reads /etc/apt as apt does (one-line .list and deb822 .sources files) and writes a sources file for a
private apt state, so that the machine's own is not touched and its mirror, proxy and keys are kept.
"""
import pathlib
import re
import sys

# Options of one-line sources whose deb822 field has another name.
FIELDS = {"arch": "Architectures", "lang": "Languages", "target": "Targets"}
COMPONENTS = "main contrib non-free non-free-firmware"


def wanted(types, suites, components, codename):
    ours = {codename, f"{codename}-updates", f"{codename}-security"}
    return "deb" in types and "main" in components and any(suite in ours for suite in suites)


def from_lines(text, codename):
    for line in text.splitlines():
        match = re.fullmatch(r"\s*deb\s+(\[[^]]*\]\s+)?(\S+)\s+(\S+)\s+([^#]+?)\s*(#.*)?", line)
        if match and wanted(["deb"], [match[3]], match[4].split(), codename):
            fields = {"Types": "deb", "URIs": match[2], "Suites": match[3]}
            for option in (match[1] or "").strip(" []\t").split():
                key, _, value = option.partition("=")
                fields[FIELDS.get(key.lower(), key)] = value.replace(",", " ")
            yield fields


def from_stanzas(text, codename):
    for stanza in re.split(r"\n\s*\n", text):
        fields, last = {}, None
        for line in stanza.splitlines():
            if line.startswith("#"):
                continue
            if line[:1].isspace() and last:
                fields[last] += "\n" + line
            elif ":" in line:
                last, _, value = line.partition(":")
                fields[last] = value.strip()
        folded = {key.lower(): value.split() for key, value in fields.items()}
        if folded.get("enabled") in (["no"], ["false"]):
            continue
        if wanted(folded.get("types", []), folded.get("suites", []), folded.get("components", []), codename):
            yield {key: value for key, value in fields.items() if key.lower() not in ("components", "types")} | {
                "Types": "deb"
            }


def main():
    codename, out = sys.argv[1:]
    etc = pathlib.Path("/etc/apt")
    found = []
    for path in [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]:
        if path.suffix == ".list" and path.is_file():
            found += from_lines(path.read_text(), codename)
        elif path.suffix == ".sources" and path.is_file():
            found += from_stanzas(path.read_text(), codename)
    if not found:
        sys.exit(f"no source for Debian {codename} in /etc/apt")
    with open(out, "w", encoding="utf-8") as file:
        for fields in found:
            fields["Components"] = COMPONENTS
            file.writelines(f"{key}: {value}\n" for key, value in fields.items())
            file.write("\n")


main()
