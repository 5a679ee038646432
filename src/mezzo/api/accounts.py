"""Accounts and reports as files, and two of them as one account."""

import os
from collections.abc import Mapping
from typing import Any

from mezzo.api.outlines import outline_plans
from mezzo.common.documents import parse_json
from mezzo.common.errors import InputError
from mezzo.common.safe_paths import read_file
from mezzo.contracts.plans import Plan
from mezzo.io.planfile import load_plan
from mezzo.report.html.packing import find_account
from mezzo.report.records.account_pair import AccountPair, describe_plans, join_accounts

_MAX_BYTES = 1 << 28
_FORMAT = "mezzo-account/1"
Path = str | os.PathLike[str]


def load_decided(path: Path) -> Plan | Mapping[str, Any]:
    """A saved plan; or the account in a report of mezzo's, or in the JSON that `--json` printed.

    Raises InputError: the file cannot be read, or is none of these.
    """
    account = _find_account(path)
    return load_plan(path) if account is None else account


def _find_account(path: Path) -> Mapping[str, Any] | None:
    try:
        data = read_file(path, _MAX_BYTES)
        text = "" if data is None else data.decode("utf-8", "replace")
        is_page = text.startswith("<!DOCTYPE html>")
        account = find_account(text) if is_page else parse_json(text) if text else None
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror}; give a file") from error
    except ValueError as error:
        if is_page:
            raise InputError(f"{str(path)!r} is no report of mezzo's: {error}") from error
        return None  # the reader of plans says what is wrong with it
    is_account = isinstance(account, dict) and account.get("format") == _FORMAT
    return account if is_account else None


def pair_accounts(
    paths: tuple[str, str], accounts: tuple[Mapping[str, Any], Mapping[str, Any]]
) -> AccountPair:
    """Two accounts as one, side by side. Raises InputError: they do not fit together."""
    try:
        return join_accounts(paths, accounts)
    except ValueError as error:
        raise InputError(str(error)) from error


def pair_plans(
    paths: tuple[str, str], plans: tuple[Plan, Plan], model: Path, *, trust_external_paths: bool
) -> AccountPair:
    """Two plans of a model as one account, side by side. Errors are those of `casts_of_plan`."""
    outline = outline_plans(
        model, dict(zip(paths, plans, strict=True)), trust_external_paths=trust_external_paths
    )
    return describe_plans(paths, plans, outline)
