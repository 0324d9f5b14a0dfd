"""What the lines of an access log are put together from: usual, odd and wrong."""

from __future__ import annotations

PIECES = {
    "user": ["-", "frank", "a b", "é", "[x]", "- bob", "a -", "-x y", " a"],
    "front": ["", "", "", "h.example:80 ", "h.example ", "5.6.7.8 ", "5.6.7.8, ", "\ufeff", " ", "a b "],
    "date": [
        "10/Oct/2000:13:55:36 -0700",
        "29/Feb/2016:00:00:00 +0130",
        "30/Feb/2016:00:00:00 +0000",
        "10/oct/2000",
        "-",
    ],
    "request": [
        "GET / HTTP/1.1",
        "GET /é?b HTTP/1.1",
        "GET",
        "-",
        "",
        r"\x16",
        r"A /\"\\ X/1",
        "GET / HTTP/1.1 ",
        "A  B",
        "GET /a b?c d HTTP/1.1",
        "GET /a b/2.0",
        "GET a b",
        "GET / HTTP/1.1 x",
        "- / rtsp/1.0",
        r"\\",
    ],
    "mid": ["200 1", "200 -", "- -", "20 1", "200", "200 1.0"],
    "quoted": ["-", "", "x y", r"\"", r"\\", r"\\\"", "]", "é😀", r"a\b"],
    "tail": ["", " ", " more", "x", ' "q"'],
}
