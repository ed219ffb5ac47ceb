"""Refusal: how a processor says no."""

from orbitmq.errors import OrbitError


class Refusal(OrbitError):  # noqa: N818  (it is an answer, not a failure of ours)
    """A request is answered with this code and remark. Raise it anywhere in a processor."""

    def __init__(self, code: int, remark: str, *, fields: dict[str, str] | None = None) -> None:
        self.code, self.remark, self.fields = code, remark, fields
        super().__init__(f"answer code {code}: {remark}")
