"""What the console counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slipstream.metric_sets import MetricSets


class ConsoleMetrics:
    """One set a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "console_requests",
            "Answers of the console, by the path that was asked for and the class of status, such as 2xx",
            ["route", "status"],
            registry=registry,
        )
        self.watching = Gauge("console_watching", "Pages that are open and follow the overview", registry=registry)
        self.questions = Counter(
            "console_questions",
            "Questions in SQL by what became of them: answered, or the code of the refusal",
            ["outcome"],
            registry=registry,
        )


metrics_in = MetricSets(ConsoleMetrics)


class CountedRequests:
    """Wraps an application that knows its routes: an id in a path is no label."""

    def __init__(self, app: ASGIApp, metrics: ConsoleMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "none")
                self._metrics.requests.labels(route, f"{message['status'] // 100}xx").inc()
            await send(message)

        await self._app(scope, receive, counted)
