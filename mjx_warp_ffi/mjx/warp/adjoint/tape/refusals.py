"""The words in which the backward pass refuses what it has no rule for."""

_MESSAGE = "no analytic gradient for: {}. Differences have one: gradient='fd'"


def refuse(found: list[str]) -> None:
  """Raises NotImplementedError if there is something without a rule, by its name."""
  if found:
    raise NotImplementedError(_MESSAGE.format(", ".join(found)))
