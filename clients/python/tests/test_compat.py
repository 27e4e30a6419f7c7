"""A newer gateway, whose answers have fields, enum values, reasons and events that this package version does not know."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.message import Message

import limber
from limber import errors
from limber._gen.google.rpc import error_details_pb2, status_pb2
from limber._gen.limber.v1 import inference_service_pb2
from limber.sim import WheeledBase
from limber.testing import FakeGateway

#: Field 29,000 with three bytes, which is in no schema.
UNKNOWN = bytes([0xC2, 0x94, 0x0E, 3, 1, 2, 3])
UNKNOWN_VALUE = 9_999


def newer(message: Message) -> Message:
    """Adds an unknown field to every nested message, and replaces enum values by unknown ones."""
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        if field.is_repeated:
            if field.message_type is not None:
                for each in getattr(message, field.name):
                    newer(each)
            elif field.enum_type is not None:
                getattr(message, field.name).append(UNKNOWN_VALUE)
        elif field.message_type is not None:
            if message.HasField(field.name):
                newer(getattr(message, field.name))
        elif field.enum_type is not None and field.containing_oneof is None:
            setattr(message, field.name, UNKNOWN_VALUE)
    message.MergeFromString(UNKNOWN)
    return message


class Tomorrow(FakeGateway):
    """The fake gateway of a newer version."""

    def Act(self, request: Any, context: Any) -> Any:
        return newer(super().Act(request, context))

    def Ground(self, request: Any, context: Any) -> Any:
        return newer(super().Ground(request, context))

    def PreviewRoutes(self, request: Any, context: Any) -> Any:
        return newer(super().PreviewRoutes(request, context))

    def ListModels(self, request: Any, context: Any) -> Any:
        return newer(super().ListModels(request, context))

    def StopRobots(self, request: Any, context: Any) -> Any:
        return newer(super().StopRobots(request, context))

    def PredictStream(self, request: Any, context: Any) -> Iterator[Any]:
        for each in super().PredictStream(request, context):
            yield newer(each)
            yield inference_service_pb2.PredictStreamResponse.FromString(UNKNOWN)

    def ActStream(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        for each in super().ActStream(requests, context):
            yield newer(each)
            yield inference_service_pb2.ActStreamResponse.FromString(UNKNOWN)


@pytest.fixture
def later() -> Iterator[tuple[FakeGateway, limber.Limber]]:
    with Tomorrow() as gateway, limber.Limber(gateway.url, gateway.key) as client:
        yield gateway, client


def test_answers_of_a_newer_gateway_are_read(later: tuple[FakeGateway, limber.Limber]) -> None:
    gateway, client = later
    chunk = client.act(gateway.model, [0.0, 1.0], action_space="base_twist_2d", horizon=4)
    assert chunk.steps.shape == (4, 2)
    assert client.ground({"images": {"front": np.zeros((8, 8, 3), np.uint8)}}, "the square").points[0].x == 0.5
    assert client.preview(gateway.model, action_space="base_twist_2d").entries
    assert [model.id for model in client.models()] == [gateway.model]
    assert client.stop("arm", reason="a test").subject == "arm"


def test_a_stream_ignores_unknown_events(later: tuple[FakeGateway, limber.Limber]) -> None:
    gateway, client = later
    frames = list(client.predict(gateway.model, {"images": {"front": np.zeros((8, 8, 3), np.uint8)}}, horizon=3))
    assert [frame.index for frame in frames] == [0, 1, 2]


def test_a_loop_ignores_unknown_events(later: tuple[FakeGateway, limber.Limber]) -> None:
    gateway, client = later
    gateway.hold("late", 2)
    base = WheeledBase()
    begun = time.monotonic()
    with client.loop(gateway.model, action_space="base_twist_2d", rate_hz=50, hold=base.hold) as loop:
        outcome = loop.run(lambda: None if loop.stats.actions >= 20 and time.monotonic() > begun else base.observe(), base.step, max_seconds=30)
    assert outcome.ended == "done" and outcome.stats.actions >= 20 and outcome.stats.stale_actions == 0
    assert base.stands


class Refusing(FakeGateway):
    """Refuses with a reason that is in no current schema."""

    def Act(self, request: Any, context: Any) -> Any:
        info = error_details_pb2.ErrorInfo(reason="of_the_year_after", domain="limber", metadata={"request_id": "req_1"})
        status = status_pb2.Status(code=9, message="the test says no")
        for name, detail in (("google.rpc.ErrorInfo", info), ("limber.v1.OfTheYearAfter", info)):
            status.details.add(type_url=f"type.googleapis.com/{name}", value=newer(detail).SerializeToString())
        context.set_trailing_metadata((("grpc-status-details-bin", newer(status).SerializeToString()),))
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, status.message)


def test_an_unknown_reason_raises_a_refusal_with_its_word() -> None:
    with Refusing() as gateway, limber.Limber(gateway.url, gateway.key) as client, pytest.raises(errors.Refused, match="the test says no") as caught:
        client.act(gateway.model, [0.0], action_space="base_twist_2d")
    assert type(caught.value) is errors.Refused
    assert (caught.value.unknown_code, caught.value.retryable, caught.value.request_id) == ("of_the_year_after", False, "req_1")


def test_the_appended_field_is_in_no_schema() -> None:
    status = status_pb2.Status.FromString(UNKNOWN)
    assert status.ByteSize() == len(UNKNOWN) and not status.ListFields()
