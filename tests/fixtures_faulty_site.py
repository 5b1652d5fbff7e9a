"""A site with planted faults, one a page, and sound pages that look suspicious. What each fault must be called is beside it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.fixtures_release import WebServer

HEAD = "<!doctype html><title>x</title><link rel=icon href='data:,'>"
PAGE = HEAD + "<p>Bonjour</p>"
# A picture of one pixel, and what a server sends in its place when its storage is gone.
GIF = bytes.fromhex("47494638396101000100800000ff0000ffffff21f90400000000002c00000000010001000002024401003b")
FIRST_BYTE_SECONDS, PAGE_BYTES = 1.0, 300_000


@dataclass(frozen=True)
class Fault:
    """One kind: the page it is planted on, and words that the report must say of it, by level."""

    kind: str
    http: str = ""
    browser: str = ""

    @property
    def route(self) -> str:
        """Where it is."""
        return f"/{self.kind.replace(' ', '-')}"


FAULTS = (
    Fault("server error", "answered 500 Internal Server Error", "answered 500 Internal Server Error in the browser"),
    Fault("not found", "answered 404 Not Found", "answered 404 Not Found in the browser"),
    Fault("redirect loop", "redirects more than 5 times", "ERR_TOO_MANY_REDIRECTS"),
    Fault("redirect away", "redirects to another host: elsewhere.example", "leaves the site for another host"),
    Fault("script leaves", browser="leaves the site for another host: elsewhere.example"),
    Fault("script error", browser="JavaScript error on /script-error: ReferenceError: calculer is not defined (at /script-error:2:"),
    Fault("rejection", browser="JavaScript error on /rejection: TypeError: no data"),
    Fault("console error", browser="Console error on /console-error: menu missing"),
    Fault("missing asset", browser="GET /gone.js on /missing-asset answered 404 Not Found"),
    Fault("failing call", browser="GET /api on /failing-call answered 503 Service Unavailable"),
    Fault("broken image", browser="image /storage.gif on /broken-image is broken"),
    Fault("asset of a wrong type", browser="MIME type"),
    Fault("blank", browser="is blank: nothing can be seen"),
    Fault("blank on a phone", browser="is blank at the width of a phone"),
    Fault("empty", "with an empty body", "is blank"),
    Fault("endless loop", browser="did not finish loading within"),
    Fault("hanging", "did not answer in time", "did not finish loading within"),
    Fault("hanging asset", browser="still loading: /hangs.png"),
    Fault("slow", "is slow: its first byte took more than 1 s"),
    Fault("huge", "is huge: its document has more than 300000 bytes"),
    Fault("cut off", "broke off the answer", "/cut-off"),
    Fault("dialog", browser="opens a dialog by itself (alert): Bienvenue"),
    Fault("login", "the page needs a login", "answered 401 Unauthorized in the browser"),
    Fault("policy", browser="breaks its own Content-Security-Policy"),
    Fault("hydration error", browser="Hydration error on /hydration-error"),
    Fault("wrong content type", "is an HTML page served as text/plain"),
    Fault("download", browser="answered with a download in place of a page"),
)  # fmt: skip
SOUND = ("/plain", "/noise", "/drawn-by-a-script", "/polling", "/pictures")


def plant(web: WebServer, other: WebServer) -> None:
    """The faults and the sound pages on ``web``; ``other`` is a third party that the tenant allows as ``localhost``."""
    _plant_answers(web)
    _plant_scripts(web)
    third = other.base_url.replace("127.0.0.1", "localhost")
    other.page("/chat.js", "console.error('chat: no operator'); throw new Error('chat')", kind="text/javascript")
    web.page("/plain", HEAD + "<h1>Bonjour</h1><p>Une page.</p>")
    web.page(
        "/noise",
        PAGE + f"<script src='{third}/chat.js'></script><script src='https://stats.example/a.js'></script>"
        "<script>fetch('https://stats.example/visit'); new WebSocket('wss://live.example/');"
        "console.warn('deprecated')</script><iframe src='https://video.example/embed/1'></iframe>",
    )
    web.page(
        "/drawn-by-a-script",
        HEAD + "<div id=app></div><script>setTimeout(() => app.innerHTML = '<h1>Bonjour</h1>', 700)</script>",
    )
    web.page(
        "/polling", PAGE + "<script>onload = () => { setInterval(() => fetch('/poll'), 50); fetch('/hangs') }</script>"
    )
    web.page("/poll", "1", kind="text/plain")
    web.page("/hangs", hangs=True)
    web.page(
        "/pictures",
        HEAD
        + "<svg width=90 height=90><circle r=40 cx=45 cy=45 /></svg><img src='/one.gif'><img src='/drawn.svg' width=50>"
        "<img loading=lazy src='/one.gif' style='margin-top:9000px'><img src='https://pixel.example/1.gif' width=20 height=20>",
    )
    web.page("/one.gif", GIF, kind="image/gif")
    web.page("/drawn.svg", "<svg xmlns='http://www.w3.org/2000/svg'><path d='M0 0h9v9z'/></svg>", kind="image/svg+xml")


def _plant_answers(web: WebServer) -> None:
    web.page("/server-error", PAGE, status=500)
    web.page("/not-found", PAGE, status=404)
    web.redirect("/redirect-loop", "/redirect-loop")
    web.redirect("/redirect-away", "http://elsewhere.example/")
    web.page("/empty", "")
    web.page("/hanging", hangs=True)
    web.page("/slow", PAGE)
    web.before["/slow"] = lambda: time.sleep(FIRST_BYTE_SECONDS + 0.2)
    web.page("/huge", PAGE + "<!-- " + "x" * PAGE_BYTES + " -->")
    web.page("/cut-off", PAGE, breaks_off=True)
    web.page("/login", "who?", status=401)
    web.page("/wrong-content-type", PAGE, kind="text/plain")
    web.page("/download", b"PK", kind="application/zip", headers={"Content-Disposition": "attachment"})
    web.page("/api", "down", status=503)
    web.page("/storage.gif", "<Error>AccessDenied</Error>", kind="image/gif")
    web.page("/lib.js", PAGE, headers={"X-Content-Type-Options": "nosniff"})
    web.page("/hangs.png", hangs=True)


def _plant_scripts(web: WebServer) -> None:
    pages = {
        "/script-leaves": "<script>location = 'http://elsewhere.example/'</script>",
        "/script-error": "\n<script>calculer()</script>",
        "/rejection": "<script>setTimeout(() => Promise.reject(new TypeError('no data')), 20)</script>",
        "/console-error": "<script>console.error('menu missing')</script>",
        "/missing-asset": "<script src='/gone.js'></script>",
        "/failing-call": "<script>fetch('/api')</script>",
        "/broken-image": "<img src='/storage.gif' width=40 height=40>",
        "/asset-of-a-wrong-type": "<script src='/lib.js'></script>",
        "/blank-on-a-phone": "<style>@media (max-width: 600px) { body { display: none } }</style>",
        "/endless-loop": "<script>while (true) {}</script>",
        "/hanging-asset": "<img src='/hangs.png'>",
        "/dialog": "<script>alert('Bienvenue')</script>",
        "/hydration-error": '<script>console.error(\'Warning: Text content did not match. Server: "a" Client: "b"\')</script>',
        "/hydration-warning": "<script>console.warn('[Vue warn]: Hydration node mismatch')</script>",
        "/minified-hydration-error": "<script>throw new Error('Minified React error #418; visit https://react.dev/')</script>",
    }
    for route, fault in pages.items():
        web.page(route, PAGE + fault)
    web.page("/blank", HEAD + "<p style='display:none'>x</p>")
    web.page("/policy", PAGE + "<script>1</script>", headers={"Content-Security-Policy": "script-src 'self'"})
