from slipstream.broker import BrokerConfig, TopicConfig
from tests.broker.simulator import Simulator


def test_changed_settings_reach_old_topics_except_where_a_topic_has_its_own() -> None:
    sim = Simulator(BrokerConfig(topic=TopicConfig(max_in_flight=2)))
    sim.create("follows")
    sim.create("own", max_in_flight=7)
    sim.checkpoint()
    sim.create("later")
    sim.config = BrokerConfig(topic=TopicConfig(max_in_flight=99))
    sim.crash()
    limits = {name: topic.config.max_in_flight for name, topic in sim.broker.state.topics.items()}
    assert limits == {"follows": 99, "own": 7, "later": 99}


def test_dead_letters_take_over_what_was_set_for_their_topic_but_its_retries() -> None:
    sim = Simulator()
    sim.create("t", max_in_flight=7, retention_ms=5, retry={"max_attempts": 1})
    sim.attach()
    sim.produce()
    sim.nack(0)
    letters = sim.broker.state.topics["dlq.t"].config
    assert (letters.max_in_flight, letters.retention_ms) == (7, 5)
    assert letters.retry == sim.config.topic.retry
