"""Who writes for a prompt domain: asked of the own registry, or of the mother ship, which is the real one here where it can be."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
import uvicorn

from atlas_pipeline.errors import NotConfigured, Refused
from atlas_pipeline.flow import domains
from atlas_pipeline.flow.mother_ship import WINDOW_SECONDS, application
from tests.fixtures_flow import Bench


def test_a_house_without_a_mother_ship_asks_its_own_registry(bench: Bench) -> None:
    found = domains.agents_for(bench.parts, "contenu")
    assert (found.source, found.code) == ("local", None)
    assert found.codenames
    with pytest.raises(Refused):
        domains.agents_for(bench.parts, "cuisine")


def test_the_mother_ship_is_asked_with_a_signature_and_answers_for_the_tenant(bench: Bench) -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"agents": [{"codename": "plume"}, {"codename": "ton-juste"}]})

    house = bench.again(mother_ship_url="https://mother.example", mother_ship_secret="not-a-secret")
    found = domains.agents_for(house.parts, "faq", transport=httpx.MockTransport(answer))
    assert (found.codenames, found.source, found.code) == (("plume", "ton-juste"), "mother_ship", None)
    (request,) = seen
    moment = request.headers["X-Atlas-Time"]
    assert request.headers["X-Atlas-Signature"] == domains.signature("not-a-secret", "/api/agents?domain=faq", moment)
    assert domains.signature("other", "/api/agents?domain=faq", moment) != request.headers["X-Atlas-Signature"]
    assert "not-a-secret" not in str(request.headers) + str(request.url)


def timed_out(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadTimeout("slow", request=request)


def unreachable(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("down", request=request)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (lambda request: httpx.Response(403), "mother_ship_refused"),
        (lambda request: httpx.Response(200, text="<html>"), "mother_ship_answer_invalid"),
        (lambda request: httpx.Response(200, json=[]), "mother_ship_answer_invalid"),
        (lambda request: httpx.Response(200, json={"agents": [{"codename": "../x"}]}), "mother_ship_answer_invalid"),
        (
            lambda request: httpx.Response(200, text=json.dumps({"agents": []}) + " " * 2_000_000),
            "mother_ship_answer_invalid",
        ),
        (lambda request: httpx.Response(200, json={"agents": []}), "mother_ship_knows_none"),
        (timed_out, "mother_ship_timed_out"),
        (unreachable, "mother_ship_unreachable"),
    ],
)
def test_a_mother_ship_in_trouble_is_replaced_by_the_own_registry_with_a_code(
    bench: Bench, answer: httpx.MockTransport, code: str
) -> None:
    house = bench.again(mother_ship_url="https://mother.example", mother_ship_secret="not-a-secret")
    found = domains.agents_for(house.parts, "contenu", transport=httpx.MockTransport(answer))  # type: ignore[arg-type]
    assert (found.source, found.code) == ("local", code)
    assert found.codenames == domains.agents_for(bench.parts, "contenu").codenames


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"mother_ship_url": "https://mother.example"}, "mother_ship_secret_missing"),
        ({"mother_ship_url": "http://mother.example", "mother_ship_secret": "s"}, "mother_ship_url_not_https"),
        ({"mother_ship_url": "https://xn--/", "mother_ship_secret": "s"}, "mother_ship_url_invalid"),
    ],
)
def test_a_mother_ship_half_configured_is_not_asked(bench: Bench, values: dict[str, str], code: str) -> None:
    assert domains.agents_for(bench.again(**values).parts, "contenu").code == code


@pytest.mark.parametrize(
    "opening", [b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n", b"HTTP/1.1 200 OK\r\n"], ids=["body", "headers"]
)
def test_a_mother_ship_that_trickles_is_hung_up_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, opening: bytes
) -> None:
    """Each byte comes in time, and the whole never does."""
    monkeypatch.setattr(domains, "TIMEOUT_SECONDS", 0.6)
    done = threading.Event()

    def trickle(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer, contextlib.suppress(OSError):
            peer.sendall(opening)
            while not done.wait(0.1):
                peer.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=trickle, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        house = bench.again(mother_ship_url=url, mother_ship_secret="not-a-secret")
        begun = time.monotonic()
        assert domains.agents_for(house.parts, "faq").code == "mother_ship_timed_out"
        assert time.monotonic() - begun < 5
        done.set()
        thread.join()


# The mother ship
# ---------------

SECRET = "not-a-secret"
TARGET = "/api/agents?domain=faq"


@pytest.fixture
def mother_ship(bench: Bench) -> Iterator[str]:
    """A house that answers, on loopback; its address."""
    house = bench.again(mother_ship_secret="not-a-secret")
    config = uvicorn.Config(application(house.parts), host="127.0.0.1", port=0, log_level="warning", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    (port,) = {sock.getsockname()[1] for one in server.servers for sock in one.sockets}
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(10)


def ask(url: str, target: str = TARGET, *, secret: str = SECRET, at: str | None = None) -> httpx.Response:
    moment = str(int(time.time())) if at is None else at
    headers = {"X-Atlas-Time": moment, "X-Atlas-Signature": domains.signature(secret, target, moment)}
    return httpx.get(url + target, headers=headers)


def test_a_clients_own_house_is_answered_by_the_mother_ship(bench: Bench, mother_ship: str) -> None:
    """Both ends as they are: what one signs the other believes, what one prints the other reads."""
    tenants_house = bench.again(mother_ship_url=mother_ship, mother_ship_secret="not-a-secret")
    found = domains.agents_for(tenants_house.parts, "faq")
    assert (found.source, found.code) == ("mother_ship", None)
    assert found.codenames == domains.agents_for(bench.parts, "faq").codenames != ()
    told = ask(mother_ship).json()["agents"]
    assert set(told[0]) == {"codename", "nickname", "role", "role_en"}
    impostor = bench.again(mother_ship_url=mother_ship, mother_ship_secret="another")
    assert domains.agents_for(impostor.parts, "faq").code == "mother_ship_refused"


def test_a_question_that_is_not_signed_for_this_moment_and_this_route_is_refused(mother_ship: str) -> None:
    now = int(time.time())
    assert ask(mother_ship, at=str(now - WINDOW_SECONDS // 2)).status_code == 200
    refused = [
        httpx.get(mother_ship + TARGET),
        ask(mother_ship, secret="another"),
        ask(mother_ship, at=str(now - WINDOW_SECONDS - 5)),
        ask(mother_ship, at=str(now + WINDOW_SECONDS + 5)),
        ask(mother_ship, at=""),
        ask(mother_ship, at="-1"),
        ask(mother_ship, at="9" * 400),
        httpx.get(
            mother_ship + "/api/agents?domain=cover",
            headers={
                "X-Atlas-Time": str(now),
                "X-Atlas-Signature": domains.signature("not-a-secret", TARGET, str(now)),
            },
        ),
    ]
    assert [(one.status_code, one.json()) for one in refused] == [(401, {"error": "signature_invalid"})] * len(refused)


def test_a_signed_question_for_what_does_not_exist_gets_a_code(mother_ship: str) -> None:
    unknown = ask(mother_ship, "/api/agents?domain=cuisine")
    assert (unknown.status_code, unknown.json()) == (400, {"error": "domain_unknown"})
    assert ask(mother_ship, "/api/agents?").json() == {"error": "domain_unknown"}
    assert ask(mother_ship, "/api/others?domain=faq").status_code == 404
    assert httpx.post(mother_ship + TARGET).status_code == 405


def test_without_a_secret_nobody_is_answered(bench: Bench) -> None:
    with pytest.raises(NotConfigured, match="mother_ship_secret_missing"):
        application(bench.parts)
