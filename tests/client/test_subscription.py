"""Tag expressions and the exact check behind the broker's filter by hash."""

import pytest

from orbitmq.client.consumer.subscription import Sql, parse_tags, sql, subscription, wanted
from orbitmq.client.core.message import ReceivedMessage
from orbitmq.errors import InvalidMessageError, Sql92SyntaxError
from orbitmq.format.java_hash import java_hash
from orbitmq.wire.bodies.heartbeat import HeartbeatData


def message(**properties: str) -> ReceivedMessage:
    return ReceivedMessage("T", b"", "b", 0, 0, 0, properties, 0, 0, "", "", "")


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        pytest.param("*", [], id="everything"),
        pytest.param("", [], id="empty"),
        pytest.param("TagA", ["TagA"], id="one"),
        pytest.param("TagA || TagB", ["TagA", "TagB"], id="two"),
        pytest.param("TagB||TagA", ["TagB", "TagA"], id="no blanks"),
        pytest.param(" TagA ||  || TagA ", ["TagA"], id="empty parts and repetitions"),
        pytest.param("测试 || a b", ["测试", "a b"], id="not ASCII, blanks inside"),
    ],
)
def test_an_expression_is_tags_between_bars(expression, tags):
    assert parse_tags(expression) == tags


def test_an_expression_of_bars_only_is_refused():
    with pytest.raises(InvalidMessageError, match="no tag"):
        parse_tags(" || ")


def test_a_subscription_is_what_java_sends():
    # java-json/push-consumer: the heartbeat of a consumer of "TagA || TagB".
    expected = (
        b'{"classFilterMode":false,"codeSet":[2598919,2598920],"expressionType":"TAG",'
        b'"subString":"TagA || TagB","subVersion":1794769684043,"tagsSet":["TagA","TagB"],'
        b'"topic":"GwPushJ"}'
    )

    assert subscription("GwPushJ", "TagA || TagB", 1794769684043).encode() == expected


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_everything_has_no_tags(expression):
    made = subscription("T", expression, 1)

    assert (made.sub_string, made.tags_set, made.code_set) == ("*", [], [])


def test_hashes_are_those_of_java():
    assert subscription("T", "测试", 1).code_set == [903146]


def test_of_two_tags_with_the_same_hash_only_the_one_asked_for_is_kept():
    assert java_hash("Aa") == java_hash("BB")
    came = [message(TAGS="Aa"), message(TAGS="BB"), message(TAGS="Aa")]

    kept = wanted(came, subscription("T", "Aa", 1))

    assert [one.tag for one in kept] == ["Aa", "Aa"]


def test_without_tags_everything_is_kept_but_fillers():
    came = [message(TAGS="x"), message(), message(ORBITMQ_FILLER="1")]

    assert wanted(came, subscription("T", "*", 1)) == came[:2]


def test_a_message_without_tag_is_not_wanted_by_a_tag_expression():
    assert wanted([message()], subscription("T", "TagA", 1)) == []


def test_an_sql_filter_is_left_to_the_broker():
    made = subscription("T", sql("a > 3"), 1)

    assert (made.expression_type, made.sub_string) == ("SQL92", "a > 3")
    assert len(wanted([message(TAGS="x")], made)) == 1


def test_an_sql_filter_that_cannot_be_compiled_is_refused_before_a_broker_is_asked():
    with pytest.raises(Sql92SyntaxError, match="character 4"):
        sql("a >")


def test_an_empty_sql_filter_is_refused():
    with pytest.raises(InvalidMessageError):
        sql("  ")


def test_a_subscription_survives_the_way_through_a_heartbeat():
    made = subscription("T", Sql("a = 'x'"), 7)
    raw = (
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":['
        + made.encode()
        + b"]}]}"
    )

    assert HeartbeatData.decode(raw).consumer_data_set[0].subscription_data_set == [made]
