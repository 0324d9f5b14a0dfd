"""Formats that have a name: what servers write without being told otherwise. Each is a few lines, after the
public document that stands beside it.

A text is one of nginx's or Apache's own, or a template: ``{name:kind}`` is a field
(``agents.formats.fields``; without a kind it is a word), ``⟦…⟧`` what a line may have or not, ``␣`` one or more blanks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from agents.formats import apache
from agents.formats.fields import Field
from agents.formats.layout import Layout, Optional, Piece
from agents.formats.nested import Named, Nested
from agents.formats.w3c import W3C

_TOKEN: Final = re.compile(r"\{(\w+)(?::(\w+))?\}|([⟦⟧])|[^{⟦⟧]+|\{")


def template(name: str, text: str, *, escapes: bool = False) -> Layout:
    """The layout of a template."""
    return Layout(name, tuple(_pieces(_TOKEN.finditer(text))), escapes=escapes)


def _pieces(tokens: Iterator[re.Match[str]]) -> Iterator[Piece]:
    for token in tokens:
        if token[3] == "⟦":
            yield Optional(tuple(_pieces(tokens)))
        elif token[3] == "⟧":
            return
        elif token[1]:
            yield Field(token[1], token[2] or "word")
        else:
            yield token[0]


VHOST_COMBINED: Final = apache.log_format(
    r'%v:%p %h %l %u %t "%r" %>s %O "%{Referer}i" "%{User-Agent}i"', "vhost_combined"
)
"""Debian's apache2.conf; ``%O`` is ``bytes_sent``: headers count."""

NGINX_ERROR: Final = template(
    "nginx_error",
    "{ts:slash_date} [{level}] {pid:whole}#{tid:whole}: ⟦*{connection:whole} ⟧{message:free}"
    '⟦, client: {c_ip}⟧⟦, server: {server:free}⟧⟦, request: "{request:request}"⟧⟦, subrequest: "{subrequest:free}"⟧'
    '⟦, upstream: "{upstream:free}"⟧⟦, host: "{cs_host:free}"⟧⟦, referrer: "{cs_referer:free}"⟧',
)
"""nginx.org, "Debugging" and ngx_log.c. Its times have no zone: they are read as UTC."""

APACHE_ERROR: Final = template(
    "apache_error",
    "[{ts:yearly_date}] [⟦{module}:⟧{level}] [pid {pid:whole}⟦:tid {tid:whole}⟧] "
    "⟦[client {c_ip:address}⟦:{c_port:whole}⟧] ⟧⟦{code:code}: ⟧{message:free}⟦, referer: {cs_referer:free}⟧",
)
"""httpd.apache.org, "Log Files", and the default ``ErrorLogFormat`` of core. UTC, as above."""

HAPROXY: Final = template(
    "haproxy",
    "⟦{header:free} haproxy[{pid:whole}]: ⟧{c_ip:address}:{c_port:whole} [{ts:dotted_date}] "
    "{frontend} {backend:path}/{server} "
    "{client_ms:whole}/{queue_ms:whole}/{connect_ms:whole}/{response_ms:whole}/{request_time:ms} "
    "{sc_status:whole} {sc_bytes:whole} {request_cookie} {response_cookie} {termination_state} "
    "{actconn:whole}/{feconn:whole}/{beconn:whole}/{srvconn:whole}/{retries:whole} "
    "{server_queue:whole}/{backend_queue:whole} ⟦{{request_headers:braced}} ⟧⟦{{response_headers:braced}} ⟧"
    '"{request:request}"',
)
"""docs.haproxy.org, "HTTP log format", with or without what syslog puts in front. UTC, as above."""

SQUID: Final = template(
    "squid",
    "{ts:epoch}␣{request_time:ms} {c_ip} {cache_result:path}/{sc_status:whole} {sc_bytes:whole} {cs_method} "
    "{cs_uri_stem:free} {cs_username} {hierarchy:path}/{peer} {content_type:free}",
)
"""wiki.squid-cache.org, "LogFormat", ``squid``; elapsed ms are ``request_time``."""

_ELB: Final = (
    "{ts:time} {elb} {c_ip:address}:{c_port:whole} {target} {request_processing_time:real} "
    "{target_processing_time:real} {response_processing_time:real} {sc_status:whole} {target_status:whole} "
    '{bytes_received:whole} {sc_bytes:whole} "{request:request}" "{cs_user_agent:free}" {ssl_cipher} {ssl_protocol}'
)
AWS_ELB: Final = template("aws_elb", _ELB)
"""docs.aws.amazon.com, "Access logs for your Classic Load Balancer"."""

AWS_ALB: Final = template(
    "aws_alb",
    "{type:scheme} "
    + _ELB
    + ' {target_group_arn} "{trace_id:free}" "{domain_name:free}" "{chosen_cert_arn:free}" '
    '{rule_priority:whole} {request_creation_time:time} "{actions_executed:free}" "{redirect_url:free}" '
    '"{error_reason:free}"⟦ "{target_list:free}" "{target_status_list:free}"⟧'
    '⟦ "{classification:free}" "{classification_reason:free}"⟧⟦ {conn_trace_id:trace}⟧',
)
"""docs.aws.amazon.com, "Access logs for your Application Load Balancer"; its latest fields may be missing."""

AWS_S3: Final = template(
    "aws_s3",
    '{bucket_owner} {bucket} [{ts:log_date}] {c_ip} {requester} {request_id} {operation} {key} "{request:request}" '
    "{sc_status:whole} {error_code} {sc_bytes:whole} {object_size:whole} {request_time:ms} {turn_around_ms:whole} "
    '"{cs_referer:free}" "{cs_user_agent:free}" {version_id}⟦ {host_id} {signature_version} {ssl_cipher} '
    "{authentication_type} {cs_host} {ssl_protocol}⟦ {access_point_arn}⟦ {acl_required:yes}⟧⟧⟧",
)
"""docs.aws.amazon.com, "Amazon S3 server access log format"; its latest fields may be missing."""

ENVOY: Final = template(
    "envoy",
    '[{ts:time}] "{request:request}" {sc_status:whole} {response_flags} ⟦{response_code_details} '
    '{termination_details} "{upstream_failure:free}" ⟧{bytes_received:whole} {sc_bytes:whole} {request_time:ms} '
    '{upstream_ms:whole} "{x_forwarded_for:free}" "{cs_user_agent:free}" "{request_id:free}" "{cs_host:free}" '
    '"{upstream_host:free}"',
)
"""envoyproxy.io, "Default format string"; Istio's has three fields more in its middle."""

SYSLOG: Final = template(
    "syslog", "⟦<{pri:whole}>⟧{ts:yearless_date} {host} {app:tag}⟦[{procid}]⟧: {message:free}"
)
"""RFC 3164, and what rsyslog writes to files, whose times may be those of RFC 3339. Without a year it is the
last one in which the time is not in the future; without a zone UTC."""

SYSLOG5424: Final = template(
    "syslog5424",
    "<{pri:whole}>{version:whole} {ts:time} {host} {app} {procid} {msgid} {structured_data:structured}"
    "⟦ {message:free}⟧",
)
"""RFC 5424."""

IIS: Final = W3C(
    "iis",
    "date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) cs(Referer) "
    "sc-status sc-substatus sc-win32-status time-taken",
)
"""learn.microsoft.com, "W3C Logging": the fields that IIS logs by default. Others: ``w3c:FIELDS``."""

CLOUDFRONT: Final = W3C(
    "cloudfront",
    "date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent) "
    "cs-uri-query cs(Cookie) x-edge-result-type x-edge-request-id x-host-header cs-protocol cs-bytes time-taken "
    "x-forwarded-for ssl-protocol ssl-cipher x-edge-response-result-type cs-protocol-version fle-status "
    "fle-encrypted-fields c-port time-to-first-byte x-edge-detailed-result-type sc-content-type sc-content-len "
    "sc-range-start sc-range-end",
)
"""docs.aws.amazon.com, "Standard logs" of CloudFront."""

_CLIENT: Final = ("X-Forwarded-For", "X-Real-Ip", "Forwarded", "True-Client-Ip", "Cf-Connecting-Ip")
"""Headers in which proxies say whose request it was."""

CADDY: Final = Nested(
    "caddy",
    (
        Named("ts", "ts", "timestamp"),
        Named(
            *("c_ip", "request.remote_ip"),
            also=(
                *("request.client_ip", "request.remote_addr", "common_log"),  # the last two up to Caddy 2.4
                *(f"request.headers.{name}" for name in _CLIENT),
            ),
        ),
        Named("c_port", "request.remote_port", "bigint"),
        Named("cs_username", "user_id", also=("common_log",)),
        Named("cs_method", "request.method"),
        Named("cs_uri_stem", "request.uri", part="stem"),
        Named("cs_uri_query", "request.uri", part="query", also=("common_log",)),
        Named("cs_version", "request.proto"),
        Named("cs_host", "request.host"),
        Named("sc_status", "status", "bigint"),
        Named("sc_bytes", "size", "bigint"),
        Named("request_time", "duration", "double"),
        Named("cs_referer", "request.headers.Referer", part="first"),
        Named("cs_user_agent", "request.headers.User-Agent", part="first"),
    ),
    frozenset({"logger", "request", "duration", "status", "size"}),
)
"""caddyserver.com, "How Logging Works"."""

TRAEFIK: Final = Nested(
    "traefik",
    (
        Named("ts", "StartUTC", "timestamp"),
        Named("c_ip", "ClientHost", also=("ClientAddr", *(f"request_{name}" for name in _CLIENT))),
        Named("c_port", "ClientPort", "bigint"),
        Named("cs_username", "ClientUsername"),
        Named("cs_method", "RequestMethod"),
        Named("cs_uri_stem", "RequestPath", part="stem"),
        Named("cs_uri_query", "RequestPath", part="query", also=("RequestLine",)),
        Named("cs_version", "RequestProtocol"),
        Named("cs_host", "RequestHost"),
        Named("sc_status", "DownstreamStatus", "bigint"),
        Named("sc_bytes", "DownstreamContentSize", "bigint"),
        Named("request_time", "Duration", "double", unit=1_000_000_000),
        Named("cs_referer", "request_Referer"),
        Named("cs_user_agent", "request_User-Agent"),
    ),
    frozenset({"DownstreamStatus", "ClientHost", "StartUTC"}),
)
"""doc.traefik.io, "Access Logs", in JSON."""

PRESETS: Final = (
    VHOST_COMBINED, NGINX_ERROR, APACHE_ERROR, HAPROXY, AWS_ALB, AWS_ELB, AWS_S3, ENVOY, SQUID, CLOUDFRONT, IIS, SYSLOG5424,
    SYSLOG, CADDY, TRAEFIK,
)  # fmt: skip
"""The more particular first."""
