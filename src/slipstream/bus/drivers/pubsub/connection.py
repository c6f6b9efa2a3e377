"""The way to Pub/Sub: credentials, project, channels, and Google's clients on them."""

from __future__ import annotations

import os
from typing import Any

import google.auth
import grpc
import msgspec
from google.api_core.exceptions import PermissionDenied
from google.api_core.retry import Retry
from google.auth.exceptions import DefaultCredentialsError
from google.cloud.pubsub_v1 import PublisherClient, SubscriberClient
from google.cloud.pubsub_v1.types import PublisherOptions
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from slipstream.bus.drivers.pubsub.errors import GOOGLE_ERRORS, bus_error, is_passing
from slipstream.bus.errors import BusUnavailable, InvalidArgument, Unauthorized
from slipstream.bus.settings import BusSettings

LOCAL_PROJECT = "local"

_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_metadata_size", 4 << 20),
    ("grpc.keepalive_time_ms", 30_000),
    # gRPC would wait up to two minutes between its attempts, and so as long after the engine has come back.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 3_000),
]
"""The first four are those of Google's clients."""


class PubSubNative(msgspec.Struct, frozen=True):
    """Google's own clients, connected as the bus is."""

    publisher: PublisherClient
    subscriber: SubscriberClient
    project: str

    def topic_path(self, topic: str) -> str:
        return f"projects/{self.project}/topics/{topic}"

    def subscription_path(self, subscription: str) -> str:
        return f"projects/{self.project}/subscriptions/{subscription}"

    @property
    def publisher_channel(self) -> Any:
        return self.publisher.transport.grpc_channel

    @property
    def subscriber_channel(self) -> Any:
        return self.subscriber.transport.grpc_channel

    def close(self) -> None:
        self.publisher.transport.close()
        self.subscriber.transport.close()


def connect(settings: BusSettings) -> PubSubNative:
    """Does not try whether anybody answers: `probe` does. Google's clients are given their channels, because they
    would look at PUBSUB_EMULATOR_HOST by themselves, and the settings have the last word."""
    if settings.pubsub_emulator_host:
        project = settings.pubsub_project or LOCAL_PROJECT
        host = settings.pubsub_emulator_host
        channels = [grpc.insecure_channel(host, options=_OPTIONS) for _ in range(2)]
    else:
        credentials, default_project = _credentials()
        project = settings.pubsub_project or default_project
        if not project:
            raise InvalidArgument("the credentials name no project: set GOOGLE_CLOUD_PROJECT")
        host = PublisherGrpcTransport.DEFAULT_HOST
        channels = [
            transport.create_channel(host, credentials=credentials, options=_OPTIONS)
            for transport in (PublisherGrpcTransport, SubscriberGrpcTransport)
        ]
    return PubSubNative(
        PublisherClient(
            publisher_options=PublisherOptions(enable_message_ordering=True),
            transport=PublisherGrpcTransport(host=host, channel=channels[0]),
        ),
        SubscriberClient(transport=SubscriberGrpcTransport(host=host, channel=channels[1])),
        project,
    )


def _credentials() -> tuple[Any, str]:
    try:
        credentials, project = google.auth.default(scopes=PublisherGrpcTransport.AUTH_SCOPES)
    except DefaultCredentialsError as error:
        if path := os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
            raise Unauthorized(f"GOOGLE_APPLICATION_CREDENTIALS={path}: {error}") from error
        raise Unauthorized(
            "there are no Google credentials here: run `gcloud auth application-default login`, or set "
            "GOOGLE_APPLICATION_CREDENTIALS to the file of a service account; or set PUBSUB_EMULATOR_HOST"
        ) from error
    return credentials, project or ""


def probe(native: PubSubNative, timeout_s: float) -> None:
    """Returns when the engine has answered anything: who may publish need not be allowed to list topics."""
    tries = Retry(predicate=is_passing, initial=0.05, maximum=0.5, timeout=timeout_s)
    try:
        native.publisher.list_topics(
            request={"project": f"projects/{native.project}", "page_size": 1}, retry=tries, timeout=timeout_s
        )
    except PermissionDenied:
        return
    except GOOGLE_ERRORS as error:
        failure = bus_error(error, f"Pub/Sub does not answer at {native.publisher.target}")
        if isinstance(failure, BusUnavailable):
            raise failure from error
        raise BusUnavailable(str(failure)) from error
