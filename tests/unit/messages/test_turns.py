"""Users are served by turns: whatever the requests and their order, nobody waits for two of another user's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from xts_messages.attaching.turns import Turns

USERS = st.integers(0, 4)


@given(st.lists(st.one_of(st.tuples(st.just("asks"), USERS), st.just(("is served", 0)), st.just(("leaves", 0)))))
def test_between_a_request_and_its_user_s_turn_others_have_one_turn_each(steps: list[tuple[str, int]]) -> None:
    turns: Turns[int] = Turns()
    came: dict[int, tuple[int, dict[int, int]]] = {}  # requests: the user, and the turns of others since
    fronts: dict[int, dict[int, int]] = {}  # users that wait: how often each other user was served meanwhile
    for number, (step, user) in enumerate(steps):
        if step == "asks":
            turns.add(user, number)
            came[number] = (user, {})
            fronts.setdefault(user, {})
        elif came and step == "leaves":
            gone = max(came)
            turns.discard(came[gone][0], gone)
            fronts = {u: f for u, f in fronts.items() if turns.of(u)}
            del came[gone]
        elif came:
            served = turns.users()[0]
            request = turns.of(served)[0]
            assert request == min(n for n, (u, _) in came.items() if u == served), "in their order"
            turns.discard(served, request)
            turns.served(served)
            del came[request]
            fronts.pop(served)
            if turns.of(served):
                fronts[served] = {}
            for others in fronts.values():
                others[served] = others.get(served, 0) + 1
                assert others[served] <= 1 or served in [u for u, f in fronts.items() if f is others]
        assert len(turns) == len(came) == len(set(turns))
        assert set(turns.users()) == {u for u, _ in came.values()}


def test_users_that_were_never_served_are_next() -> None:
    turns: Turns[str] = Turns()
    for uid in (1, 2):
        turns.served(uid)
        turns.add(uid, f"of {uid}")
    turns.add(3, "of 3")
    assert turns.users() == [3, 1, 2]
