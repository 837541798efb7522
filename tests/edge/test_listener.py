import asyncio
import errno
import logging
import socket

import pytest
from harness import until

from gateway.edge.listener import Listener


class Accepted(asyncio.Protocol):
    made: list["Accepted"]

    def __init__(self) -> None:
        self.made.append(self)
        self.transport = None

    def connection_made(self, transport) -> None:
        self.transport = transport


@pytest.fixture
async def listener():
    class Kind(Accepted):
        made = []

    it = Listener(Kind, asyncio.get_running_loop(), logging.getLogger("test"))
    it.made = Kind.made
    yield it
    it.close()
    for protocol in it.made:
        if protocol.transport is not None:
            protocol.transport.abort()


def dialled(address) -> socket.socket:
    sock = socket.socket()
    sock.connect(address)
    return sock


async def all_open(listener, count: int) -> None:
    async def opened():
        return sum(it.transport is not None for it in listener.made) == count

    await until(opened)


async def test_all_who_wait_are_accepted_in_one_turn_of_the_loop(listener, monkeypatch):
    await listener.open("127.0.0.1", 0)
    clients = [dialled(listener.address) for _ in range(100)]
    turns = 0
    accept = listener._accept

    def counted(sock):
        nonlocal turns
        turns += 1
        accept(sock)

    [sock] = listener._sockets
    asyncio.get_running_loop().add_reader(sock.fileno(), counted, sock)
    await all_open(listener, 100)
    assert turns <= 2
    for client in clients:
        client.close()


async def test_every_address_of_a_name_is_listened_on(listener, monkeypatch):
    loop = asyncio.get_running_loop()
    port = 0

    async def two(host, asked, **options):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{n}", asked)) for n in (1, 2, 1)]

    monkeypatch.setattr(listener, "_loop", Wrapped(loop, getaddrinfo=two))
    await listener.open("two.example", port)
    assert [it.getsockname()[0] for it in listener._sockets] == ["127.0.0.1", "127.0.0.2"]


@pytest.mark.parametrize(("others", "works"), [(["127.0.0.1"], True), ([], False)])
async def test_an_address_that_this_machine_has_not_is_passed_over_if_there_is_another(
    listener, monkeypatch, others, works
):
    async def found(host, port, **options):
        # Kept for documentation (RFC 5737): nobody has it.
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (it, port)) for it in ("192.0.2.1", *others)]

    monkeypatch.setattr(listener, "_loop", Wrapped(asyncio.get_running_loop(), getaddrinfo=found))
    if works:
        await listener.open("some.example", 0)
        assert listener.address[0] == "127.0.0.1"
    else:
        with pytest.raises(OSError, match=r"cannot listen on some\.example port 0: "):
            await listener.open("some.example", 0)


async def test_an_address_that_is_taken_is_named(listener):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1 port {port}: ") as raised:
            await listener.open("127.0.0.1", port)
    assert raised.value.errno == errno.EADDRINUSE
    assert listener._sockets == []


async def test_without_files_left_it_waits_and_goes_on(listener, caplog, monkeypatch):
    monkeypatch.setattr("gateway.edge.listener._BREATH_S", 0.01)
    await listener.open("127.0.0.1", 0)
    [sock] = listener._sockets

    class Exhausted:
        fileno = sock.fileno

        def accept(self):
            raise OSError(errno.EMFILE, "Too many open files")

    stand_in = Exhausted()
    listener._sockets.append(stand_in)
    listener._accept(stand_in)
    listener._sockets.remove(stand_in)
    assert "connections wait to be accepted" in caplog.text
    listener._resume(sock)
    with dialled(listener.address):
        await all_open(listener, 1)


async def test_who_has_gone_again_is_passed_over(listener):
    await listener.open("127.0.0.1", 0)
    [sock] = listener._sockets
    raised = iter([ConnectionAbortedError(), BlockingIOError()])

    class Aborted:
        fileno = sock.fileno

        def accept(self):
            raise next(raised)

    listener._accept(Aborted())
    assert list(raised) == []


async def test_once_closed_nobody_is_accepted(listener):
    await listener.open("127.0.0.1", 0)
    address = listener.address
    listener.close()
    with pytest.raises(ConnectionRefusedError):
        dialled(address)
    assert listener.made == []


class Wrapped:
    """A loop with some of its methods replaced."""

    def __init__(self, loop, **methods) -> None:
        self._loop = loop
        self.__dict__.update(methods)

    def __getattr__(self, name):
        return getattr(self._loop, name)
