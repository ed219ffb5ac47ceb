"""Those who wait for the same thing keep their order."""

from orbitmq.client.producer.lines import Lines


def test_nobody_waits_so_nobody_is_joined() -> None:
    assert not Lines().joined("a", lambda: None)


def test_all_go_on_in_the_order_in_which_they_came() -> None:
    lines, seen = Lines(), []
    lines.begin("a")
    for number in range(5):
        assert lines.joined("a", lambda number=number: seen.append(number))

    lines.end("a")

    assert seen == [0, 1, 2, 3, 4]
    assert not lines.joined("a", lambda: None)


def test_when_one_has_to_wait_again_the_rest_stays_behind_it() -> None:
    lines, seen = Lines(), []

    def step(number: int) -> None:
        if not lines.joined("a", lambda: step(number)):
            if not seen and number == 0 and not failed:
                failed.append(True)
                lines.begin("a")
                return
            seen.append(number)

    failed: list[bool] = []
    lines.begin("a")
    for number in range(3):
        lines.joined("a", lambda number=number: step(number))

    lines.end("a")
    assert seen == []
    lines.end("a")

    assert seen == [1, 2]  # 0 was the one that waited; it goes on by itself
