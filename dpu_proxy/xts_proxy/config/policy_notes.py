"""Finds rules of the policy and of names that decide nothing, because an earlier one covers everything that they name.
Used by --check.

Only certain cases are noted: one earlier rule that covers everything, not several together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xts_messages.settings.toml_positions import Path

from xts_proxy.config.config import Config, Rule
from xts_proxy.config.config_names import NameRule
from xts_proxy.config.config_values import Ranges
from xts_proxy.config.policy_explained import means_own


def notes(config: Config) -> Iterator[tuple[Path, str]]:
    """The notes, each with the path of its rule."""
    rules = config.policy.rule
    for later, rule in enumerate(rules):
        for earlier, above in enumerate(rules[:later]):
            if _takes(above, rule):
                yield ("policy", "rule", later), _sentence(f"policy.rule[{earlier}]", above, rule)
                break
    names = config.names.rule
    for later, name in enumerate(names):
        for earlier, one in enumerate(names[:later]):
            if _takes_names(one, name):
                yield ("names", "rule", later), f"never decides: names.rule[{earlier}] above takes all that it names"
                break


def _sentence(where: str, above: Rule, rule: Rule) -> str:
    if above.action in (rule.action, "deny"):
        return f"never decides: {where} above takes all that it names"
    return f"denies none of the addresses that it names, except the device's own: {where} above allows all of them"


def _takes(above: Rule, rule: Rule) -> bool:
    return (
        above.what in ("both", rule.what)
        and _of_all_tenants(above.tenants, rule.tenants)
        and _covers(above.queues, rule.queues)
        and _covers(above.ports, rule.ports)
        and _takes_network(above, rule)
    )


def _of_all_tenants(above: Sequence[str], below: Sequence[str]) -> bool:
    return not above or (bool(below) and set(below) <= set(above))


def _covers(above: Ranges, below: Ranges) -> bool:
    """Is each number in `below` also in `above`?"""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(above.pairs):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return all(any(begin <= first and last <= end for begin, end in merged) for first, last in below.pairs)


def _takes_network(above: Rule, rule: Rule) -> bool:
    """policy.decide() defines what a rule covers: an allow rule leaves out the device's own addresses unless it names
    them."""
    network, own = rule.network.network, rule.network.own or means_own(rule)
    if above.network.own:
        return rule.network.own or (own and rule.action == "allow")
    if above.network.network is None:
        return above.action == "deny" or not own
    if network is None or network.version != above.network.network.version:
        return False
    if not network.subnet_of(above.network.network):  # type: ignore[arg-type]
        return False
    return above.action == "deny" or means_own(above) or not own


def _takes_names(above: NameRule, rule: NameRule) -> bool:
    if not _of_all_tenants(above.tenants, rule.tenants):
        return False
    if not above.domains:
        return True
    return bool(rule.domains) and all(any(_within(d.wire, a.wire) for a in above.domains) for d in rule.domains)


def _within(inner: bytes, outer: bytes) -> bool:
    """Is the inner name equal to the outer one, or below it? Both in DNS wire format."""
    while len(inner) > len(outer):
        inner = inner[1 + inner[0] :]
    return inner == outer
