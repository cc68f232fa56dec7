"""Many runs over a grid of settings."""

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
    with joblib.parallel_config("threading"):
        assert sweep(CHATS, **grid).equals(one)


def test_a_setting_that_fails_is_reported_and_loses_nothing():
    rows = sweep(CHATS, pages=[10, 120], limit=[0, 4], progress=False, jobs=1)
    errors = rows["error"].tolist()
    assert "more than the 10 of the whole pool" in errors[1]
    assert "limit must be" in errors[0] or "whole pool" in errors[0]
    assert "limit must be a whole number of at least 1, not 0" in errors[2]
    assert rows["error"].isna().tolist() == [False, False, False, True]
    assert rows["ttft_p99"].iloc[3] == ts.report(ts.serve(CHATS, 120, 4)).ttft_p99


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
