"""Writes ``docs/formats.md``: the formats that elf knows, and the columns of each, out of the code.

python -m lab.formats
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from agents.formats import FORMATS, Format
from agents.formats.fields import KINDS, Field, parts
from agents.formats.nginx import KINDS as NGINX_KINDS
from agents.formats.nginx import NAMES, TIMES

PAGE: Final = Path(__file__).parents[1] / "docs" / "formats.md"
OF: Final[Mapping[str, str]] = {
    "combined": "Apache's and nginx's `combined`, also behind a virtual host",
    "common": "the common log format",
    "json": "an object a line",
    "logfmt": '`key=value key="a value"`',
    "vhost_combined": "Debian's Apache, `%v:%p` in front and `%O` for bytes (told as `combined` without a word)",
    "nginx_error": "nginx's error log",
    "apache_error": "Apache's error log",
    "haproxy": "HAProxy's HTTP log, also behind syslog's header",
    "aws_alb": "AWS Application Load Balancer",
    "aws_elb": "AWS Classic Load Balancer",
    "aws_s3": "AWS S3 server access log",
    "envoy": "Envoy's default, and Istio's",
    "squid": "squid's native format",
    "cloudfront": "AWS CloudFront's standard log",
    "iis": "IIS, the fields that it logs by default",
    "syslog5424": "syslog, RFC 5424",
    "syslog": "syslog, RFC 3164, and what rsyslog writes to files",
    "caddy": "Caddy's JSON",
    "traefik": "Traefik's JSON",
}
_HEAD: Final = """\
# Formats

What `--format` of `elf run` and `streams.NAME.format` of an agent take. `elf run` needs neither: it tells the
format from the lines, and says what it has tried where it cannot. `elf-agent validate` tells of lines that do not fit.

| format | what it is |
|---|---|
| a name | one of those below |
| `'$remote_addr - $remote_user [$time_local] "$request" …'` | nginx's `log_format`, as it stands in nginx.conf: its value, or the whole directive, with `escape=json` or `escape=none` if it has it |
| `nginx:main`, `nginx:main@FILE` | the `log_format` of that name in `/etc/nginx/nginx.conf`, or in `FILE`, and in what it includes |
| `'%h %l %u %t "%r" %>s %b "%{Referer}i" %D'` | Apache's `LogFormat`, its value or the whole directive |
| `'regex:(?<time>[^ ]+) (?<status>[0-9]+) (?<rest>.*)'` | a regular expression with named groups that matches the whole line |
| `csv`, `csv:time,path,status` | values between commas, semicolons, tabs or bars, as the names are; `csv` alone (`elf run`) takes them from the first line |
| `w3c`, `w3c:date time c-ip cs-uri-stem …` | W3C's extended format; `w3c` alone (`elf run`) takes the fields from the line `#Fields:` |

What is wrong with such a text is said with its place: `format, character 14 ($remote_addr ▸$): a $ is followed by
the name of a variable`.

## Rules

- Every field is a column with a type; what has a column in `combined` has that name in every format, so a query reads
  them all alike. The same field twice has its own name, or `_2` behind it.
- What a line has behind the last field of its format are `extra_1`, `extra_2` and so on, with types told from samples.
  Such lines are counted (`elf_rows_beyond_total`), and `elf run`, `validate` and the agent's log say so.
- `-` and nothing are NULL. A value that does not fit its type is NULL and counted; a line that does not fit its format
  is counted, and kept in the reject file. Escapes of quotes stay as they are written.
- Times taken are `request_time`, in seconds, whatever unit the server writes (`%D` is µs, HAProxy's and IIS's ms).
- Of nginx's `$upstream_…` variables with several values (`0.01, 0.02 : 0.03`) the column has the last one, of the server
  that answered; `NAME_list` has all, as written. `$upstream_addr` is the list.
- Times without a zone (error logs, HAProxy, W3C, syslog) are UTC, or what clocks in another zone show:
  `streams.NAME.timezone: Europe/Berlin`, `elf run --timezone`. Where clocks are set forward, 02:30 is what 03:30 is; where they
  are set back, the hour that comes twice is the first one. Before 1970 and from 2100 on the offset stays as it is then. A time
  with a zone, and a number, mean what they say. `validate` tells of such times on a machine whose clocks are not in UTC.
  Times of RFC 3164 have no year: it is the last one in which the time is not later than tomorrow.
- `regex`, `csv` and `logfmt`, and fields behind the last one, have types told from samples, as JSON has; `--column` and
  `streams.NAME.columns` declare others.
- Regular expressions are those that RE2 and Java read alike: no lookaround, no reference back, no possessive group.
- A value of CSV may be in double quotes, with separators and doubled quotes in it. One with line breaks needs
  `streams.NAME.multiline`; without it such lines are rejected, as lines with a quote that has no fellow.
- Lines of all formats can be masked (`streams.NAME.mask`) but such of `regex:` as Python does
  not know (`[[:alpha:]]`).

## Names

"""
_NGINX: Final = """
## Variables of nginx

Others are texts under their own names. Apache's directives have the same columns: `%h` and `%a` are `c_ip`, `%>s` is
`sc_status`, `%{X-Id}i` is `http_x_id`, `%{X-Id}o` is `sent_http_x_id`.

| variable | columns |
|---|---|
"""


def page() -> str:
    """The page."""
    rows = [f"| `{name}` | {OF[name]} | {_columns(fmt)} |\n" for name, fmt in FORMATS.items()]
    variables = [f"| `${name}` | {_of(Field(*field))} |\n" for name, field in NAMES.items()]
    variables += [f"| `${name}` | {_of(Field('ts', kind))} |\n" for name, kind in TIMES.items()]
    variables += [f"| `${name}` | {_of(Field(name, kind))} |\n" for name, kind in NGINX_KINDS.items()]
    names = "| name | of | columns |\n|---|---|---|\n"
    return "".join([_HEAD, names, *rows, _NGINX, *variables])


def _columns(fmt: Format) -> str:
    schema = fmt.schema(pa.array([], pa.string()), None)
    return _listed((column.name, column.type) for column in schema.columns) or "those of its lines"


def _of(field: Field) -> str:
    assert field.kind in KINDS
    return _listed((part.column.name, part.column.type) for part in parts(field))


def _listed(columns: Iterator[tuple[str, str]]) -> str:
    """Texts are not said to be such."""
    return ", ".join(f"`{name}`" if kind == "text" else f"`{name}` {kind}" for name, kind in columns)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
