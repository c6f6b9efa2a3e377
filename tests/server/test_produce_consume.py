from tests.server_process import ServerProcess


def test_a_message_is_delivered_with_its_place_and_attempt(server: ServerProcess) -> None:
    server.create("orders", 3)
    assert server.produce("orders", "hello", key="user:1").json() == {"status": "produced", "topic": "orders"}
    with server.consume("orders") as items:
        assert next(items) == {
            "partition": 1,
            "offset": 0,
            "attempts": 1,
            "key": "user:1",
            "value": "hello",
            "last_error": "",
        }
