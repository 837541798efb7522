import uvloop


def pytest_asyncio_loop_factories(config, item):
    """The product runs on uvloop, whose transports differ from asyncio's in small ways."""
    return {"uvloop": uvloop.new_event_loop}
