"""Findings of structure rules and of data, applied to verdicts: denials and lifted denials."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import assert_never

from mezzo.analysis.structure import KEPT_ANYWAY, StructureView, rules_of, structure_rules
from mezzo.analysis.structure.estimated import ESTIMATED, notes_of
from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.common.name_matching import aside, did_you_mean
from mezzo.formats.dtypes import DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Signature, port_of
from mezzo.plugins.discovery import op_facts
from mezzo.tables.policy import (
    Category,
    Evidence,
    Finding,
    Lift,
    Lifting,
    NamedFinding,
    NodeVerdict,
    Policy,
)


def lift_rules(
    graph: Graph,
    verdicts: list[NodeVerdict],
    policy: Policy,
    low: DType,
    lifted: Mapping[str, Evidence],
) -> None:
    """Lift denials of nodes whose measured values fit. `lifted`: evidence by node name."""
    by_signature: dict[Signature, NodeVerdict] = {}
    for name, evidence in lifted.items():
        node = graph.nodes[graph.by_name[name]] if name in graph.by_name else None
        if (
            node is None
            or not evidence.fits
            or node.kind is not Kind.OP
            or node.signature.dtype is None
        ):
            continue
        signature = node.signature
        if signature not in by_signature:
            row = op_facts(signature.dialect).get(signature.op)
            by_signature[signature] = policy.judge(
                (signature.dialect, signature.op), row, low, lifts=True
            )
        verdict = by_signature[signature]
        if verdict.lift is not None:
            verdicts[node.id] = replace(
                verdict, lift=replace(verdict.lift, because=evidence.because)
            )


def deny_suspected(
    view: StructureView, verdicts: list[NodeVerdict], policy: Policy, lifted: Mapping[str, Evidence]
) -> None:
    """Deny nodes by structure rules, except where data lifts the finding. `lifted`: evidence by
    node name.

    Under every policy, nodes that hold or use a constant past the range are denied, though not the
    nodes after them.
    """
    structural = {rule.name for rule in structure_rules()}
    asked = rules_of(policy)
    for rule in structure_rules():
        is_asked = rule in asked
        if not is_asked and rule.name not in KEPT_ANYWAY:
            continue
        for finding in rule.findings(view):
            if is_asked or (
                finding.cause is None and verdicts[finding.node].category is not Category.DENY
            ):
                _deny(
                    view.graph,
                    verdicts,
                    structural,
                    finding,
                    finding.lifting or rule.lifting,
                    lifted,
                )


def _deny(
    graph: Graph, verdicts: list[NodeVerdict], structural: Set[str], finding: Finding,
    lifting: Lifting, lifted: Mapping[str, Evidence],
) -> None:  # fmt: skip
    """Deny the node of a finding. The first finding wins and overrides the operator's own rule."""
    current, node = verdicts[finding.node], graph.nodes[finding.node]
    if current.rule in structural or node.signature.dtype is None:
        return
    evidence = lifted.get(node.name)
    if evidence is None or not _lifts(lifting, evidence):
        verdicts[finding.node] = NodeVerdict(
            category=Category.DENY, rule=finding.rule, because=finding.because, cause=finding.cause
        )
    elif current.lift is None and current.category is not Category.DENY:
        verdicts[finding.node] = replace(current, lift=Lift(finding.rule, evidence.because))


def _lifts(lifting: Lifting, evidence: Evidence) -> bool:
    """Whether the evidence on a node is enough to run it low despite a finding."""
    match lifting:
        case Lifting.NEVER:
            return False
        case Lifting.BY_RANGES:
            return evidence.fits
        case Lifting.BY_OUTPUTS:
            return True
        case _:
            assert_never(lifting)


def deny_measured(
    graph: Graph, verdicts: list[NodeVerdict], found: Sequence[NamedFinding], low: DType
) -> None:
    """Deny nodes that failed in `low` on data; these findings override all rules."""
    for finding in found:
        if finding.dtype not in (None, low):
            continue
        number = graph.by_name.get(finding.node)
        if number is not None and graph.nodes[number].signature.dtype is not None:
            cause = None if finding.cause is None else graph.by_name.get(finding.cause)
            verdicts[number] = NodeVerdict(
                category=Category.DENY, rule=finding.rule, because=finding.because, cause=cause
            )


def check_assumed(graph: Graph, assumed: Mapping[str, tuple[float, float]]) -> None:
    """Raises InputError: a name is not an input of the model."""
    inputs = sorted(port_of(node) for node in graph.nodes if node.kind is Kind.INPUT)
    for name in assumed:
        if name not in inputs:
            asked = aside(did_you_mean(name, inputs, 1))
            raise InputError(
                f"{option('assume')} {name!r} is no input of the model{asked}; choose one of"
                f" {', '.join(inputs)}"
            )


def notes_on_estimates(view: StructureView, policy: Policy) -> tuple[str, ...]:
    """Notes on the assumptions behind a policy's estimated findings."""
    if policy.findings is not None and not policy.findings & ESTIMATED:
        return ()
    return notes_of(view)
