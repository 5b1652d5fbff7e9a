"""What may be spent on models: a day, and on one message, in calls and in euros. What was spent is the caller's to count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from atlas_pipeline.ai.routing import BudgetSpec
from atlas_pipeline.errors import InvalidAnswer, ProviderUnavailable


@dataclass(frozen=True)
class Spent:
    """Paid calls and their price in euros, as far as it is known."""

    calls: int = 0
    euros: float = 0.0


def nothing(_message_key: str | None) -> Spent:
    """Where nobody counts."""
    return Spent()


@dataclass(frozen=True)
class Budget:
    """The limits, and ``spent``: on the message with this key, or by all calls of today for None."""

    limits: BudgetSpec
    spent: Callable[[str | None], Spent] = nothing

    def check(self, message_key: str | None, *, day: int = 0, message: int = 0) -> None:
        """Before a paid call; ``day`` and ``message`` are calls under way that ``spent`` does not know of yet.

        Raises ProviderUnavailable("ai_budget_of_day_spent"): the mail waits for tomorrow. InvalidAnswer
        ("ai_budget_of_message_spent"): no further call will bring one; a person looks at the mail.
        """
        limits = self.limits
        if _over(self.spent(None), day, limits.calls_a_day, limits.euros_a_day):
            raise ProviderUnavailable("ai_budget_of_day_spent")
        if message_key is None or (limits.calls_a_message, limits.euros_a_message) == (None, None):
            return
        if _over(self.spent(message_key), message, limits.calls_a_message, limits.euros_a_message):
            raise InvalidAnswer("ai_budget_of_message_spent")


def _over(spent: Spent, under_way: int, calls: int | None, euros: float | None) -> bool:
    return (calls is not None and spent.calls + under_way >= calls) or (euros is not None and spent.euros >= euros)
