"""Live sessions: the same answers as recomputing, from a memory of fixed size."""

import copy

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from tests.synthetic import cyclic_log

from marsrec import Recommender, TrainingSettings
from marsrec.data.batches import Batch
from marsrec.errors import DataError, SettingsError
from marsrec.nn.mixture import nodes
from marsrec.recommender.session import HEADER, FoldedEvents, LatestEvents

QUICK = TrainingSettings(epochs=1, targets_per_batch=256)
KINDS = {
    "gru4rec": ("gru4rec", {}),
    "mamba4rec": ("mamba4rec", {}),
    "mars-m": ("mars-m", {}),
    "mars-m, request clock": ("mars-m", {"readout.clock": "request"}),
    "mars-m, ages in events": ("mars-m", {"readout.real_time": False}),
    "mars-m, values": ("mars-m", {"readout.values": True}),
    "mars-m, steep heads": ("mars-m", {}),
    "mars-m, dense": ("mars-m", {"readout.form": "dense"}),
    "mars-t": ("mars-t", {}),
    "mars-t, linear time": ("mars-t", {"readout.time_scale": "linear", "readout.clock": "request"}),
}
START = 1_700_000_000


@pytest.fixture(scope="module", params=list(KINDS))
def recommender(request: pytest.FixtureRequest) -> Recommender:
    model, options = KINDS[request.param]
    fitted = Recommender(model, options={"dim": 16, "length": 50, **options}, training=QUICK)
    fitted.fit(cyclic_log(), progress=False)
    torch.manual_seed(0)
    with torch.no_grad():  # weights that tell events, times and heads apart
        for parameter in fitted.network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        fitted.network.items.weight[0] = 0
        if "steep" in request.param:  # half-lives of seconds, as trainings of hours come to on dense data
            fitted.network.readout.operator.raw_rates[:2] = torch.tensor([300.0, 3000.0])
    return fitted


def events(count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    gaps = np.exp(rng.uniform(0, 12, count)).astype(np.int64) * rng.integers(0, 2, count)  # ties, seconds, days
    return rng.integers(1, 21, count), START + gaps.cumsum()


def recomputed(recommender: Recommender, codes: np.ndarray, times: np.ndarray, now: int) -> torch.Tensor:
    items, moments = torch.from_numpy(codes)[None], torch.from_numpy(times)[None]
    asked = torch.full_like(moments, now)
    with torch.no_grad():
        return recommender.network(
            Batch(items, moments, torch.tensor([len(codes)]), torch.zeros_like(items), asked)
        ).users[0]


def closeness(recommender: Recommender) -> float:
    """How far a session's vector may be from the recomputed one: what the mixture may be off, where there is one."""
    return 2e-3 if recommender.settings.readout.name == "mars" and recommender.network.recurrent else 1e-5


def test_a_thousand_events_one_by_one_give_the_vectors_of_recomputing(recommender: Recommender) -> None:
    codes, times = events(1000)
    session = recommender.start()
    folded = isinstance(session.past, FoldedEvents)
    size = session.nbytes
    for index, (code, time) in enumerate(zip(codes, times, strict=True)):
        session.extend(np.array([code]), np.array([time]))
        if index in (0, 1, 49, 50, 51, 400, 999):
            start = 0 if folded else max(0, index + 1 - 50)
            expected = recomputed(recommender, codes[start : index + 1], times[start : index + 1], int(time))
            found = session.recommender.inference.vectors([session.past.view()], [int(time)])[0]
            torch.testing.assert_close(found, expected, rtol=0, atol=closeness(recommender))
    assert session.nbytes == size == len(session.to_bytes())
    held = sum(tensor.untyped_storage().nbytes() for tensor in session.past.tensors)
    assert held == size - HEADER.size - len(session.seen)  # nothing of the events is kept alive


def test_later_requests_equal_recomputing_at_that_time(recommender: Recommender) -> None:
    codes, times = events(40)
    session = recommender.start()
    session.extend(codes, times)
    for wait in (0, 60, 86_400, 10 * 365 * 86_400):
        now = int(times[-1]) + wait
        expected = recomputed(recommender, codes, times, now)
        found = session.recommender.inference.vectors([session.past.view()], [int(now)])[0]
        torch.testing.assert_close(found, expected, rtol=0, atol=closeness(recommender))


def test_ten_thousand_events_and_heads_as_steep_as_sessions_take_them() -> None:
    options = {"dim": 16, "length": 50, "readout.clock": "request", "readout.heads": 8}
    fitted = Recommender("mars-m", options=options, training=QUICK).fit(cyclic_log(), progress=False)
    operator, wanted = fitted.network.readout.operator, torch.tensor([0.05, 0.5, 3.0, 15.0, 60.0, 500.0, 3000.0, 12e3])
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in fitted.network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        fitted.network.items.weight[0] = 0
        operator.raw_temperatures.fill_(0)
        rates = wanted * (np.log(2) + 0.1)
        operator.raw_rates.copy_(rates + torch.log(-torch.expm1(-rates)))  # softplus undone
    torch.testing.assert_close(operator.base_rates(), wanted)
    codes, times = events(10_000)
    session = fitted.start()
    session.extend(codes, times)
    assert session.recurrent
    for wait in (0, 30, 3600, 30 * 86_400):
        now = int(times[-1]) + wait
        found, expected = (
            session.recommender.inference.vectors([session.past.view()], [int(now)])[0],
            recomputed(fitted, codes, times, now),
        )
        # What the weight of one event may be off by (docs/streaming.md): errors of both signs do not add up.
        torch.testing.assert_close(found, expected, rtol=0, atol=4.6e-4)


def test_a_session_answers_as_recommend_does(recommender: Recommender) -> None:
    history = [("i3", START), ("i7", START + 60), ("i1", START + 7200)]
    session = recommender.start(history[:1])
    assert all(session.add(item, time) for item, time in history[1:])
    live, whole = session.recommend(k=5), recommender.recommend(histories=history, k=5)
    assert live["item"].to_list() == whole["item"].to_list()
    assert np.allclose(live["score"], whole["score"], atol=1e-2)
    assert not set(live["item"]) & {"i1", "i3", "i7"}
    assert set(session.recommend(k=50, mask_seen=False)["item"]) >= {"i1", "i3", "i7"}
    assert session.recommend(k=5, candidates=["i2", "i1"])["item"].to_list() == ["i2"]


def test_bytes_carry_the_whole_session(recommender: Recommender) -> None:
    session = recommender.start("u1")
    session.add("i4", START)
    data = session.to_bytes()
    assert len(data) == session.nbytes == recommender.start().nbytes
    other = recommender.restore(data)
    for live in (session, other):
        live.add("i9", START + 500)
    assert other.recommend(k=20).equals(session.recommend(k=20))
    assert other.events == session.events == 14
    assert recommender.restore(memoryview(data)).events == 13
    assert "13 events" in repr(recommender.restore(data))


def test_bytes_of_another_model_or_damaged_ones_are_refused(recommender: Recommender) -> None:
    data = recommender.start("u1").to_bytes()
    with pytest.raises(DataError, match=rf"{len(data) - 1:,} bytes where {len(data):,} are due"):
        recommender.restore(data[:-1])
    for place in (24, 33, HEADER.size, HEADER.size + 3, len(data) - 1):  # checksum, time, seen items, memory
        damaged = bytearray(data)
        damaged[place] ^= 1
        with pytest.raises(DataError, match="this session is damaged"):
            recommender.restore(bytes(damaged))
    other = Recommender("sasrec", options={"length": 20}, training=QUICK).fit(cyclic_log(), progress=False)
    size = other.start().nbytes
    alike = data[:8] + bytes(8) + data[16:]
    with pytest.raises(DataError, match="belongs to another model"):
        recommender.restore(alike)
    with pytest.raises(DataError, match=f"where {size:,} are due"):
        other.restore(data)


def test_bytes_whose_sums_decay_at_other_rates_are_refused(
    recommender: Recommender, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = recommender.start("u1").to_bytes()
    monkeypatch.setattr("marsrec.nn.readouts.mars.nodes", lambda: 1.001 * nodes())
    recommender.network = recommender.network  # as after loading it by another version
    try:
        if recommender.settings.readout.name == "mars" and recommender.network.recurrent:
            with pytest.raises(DataError, match="belongs to another model"):
                recommender.restore(data)
        else:
            assert recommender.restore(data).to_bytes() == data
    finally:
        monkeypatch.undo()
        recommender.network = recommender.network
    assert recommender.restore(data).to_bytes() == data


def test_an_interrupted_history_leaves_the_session_as_it_was(
    recommender: Recommender, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = recommender.start([("i3", START)])
    before, add = session.to_bytes(), session.past.add
    monkeypatch.setattr("marsrec.recommender.session.PIECE", 2)
    pieces = iter(range(10))

    def interrupted(codes: torch.Tensor, times: torch.Tensor) -> None:
        add(codes, times)
        if next(pieces) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(session.past, "add", interrupted)
    codes, times = np.array([4, 5, 6, 7, 8]), START + np.arange(5)
    with pytest.raises(KeyboardInterrupt):
        session.extend(codes, times)
    assert session.to_bytes() == before
    session.extend(codes, times)
    assert (session.events, session.latest) == (6, START + 4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_session_in_half_precision_keeps_its_size(recommender: Recommender, dtype: torch.dtype) -> None:
    if recommender.settings.encoder.name != "mamba":
        pytest.skip("a state in more than half precision is the state space's")
    whole = recommender.network
    try:
        recommender.network = copy.deepcopy(whole).to(dtype)
        session = recommender.start([("i3", START), ("i7", START + 60)])
        data = session.to_bytes()
        assert len(data) == recommender.start().nbytes
        restored = recommender.restore(data)
        assert torch.equal(restored.vector(), session.vector())
        found = session.vector().float()
    finally:
        recommender.network = whole
    expected = recommender.start([("i3", START), ("i7", START + 60)]).vector()
    near = 0.02 if dtype == torch.float16 else 0.1
    torch.testing.assert_close(found, expected, rtol=near, atol=near)


def test_bad_events(recommender: Recommender) -> None:
    session = recommender.start([("i1", START)])
    with pytest.warns(UserWarning, match="unknown item 'tea' was skipped") as told:
        assert not session.add("tea", START + 1)
    assert told[0].filename == __file__  # the caller's line, and none of marsrec
    with pytest.raises(DataError, match=f"an event at {START - 1} s after one at {START} s: .* in order of time"):
        session.add("i2", START - 1)
    with pytest.raises(DataError, match=f"an event at {START + 1} s after one at {START + 2} s"):
        session.extend(np.array([1, 2]), np.array([START + 2, START + 1]))
    for moment in (2**70, 2**55, -5, float("nan"), "2500-01-01", "1960-01-01"):
        with pytest.raises(SettingsError, match="before 1970 or after 2100 in the log's unit, s"):
            session.add("i2", moment)
    for moment in (True, None, "yesterday", pd.NaT):
        with pytest.raises(SettingsError, match="a moment is a number"):
            session.add("i2", moment)
    with pytest.raises(DataError, match="one raw id"):
        session.add(["i2"], START + 1)
    with pytest.raises(SettingsError, match=r"looks like a date\. Write it as 2020-01-05"):
        session.add("i2", 20200105)
    assert session.events == 1
    with pytest.raises(DataError, match=r"the bytes of its to_bytes\(\); found str"):
        recommender.restore("abc")
    assert session.add("i2", "2030-01-01")


def test_a_number_is_read_in_the_unit_that_makes_it_a_time_of_our_days(recommender: Recommender) -> None:
    expected = recommender.start([("i1", START), ("i2", START + 60)])
    milliseconds = recommender.start([("i1", START * 1000), ("i2", str(START * 1000 + 60_000))])
    nanoseconds = recommender.start([("i1", float(START))])
    nanoseconds.add("i2", (START + 60) * 10**9)
    assert milliseconds.to_bytes() == expected.to_bytes()
    assert nanoseconds.latest == expected.latest
    torch.testing.assert_close(nanoseconds.vector(), expected.vector(), rtol=1e-4, atol=1e-5)


def test_users_of_a_log_in_recboles_order() -> None:
    times = [START, START + 50, START + 20, START + 300]  # RecBole keeps file order where float32 rounds to the same
    log = pl.DataFrame({"user": ["a"] * 4, "item": ["x", "y", "z", "x"], "time": times})
    training = TrainingSettings(epochs=1)
    recommender = Recommender("sasrec", options={"dim": 8}, training=training).fit(log, ties="recbole", progress=False)
    session = recommender.start("a")
    assert (session.events, session.latest) == (4, START + 300)
    in_order = recommender.start([("x", START), ("y", START + 1), ("z", START + 2), ("x", START + 3)])
    assert torch.equal(session.vector(), in_order.vector())


def test_a_session_does_not_outlive_its_model() -> None:
    fitted = Recommender("mamba4rec", options={"dim": 8}, training=QUICK).fit(cyclic_log(), progress=False)
    session = fitted.start("u1")
    fitted.fit(cyclic_log(seed=1), progress=False)
    uses = (session.recommend, session.vector, session.to_bytes, lambda: session.add("i1", START))
    for use in uses:
        with pytest.raises(DataError, match="fitted again since this session began"):
            use()
    session, other = fitted.start("u1"), copy.deepcopy(fitted.network)
    with torch.no_grad():
        other.items.weight[1] += 1
    fitted.network = other
    with pytest.raises(DataError, match="fitted again since this session began"):
        session.vector()


def test_a_session_without_events_gets_the_popular_ones(recommender: Recommender) -> None:
    session = recommender.start()
    assert session.recommend(k=3)["source"].unique().to_list() == ["popularity"]
    with pytest.raises(DataError, match="Add an event first"):
        session.vector()
    with pytest.raises(DataError, match="a session is of one user; this history has 60"):
        recommender.start(cyclic_log())


def test_asked_later_on_the_request_clock() -> None:
    """Through the session's own front door, in a log of milliseconds, after saving and loading."""
    log = cyclic_log().with_columns(time=pl.col("time") * 1000)
    options = {"dim": 16, "readout.clock": "request", "length": 50}
    fitted = Recommender("mars-m", options=options, training=QUICK).fit(log, progress=False)
    assert fitted.unit == "ms"
    end = int(log["time"].max())
    session = fitted.start("u1")
    for at in (None, end + 1, "2031-01-01"):
        live, whole = session.recommend(k=5, at=at), fitted.recommend("u1", k=5, at=at)
        assert live["item"].to_list() == whole["item"].to_list()
        assert np.allclose(live["score"], whole["score"], atol=1e-3)
    with pytest.raises(DataError, match="earlier than an event"):
        session.recommend(at="2001-01-01")


def test_heads_too_steep_for_the_mixture_are_answered_from_the_latest_events(recommender: Recommender) -> None:
    if recommender.settings.encoder.name != "mamba" or recommender.settings.readout.name != "mars":
        pytest.skip("this model does not stream in any case, or has no heads")
    operator = recommender.network.readout.operator
    before = operator.raw_rates.clone()
    try:
        with torch.no_grad():
            operator.raw_rates[0] = 30_000.0
        session = recommender.start("u1")
        assert isinstance(session.past, LatestEvents)
        whole = recommender.recommend("u1", k=5)
        assert np.allclose(session.recommend(k=5)["score"], whole["score"], atol=1e-5)
    finally:
        with torch.no_grad():
            operator.raw_rates.copy_(before)
