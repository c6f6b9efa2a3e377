"""Topics and subscriptions: looked up, and made where the settings say so. All of it blocks, and is called in threads.

Nothing is remembered of what exists: it may be deleted behind our back, and is asked for only at a start.
"""

from __future__ import annotations

import logging
import math
from typing import Any

from google.api_core.exceptions import AlreadyExists, BadRequest, Forbidden, NotFound
from google.protobuf.duration_pb2 import Duration
from google.pubsub_v1.types import ExpirationPolicy

from slipstream.bus.drivers.driver import TopicInfo
from slipstream.bus.drivers.pubsub.connection import PubSubNative
from slipstream.bus.drivers.pubsub.errors import GOOGLE_ERRORS, bus_error
from slipstream.bus.drivers.pubsub.names import KEEP, check_subscription, check_topic, subscription_name
from slipstream.bus.errors import InvalidArgument, TopicMissing, Unauthorized
from slipstream.bus.options import SubscribeOptions, seconds
from slipstream.bus.settings import DAY_MS, BusSettings

log = logging.getLogger(__name__)

LEASE_S_MIN, LEASE_S_MAX = 10, 600
"""What Pub/Sub takes as a subscription's deadline."""
RETENTION_MS_MIN, RETENTION_MS_MAX = 600_000, 7 * DAY_MS
"""Of subscriptions. Pub/Sub takes 31 days by now, its emulators 7."""
TOPIC_RETENTION_MS_MAX = 31 * DAY_MS
POLICY_ATTEMPTS_MIN, POLICY_ATTEMPTS_MAX = 5, 100

DELETED_TOPIC = "_deleted-topic_"
"""The topic of a subscription whose own was deleted. It gets nothing any more, even if the topic is made anew."""


class Subscriptions:
    def __init__(self, native: PubSubNative, settings: BusSettings) -> None:
        self._native = native
        self._publisher: Any = native.publisher
        self._subscriber: Any = native.subscriber
        self._settings = settings
        self._timeout_s = settings.connect_timeout_ms / 1000

    # Topics

    def make_topic(self, topic: str, retention_ms: int | None = None) -> bool:
        """Whether it was missing. A topic that keeps messages by itself, which costs money, is only made where that
        was asked for: subscriptions keep what is published."""
        check_topic(topic)
        request: dict[str, Any] = {"name": self._native.topic_path(topic)}
        if retention_ms is not None:
            request["message_retention_duration"] = _retention(retention_ms, TOPIC_RETENTION_MS_MAX)
        try:
            self._publisher.create_topic(request=request, timeout=self._timeout_s)
        except AlreadyExists:
            return False
        except GOOGLE_ERRORS as error:
            raise bus_error(error, f"topic {topic} was not created") from error
        log.info("pubsub: made topic %s", topic)
        return True

    def topic(self, topic: str) -> TopicInfo | None:
        """None where there is none."""
        check_topic(topic)
        try:
            found = self._publisher.get_topic(topic=self._native.topic_path(topic), timeout=self._timeout_s)
        except NotFound:
            return None
        except GOOGLE_ERRORS as error:
            raise bus_error(error, f"topic {topic} cannot be looked up") from error
        kept_for = found.message_retention_duration
        return TopicInfo(topic, 1, round(kept_for.total_seconds() * 1000) if kept_for else None, None)

    def adjust_topic(self, topic: str, retention_ms: int | None) -> TopicInfo:
        if retention_ms is not None:
            self._keep_for(topic, _retention(retention_ms, TOPIC_RETENTION_MS_MAX))
        found = self.topic(topic)
        if found is None:
            raise TopicMissing(f"there is no topic {topic} in project {self._native.project}")
        return found

    def _keep_for(self, topic: str, retention: Duration) -> None:
        check_topic(topic)
        request = {
            "topic": {"name": self._native.topic_path(topic), "message_retention_duration": retention},
            "update_mask": {"paths": ["message_retention_duration"]},
        }
        try:
            self._publisher.update_topic(request=request, timeout=self._timeout_s)
        except BadRequest as error:  # emulators know nothing of it
            log.warning("pubsub: how long topic %s keeps messages stays as it is: %s", topic, error)
        except GOOGLE_ERRORS as error:
            raise bus_error(error, f"topic {topic} was not changed") from error

    def topics(self, prefix: str) -> list[str]:
        start = self._native.topic_path("")
        try:
            found = self._publisher.list_topics(project=f"projects/{self._native.project}", timeout=self._timeout_s)
            names = [topic.name.removeprefix(start) for topic in found]
        except GOOGLE_ERRORS as error:
            raise bus_error(error, "the topics cannot be listed") from error
        return [name for name in names if name.startswith(prefix)]

    def of_topic(self, topic: str) -> list[str]:
        start = self._native.subscription_path("")
        try:
            found = self._publisher.list_topic_subscriptions(
                topic=self._native.topic_path(topic), timeout=self._timeout_s
            )
            return [path.removeprefix(start) for path in found]
        except GOOGLE_ERRORS as error:
            raise bus_error(error, f"the subscriptions of {topic} cannot be listed") from error

    def groups(self, topic: str) -> list[str]:
        """Return the groups that have a subscription; the one that keeps dead letters is no group of an application."""
        try:
            held_by = self.of_topic(topic)
        except TopicMissing:
            return []
        start = subscription_name(topic, "")
        groups = (name.removeprefix(start) for name in held_by if name.startswith(start))
        return sorted(group for group in groups if group != KEEP)

    def orphans(self, prefix: str) -> list[str]:
        """Subscriptions that look like ours and whose topic was deleted."""
        start = self._native.subscription_path("")
        try:
            found = self._subscriber.list_subscriptions(
                project=f"projects/{self._native.project}", timeout=self._timeout_s
            )
            names = [one.name.removeprefix(start) for one in found if one.topic == DELETED_TOPIC]
        except GOOGLE_ERRORS as error:
            raise bus_error(error, "the subscriptions cannot be listed") from error
        return [name for name in names if name.startswith(prefix)]

    # Subscriptions

    def join(self, topic: str, group: str, options: SubscribeOptions) -> str:
        """The whole name of the group's subscription, which is there when this returns; and so is the place for its
        dead letters."""
        check_topic(topic)
        check_subscription(topic, group)
        if options.dead_letter_topic:
            self._prepare_dead_letters(options.dead_letter_topic)
        name = subscription_name(topic, group)
        path = self._native.subscription_path(name)
        try:
            found = self._subscriber.get_subscription(subscription=path, timeout=self._timeout_s)
        except NotFound:
            self._make(topic, name, self._config(options), self._policy(options))
            return path
        except Forbidden:
            return path  # who may consume need not be allowed to look
        except GOOGLE_ERRORS as error:
            raise bus_error(error, f"subscription {name} cannot be looked up") from error
        self._check_attached(name, topic, found.topic)
        return path

    def _check_attached(self, name: str, topic: str, attached: str) -> None:
        if attached == DELETED_TOPIC:
            raise InvalidArgument(
                f"subscription {name} belongs to a topic that was deleted, and gets nothing any more: delete it, and "
                f"it will be made anew for {topic}"
            )
        if attached != self._native.topic_path(topic):
            raise InvalidArgument(
                f"there is a subscription {name}, of {attached} and not of {topic}: use another group, or delete it"
            )

    def _prepare_dead_letters(self, topic: str) -> None:
        """A topic without a subscription drops what is published to it: somebody has to hold the dead letters until
        somebody looks."""
        check_subscription(topic, KEEP)
        name = subscription_name(topic, KEEP)
        if self._settings.ensure:
            try:
                self._subscriber.get_subscription(
                    subscription=self._native.subscription_path(name), timeout=self._timeout_s
                )
            except NotFound:
                self._make(topic, name, self._config(SubscribeOptions()), None)
            except GOOGLE_ERRORS as error:
                raise bus_error(error, f"subscription {name} cannot be looked up") from error
            return
        try:
            is_there, held_by = self.topic(topic) is not None, self.of_topic(topic)
        except Unauthorized as error:  # who may consume need not be allowed to look
            log.warning("pubsub: whether anybody keeps the dead letters in %s is not known: %s", topic, error)
            return
        except TopicMissing:
            is_there, held_by = False, []
        if not is_there:
            raise TopicMissing(
                f"the dead-letter topic {topic} is missing, and BUS_ENSURE is false: create it, with a subscription "
                f"such as {name}, or what is published there is lost"
            )
        if not held_by:
            raise TopicMissing(
                f"the dead-letter topic {topic} has no subscription, so that dead letters would be lost, and "
                f"BUS_ENSURE is false: create one, such as {name}"
            )

    def _make(self, topic: str, name: str, config: dict[str, Any], policy: dict[str, Any] | None) -> None:
        if not self._settings.ensure:
            raise TopicMissing(
                f"there is no subscription {name}, and BUS_ENSURE is false: create it for topic {topic} in project "
                f"{self._native.project}, with message ordering"
            )
        if policy is not None:
            try:
                self.create(topic, name, {**config, "dead_letter_policy": policy})
            except (Forbidden, BadRequest) as error:
                log.warning("pubsub: subscription %s has no dead-letter policy of its own: %s", name, error)
            else:
                return
        try:
            self.create(topic, name, config)
        except GOOGLE_ERRORS as error:
            raise bus_error(error, f"subscription {name} of {topic} was not created") from error

    def create(self, topic: str, name: str, config: dict[str, Any]) -> None:
        """Raises what Google does."""
        request = {
            "name": self._native.subscription_path(name),
            "topic": self._native.topic_path(topic),
            **config,
        }
        for _ in range(2):
            try:
                self._subscriber.create_subscription(request=request, timeout=self._timeout_s)
            except AlreadyExists:
                return  # another was faster
            except NotFound:
                self.make_topic(topic)
            else:
                log.info("pubsub: made subscription %s of %s", name, topic)
                return
        raise NotFound(f"topic {topic} was created, and is not there")

    def delete(self, name: str) -> None:
        try:
            self._subscriber.delete_subscription(
                subscription=self._native.subscription_path(name), timeout=self._timeout_s
            )
        except NotFound:
            pass
        except GOOGLE_ERRORS as error:
            raise bus_error(error, f"subscription {name} was not deleted") from error

    def _config(self, options: SubscribeOptions) -> dict[str, Any]:
        return {
            "ack_deadline_seconds": lease_s(options),
            "enable_message_ordering": True,
            "message_retention_duration": _retention(self._settings.retention_ms),
            "expiration_policy": ExpirationPolicy(),  # never, where the default is 31 days without a consumer
        }

    def _policy(self, options: SubscribeOptions) -> dict[str, Any] | None:
        """A net for messages that kill whoever takes them, before anybody can count. The bus buries all others itself,
        well before that. Beside a policy, Pub/Sub counts attempts as well."""
        if not options.dead_letter_topic or not options.max_deliver:
            return None
        return {
            "dead_letter_topic": self._native.topic_path(options.dead_letter_topic),
            "max_delivery_attempts": max(POLICY_ATTEMPTS_MIN, min(POLICY_ATTEMPTS_MAX, options.max_deliver + 5)),
        }


def lease_s(options: SubscribeOptions) -> int:
    """As Pub/Sub takes it."""
    return max(LEASE_S_MIN, min(LEASE_S_MAX, math.ceil(seconds(options.ack_deadline))))


def _retention(retention_ms: int, longest_ms: int = RETENTION_MS_MAX) -> Duration:
    """0 is for ever, which is as long as it can be here."""
    return Duration(seconds=max(RETENTION_MS_MIN, min(longest_ms, retention_ms or longest_ms)) // 1000)
