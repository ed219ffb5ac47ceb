"""Those who wait for the same thing keep their order."""

from orbitmq.client.producer.send_engine import SingleFlight


def test_nobody_waits_so_nobody_is_joined() -> None:
    assert not SingleFlight().join("a", lambda: None)


def test_all_go_on_in_the_order_in_which_they_came() -> None:
    flights, seen = SingleFlight(), []
    flights.begin("a")
    for number in range(5):
        assert flights.join("a", lambda number=number: seen.append(number))

    flights.end("a")

    assert seen == [0, 1, 2, 3, 4]
    assert not flights.join("a", lambda: None)


def test_when_one_has_to_wait_again_the_rest_stays_behind_it() -> None:
    flights, seen = SingleFlight(), []

    def step(number: int) -> None:
        if not flights.join("a", lambda: step(number)):
            if not seen and number == 0 and not failed:
                failed.append(True)
                flights.begin("a")
                return
            seen.append(number)

    failed: list[bool] = []
    flights.begin("a")
    for number in range(3):
        flights.join("a", lambda number=number: step(number))

    flights.end("a")
    assert seen == []
    flights.end("a")

    assert seen == [1, 2]  # 0 was the one that waited; it goes on by itself
