"""Lines as web servers and what stands around them write them, after their public documents, and what each
line says: the same requests, drawn from a seed, in forty formats."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Value: TypeAlias = "str | int | float | dt.datetime | None"
UTC = dt.UTC
NOW = dt.datetime.now(UTC).replace(tzinfo=None)


@dataclass(frozen=True)
class Hit:
    """A request, and how it went."""

    at: dt.datetime
    ip: str
    port: int
    user: str
    method: str
    stem: str
    query: str | None
    version: str
    status: int
    size: int
    referer: str
    agent: str
    ms: int
    host: str
    upstreams: tuple[tuple[str, int, float], ...]
    number: int

    @property
    def uri(self) -> str:
        return self.stem + ("" if self.query is None else f"?{self.query}")

    @property
    def request(self) -> str:
        return f"{self.method} {self.uri} {self.version}"

    @property
    def seconds(self) -> float:
        return self.ms / 1000

    def time(self, form: str) -> str:
        return self.at.strftime(form)

    def listed(self, place: int) -> str:
        """One thing of all upstream servers, as nginx has it."""
        return ", ".join(str(one[place]) if place < 2 else f"{one[2]:.3f}" for one in self.upstreams) or "-"


AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/128.0",
    "curl/8.5.0",
    "-",
    "Googlebot/2.1 (+x)",
)


def hits(count: int, seed: int = 1) -> list[Hit]:
    rng = random.Random(seed)
    start = dt.datetime(NOW.year, NOW.month, 1, 1, 2, 3) - dt.timedelta(days=40)
    made = []
    for number in range(count):
        upstreams = tuple(
            (f"10.0.0.{rng.randrange(9)}:8080", rng.choice([200, 502]), rng.randrange(1, 900) / 1000)
            for _ in range(rng.choice([0, 1, 1, 1, 2]))
        )
        made.append(
            Hit(
                at=start + dt.timedelta(seconds=number * 7),
                ip=rng.choice(["192.0.2.7", "198.51.100.23", "2001:db8::17", "203.0.113.9"]),
                port=rng.randrange(1024, 65536),
                user=rng.choice(["-", "-", "-", "ann"]),
                method=rng.choice(["GET", "GET", "POST", "HEAD"]),
                stem=rng.choice(["/", "/cart", "/img/logo.png", "/a/b/c.html"]),
                query=rng.choice([None, None, "id=7", "q=a%20b&x=1"]),
                version=rng.choice(["HTTP/1.1", "HTTP/2.0"]),
                status=rng.choice([200, 200, 200, 301, 404, 500]),
                size=rng.randrange(100_000),
                referer=rng.choice(["-", "https://shop.example/", "https://x.example/?a=b c"]),
                agent=rng.choice(AGENTS),
                ms=rng.randrange(1, 5000),
                host=rng.choice(["shop.example", "www.example"]),
                upstreams=upstreams,
                number=number,
            )
        )
    return made


Expected: TypeAlias = "dict[str, Value]"


@dataclass(frozen=True)
class Written:
    """A format in the world. ``format``: what elf calls it; ``told``: whether elf is told so (no format that
    a user makes up can be known without its text)."""

    name: str
    format: str
    line: Callable[[Hit], str]
    says: Callable[[Hit], Expected]
    told: bool = False
    head: tuple[str, ...] = ()
    event_time: str | None = "ts"
    others: Mapping[str, Value] = field(default_factory=dict)


def _none(text: str) -> str | None:
    return None if text in ("-", "") else text


def access(hit: Hit) -> Expected:
    """What every access log says."""
    return {
        "ts": hit.at, "c_ip": hit.ip, "cs_username": _none(hit.user), **requested(hit), "sc_status": hit.status,
        "sc_bytes": hit.size,
    }  # fmt: skip


def requested(hit: Hit) -> Expected:
    return {
        "cs_method": hit.method, "cs_uri_stem": hit.stem, "cs_uri_query": hit.query, "cs_version": hit.version,
        "cs_request": hit.request,
    }  # fmt: skip


def browsed(hit: Hit) -> Expected:
    return {**access(hit), "cs_referer": _none(hit.referer), "cs_user_agent": _none(hit.agent)}


NO_HOST: Expected = {"cs_host": None, "s_port": None}
NO_BROWSER: Expected = {"cs_referer": None, "cs_user_agent": None}


def _common(hit: Hit, user: str = "") -> str:
    return f'{hit.ip} - {hit.user} [{hit.time("%d/%b/%Y:%H:%M:%S +0000")}] "{hit.request}" {hit.status} {hit.size}'


def _combined(hit: Hit) -> str:
    return f'{_common(hit)} "{hit.referer}" "{hit.agent}"'


MAIN = '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"'
TIMED = MAIN + " rt=$request_time uct=$upstream_connect_time urt=$upstream_response_time"


def _last(hit: Hit, place: int) -> Value:
    return hit.upstreams[-1][place] if hit.upstreams else None


def _upstream_time(hit: Hit, name: str) -> Expected:
    value = hit.upstreams[-1][2] if hit.upstreams else None
    return {name: value, f"{name}_list": _none(hit.listed(2))}


def _json_line(hit: Hit, **more: object) -> str:
    return json.dumps(
        {"time": hit.time("%Y-%m-%dT%H:%M:%S+00:00"), "status": hit.status, "path": hit.uri, **more}
    )


def _caddy(hit: Hit) -> str:
    request = {
        "remote_ip": hit.ip, "remote_port": str(hit.port), "proto": hit.version, "method": hit.method,
        "host": hit.host, "uri": hit.uri, "headers": {"User-Agent": [hit.agent], "Referer": [hit.referer]},
    }  # fmt: skip
    record = {
        "level": "info", "ts": hit.at.replace(tzinfo=UTC).timestamp(), "logger": "http.log.access",
        "msg": "handled request", "request": request, "user_id": "" if hit.user == "-" else hit.user,
        "duration": hit.seconds, "size": hit.size, "status": hit.status,
    }  # fmt: skip
    return json.dumps(record, separators=(",", ":"))


def _structured(hit: Hit) -> Expected:
    """What servers that write JSON say of a request, without its first line."""
    found = {**browsed(hit), "c_port": hit.port, "cs_host": hit.host, "request_time": hit.seconds}
    del found["cs_request"]
    return found


def _caddy_says(hit: Hit) -> Expected:
    agent = {"cs_user_agent": hit.agent, "cs_referer": hit.referer}
    return {
        **_structured(hit),
        **agent,
        "level": "info",
        "logger": "http.log.access",
        "msg": "handled request",
    }


def _traefik(hit: Hit) -> str:
    record = {
        "ClientHost": hit.ip, "ClientPort": str(hit.port), "ClientUsername": hit.user,
        "DownstreamContentSize": hit.size, "DownstreamStatus": hit.status, "Duration": hit.ms * 1_000_000,
        "RequestHost": hit.host, "RequestMethod": hit.method, "RequestPath": hit.uri,
        "RequestProtocol": hit.version, "StartUTC": hit.time("%Y-%m-%dT%H:%M:%S.000Z"), "RouterName": "web@file",
        "level": "info", "request_User-Agent": hit.agent, "request_Referer": hit.referer,
    }  # fmt: skip
    return json.dumps(record)


def _traefik_says(hit: Hit) -> Expected:
    own: Expected = {"cs_username": hit.user, "cs_user_agent": hit.agent, "cs_referer": hit.referer}
    return {**_structured(hit), **own, "RouterName": "web@file", "level": "info"}


def _haproxy(hit: Hit) -> str:
    return (
        f"{hit.ip}:{hit.port} [{hit.time('%d/%b/%Y:%H:%M:%S')}.250] http-in~ static/srv1 "
        f"10/0/30/69/{hit.ms} {hit.status} {hit.size} - - ---- 1/1/1/1/0 0/0 "
        f'{{{hit.host}|x}} {{}} "{hit.request}"'
    )


def _haproxy_says(hit: Hit) -> Expected:
    return {
        "header": None, "pid": None, "c_ip": hit.ip, "c_port": hit.port, "ts": hit.at + dt.timedelta(milliseconds=250),
        "frontend": "http-in~", "backend": "static", "server": "srv1", "client_ms": 10, "queue_ms": 0,
        "connect_ms": 30, "response_ms": 69, "request_time": hit.seconds, "sc_status": hit.status,
        "sc_bytes": hit.size, "request_cookie": None, "response_cookie": None, "termination_state": "----",
        "actconn": 1, "feconn": 1, "beconn": 1, "srvconn": 1, "retries": 0, "server_queue": 0, "backend_queue": 0,
        "request_headers": f"{hit.host}|x", "response_headers": None, **requested(hit),
    }  # fmt: skip


def _elb(hit: Hit) -> str:
    target = hit.upstreams[-1][0] if hit.upstreams else "-"
    return (
        f"{hit.time('%Y-%m-%dT%H:%M:%S.186641Z')} app/shop/50dc {hit.ip}:{hit.port} {target} 0.001 {hit.seconds} 0.000 "
        f'{hit.status} {hit.status} 34 {hit.size} "{hit.method} https://{hit.host}:443{hit.uri} {hit.version}" '
        f'"{hit.agent}" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2'
    )


def _elb_says(hit: Hit) -> Expected:
    url = f"https://{hit.host}:443{hit.stem}"
    request = f"{hit.method} https://{hit.host}:443{hit.uri} {hit.version}"
    return {
        "ts": hit.at + dt.timedelta(microseconds=186641), "elb": "app/shop/50dc", "c_ip": hit.ip, "c_port": hit.port,
        "target": _last(hit, 0), "request_processing_time": 0.001, "target_processing_time": hit.seconds,
        "response_processing_time": 0.0, "sc_status": hit.status, "target_status": hit.status, "bytes_received": 34,
        "sc_bytes": hit.size, **requested(hit), "cs_uri_stem": url, "cs_request": request,
        "cs_user_agent": _none(hit.agent), "ssl_cipher": "ECDHE-RSA-AES128-GCM-SHA256", "ssl_protocol": "TLSv1.2",
    }  # fmt: skip


_ALB_MORE = (
    ' arn:aws:tg/t "Root=1-58-2" "shop.example" "session-reused" 1 2026-01-02T03:04:05.000006Z "waf,forward" "-" "-" '
    '"10.0.0.1:80" "200" "-" "-"'
)
_ALB_SAYS: Expected = {
    "target_group_arn": "arn:aws:tg/t", "trace_id": "Root=1-58-2", "domain_name": "shop.example",
    "chosen_cert_arn": "session-reused", "rule_priority": 1,
    "request_creation_time": dt.datetime(2026, 1, 2, 3, 4, 5, 6), "actions_executed": "waf,forward",
    "redirect_url": None, "error_reason": None, "target_list": "10.0.0.1:80", "target_status_list": "200",
    "classification": None, "classification_reason": None,
}  # fmt: skip


def _s3(hit: Hit) -> str:
    return (
        f'79a5 shop [{hit.time("%d/%b/%Y:%H:%M:%S +0000")}] {hit.ip} - 3E57 REST.GET.OBJECT img/a.png "{hit.request}" '
        f'{hit.status} - {hit.size} 113 {hit.ms} 70 "{hit.referer}" "{hit.agent}" - s9lz SigV4 TLS-AES AuthHeader '
        f"{hit.host} TLSv1.2 - -"
    )


def _s3_says(hit: Hit) -> Expected:
    found = browsed(hit)
    del found["cs_username"]
    return found | {
        "bucket_owner": "79a5", "bucket": "shop", "requester": None, "request_id": "3E57",
        "operation": "REST.GET.OBJECT", "key": "img/a.png", "error_code": None, "object_size": 113,
        "request_time": hit.seconds, "turn_around_ms": 70, "version_id": None, "host_id": "s9lz",
        "signature_version": "SigV4", "ssl_cipher": "TLS-AES", "authentication_type": "AuthHeader",
        "cs_host": hit.host, "ssl_protocol": "TLSv1.2", "access_point_arn": None, "acl_required": None,
    }  # fmt: skip


def _plus(text: str) -> str:
    return text.replace(" ", "+")


def _iis(hit: Hit) -> str:
    return (
        f"{hit.time('%Y-%m-%d %H:%M:%S')} 10.0.0.4 {hit.method} {hit.stem} {hit.query or '-'} 443 {hit.user} {hit.ip} "
        f"{_plus(hit.agent)} {_plus(hit.referer)} {hit.status} 0 64 {hit.ms}"
    )


def _iis_says(hit: Hit) -> Expected:
    return {
        "ts": hit.at, "s_ip": "10.0.0.4", "cs_method": hit.method, "cs_uri_stem": hit.stem, "cs_uri_query": hit.query,
        "s_port": 443, "cs_username": _none(hit.user), "c_ip": hit.ip, "cs_user_agent": _none(_plus(hit.agent)),
        "cs_referer": _none(_plus(hit.referer)), "sc_status": hit.status, "sc_substatus": 0, "sc_win32_status": 64,
        "request_time": hit.seconds,
    }  # fmt: skip


IIS_HEAD = (
    "#Software: Microsoft Internet Information Services 10.0",
    "#Version: 1.0",
    "#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) cs(Referer) "
    "sc-status sc-substatus sc-win32-status time-taken",
)
OWN_HEAD = ("#Fields: date time c-ip cs-method cs-uri-stem sc-status sc-bytes time-taken cs(Cookie)",)
CLOUDFRONT_HEAD = (
    "#Version: 1.0",
    "#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) "
    "cs(User-Agent) cs-uri-query time-taken",
)


def _cloudfront(hit: Hit) -> str:
    return "\t".join(
        [
            hit.time("%Y-%m-%d\t%H:%M:%S"), "FRA2", str(hit.size), hit.ip, hit.method, hit.host, hit.stem,
            str(hit.status), hit.referer.replace(" ", "%20"), hit.agent.replace(" ", "%20"), hit.query or "-",
            f"{hit.seconds:.3f}",
        ]
    )  # fmt: skip


def _cloudfront_says(hit: Hit) -> Expected:
    return {
        "ts": hit.at, "x_edge_location": "FRA2", "sc_bytes": hit.size, "c_ip": hit.ip, "cs_method": hit.method,
        "cs_host": hit.host, "cs_uri_stem": hit.stem, "sc_status": hit.status,
        "cs_referer": _none(hit.referer.replace(" ", "%20")), "cs_user_agent": _none(hit.agent.replace(" ", "%20")),
        "cs_uri_query": hit.query, "request_time": hit.seconds,
    }  # fmt: skip


def _squid(hit: Hit) -> str:
    at = hit.at.replace(tzinfo=UTC).timestamp()
    return (
        f"{at:.3f} {hit.ms:6} {hit.ip} TCP_MISS/{hit.status} {hit.size} {hit.method} http://{hit.host}{hit.stem} "
        f"{hit.user} HIER_DIRECT/192.0.2.1 text/html; charset=utf-8"
    )


def _squid_says(hit: Hit) -> Expected:
    return {
        "ts": hit.at, "request_time": hit.seconds, "c_ip": hit.ip, "cache_result": "TCP_MISS", "sc_status": hit.status,
        "sc_bytes": hit.size, "cs_method": hit.method, "cs_uri_stem": f"http://{hit.host}{hit.stem}",
        "cs_username": _none(hit.user), "hierarchy": "HIER_DIRECT", "peer": "192.0.2.1",
        "content_type": "text/html; charset=utf-8",
    }  # fmt: skip


def _nginx_error(hit: Hit) -> str:
    more = "" if not hit.upstreams else f', upstream: "http://{hit.upstreams[0][0]}{hit.uri}"'
    return (
        f'{hit.time("%Y/%m/%d %H:%M:%S")} [error] 31#7: *{hit.number} open() "/srv{hit.stem}" failed (2: No such file), '
        f'client: {hit.ip}, server: {hit.host}, request: "{hit.request}"{more}, host: "{hit.host}"'
    )


def _nginx_error_says(hit: Hit) -> Expected:
    return {
        "ts": hit.at, "level": "error", "pid": 31, "tid": 7, "connection": hit.number, **requested(hit),
        "message": f'open() "/srv{hit.stem}" failed (2: No such file)', "c_ip": hit.ip, "server": hit.host,
        "subrequest": None, "upstream": f"http://{hit.upstreams[0][0]}{hit.uri}" if hit.upstreams else None,
        "cs_host": hit.host, "cs_referer": None,
    }  # fmt: skip


def _apache_error(hit: Hit) -> str:
    return (
        f"[{hit.time('%a %b %d %H:%M:%S.123456 %Y')}] [core:error] [pid 35:tid 43] [client {hit.ip}:{hit.port}] "
        f"AH00126: Invalid URI in request {hit.method} {hit.stem}"
    )


def _apache_error_says(hit: Hit) -> Expected:
    return {
        "ts": hit.at + dt.timedelta(microseconds=123456), "module": "core", "level": "error", "pid": 35, "tid": 43,
        "c_ip": hit.ip, "c_port": hit.port, "code": "AH00126",
        "message": f"Invalid URI in request {hit.method} {hit.stem}", "cs_referer": None,
    }  # fmt: skip


def _envoy(hit: Hit) -> str:
    return (
        f'[{hit.time("%Y-%m-%dT%H:%M:%S.016Z")}] "{hit.request}" {hit.status} - 0 {hit.size} {hit.ms} 13 "-" '
        f'"{hit.agent}" "cc21-9f" "{hit.host}" "10.0.35.28:80"'
    )


def _envoy_says(hit: Hit) -> Expected:
    return {
        "ts": hit.at + dt.timedelta(milliseconds=16), **requested(hit), "sc_status": hit.status, "response_flags": None,
        "response_code_details": None, "termination_details": None, "upstream_failure": None, "bytes_received": 0,
        "sc_bytes": hit.size, "request_time": hit.seconds, "upstream_ms": 13, "x_forwarded_for": None,
        "cs_user_agent": _none(hit.agent), "request_id": "cc21-9f", "cs_host": hit.host, "upstream_host": "10.0.35.28:80",
    }  # fmt: skip


def _pairs(hit: Hit) -> str:
    return (
        f'time={hit.time("%Y-%m-%dT%H:%M:%SZ")} level=info msg="handled {hit.stem} = done" method={hit.method} '
        f'path="{hit.uri}" status={hit.status} bytes={hit.size} duration={hit.seconds} referer="{hit.referer}"'
    )


def _pairs_say(hit: Hit) -> Expected:
    return {
        "time": hit.at, "level": "info", "msg": f"handled {hit.stem} = done", "method": hit.method, "path": hit.uri,
        "status": hit.status, "bytes": hit.size, "duration": hit.seconds, "referer": _none(hit.referer),
    }  # fmt: skip


def _heroku(hit: Hit) -> str:
    return (
        f"at=info ts={hit.time('%Y-%m-%dT%H:%M:%S.000000+00:00')} method={hit.method} path={hit.stem} host={hit.host} "
        f"fwd={hit.ip} dyno=web.1 connect=1 service={hit.ms} status={hit.status} bytes={hit.size} protocol=https"
    )


def _heroku_says(hit: Hit) -> Expected:
    return {
        "at": "info", "ts": hit.at, "method": hit.method, "path": hit.stem, "host": hit.host, "fwd": hit.ip,
        "dyno": "web.1", "connect": 1, "service": hit.ms, "status": hit.status, "bytes": hit.size, "protocol": "https",
    }  # fmt: skip


def _row(separator: str) -> Callable[[Hit], str]:
    def row(hit: Hit) -> str:
        agent = '"' + hit.agent.replace("Gecko", '""Gecko""') + f'{separator} x"'
        return separator.join(
            [hit.time("%Y-%m-%d %H:%M:%S"), hit.ip, hit.stem, str(hit.status), str(hit.seconds), agent]
        )

    return row


def _row_says(separator: str) -> Callable[[Hit], Expected]:
    def says(hit: Hit) -> Expected:
        return {
            "time": hit.at, "client": hit.ip, "path": hit.stem, "status": hit.status, "seconds": hit.seconds,
            "agent": hit.agent.replace("Gecko", '"Gecko"') + f"{separator} x",
        }  # fmt: skip

    return says


def _header(separator: str) -> str:
    return separator.join(("time", "client", "path", "status", "seconds", "agent"))


def _combined_says(hit: Hit) -> Expected:
    return {**browsed(hit), **NO_HOST}


FORMATS: tuple[Written, ...] = (
    Written("Apache combined", "combined", _combined, _combined_says),
    Written("common log format", "common", _common, lambda h: {**access(h), **NO_HOST, **NO_BROWSER}),
    Written(
        "Apache vhost_combined, Debian", "combined", lambda h: f"{h.host}:443 {_combined(h)}",
        lambda h: {**browsed(h), "cs_host": h.host, "s_port": 443},
    ),
    Written(
        "Apache vhost_combined, told", "vhost_combined", lambda h: f"{h.host}:443 {_combined(h)}",
        lambda h: {
            "cs_host": h.host, "s_port": 443, **{k: v for k, v in browsed(h).items() if k != "sc_bytes"},
            "bytes_sent": h.size, "remote_logname": None,
        },
        told=True,
    ),
    Written(
        "combined and X-Forwarded-For (nginx main)", "combined", lambda h: f'{_combined(h)} "{h.ip}, 10.1.1.1"',
        lambda h: {**browsed(h), **NO_HOST, "extra_1": f"{h.ip}, 10.1.1.1"},
    ),
    Written(
        "combined and request_time", "combined", lambda h: f"{_combined(h)} {h.seconds}",
        lambda h: {**browsed(h), **NO_HOST, "extra_1": h.seconds},
    ),
    Written(
        "Kubernetes' ingress-nginx", "combined",
        lambda h: f"{_combined(h)} {h.number} {h.seconds} [shop-web-80] [] 10.0.0.1:80 {h.size} {h.seconds} {h.status} f00",
        lambda h: {
            **browsed(h), **NO_HOST, "extra_1": h.number, "extra_2": h.seconds, "extra_3": "[shop-web-80]",
            "extra_4": "[]", "extra_5": "10.0.0.1:80", "extra_6": h.size, "extra_7": h.seconds, "extra_8": h.status,
            "extra_9": "f00",
        },
    ),
    Written(
        "Traefik, common log format", "combined", lambda h: f'{_combined(h)} {h.number} "web@file" "http://10.0.0.1" {h.ms}ms',
        lambda h: {
            **browsed(h), **NO_HOST, "extra_1": h.number, "extra_2": "web@file", "extra_3": "http://10.0.0.1",
            "extra_4": f"{h.ms}ms",
        },
    ),
    Written("nginx main, told", MAIN, _combined, browsed, told=True),
    Written(
        "nginx with times of upstreams", TIMED,
        lambda h: f"{_combined(h)} rt={h.seconds:.3f} uct={h.listed(2)} urt={h.listed(2)}",
        lambda h: {
            **browsed(h), "request_time": h.seconds, **_upstream_time(h, "upstream_connect_time"),
            **_upstream_time(h, "upstream_response_time"),
        },
        told=True,
    ),
    Written(
        "nginx, all of upstreams", "$msec $remote_addr:$remote_port $host \"$request_method $uri\" $status $upstream_addr $upstream_status $pipe",
        lambda h: f'{h.at.replace(tzinfo=UTC).timestamp():.3f} {h.ip}:{h.port} {h.host} "{h.method} {h.stem}" {h.status} '
        f"{h.listed(0)} {h.listed(1)} .",
        lambda h: {
            "ts": h.at, "c_ip": h.ip, "c_port": h.port, "cs_host": h.host, "cs_method": h.method, "cs_uri_stem": h.stem,
            "sc_status": h.status, "upstream_addr": _none(h.listed(0)), "upstream_status": _last(h, 1),
            "upstream_status_list": _none(h.listed(1)), "pipe": ".",
        },
        told=True,
    ),
    Written(
        "nginx, bars", "log_format bars '$time_iso8601|$remote_addr|$request_uri|' '$status|$request_time|$http_user_agent|$http_x_id';",
        lambda h: f"{h.time('%Y-%m-%dT%H:%M:%S+00:00')}|{h.ip}|{h.uri}|{h.status}|{h.seconds}|{h.agent}|x{h.number}",
        lambda h: {
            "ts": h.at, "c_ip": h.ip, "cs_uri_stem": h.stem, "cs_uri_query": h.query, "sc_status": h.status,
            "request_time": h.seconds, "cs_user_agent": _none(h.agent), "http_x_id": f"x{h.number}",
        },
        told=True,
    ),
    Written(
        "nginx, JSON by hand",
        'escape=json {"time":"$time_iso8601","addr":"$remote_addr","user":"$remote_user","status":$status,"agent":"$http_user_agent"}',
        lambda h: f'{{"time":"{h.time("%Y-%m-%dT%H:%M:%S+00:00")}","addr":"{h.ip}","user":"","status":{h.status},"agent":"a \\"{h.number}\\""}}',
        lambda h: {
            "ts": h.at, "c_ip": h.ip, "cs_username": None, "sc_status": h.status, "cs_user_agent": f'a \\"{h.number}\\"',
        },
        told=True,
    ),
    Written(
        "nginx, tabs", "$time_local\t$remote_addr\t$request\t$status\t$body_bytes_sent\t$host",
        lambda h: f"{h.time('%d/%b/%Y:%H:%M:%S +0000')}\t{h.ip}\t{h.request}\t{h.status}\t{h.size}\t{h.host}",
        lambda h: {**{k: v for k, v in access(h).items() if k != "cs_username"}, "cs_host": h.host},
        told=True,
    ),
    Written(
        "Apache with times", r'LogFormat "%h %l %u %t \"%r\" %>s %b \"%{Referer}i\" \"%{User-Agent}i\" %D %{ms}T %v" timed',
        lambda h: f"{_combined(h)} {h.ms * 1000} {h.ms} {h.host}",
        lambda h: {
            **browsed(h), "remote_logname": None, "request_time": h.seconds, "request_time_s": h.seconds,
            "cs_host": h.host,
        },
        told=True,
    ),
    Written(
        "Apache, mod_ssl", '%t %h %{SSL_PROTOCOL}x %{SSL_CIPHER}x "%r" %b',
        lambda h: f'[{h.time("%d/%b/%Y:%H:%M:%S +0000")}] {h.ip} TLSv1.3 AES "{h.request}" {h.size}',
        lambda h: {
            "ts": h.at, "c_ip": h.ip, "ssl_ssl_protocol": "TLSv1.3", "ssl_ssl_cipher": "AES", **requested(h),
            "sc_bytes": h.size,
        },
        told=True,
    ),
    Written(
        "Apache, %{…}t", "%{%Y-%m-%dT%H:%M:%S%z}t %a %m %U %q %s %I %O",
        lambda h: f"{h.time('%Y-%m-%dT%H:%M:%S+0000')} {h.ip} {h.method} {h.stem} ?x={h.number} {h.status} 10 {h.size}",
        lambda h: {
            "ts": h.at, "c_ip": h.ip, "cs_method": h.method, "cs_uri_stem": h.stem, "cs_uri_query": f"x={h.number}",
            "sc_status": h.status, "bytes_received": 10, "bytes_sent": h.size,
        },
        told=True,
    ),
    Written("nginx error log", "nginx_error", _nginx_error, _nginx_error_says),
    Written("Apache error log", "apache_error", _apache_error, _apache_error_says),
    Written("HAProxy HTTP log", "haproxy", _haproxy, _haproxy_says),
    Written(
        "HAProxy behind syslog", "haproxy", lambda h: f"{h.time('%b %e %H:%M:%S')} lb1 haproxy[14389]: {_haproxy(h)}",
        lambda h: {**_haproxy_says(h), "pid": 14389, "header": f"{h.time('%b %e %H:%M:%S')} lb1"},
    ),
    Written(
        "AWS ALB", "aws_alb", lambda h: f"https {_elb(h)}{_ALB_MORE} TID_12",
        lambda h: {"type": "https", **_elb_says(h), **_ALB_SAYS, "conn_trace_id": "TID_12"},
    ),
    Written(
        "AWS ALB of 2018", "aws_alb", lambda h: f"h2 {_elb(h)}{_ALB_MORE}".removesuffix(' "10.0.0.1:80" "200" "-" "-"'),
        lambda h: {
            "type": "h2", **_elb_says(h), **_ALB_SAYS, "conn_trace_id": None, "target_list": None,
            "target_status_list": None,
        },
    ),
    Written("AWS Classic ELB", "aws_elb", _elb, _elb_says),
    Written("AWS S3", "aws_s3", _s3, _s3_says),
    Written("Envoy", "envoy", _envoy, _envoy_says),
    Written(
        "Istio", "envoy", lambda h: _envoy(h).replace(" - 0 ", ' - via_upstream - "-" 0 ', 1),
        lambda h: {**_envoy_says(h), "response_code_details": "via_upstream"},
    ),
    Written("squid", "squid", _squid, _squid_says),
    Written("IIS", "iis", _iis, _iis_says, head=IIS_HEAD),
    Written(
        "W3C, fields of one's own", f"w3c:{OWN_HEAD[0].removeprefix('#Fields: ')}",
        lambda h: f"{h.time('%Y-%m-%d %H:%M:%S')} {h.ip} {h.method} {h.stem} {h.status} {h.size} {h.ms} -",
        lambda h: {
            "ts": h.at, "c_ip": h.ip, "cs_method": h.method, "cs_uri_stem": h.stem, "sc_status": h.status,
            "sc_bytes": h.size, "request_time": h.seconds, "cs_cookie": None,
        },
        head=OWN_HEAD,
    ),
    Written(
        "CloudFront", f"w3c:{CLOUDFRONT_HEAD[1].removeprefix('#Fields: ')}", _cloudfront, _cloudfront_says,
        head=CLOUDFRONT_HEAD,
    ),
    Written("Caddy", "caddy", _caddy, _caddy_says),
    Written("Traefik, JSON", "traefik", _traefik, _traefik_says),
    Written(
        "JSON of one's own", "json", _json_line,
        lambda h: {"time": h.at, "status": h.status, "path": h.uri}, event_time="time",
    ),
    Written("logfmt of Go's slog", "logfmt", _pairs, _pairs_say, event_time="time"),
    Written("Heroku's router, logfmt", "logfmt", _heroku, _heroku_says),
    Written(
        "syslog, RFC 3164", "syslog", lambda h: f"<34>{h.time('%b %e %H:%M:%S')} web1 su[{h.port}]: 'su root' failed: {h.stem}",
        lambda h: {
            "pri": 34, "ts": h.at, "host": "web1", "app": "su", "procid": str(h.port),
            "message": f"'su root' failed: {h.stem}",
        },
    ),
    Written(
        "syslog as rsyslog writes files", "syslog",
        lambda h: f"{h.time('%Y-%m-%dT%H:%M:%S.000123+00:00')} web1 CRON[{h.port}]: (root) CMD ({h.stem})",
        lambda h: {
            "pri": None, "ts": h.at + dt.timedelta(microseconds=123), "host": "web1", "app": "CRON",
            "procid": str(h.port), "message": f"(root) CMD ({h.stem})",
        },
    ),
    Written(
        "syslog, RFC 5424", "syslog5424",
        lambda h: f'<165>1 {h.time("%Y-%m-%dT%H:%M:%S.003Z")} web1 evntslog - ID47 [ex@32473 iut="3" a="b]c"][x@1] it {h.stem}',
        lambda h: {
            "pri": 165, "version": 1, "ts": h.at + dt.timedelta(milliseconds=3), "host": "web1", "app": "evntslog",
            "procid": None, "msgid": "ID47", "structured_data": '[ex@32473 iut="3" a="b]c"][x@1]',
            "message": f"it {h.stem}",
        },
    ),
    Written("CSV", f"csv:{_header(',')}", _row(","), _row_says(","), head=(_header(","),), event_time="time"),
    Written("CSV with semicolons", f"csv:{_header(';')}", _row(";"), _row_says(";"), head=(_header(";"),), event_time="time"),
    Written(
        "a pattern of one's own", r"regex:(?<time>\S+) (?P<who>[^ ]+) -> (?<status>[0-9]+) in (?<seconds>[0-9.]+)s",
        lambda h: f"{h.time('%Y-%m-%dT%H:%M:%SZ')} {h.ip} -> {h.status} in {h.seconds}s",
        lambda h: {"time": h.at, "who": h.ip, "status": h.status, "seconds": h.seconds},
        told=True, event_time="time",
    ),
)  # fmt: skip
"""Formats in the world."""


_PIECES = (
    "",
    " ",
    "-",
    '"',
    "\\",
    '\\"',
    "[",
    "]",
    "\t",
    "=",
    ",",
    '""',
    "x",
    "9",
    "{",
    "}",
    "é",
    "  ",
    "|",
    ":",
)


def spoilt(rng: random.Random, line: str) -> str:
    """With a piece of it in a wrong place, missing, twice, or in place of another."""
    at, end = sorted(rng.randrange(len(line) + 1) for _ in range(2))
    end = min(end, at + 6)
    return line[:at] + rng.choice([*_PIECES, line[at:end] * 2]) + line[end:]
