"""What the tests of formats share: the kernels in both forms."""

import pytest

from orbitmq.format.kernels import Kernels, compiled, plain


@pytest.fixture(scope="module", params=["plain", "compiled"])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return plain() if request.param == "plain" else compiled()
