"""Off preset: all operators denied. A base for policies that allow single nodes or regions."""

from mezzo.tables.policy import Category, Policy, rule

POLICY = Policy(
    name="off",
    also=(
        "none",
        "nothing",
    ),
    summary="nothing low; a base to allow single operators or nodes on",
    rules=(rule("off", Category.DENY, "the policy changes nothing"),),
    findings=frozenset(),
    otherwise=Category.DENY,
    promotes_untroubled=False,
)
