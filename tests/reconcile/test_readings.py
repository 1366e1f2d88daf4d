"""Status and route are parsed once per object that the stores hold."""

import copy
from datetime import timedelta
from typing import Any

from tests.builders import NAME, NAMESPACE, NOW, UID, a_status, some_words
from tests.reconcile.test_gather import KEY, a_thing, stores_with

from speculative_operator.cluster.resources import CONFIG_MAP
from speculative_operator.desired import names
from speculative_operator.readings import Readings
from speculative_operator.rollout.times import stamp


def a_parent() -> dict[str, Any]:
    status = a_status(stable=some_words()).model_dump(mode="json", by_alias=True, exclude_none=True)
    return {"metadata": {"name": NAME, "namespace": NAMESPACE}, "status": status}


def test_the_same_object_is_read_once_and_another_one_anew() -> None:
    parent, readings = a_parent(), Readings()
    first = readings.status(KEY, parent)
    assert readings.status(KEY, parent) is first
    edited = copy.deepcopy(parent)
    edited["status"]["message"] = "another"
    assert readings.status(KEY, edited).message == "another"
    assert readings.status(KEY, parent).message == first.message


def test_a_garbled_time_is_replaced_in_every_reading() -> None:
    parent, readings = a_parent(), Readings()
    parent["status"]["stable"]["availableAt"] = "garbled"
    for now in (NOW, NOW + timedelta(seconds=1)):
        stable = readings.healed(KEY, parent, now).stable
        assert stable is not None
        assert stable.available_at == stamp(now)


def test_a_sound_status_is_looked_through_again_once_the_clock_went_back() -> None:
    parent, readings = a_parent(), Readings()
    assert readings.healed(KEY, parent, NOW) is readings.healed(KEY, parent, NOW)
    early = NOW - timedelta(days=1)
    stable = readings.healed(KEY, parent, early).stable
    assert stable is not None
    assert stable.available_at == stamp(early)


def test_what_is_gone_is_forgotten() -> None:
    parent, readings = a_parent(), Readings()
    first = readings.status(KEY, parent)
    readings.forget(KEY)
    assert readings.status(KEY, parent) is not first


def test_route_of_another_owner_or_of_no_shape_is_none() -> None:
    name = names.route(NAME)
    garbled = stores_with((CONFIG_MAP, a_thing(name, data={"route.json": "{"})))[CONFIG_MAP.kind]
    foreign = stores_with((CONFIG_MAP, a_thing(name, uid="uid-other")))[CONFIG_MAP.kind]
    assert Readings().route(KEY, garbled, UID) is None
    assert Readings().route(KEY, foreign, UID) is None
