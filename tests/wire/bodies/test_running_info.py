"""What consumers tell about themselves."""

from golden_frames import good_frames
from orbitmq.wire.bodies.running_info import ConsumerRunningInfo, DirectConsumeResult


def test_recorded_running_info_comes_back_byte_for_byte() -> None:
    bodies = [
        frame.command.body
        for frame in good_frames()
        if frame.request_code == 307 and frame.command.is_response and frame.command.body
    ]

    assert bodies
    for body in bodies:
        info = ConsumerRunningInfo.decode(body)
        assert info.mq_table
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert info.encode() == body


def test_result_of_consuming_directly_may_be_a_name_or_gos_number() -> None:
    named = DirectConsumeResult.decode(b'{"consumeResult":"CR_LATER","order":true}')
    numbered = DirectConsumeResult.decode(b'{"consumeResult":1,"spentTimeMills":"3"}')

    assert (named.consume_result, named.order) == ("CR_LATER", True)
    assert (numbered.consume_result, numbered.spent_time_mills) == (1, 3)
