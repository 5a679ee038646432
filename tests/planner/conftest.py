"""The planner knows the operators of the toy dialect in every test of this folder."""

import pytest
import toy_dialect

import mezzo.planner.planner
import mezzo.planner.verdicts.rules
from mezzo.tables.ops import op_facts


@pytest.fixture(autouse=True)
def _toy_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {toy_dialect.DIALECT: toy_dialect.FACTS}
    for module in (mezzo.planner.planner, mezzo.planner.verdicts.rules):
        monkeypatch.setattr(module, "op_facts", lambda dialect: tables.get(dialect) or op_facts(dialect))
