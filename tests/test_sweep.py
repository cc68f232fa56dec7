"""Many runs over a grid of settings."""

import os
import threading

import joblib
import pytest

import tinyserve as ts
from tinyserve.sweep import in_order, sweep

CHATS = ts.invented_chats(60)


def test_a_row_is_the_report_of_its_setting():
    rows = sweep(CHATS, rate=[20, 60], pages=[60, 120], limit=[4, 8], order=[0, 3], progress=False)
    assert len(rows) == 16 and rows["error"].isna().all()
    for row in rows.itertuples():
        chats = (CHATS.shuffled(3) if row.order else CHATS).at_rate(row.rate)
        expected = ts.report(ts.serve(chats, row.pages, row.limit))
        for field, value in zip(ts.Report._fields, expected):
            got = getattr(row, field)
            assert got == value or (value is None and got != got), field
    first = rows[["rate", "pages", "limit", "order"]].head(3).values.tolist()
    assert first == [[20, 60, 4, 0], [20, 60, 4, 3], [20, 60, 8, 0]]


def test_the_number_of_workers_changes_nothing():
    grid = {"rate": [20, 60], "pages": [60, 120], "progress": False}
    one, two = sweep(CHATS, **grid, jobs=1), sweep(CHATS, **grid, jobs=2)
    assert one.equals(two)
    for backend in ("threading", "loky"):
        with joblib.parallel_config(backend, n_jobs=2):
            assert sweep(CHATS, **grid, jobs=None).equals(one)


def where(run):
    """A column that says which process and thread served the run."""
    return {"where": f"{os.getpid()} {threading.current_thread().name}"}


def test_a_dask_cluster_can_do_the_work():
    distributed = pytest.importorskip("distributed", reason="no dask: pip install distributed")
    grid = {"rate": [20, 60], "pages": [60, 10, 120], "progress": False}
    # One process, no ports: the scheduler and its two workers are threads of this one.
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config("dask"),
    ):
        rows = sweep(CHATS, **grid, also=where)
    places = rows.pop("where").dropna()
    assert places.str.contains("Dask").all() and len(places) == 4
    assert rows.equals(sweep(CHATS, **grid, jobs=1))


@pytest.mark.parametrize("order", [[0], [0, 2, 9]])
def test_repeats_give_a_range(order):
    rows = sweep(CHATS, rate=[20, 60], limit=[4, 8], order=order, repeat=3, jobs=1, progress=False)
    plain = sweep(CHATS, rate=[20, 60], limit=[4, 8], order=order, jobs=1, progress=False)
    assert rows[plain.columns].equals(plain)
    for row in rows.itertuples():
        orders = {row.order, 1, 2, 3}
        assert row.draws == len(orders)
        reports = [
            ts.report(ts.serve(in_order(CHATS, each).at_rate(row.rate), row.pages, row.limit))
            for each in orders
        ]
        for name in ("ttft_p99", "tbt_p99", "mean_tbt_p99"):
            draws = [getattr(report, name) for report in reports]
            low, high = getattr(row, f"{name}_low"), getattr(row, f"{name}_high")
            assert (low, high) == (min(draws), max(draws))
            assert low <= getattr(row, name) <= high
    assert (rows["ttft_p99_low"] < rows["ttft_p99_high"]).all()  # the orders do differ


def test_a_range_of_nothing():
    one_token = ts.Workload([0, 1], [5, 7], [1, 1], rate=1)
    rows = sweep(one_token, pages=[1, 9], limit=[0, 2], repeat=2, jobs=1, progress=False)
    assert rows["draws"].tolist() == [0, 3, 0, 3]
    assert rows["tbt_p99_low"].isna().all() and rows["tbt_p99_high"].isna().all()
    assert rows["ttft_p99_low"].notna().tolist() == [False, True, False, True]
    for bad in (-1, 1.5, True):
        with pytest.raises(ValueError, match="repeat must be"):
            sweep(CHATS, repeat=bad)


def test_values_that_are_equal_and_not_the_same():
    rows = sweep(CHATS, pages=[60], limit=[1, True, 1.0], jobs=1, progress=False)
    assert rows["error"].isna().tolist() == [True, False, True]


def test_a_setting_that_fails_is_reported_and_loses_nothing():
    rows = sweep(CHATS, pages=[10, 120], limit=[0, 4], progress=False, jobs=1)
    errors = rows["error"].tolist()
    assert "more than the 10 of the whole pool" in errors[1]
    assert "limit must be" in errors[0] or "whole pool" in errors[0]
    assert "limit must be a whole number of at least 1, not 0" in errors[2]
    assert rows["error"].isna().tolist() == [False, False, False, True]
    assert rows["ttft_p99"].iloc[3] == ts.report(ts.serve(CHATS, 120, 4)).ttft_p99


def test_a_fault_of_the_code_is_not_a_failed_setting():
    with pytest.raises(TypeError, match="unknown"):
        sweep(CHATS, unknown=1, jobs=1, progress=False)
    with pytest.raises(KeyError):
        sweep(CHATS, also=lambda run: {}[0], jobs=1, progress=False)


def test_options_reach_the_server():
    chip = ts.Chip("slow", peak=3e13, bandwidth=1e11, memory=8e9)
    rows = sweep(CHATS, page_size=8, chip=chip, jobs=1, progress=False)
    report = ts.report(ts.serve(CHATS, 240, 16, page_size=8, chip=chip))
    assert rows["ttft_p99"].tolist() == [report.ttft_p99]
    # What `also` is given has the steps, unless another record is asked for.
    rows = sweep(CHATS, record="summary", also=lambda run: {"kind": type(run.steps).__name__},
                 jobs=1, progress=False)  # fmt: skip
    assert rows["kind"].tolist() == ["Summary"]


def test_further_columns():
    rows = sweep(CHATS, pages=[60], also=lambda run: {"steps": len(run.steps)}, progress=False)
    assert rows["steps"].tolist() == [len(ts.serve(CHATS, 60, 16).steps)]


def test_progress_is_shown_and_can_be_silenced(capfd):
    sweep(CHATS, pages=[60, 70], jobs=1)
    assert "2/2" in capfd.readouterr().err
    sweep(CHATS, pages=[60, 70], jobs=1, progress=False)
    assert capfd.readouterr().err == ""


def test_nothing_to_do_is_an_error():
    with pytest.raises(ValueError, match="pages, order"):
        sweep(CHATS, pages=[], order=[])


def test_orders():
    assert in_order(CHATS, 0) is CHATS and in_order(CHATS, 2) == CHATS.shuffled(2)
    with pytest.raises(ValueError, match="-1"):
        in_order(CHATS, -1)
